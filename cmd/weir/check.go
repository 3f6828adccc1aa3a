package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/config"
	"weir/fleet"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Say whether a fleet file is right, and what to mend",
		Args:  args("FILE"),
		RunE: func(c *cobra.Command, a []string) error {
			f, name, err := loadFleet(c, a[0])
			if err != nil {
				return err
			}
			engines := 0
			for i := range f.Pools {
				engines += len(f.Pools[i].Engines)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is right: %d front-ends, %d pools with %d engines, %d classes\n%s",
				name, len(f.FrontEnds), len(f.Pools), engines, len(f.Classes), unchecked(f))
			return err
		},
	}
}

// unchecked names the pools whose engines only the control plane asks for, from where
// it runs.
func unchecked(f *fleet.Fleet) string {
	var out strings.Builder
	for i := range f.Pools {
		if p := &f.Pools[i]; p.Discovery != nil {
			fmt.Fprintf(&out, "not checked: pool %q: its engines come from %s, which weir serve asks\n", p.ID, p.Discovery)
		}
	}
	return out.String()
}

// loadFleet reads the fleet file that a command names, and says what to call it.
func loadFleet(c *cobra.Command, file string) (f *fleet.Fleet, name string, err error) {
	if file == "-" {
		name = "standard input"
		f, err = config.LoadFrom(name, c.InOrStdin())
		return f, name, err
	}
	f, err = config.Load(file)
	return f, file, err
}
