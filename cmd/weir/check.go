package main

import (
	"fmt"
	"slices"
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is right: %d front-ends, %d pools with %d engines, %d classes\n%s%s",
				name, len(f.FrontEnds), len(f.Pools), engines, len(f.Classes), doubtful(f), unchecked(f))
			return err
		},
	}
}

// doubtful names what a right file asks for that can never be.
func doubtful(f *fleet.Fleet) string {
	var out strings.Builder
	for _, doubt := range append(config.Doubts(f), refusing(f)...) {
		fmt.Fprintf(&out, "doubtful: %s\n", doubt)
	}
	return out.String()
}

// refusing says what the plan for the declared demand refuses, where all engines are
// known.
func refusing(f *fleet.Fleet) []string {
	if slices.ContainsFunc(f.Pools, func(p fleet.Pool) bool { return p.Discovery != nil }) {
		return nil
	}
	plan, err := makePlan(fleet.Declared(f))
	switch {
	case err != nil:
		return []string{"no plan can be made for the declared demand: " + err.Error()}
	case plan.Status != fleet.Shedding:
		return nil
	}
	return []string{fmt.Sprintf("with a headroom of %.4g %% the declared demand cannot be served: %s", 100*f.Options.Headroom, plan.Why)}
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
