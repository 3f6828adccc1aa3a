package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
)

// fails runs a program that must end by itself with exit code 1, and returns what
// it said.
func fails(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), args...).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
		t.Errorf("%s %v ended with %v, want exit code 1\n%s", program, args, err, out)
	}
	if strings.Contains(string(out), "goroutine ") {
		t.Errorf("%s %v printed a stack trace:\n%s", program, args, out)
	}
	return string(out)
}

// What is wrongly set up is said, by the program that notices it.
func TestWrongSetUps(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions})
	t.Run("port taken", func(t *testing.T) {
		if out := fails(t, "weir", "serve", s.FleetFile, "--xds", s.XDS); !strings.Contains(out, "address already in use") {
			t.Error(out)
		}
		engine := string(s.Fleet.Pools[0].Engines[0])
		if out := fails(t, "mock-engine", "--listen", engine); !strings.Contains(out, "address already in use") {
			t.Error(out)
		}
		if out := fails(t, "weir-extproc", "--front-end", "main", "--node-id", "n", "--xds", s.XDS, "--listen", engine); !strings.Contains(out, "address already in use") {
			t.Error(out)
		}
	})
	t.Run("socket taken", func(t *testing.T) {
		out := fails(t, "weir-extproc", "--front-end", "main", "--node-id", "n", "--xds", s.XDS, "--listen", s.Socket("main"))
		if !strings.Contains(out, "another process serves it") {
			t.Error(out)
		}
	})
	t.Run("unknown front-end", func(t *testing.T) {
		out := fails(t, "weir", "snapshot", "--front-end", "nobody", "--xds", s.XDS, "--timeout", "1s")
		if !strings.Contains(out, `served nothing for front-end "nobody"`) {
			t.Error(out)
		}
		eventually(t, "the control plane names it", 2*time.Second, func() bool {
			return strings.Contains(s.Process("weir").Tail(), `"nobody"`)
		})
	})
	t.Run("bad fleet file on reload", func(t *testing.T) {
		breakFile(t, s)
		eventually(t, "the control plane refuses it", 2*time.Second, func() bool {
			return strings.Contains(s.Process("weir").Tail(), "fleet file refused, the last one stays")
		})
		c := newCaller(t, s, "main")
		c.send(10)
	})
}

// weir-extproc may start first: it says that it is waiting, and serves as soon as
// the control plane is there.
func TestExtProcWaitsForTheControlPlane(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions, Edit: declared})
	plane, extproc := s.Process("weir"), s.Process("extproc-main")
	if err := plane.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := extproc.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := extproc.Start(); err != nil {
		t.Fatal(err)
	}
	healthy := func() int {
		n, err := s.Stat(t.Context(), "main", "cluster.weir_ext_proc.membership_healthy")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "Envoy sees that it does not serve", 10*time.Second, func() bool { return healthy() == 0 })
	eventually(t, "it says that it waits", 10*time.Second, func() bool {
		return strings.Contains(extproc.Tail(), "control plane not reachable, retrying")
	})
	c := newCaller(t, s, "main")
	c.send(20) // nobody waits for either
	if err := plane.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", 20*time.Second, func() bool { return healthy() == 1 })
	c = newCaller(t, s, "main")
	c.send(20)
}

// A control plane that is restarted with a bad fleet file goes on with the fleet that
// was in force last, and says so.
func TestARestartWithABadFleetFile(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: sessions})
	eventually(t, "the plan is saved", 5*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(s.State(), "plan.json"))
		return err == nil
	})
	plane := s.Process("weir")
	check(t, plane.Kill())
	check(t, os.WriteFile(s.FleetFile, []byte(read(t, s)+"\nnonsense: true\n"), 0o644))
	check(t, plane.Start())
	eventually(t, "it serves what was in force", 20*time.Second, func() bool {
		_, err := snapshotOf(s, "main")
		return err == nil
	})
	if !strings.Contains(plane.Log(), "beginning with the one of the last plan") {
		t.Error("the control plane did not say that its fleet file is refused")
	}
	out, _ := exec.Command(filepath.Join(bin, "weir"), "status", "--admin", s.AdminAddress("weir")).Output()
	if !strings.Contains(string(out), "the fleet file is refused") {
		t.Errorf("the status does not tell:\n%s", out)
	}
	c := newCaller(t, s, "main")
	c.send(10)
}
