package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Envoy takes the bootstrap that the command line prints, for all forms of its
// addresses.
func TestEnvoyTakesTheBootstrap(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string][2]string{
		"socket": {"127.0.0.1:18000", "/run/weir/extproc.sock"},
		"port":   {"[::1]:18000", "127.0.0.1:18001"},
		"name":   {"control-plane.example:18000", "unix:///run/weir/extproc.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := weir(t, "bootstrap", "--front-end", "eu", "--node-id", "eu-1", "--xds", addresses[0], "--extproc", addresses[1], "--admin", "127.0.0.1:0")
			path := filepath.Join(t.TempDir(), "envoy.json")
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(envoy, "--mode", "validate", "-c", path).CombinedOutput(); err != nil {
				t.Errorf("envoy --mode validate: %v\n%s", err, out)
			}
		})
	}
}
