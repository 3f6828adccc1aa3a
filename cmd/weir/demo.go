package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"weir/deploy/demo"
)

func newDemo() *cobra.Command {
	o := demo.Options{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the talk's example on this machine, with real Envoys",
		Args:  args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := complete(&o); err != nil {
				return err
			}
			return demo.Run(c.Context(), c.OutOrStdout(), o)
		},
	}
	c.Flags().StringVar(&o.Envoy, "envoy", os.Getenv("WEIR_ENVOY"), "the Envoy `binary` (default: $WEIR_ENVOY, else .venv/bin/envoy)")
	c.Flags().StringVar(&o.FleetFile, "fleet", "testdata/fleets/talk.yaml", "the fleet `file` to stage")
	c.Flags().DurationVar(&o.Length, "for", demo.DefaultLength, "how long to send requests")
	c.Flags().Float64Var(&o.Scale, "scale", demo.DefaultScale, "factor on all rates, to fit this machine")
	return c
}

// complete finds the binaries of the demo, and says what to do where one is missing.
func complete(o *demo.Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Bin = filepath.Dir(self)
	if o.Envoy == "" {
		o.Envoy = ".venv/bin/envoy"
	}
	for _, path := range []string{o.Envoy, o.FleetFile, filepath.Join(o.Bin, "weir-extproc"), filepath.Join(o.Bin, "mock-engine")} {
		if _, err := os.Stat(path); err != nil {
			return errors.Join(err, fmt.Errorf("%s is missing: run 'make demo', which sets everything up", path))
		}
	}
	return nil
}
