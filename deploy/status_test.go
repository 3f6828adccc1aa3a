package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"weir/admin"
	"weir/deploy/stage"
	weirenvoy "weir/envoy"
	"weir/fleet"
	"weir/xds"
)

// `weir status` says that all is well when it is, and names what is not: an Envoy
// that died, one of an unknown front-end, a client that refuses what it is sent,
// and at last the control plane itself.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk})
	awaitStatus(t, s, 0, "all is well")
	allInSync(t, s)

	if err := s.Process("envoy-B").Kill(); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, s, 3, `front-end "B": no Envoy is connected`)
	if err := s.Process("envoy-B").Start(); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, s, 0, "all is well")

	leave := startStranger(t, s)
	awaitStatus(t, s, 3, `unknown front-end "atlantis" (clients: 1): it gets nothing`)
	leave()
	awaitStatus(t, s, 0, "all is well")

	refuse(t, s, "C")
	awaitStatus(t, s, 3, `front-end "C": extproc "picky" refuses`, "not to my taste")

	if err := s.Process("weir").Stop(); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, s, 1, "no control plane answers at "+s.AdminAddress("weir"), "is `weir serve` running")
}

// awaitStatus waits until `weir status` ends with that code and says all of that.
func awaitStatus(t *testing.T, s *stage.Stage, code int, says ...string) {
	t.Helper()
	eventually(t, "status says "+strings.Join(says, ", "), 20*time.Second, func() bool {
		got, out := status(t, s)
		for _, text := range says {
			if !strings.Contains(out, text) {
				return false
			}
		}
		return got == code
	})
	_, out := status(t, s)
	t.Log("\n" + out)
}

func status(t *testing.T, s *stage.Stage, more ...string) (code int, out string) {
	t.Helper()
	args := append([]string{"status", "--admin", s.AdminAddress("weir")}, more...)
	text, err := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(text)
}

// allInSync holds that programs read of each front-end what people do.
func allInSync(t *testing.T, s *stage.Stage) {
	t.Helper()
	_, out := status(t, s, "-o", "json")
	var got admin.Status
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(got.FrontEnds) != len(s.Fleet.FrontEnds) || len(got.Pools) != len(s.Fleet.Pools) {
		t.Errorf("%d front-ends and %d pools, want those of the fleet", len(got.FrontEnds), len(got.Pools))
	}
	for _, f := range got.FrontEnds {
		if f.Envoys != 1 || f.ExtProcs != 1 || f.Behind != 0 {
			t.Errorf("front-end %+v, want an Envoy and a weir-extproc, both in sync", f)
		}
		for _, st := range f.Streams {
			if st.Source != fleet.SourceArrivals {
				t.Errorf("front-end %q: demand by %q, want %q", f.FrontEnd, st.Source, fleet.SourceArrivals)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/plan", "/beliefs", "/clients"} {
		if text := page(t, s.AdminAddress("weir"), path); !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON: %s", path, text)
		}
	}
	page(t, s.AdminAddress("extproc-A"), "/readyz")
}

// startStranger starts an Envoy of a front-end that the fleet file does not name.
func startStranger(t *testing.T, s *stage.Stage) (leave func()) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "envoy.json")
	text := weir(t, "bootstrap", "--front-end", "atlantis", "--node-id", "stranger", "--xds", s.XDS,
		"--extproc", filepath.Join(dir, "extproc.sock"), "--admin", "127.0.0.1:0")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), envoy, "-c", path, "--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
}

// refuse connects a client that takes nothing.
func refuse(t *testing.T, s *stage.Stage, id fleet.FrontEndID) {
	t.Helper()
	conn, err := xds.Dial(s.XDS, nil)
	if err != nil {
		t.Fatal(err)
	}
	node := weirenvoy.Node(id, "picky", fleet.RoleExtProc)
	client := xds.NewClient(conn, node, func(*weirenvoy.Resources) error { return errors.New("not to my taste") }, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}
