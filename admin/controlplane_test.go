package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func TestControlPlane(t *testing.T) {
	r := testRound()
	held := testRound()
	held.Plan.Status, held.Why = fleet.Held, "no luck"
	unplanned := testRound()
	unplanned.Plan, unplanned.Why = nil, "no luck"
	unpublished := testRound()
	unpublished.Unpublished = "no line"
	for name, c := range map[string]struct {
		round  fleet.Round
		path   string
		status int
		says   string
	}{
		"status":                      {r, "/status", 200, `"attention": [`},
		"plan":                        {r, "/plan", 200, `"status": "Optimal"`},
		"beliefs":                     {r, "/beliefs", 200, `"source": "arrivals"`},
		"clients":                     {r, "/clients", 200, `"node": "eu-1"`},
		"ready":                       {r, "/readyz", 200, "ready"},
		"a held plan is a plan":       {held, "/readyz", 200, "ready"},
		"not ready before the first":  {fleet.Round{}, "/readyz", 503, "no plan yet"},
		"not ready without a plan":    {unplanned, "/readyz", 503, "no luck"},
		"not ready unpublished":       {unpublished, "/readyz", 503, "no line"},
		"status before the first":     {fleet.Round{}, "/status", 200, "no plan yet"},
		"no plan before the first":    {fleet.Round{}, "/plan", 503, "no plan yet"},
		"no plan":                     {unplanned, "/plan", 503, "no luck"},
		"beliefs without a plan":      {unplanned, "/beliefs", 200, `"engine": "p1"`},
		"no beliefs before the first": {fleet.Round{}, "/beliefs", 503, "no plan yet"},
	} {
		t.Run(name, func(t *testing.T) {
			from := testSources()
			from.Latest = func() fleet.Round { return c.round }
			status, body := ask(t, Handler(ControlPlane(from)), "GET", c.path)
			if status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("%d %s; want %d and %q", status, body, c.status, c.says)
			}
		})
	}
}

// The plan is served in its one stable form.
func TestPlanReadsBack(t *testing.T) {
	_, body := ask(t, Handler(ControlPlane(testSources())), "GET", "/plan")
	var got *fleet.Plan
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testRound().Plan, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestBeliefs(t *testing.T) {
	r := testRound()
	delete(r.State.Pools, "q")
	p := r.State.Pools["p"]
	p.Signals = fleet.PoolSignals{
		Load: fleet.Reading{Value: 0.7, At: noon}, FactorReason: "5.0 requests wait",
		Engines: map[fleet.EngineID]fleet.EngineSignals{"p1": {
			Dialect: "vllm", Why: "connection refused",
			Running: fleet.Reading{Value: 0, At: noon.Add(-2 * time.Second)},
			Waiting: fleet.Reading{Value: 5, At: noon.Add(-30 * time.Second), Stale: true},
		}},
	}
	r.State.Pools["p"] = p
	r.State.Tokens = map[fleet.ClassID]fleet.TokenBelief{"chat": {Mean: fleet.Tokens{Prompt: 900, Output: 80}, Requests: 70, Estimated: 7}}
	got := newBeliefs(r.At, r.State)
	load := 0.7
	want := &Beliefs{
		At: noon,
		Demand: []DemandBelief{
			{"eu", "chat", 30, 0, fleet.SourceArrivals},
			{"us", "chat", 5, 0, fleet.SourceArrivals},
		},
		Classes: []ClassBelief{{"chat", 900, 80, 70, 7}},
		Pools: []PoolBelief{
			{
				Pool: "p", Health: 1, CapacityFactor: 0.8, FactorReason: "5.0 requests wait", Load: &load,
				Engines: []EngineBelief{
					// An idle engine's zero is known; what it does not tell is null.
					{Engine: "p1", Readiness: "ready", Dialect: "vllm", Running: &Told{0, 2, false}, Waiting: &Told{5, 30, true}, Why: "connection refused"},
					{Engine: "p2", Readiness: "ready"},
				},
			},
			{Pool: "q", Health: 1, CapacityFactor: 1, Engines: []EngineBelief{{Engine: "q1", Readiness: "unknown"}}},
		},
		// A link that nothing is known of, as all of "us", is not 0 but absent.
		Network: []LinkBelief{{"eu", "p", 0.004, true}, {"eu", "q", 0.03, false}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("beliefs (-want +got):\n%s", diff)
	}
	r.State.Fleet.Network.Measured = false
	if got := newBeliefs(r.At, r.State).Network[0]; got != (LinkBelief{"eu", "p", 0.002, false}) {
		t.Errorf("with the declared network in force: %+v", got)
	}
}
