package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"text/tabwriter"

	"weir/fleet"
)

// serving runs a control plane until the test ends.
func serving(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := testPlane(t)
	go func() { done <- p.run(ctx, l, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("served until %v", err)
		}
	})
	return l.Addr().String()
}

func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSnapshotOfAControlPlane(t *testing.T) {
	address := serving(t)
	out, err := command(t, "snapshot", "--front-end", "B", "--xds", address, "-o", "json", "--timeout", "30s")
	if err != nil {
		t.Fatal(err)
	}
	var s snapshot
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.FrontEnd != "B" || len(s.Classes) != 1 {
		t.Errorf("snapshot %+v, error %v", s, err)
	}
	_, err = command(t, "snapshot", "--front-end", "nobody", "--xds", address, "--timeout", "200ms")
	for _, want := range []string{address + " is there", `"nobody"`, "does not name this front-end", "no plan yet"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of an unknown front-end: error %v, want one with %q", err, want)
		}
	}
}

// Where no engine serves, nobody is admitted, whatever part the plan would let in.
func TestSnapshotWithoutEngines(t *testing.T) {
	view := func(of ...fleet.Readiness) *fleet.View {
		pool := fleet.ViewPool{ID: "p", Weight: fleet.WeightScale}
		for _, r := range of {
			pool.Engines = append(pool.Engines, fleet.ViewEngine{ID: "10.0.0.1:8000", Readiness: r})
		}
		return &fleet.View{Classes: []fleet.ViewClass{{ID: "chat", Admitted: 1, Pools: []fleet.ViewPool{pool}}, {ID: "orphan", Admitted: 1}}}
	}
	for name, c := range map[string]struct {
		view *fleet.View
		want string
	}{
		"ready":   {view(fleet.Ready, fleet.Unready), "chat 100.00% p"},
		"unknown": {view(fleet.Unknown), "chat 100.00% p"},
		"none":    {view(fleet.Unready, fleet.Draining), "chat no engine p"},
		"no pool": {view(fleet.Ready), "orphan no engine none"},
	} {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 0, 1, ' ', 0)
		snapshotTable(w, newSnapshotOf(c.view, "v"))
		if err := w.Flush(); err != nil || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), c.want) {
			t.Errorf("%s: %s\nwant %q (%v)", name, out.String(), c.want, err)
		}
	}
}
