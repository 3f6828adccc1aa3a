package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"weir/deploy/demo"
	"weir/deploy/stage"
)

// demoFleet is the fleet file of the talk's example, as the repository has it.
const demoFleet = "testdata/fleets/talk.yaml"

func newDemo() *cobra.Command {
	o := demo.Options{}
	var engines string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the talk's example on this machine, with real Envoys",
		Args:  args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := complete(&o, engines); err != nil {
				return err
			}
			// Whose terminal is closed leaves no fleet behind.
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			return demo.Run(ctx, c.OutOrStdout(), o)
		},
	}
	c.Flags().StringVar(&o.Envoy, "envoy", "", "the Envoy `binary` (default: $WEIR_ENVOY, else .venv/bin/envoy)")
	c.Flags().StringVar(&o.FleetFile, "fleet", demoFleet, "the fleet `file` to stage")
	c.Flags().DurationVar(&o.Length, "for", demo.DefaultLength, "how long all acts last together")
	c.Flags().Float64Var(&o.Scale, "scale", 0, "factor on all rates (default: what fits two cores)")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "of the conversations' names, which decide where each goes (default: another each time)")
	c.Flags().StringVar(&engines, "engines", "mock", "the engines to `run`: mock, or llama for llama.cpp")
	return c
}

// complete finds the parts of the demo, and says what to do where one is missing.
func complete(o *demo.Options, engines string) error {
	if _, err := os.Stat(o.FleetFile); err != nil {
		if o.FleetFile == demoFleet {
			return fmt.Errorf("--fleet: %w: run 'make demo' in the repository, or say which fleet file", err)
		}
		return fmt.Errorf("--fleet: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Bin = filepath.Dir(self)
	o.Seed = cmp.Or(o.Seed, uint64(rand.Uint32()))
	o.Envoy = cmp.Or(o.Envoy, os.Getenv("WEIR_ENVOY"), ".venv/bin/envoy")
	parts := []string{o.Envoy, filepath.Join(o.Bin, "weir-extproc"), filepath.Join(o.Bin, "mock-engine")}
	switch engines {
	case "mock":
	case "llama":
		o.Llama = &stage.Llama{Python: cmp.Or(os.Getenv("WEIR_PYTHON"), ".venv/bin/python"), Script: "tools/llama-engine", Flags: []string{"--context", "32768", "--parallel", "8"}}
		parts = append(parts, o.Llama.Python, o.Llama.Script)
	default:
		return usage("unknown engines %q: write mock or llama", engines)
	}
	for _, path := range parts {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run 'make demo' in the repository, which sets everything up", err)
		}
	}
	return nil
}
