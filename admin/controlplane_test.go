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
		"policies":                    {r, "/policy", 200, `"shadow": {`},
		"policies without a plan":     {unplanned, "/policy", 200, `"shadow": {`},
		"no policies before a round":  {fleet.Round{}, "/policy", 503, "no plan yet"},
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
		TTFTSeconds: fleet.Reading{Value: 0.3, At: noon.Add(-time.Second), StdErr: fleet.StdErr{Value: 0.01, Known: true}},
		TBTSeconds:  fleet.Reading{Value: 0.02, At: noon}, // its error is not known
		Seen:        map[fleet.EngineID]fleet.EngineSeen{"p2": {TTFTSeconds: fleet.Reading{Value: 0.9, At: noon, StdErr: fleet.StdErr{Known: true}}}},
		Deviations: map[fleet.EngineID][]fleet.Deviation{"p2": {
			{Signal: fleet.SignalTTFT, Value: 0.9, Median: 0.3, Z: 8},
			{Signal: fleet.SignalWaiting, Value: 2, Median: 0, Z: 2},
		}},
		Engines: map[fleet.EngineID]fleet.EngineSignals{"p1": {
			Dialect: "vllm", Why: "connection refused",
			Running: fleet.Reading{Value: 0, At: noon.Add(-2 * time.Second)},
			Waiting: fleet.Reading{Value: 5, At: noon.Add(-30 * time.Second), Stale: true},
		}},
	}
	r.State.Pools["p"] = p
	r.State.Tokens = map[fleet.ClassID]fleet.TokenBelief{"chat": {
		Mean: fleet.Tokens{Prompt: 900, Output: 80, Cached: 300}, Requests: 70, Estimated: 7, At: noon.Add(-time.Second), PromptStdErr: fleet.StdErr{Value: 31, Known: true},
	}}
	link := fleet.Link{FrontEnd: "eu", Pool: "p"}
	r.State.NetworkNoise = map[fleet.Link]float64{link: 0.0002}
	r.State.NetworkAt = map[fleet.Link]time.Time{link: noon.Add(-5 * time.Second)}
	stream := fleet.Stream{FrontEnd: "eu", Class: "chat"}
	d := r.State.Demand[stream]
	d.At, d.StdErrRps = noon.Add(-time.Second), fleet.StdErr{Value: 1.5, Known: true}
	r.State.Demand[stream] = d
	got := newBeliefs(r.At, r.State)
	some := func(x float64) *float64 { return &x }
	want := &Beliefs{
		At: noon,
		Demand: []DemandBelief{
			{"eu", "chat", 30, 0, fleet.SourceArrivals, some(1.5), some(1)},
			{"us", "chat", 5, 0, fleet.SourceArrivals, nil, nil},
		},
		Classes: []ClassBelief{{"chat", 900, 80, 300, 70, 7, some(31), nil, some(1)}},
		Pools: []PoolBelief{
			{
				Pool: "p", Health: 1, CapacityFactor: 0.8, FactorReason: "5.0 requests wait", Load: some(0.7),
				TTFTSeconds: some(0.3), TTFTStdErrSeconds: some(0.01), TBTSeconds: some(0.02), AgeSeconds: some(1),
				Engines: []EngineBelief{
					// An idle engine's zero is known; what it does not tell is null.
					{
						Engine: "p1", Readiness: "ready", Dialect: "vllm", Why: "connection refused", Deviations: []DeviationBelief{},
						Running: &Told{0, 2, false, nil}, Waiting: &Told{5, 30, true, nil},
					},
					// An error of 0 is known, too.
					{Engine: "p2", Readiness: "ready", SeenTTFTSeconds: &Told{0.9, 0, false, some(0)}, Deviations: []DeviationBelief{
						{fleet.SignalTTFT, 0.9, 0.3, some(0.9 / 0.3), 8, true},
						{fleet.SignalWaiting, 2, 0, nil, 2, false},
					}},
				},
			},
			{Pool: "q", Health: 1, CapacityFactor: 1, Engines: []EngineBelief{{Engine: "q1", Readiness: "unknown", Deviations: []DeviationBelief{}}}},
		},
		// A link that nothing is known of, as all of "us", is not 0 but absent.
		Network: []LinkBelief{{"eu", "p", 0.004, true, some(0.0002), some(5)}, {"eu", "q", 0.03, false, nil, nil}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("beliefs (-want +got):\n%s", diff)
	}
	r.State.Fleet.Network.Measured = false
	if got := newBeliefs(r.At, r.State).Network[0]; got != (LinkBelief{"eu", "p", 0.002, false, nil, nil}) {
		t.Errorf("with the declared network in force: %+v", got)
	}
}
