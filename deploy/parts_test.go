package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

const steadyFleet = "testdata/steady.yaml"

// No part of Weir is needed for traffic to go on: each dies, hangs and comes back
// under load, and no request fails.
func TestPartsFailUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet})
	extproc, plane := s.Process("extproc-east"), s.Process("weir")
	healthy := func(n int) func() bool {
		return func() bool {
			got, err := s.Stat(t.Context(), "east", "cluster.weir_ext_proc.membership_healthy")
			return err == nil && got == n
		}
	}
	for _, event := range []struct {
		name string
		do   func(*testing.T, *steady)
	}{
		{"ext_proc killed and back", func(t *testing.T, l *steady) {
			check(t, extproc.Kill())
			eventually(t, "Envoy gives it up", 10*time.Second, healthy(0))
			l.flow(60)
			check(t, extproc.Start())
			eventually(t, "Envoy trusts it again", 20*time.Second, healthy(1))
		}},
		{"ext_proc stopped and going on", func(t *testing.T, l *steady) {
			check(t, extproc.Freeze())
			eventually(t, "Envoy gives it up", 10*time.Second, healthy(0))
			l.flow(60)
			check(t, extproc.Thaw())
			eventually(t, "Envoy trusts it again", 20*time.Second, healthy(1))
		}},
		{"ext_proc killed in mid-stream", func(t *testing.T, l *steady) {
			c := newCaller(t, s, "east")
			c.begin(20, 50)
			eventually(t, "the streams have begun", 10*time.Second, func() bool { return c.at(t, "east")+c.at(t, "west") == 20 })
			check(t, extproc.Kill())
			c.wait()
			check(t, extproc.Start())
			eventually(t, "Envoy trusts it again", 20*time.Second, healthy(1))
		}},
		{"control plane killed and restarted", func(t *testing.T, l *steady) {
			check(t, plane.Kill())
			l.flow(60)
			check(t, plane.Start())
			awaitPlan(t, s)
		}},
		{"control plane stopped and going on", func(t *testing.T, l *steady) {
			check(t, plane.Freeze())
			l.flow(60)
			check(t, plane.Thaw())
			awaitPlan(t, s)
		}},
		{"control plane restarted with an empty state directory", func(t *testing.T, l *steady) {
			check(t, plane.Kill())
			check(t, os.RemoveAll(s.State()))
			check(t, plane.Start())
			awaitPlan(t, s)
		}},
		{"control plane restarted with a corrupt state directory", func(t *testing.T, l *steady) {
			check(t, plane.Kill())
			check(t, os.WriteFile(filepath.Join(s.State(), "plan.json"), []byte(`{"format":1`), 0o644))
			check(t, plane.Start())
			awaitPlan(t, s)
			if !strings.Contains(plane.Log(), "last plan not usable: beginning anew") {
				t.Error("the control plane did not say that its state is corrupt")
			}
		}},
		{"control plane killed in the middle of a push", func(t *testing.T, l *steady) {
			rewrite(t, s, func(text string) string { return strings.Replace(text, "chat: 30 rps", "chat: 70 rps", 1) })
			eventually(t, "the push has begun", 5*time.Second, func() bool { return strings.Count(plane.Log(), "fleet file read again") > 0 })
			check(t, plane.Kill())
			check(t, plane.Start())
			awaitPlan(t, s)
		}},
	} {
		t.Run(event.name, func(t *testing.T) {
			l := startSteady(t, s, strings.ReplaceAll(event.name, " ", "-"))
			event.do(t, l)
			l.flow(60)
			l.endWhole()
		})
	}
}

// awaitPlan waits until a control plane serves both front-ends.
func awaitPlan(t *testing.T, s *stage.Stage) {
	t.Helper()
	eventually(t, "the control plane serves", 20*time.Second, func() bool {
		for _, fe := range s.Fleet.FrontEnds {
			if _, err := snapshotOf(s, fe.ID); err != nil {
				return false
			}
		}
		return true
	})
}

// An Envoy that drains hands its clients over to another one of its front-end; and
// with the control plane dead it comes back from the static file, under load.
func TestAnEnvoyDrainsAndComesBack(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet})
	check(t, s.StartSecond(t.Context(), "east"))
	envoy := s.Process("envoy-east")
	t.Run("drains", func(t *testing.T) {
		l := startSteady(t, s, "drain")
		check(t, s.Admin(t.Context(), "east", "/drain_listeners?graceful"))
		l.flow(60)
		eventually(t, "its listener is closed", 10*time.Second, func() bool {
			n, err := s.Stat(t.Context(), "east", "listener_manager.listener_stopped")
			return err == nil && n > 0
		})
		eventually(t, "what it was asked for has ended", 20*time.Second, func() bool {
			n, err := s.Stat(t.Context(), "east", "http.weir.downstream_rq_active")
			return err == nil && n == 0
		})
		check(t, envoy.Stop())
		l.flow(60)
		l.endWhole()
	})
	t.Run("comes back from the static file", func(t *testing.T) {
		l := startSteady(t, s, "static")
		check(t, s.Process("weir").Kill())
		check(t, s.WriteBootstrap(t.Context(), "east", "--static", "--state", s.State()))
		check(t, envoy.Start())
		check(t, s.Await(t.Context(), "east", true))
		l.flow(120)
		l.endWhole()
	})
}

// With every control plane dead an Envoy starts from the last plan in the state
// directory, and serves by the same weights.
func TestAnEnvoyStartsFromTheStaticFile(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: declared})
	before := shares(t, s)
	eventually(t, "the plan is saved", 5*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(s.State(), "plan.json"))
		return err == nil
	})
	check(t, s.Process("weir").Kill())
	for _, fe := range s.Fleet.FrontEnds {
		envoy := s.Process("envoy-" + string(fe.ID))
		check(t, envoy.Stop())
		check(t, s.WriteBootstrap(t.Context(), string(fe.ID), "--static", "--state", s.State()))
		check(t, envoy.Start())
	}
	for _, state := range []string{"with ext_proc", "without ext_proc"} {
		t.Run(state, func(t *testing.T) {
			if state == "without ext_proc" {
				check(t, s.Process("extproc-B").Kill())
			}
			check(t, s.Await(t.Context(), "B", state == "with ext_proc"))
			c := newCaller(t, s, "B")
			c.send(600)
			share := before[fleet.Link{FrontEnd: "B", Pool: "C"}]
			// Without a header and without weir-extproc each request is its own draw.
			if z := zScore(float64(c.at(t, "C")), 600, share); z < -4 || z > 4 {
				t.Errorf("pool C got %d of 600, the last plan says %.1f %%: z = %.1f", c.at(t, "C"), 100*share, z)
			}
		})
	}
}
