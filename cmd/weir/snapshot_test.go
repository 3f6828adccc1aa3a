package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
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
