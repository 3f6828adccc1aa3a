package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"weir/envoy"
)

func newBootstrap() *cobra.Command {
	var l envoy.Local
	var static bool
	var state, output string
	var heapMiB uint64
	c := &cobra.Command{
		Use:   "bootstrap --front-end NAME --node-id ID --xds ADDR --extproc ADDR|SOCKET",
		Short: "Print the bootstrap of one Envoy",
		Args:  args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLocal(l, static, state); err != nil {
				return err
			}
			if heapMiB == 0 || heapMiB > maxHeapMiB || l.MaxConnections == 0 {
				return usage("--max-heap wants 1 to %d MiB, --max-connections 1 at least", maxHeapMiB)
			}
			l.MaxHeapBytes = heapMiB << 20
			text, err := renderBootstrap(l, static, state)
			if err != nil {
				return err
			}
			return deliver(c.OutOrStdout(), output, text)
		},
	}
	c.Flags().StringVar((*string)(&l.FrontEnd), "front-end", "", "`name` of the front-end in the fleet file")
	c.Flags().StringVar(&l.NodeID, "node-id", "", "`id` of this Envoy, unique among all; its weir-extproc uses the same")
	c.Flags().StringVar(&l.XDS, "xds", "", "`host:port` of the control plane")
	c.Flags().StringVar(&l.ExtProc, "extproc", "", "`ip:port` of this Envoy's weir-extproc, or the absolute path of its Unix socket")
	c.Flags().StringVar(&l.Admin, "admin", "127.0.0.1:9901", "`ip:port` of Envoy's admin interface")
	c.Flags().Uint64Var(&heapMiB, "max-heap", envoy.DefaultMaxHeapBytes>>20, "`MiB` of memory that Envoy may use: near it, it refuses requests, and then resets the largest")
	c.Flags().Uint32Var(&l.MaxConnections, "max-connections", envoy.DefaultMaxConnections, "`number` of clients' connections at once")
	c.Flags().BoolVar(&static, "static", false, "print one complete file of the last plan, which needs no control plane")
	c.Flags().StringVar(&state, "state", "", "state `directory` of the control plane that made the plan, for --static")
	c.Flags().StringVar(&output, "output", "", "`file` to write instead of standard output: where there is no shell to redirect it, as in a container")
	return c
}

// deliver writes a file's text, or prints it where no file is named.
func deliver(out io.Writer, file string, text []byte) error {
	if file != "" {
		return os.WriteFile(file, text, 0o644)
	}
	_, err := out.Write(text)
	return err
}

// maxHeapMiB is beyond any machine: more is a slip.
const maxHeapMiB = 1 << 24

func checkLocal(l envoy.Local, static bool, state string) error {
	switch {
	case l.FrontEnd == "" || l.NodeID == "" || l.ExtProc == "" || l.XDS == "" && !static:
		return usage("bootstrap needs --front-end, --node-id, --xds and --extproc")
	case static != (state != ""):
		return usage("bootstrap takes --static and --state together")
	}
	return nil
}

func renderBootstrap(l envoy.Local, static bool, state string) ([]byte, error) {
	if static {
		return staticBootstrap(state, l)
	}
	return envoy.Bootstrap(l)
}
