package bench

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var (
	bin   string // folder of the binaries under test
	envoy string
)

func TestMain(m *testing.M) {
	if play(os.Args[1:]) {
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	envoy = os.Getenv("WEIR_ENVOY")
	asked := envoy != ""
	if !asked {
		envoy = "../../.venv/bin/envoy"
	}
	if _, err := os.Stat(envoy); err != nil {
		fmt.Println("SKIP: no Envoy:", err, "- run 'make setup', or point WEIR_ENVOY to one")
		if asked { // make sets it: a missing Envoy must not pass for a test
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

// build makes the binaries as make build does.
func build(dir string) error {
	for name, cgo := range map[string]string{"weir": "1", "weir-extproc": "0"} {
		c := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, name), "../../cmd/"+name)
		c.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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

// page reads a page.
func page(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	check(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s, %v: %s", url, response.Status, err, text)
	}
	return string(text)
}
