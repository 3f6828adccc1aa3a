package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/envoy"
)

func newBootstrap() *cobra.Command {
	var l envoy.Local
	c := &cobra.Command{
		Use:   "bootstrap --front-end NAME --node-id ID --xds ADDR --extproc ADDR|SOCKET",
		Short: "Print the bootstrap of one Envoy",
		Args:  args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if l.FrontEnd == "" || l.NodeID == "" || l.XDS == "" || l.ExtProc == "" {
				return fmt.Errorf("%w%w", errors.New("bootstrap needs --front-end, --node-id, --xds and --extproc"), silent{errUsage})
			}
			text, err := envoy.Bootstrap(l)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().StringVar((*string)(&l.FrontEnd), "front-end", "", "`name` of the front-end in the fleet file")
	c.Flags().StringVar(&l.NodeID, "node-id", "", "`id` of this Envoy, unique among all; its weir-extproc uses the same")
	c.Flags().StringVar(&l.XDS, "xds", "", "`host:port` of the control plane")
	c.Flags().StringVar(&l.ExtProc, "extproc", "", "`ip:port` or Unix socket of this Envoy's weir-extproc")
	c.Flags().StringVar(&l.Admin, "admin", "127.0.0.1:9901", "`ip:port` of Envoy's admin interface")
	return c
}
