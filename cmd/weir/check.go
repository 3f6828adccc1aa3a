package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"weir/config"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a fleet file is right, and what to mend",
		Args:  args("FILE"),
		RunE: func(c *cobra.Command, a []string) error {
			f, err := config.Load(a[0])
			if err != nil {
				return err
			}
			engines := 0
			for _, p := range f.Pools {
				engines += len(p.Engines)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is right: %d front-ends, %d pools with %d engines, %d classes\n",
				a[0], len(f.FrontEnds), len(f.Pools), engines, len(f.Classes))
			return err
		},
	}
}
