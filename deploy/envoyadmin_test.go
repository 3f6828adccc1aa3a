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

// askEnvoy runs the script by which probes and hooks ask an Envoy.
func askEnvoy(t *testing.T, admin string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", append([]string{"kubernetes/base/front-end/envoy-admin"}, args...)...)
	c.Env = append(os.Environ(), "ENVOY_ADMIN="+admin)
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// The probes and the hook of a front-end's pod say of a real Envoy what they promise.
func TestEnvoyAdmin(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet})
	admin := s.EnvoyAdmin("east")
	t.Run("an Envoy that serves", func(t *testing.T) {
		check(t, askEnvoy(t, admin, "alive"))
		check(t, askEnvoy(t, admin, "ready"))
	})
	t.Run("nobody", func(t *testing.T) {
		for _, verb := range []string{"alive", "ready"} {
			if askEnvoy(t, "127.0.0.1:1", verb) == nil {
				t.Errorf("%s of nobody succeeds", verb)
			}
		}
	})
	t.Run("a stopped Envoy", func(t *testing.T) {
		west := s.Process("envoy-west")
		check(t, west.Freeze())
		defer func() { check(t, west.Thaw()) }()
		if askEnvoy(t, s.EnvoyAdmin("west"), "alive") == nil {
			t.Error("it is alive")
		}
	})
	t.Run("an Envoy without a control plane", func(t *testing.T) { neverTold(t, s) })
	t.Run("drain", func(t *testing.T) { drains(t, s, admin) })
}

// neverTold starts an Envoy that no control plane answers: after its patience it says
// that it is LIVE, without a listener.
func neverTold(t *testing.T, s *stage.Stage) {
	admin, err := s.Address()
	check(t, err)
	file := filepath.Join(t.TempDir(), "alone.json")
	text, err := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), "bootstrap", "--front-end", "east", "--node-id", "alone",
		"--xds", "127.0.0.1:1", "--extproc", "127.0.0.1:2", "--admin", admin).Output()
	check(t, err)
	check(t, os.WriteFile(file, text, 0o644))
	_, err = s.Launch("envoy-alone", envoy, "-c", file, "--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
	check(t, err)
	eventually(t, "it says that it is LIVE", 30*time.Second, func() bool {
		return exec.CommandContext(t.Context(), "curl", "-sf", "http://"+admin+"/ready").Run() == nil
	})
	check(t, askEnvoy(t, admin, "alive"))
	if askEnvoy(t, admin, "ready") == nil {
		t.Error("an Envoy that serves nothing is ready")
	}
}

// drains has an Envoy go while an answer lasts longer than Envoy's own drain time.
func drains(t *testing.T, s *stage.Stage, admin string) {
	began := time.Now()
	answer := make(chan stage.Reply, 1)
	go func() {
		answer <- stage.Do(t.Context(), stage.NewClient(), stage.Call{
			URL: s.URL("east"), Body: stage.LongTurn("llama-3.3-70b", "long", 1, 1000), Timeout: time.Minute,
		})
	}()
	eventually(t, "the answer has begun", 10*time.Second, func() bool {
		n, err := s.Stat(t.Context(), "east", "http.weir.downstream_rq_active")
		return err == nil && n == 1
	})
	check(t, askEnvoy(t, admin, "drain", "0")) // out of time at once
	if len(answer) > 0 {
		t.Fatal("the answer is over before the hook: the test shows nothing")
	}
	check(t, askEnvoy(t, admin, "drain", "50"))
	drained := time.Now()
	r := <-answer
	if ended := r.Sent.Add(r.Took); !r.OK() || ended.Sub(drained) > time.Second {
		t.Errorf("the hook ended after %v, the answer after %v: %v", drained.Sub(began), ended.Sub(began), &r)
	}
	if r.Took < 8*time.Second {
		t.Errorf("the answer took %v only: the hook had nothing to wait for", r.Took)
	}
	if again := stage.Do(t.Context(), stage.NewClient(), stage.Call{URL: s.URL("east"), Body: stage.Chat("llama-3.3-70b", "new", false, 0)}); again.Err == nil {
		t.Errorf("a new connection was taken: %v", &again)
	}
}
