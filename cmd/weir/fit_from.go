package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/admin"
	"weir/fit"
	"weir/fleet"
)

// traffic is where a fit takes the history of a pool from.
type traffic struct {
	address string // empty: it takes files
	pool    fleet.PoolID
	timeout time.Duration
}

// check refuses flags that go with the other source.
func (t *traffic) check(given func(string) bool) error {
	with, without := []string{"tokens", "engines", "uncached"}, []string{"pool", "timeout"}
	if t.address == "" {
		if i := slices.IndexFunc(without, given); i >= 0 {
			return usage("--%s goes with --from", without[i])
		}
		return nil
	}
	if i := slices.IndexFunc(with, given); i >= 0 {
		return usage("--%s goes with files: of traffic the control plane knows it", with[i])
	}
	return nil
}

// fit makes a profile of a pool's traffic.
func (t *traffic) fit(c *cobra.Command, o fit.Options, plot string) error {
	ctx, cancel := context.WithTimeout(c.Context(), t.timeout)
	defer cancel()
	address := strings.TrimSuffix(strings.TrimPrefix(t.address, "http://"), "/")
	all, err := admin.FetchHistories(ctx, address, t.pool)
	if err != nil {
		return err
	}
	h, err := t.choose(all)
	if err != nil {
		return err
	}
	r, err := fit.FitHistory(h.Spans, h.Since, &h.Profile, o)
	if err != nil {
		return fmt.Errorf("pool %q: %w", h.Pool, err)
	}
	return showFit(c, r, plot)
}

// choose is the pool that was asked for, or the only one that has a history.
func (t *traffic) choose(all []admin.PoolHistory) (*admin.PoolHistory, error) {
	var names []string
	found := -1
	for i := range all {
		switch {
		case t.pool != "" && all[i].Pool == t.pool:
			return &all[i], nil
		case t.pool == "" && len(all[i].Spans) > 0:
			found = i
			names = append(names, string(all[i].Pool))
		case t.pool != "":
			names = append(names, string(all[i].Pool))
		}
	}
	switch {
	case t.pool != "":
		return nil, fmt.Errorf("there is no pool %q: it has %s", t.pool, strings.Join(names, ", "))
	case len(names) == 0:
		return nil, fmt.Errorf("no pool has a history yet: traffic must flow for some minutes, with engines ready and nothing penalised")
	case len(names) > 1:
		return nil, usage("say which one by --pool: %s", strings.Join(names, ", "))
	}
	return &all[found], nil
}
