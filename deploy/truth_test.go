package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/deploy/stage"
	"weir/fleet"
)

// arrivals reads what the engines noted themselves.
func arrivals(t *testing.T, s *stage.Stage) []stage.Arrival {
	t.Helper()
	all, err := s.Arrivals()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// byTest groups arrivals by the mark that a test gave its requests.
func byTest(all []stage.Arrival) map[string][]stage.Arrival {
	groups := map[string][]stage.Arrival{}
	for _, a := range all {
		groups[a.Headers["x-test-id"]] = append(groups[a.Headers["x-test-id"]], a)
	}
	return groups
}

// snapshot is what `weir snapshot` prints of a front-end, as far as tests need it.
type snapshot struct {
	Classes []struct {
		Class    fleet.ClassID
		Admitted float64
		Pools    []struct {
			Pool    fleet.PoolID
			Share   float64
			Engines []struct {
				Engine fleet.EngineID
				Health string
			}
		}
	}
}

// snapshotOf asks the control plane, as an operator would, what a front-end is
// served.
func snapshotOf(s *stage.Stage, id fleet.FrontEndID) (snapshot, error) {
	var got snapshot
	out, err := exec.Command(filepath.Join(bin, "weir"), "snapshot", "--front-end", string(id), "--xds", s.XDS, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	return got, err
}

// shares are those of every front-end and pool.
func shares(t *testing.T, s *stage.Stage) map[fleet.Link]float64 {
	t.Helper()
	all := map[fleet.Link]float64{}
	for _, fe := range s.Fleet.FrontEnds {
		got, err := snapshotOf(s, fe.ID)
		check(t, err)
		for _, c := range got.Classes {
			for _, p := range c.Pools {
				all[fleet.Link{FrontEnd: fe.ID, Pool: p.Pool}] += p.Share
			}
		}
	}
	return all
}

// health is what a front-end is told of an engine.
func health(s *stage.Stage, id fleet.FrontEndID, e fleet.EngineID) string {
	got, err := snapshotOf(s, id)
	if err != nil {
		return err.Error()
	}
	for _, c := range got.Classes {
		for _, p := range c.Pools {
			for _, engine := range p.Engines {
				if engine.Engine == e {
					return engine.Health
				}
			}
		}
	}
	return "not served"
}

func differ(before, after map[fleet.Link]float64) string { return cmp.Diff(before, after) }

// weir runs the command line and returns what it printed.
func weir(t *testing.T, args ...string) []byte {
	t.Helper()
	c := exec.Command(filepath.Join(bin, "weir"), args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// noWeirHeaders holds that engines never see what is between Envoy and
// weir-extproc.
func noWeirHeaders(t *testing.T, s *stage.Stage) {
	t.Helper()
	for _, a := range arrivals(t, s) {
		for _, name := range a.Names {
			if strings.HasPrefix(name, "x-weir-") || strings.HasPrefix(name, "x-gateway-") {
				t.Fatalf("engine %s of pool %s received the header %s", a.Engine, a.Pool, name)
			}
		}
	}
}

// noTimeouts holds that no request went on without weir-extproc's answer, without
// which claims about affinity would rest on luck.
func noTimeouts(t *testing.T, s *stage.Stage) {
	t.Helper()
	for _, fe := range s.Fleet.FrontEnds {
		for _, name := range []string{"message_timeouts", "failure_mode_allowed"} {
			n, err := s.Stat(context.Background(), string(fe.ID), "http.weir.ext_proc."+name)
			if err != nil {
				t.Fatal(err)
			}
			if n != 0 {
				t.Errorf("Envoy of %s counts %d ext_proc %s, want none", fe.ID, n, name)
			}
		}
	}
}

// engineOf returns the one engine that served a group of requests.
func engineOf(group []stage.Arrival) (fleet.EngineID, error) {
	if len(group) == 0 {
		return "", fmt.Errorf("no request arrived")
	}
	for _, a := range group {
		if a.Engine != group[0].Engine {
			return "", fmt.Errorf("request went to %s, then to %s", group[0].Engine, a.Engine)
		}
	}
	return group[0].Engine, nil
}
