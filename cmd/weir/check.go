package main

import (
	"fmt"

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
			for _, p := range f.Pools {
				engines += len(p.Engines)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is right: %d front-ends, %d pools with %d engines, %d classes\n",
				name, len(f.FrontEnds), len(f.Pools), engines, len(f.Classes))
			return err
		},
	}
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
