// Package deploy holds how the whole is run, and the end-to-end tests: a real
// Envoy, the real binaries, and engines that note who asked them for what.
package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weir/deploy/stage"
)

var (
	bin   string // folder of the binaries under test
	envoy string
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	envoy = os.Getenv("WEIR_ENVOY")
	asked := envoy != ""
	if !asked {
		envoy = "../.venv/bin/envoy"
	}
	if _, err := os.Stat(envoy); err != nil {
		fmt.Println("SKIP: no Envoy:", err, "- run 'make setup', or point WEIR_ENVOY to one")
		if asked { // make test sets it: a missing Envoy must not pass for a test
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "weir-bin-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if err := build(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}

func build(dir string) error {
	for name, cgo := range map[string]string{"weir": "1", "weir-extproc": "0", "mock-engine": "0"} {
		c := exec.Command("go", "build", "-o", filepath.Join(dir, name), "../cmd/"+name)
		c.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// start stages a fleet for one test.
func start(t *testing.T, o stage.Options) *stage.Stage {
	t.Helper()
	o.Bin, o.Envoy = bin, envoy
	o.Dir = filepath.Join(os.TempDir(), fmt.Sprintf("weir-e2e-%d-%s", os.Getpid(), t.Name()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := stage.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log("logs are kept in", o.Dir)
			return
		}
		os.RemoveAll(o.Dir)
	})
	return s
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}
