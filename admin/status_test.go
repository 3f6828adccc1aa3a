package admin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/fleet"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// testRound is one in which all is well: two front-ends, two pools, one class.
func testRound() fleet.Round {
	f := &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{{ID: "eu"}, {ID: "us"}},
		Pools:     []fleet.Pool{{ID: "p", Engines: []fleet.EngineID{"p1", "p2"}}, {ID: "q", Engines: []fleet.EngineID{"q1"}}},
		Classes:   []fleet.Class{{ID: "chat"}},
		Options:   fleet.Options{Tick: 2 * time.Second},
		Network:   fleet.Network{Measured: true, RoundTripSeconds: map[fleet.Link]float64{{FrontEnd: "eu", Pool: "p"}: 0.002, {FrontEnd: "eu", Pool: "q"}: 0.03}},
	}
	s := &fleet.State{
		Fleet: f,
		Demand: map[fleet.Stream]fleet.Demand{
			{FrontEnd: "eu", Class: "chat"}: {Rps: 30, Source: fleet.SourceArrivals},
			{FrontEnd: "us", Class: "chat"}: {Rps: 5, Source: fleet.SourceArrivals},
		},
		Pools: map[fleet.PoolID]fleet.PoolState{
			"p": {Engines: map[fleet.EngineID]fleet.Readiness{"p1": fleet.Ready, "p2": fleet.Ready}, CapacityFactor: 0.8},
			"q": {Engines: map[fleet.EngineID]fleet.Readiness{"q1": fleet.Ready}},
		},
		Network: map[fleet.Link]float64{{FrontEnd: "eu", Pool: "p"}: 0.004},

		Attempts: map[fleet.Stream]fleet.Attempts{{FrontEnd: "eu", Class: "chat"}: {At: noon}},
		Retries: map[fleet.Stream]fleet.Retries{{FrontEnd: "eu", Class: "chat"}: {
			RetryBudget: fleet.RetryBudget{Percent: 4, Floor: 8}, RoomRps: 5, Why: "room",
		}},
	}
	p := &fleet.Plan{
		Status: fleet.Optimal, MeanSeconds: 0.2,
		Routes: []fleet.Route{
			{FrontEnd: "eu", Class: "chat", DemandRps: 30, Shares: []fleet.Share{{Pool: "p", Share: 1, Rps: 30}}},
			{FrontEnd: "us", Class: "chat", DemandRps: 5, Shares: []fleet.Share{{Pool: "p", Share: 1, Rps: 5}}},
		},
		Pools: []fleet.PoolPlan{{Pool: "p", CapacityRps: 40, Rps: 35, Utilisation: 0.875}},
	}
	return fleet.Round{At: noon, State: s, Plan: p, Planned: noon}
}

func taken() []fleet.Delivery { return []fleet.Delivery{{Type: "Cluster", Sent: "1", Acked: "1"}} }

// testClients are those of the test fleet, all in sync.
func testClients() []fleet.Client {
	var all []fleet.Client
	for _, id := range []fleet.FrontEndID{"eu", "us"} {
		for _, role := range []fleet.Role{fleet.RoleEnvoy, fleet.RoleExtProc} {
			all = append(all, fleet.Client{FrontEnd: id, Known: true, Node: string(id) + "-1", Role: role, Types: taken()})
		}
	}
	return all
}

func testSources() Sources {
	return Sources{
		Latest: testRound, Clients: testClients, FleetProblem: func() string { return "" }, StateProblem: func() string { return "" }, Metrics: NewRegistry(),
		Profiles: func() []fleet.ProfileNews { return nil },
		Choose:   func(_, _ *string) (fleet.Choice, error) { return fleet.Choice{}, nil },
	}
}

func TestStatusWhenAllIsWell(t *testing.T) {
	got := newStatus(noon.Add(time.Second), testRound(), testClients(), "", "")
	one, mean := 1.0, 0.2
	room := 5.0
	measured := Retries{Percent: 4, Floor: 8, RoomRps: &room, Why: "room"}
	file := Retries{Why: "the fleet file's: nothing is decided yet"}
	want := &Status{
		Attention: []string{},
		Plan:      PlanStatus{Status: fleet.Optimal, MeanSeconds: &mean, AgeSeconds: &one, RoundAgeSeconds: &one},
		FrontEnds: []FrontEnd{
			{FrontEnd: "eu", Envoys: 1, ExtProcs: 1, Nacks: []Nack{}, Streams: []Stream{{Class: "chat", DemandRps: 30, Source: fleet.SourceArrivals, Retries: measured}}},
			{FrontEnd: "us", Envoys: 1, ExtProcs: 1, Nacks: []Nack{}, Streams: []Stream{{Class: "chat", DemandRps: 5, Source: fleet.SourceArrivals, Retries: file}}},
		},
		Pools: []Pool{
			{Pool: "p", Engines: 2, Ready: 2, Plan: &fleet.PoolPlan{Pool: "p", CapacityRps: 40, Rps: 35, Utilisation: 0.875}},
			{Pool: "q", Engines: 1, Ready: 1},
		},
		UnknownFrontEnds: []Unknown{},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// Each thing that goes wrong is named, and nothing else is.
func TestAttention(t *testing.T) {
	stream := fleet.Stream{FrontEnd: "eu", Class: "chat"}
	for name, c := range map[string]struct {
		change func(r *fleet.Round, clients *[]fleet.Client)
		after  time.Duration
		want   []string
	}{
		"held": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.Plan.Status, r.Plan.Why = fleet.Held, "no luck" },
			want:   []string{"the last plan is held: no luck"},
		},
		"penalised": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				p := r.State.Pools["p"]
				penalty := func(e fleet.EngineID, value float64, f fleet.Fault) fleet.PenaltySeen {
					return fleet.PenaltySeen{Penalty: fleet.Penalty{Pool: "p", Engine: e, Value: value, Fault: f, AgeSeconds: 3, ClearsSeconds: 9}, FrontEnd: "eu", Node: "eu-1"}
				}
				p.Signals.Penalties = []fleet.PenaltySeen{penalty("p1", 0.5, "reset"), penalty("p1", 0.25, fleet.FaultTokens), penalty("p2", 0.8, "refused")}
				r.State.Pools["p"] = p
			},
			want: []string{`pool "p": 2 of 2 engines are penalised, the most p1 for 3s, to 25 % of its part: tokens come slowly`},
		},
		"a source of engines that fails": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				r.State.Fleet.Pools[0].Discovery = &fleet.Discovery{Kind: fleet.DiscoverFile, Where: "/p"}
				r.State.Sources = map[fleet.PoolID]fleet.SourceState{"p": {Problem: "is on fire; its last answer stays"}}
			},
			want: []string{`pool "p": its engines come from file /p: is on fire; its last answer stays`},
		},
		"shedding": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.Plan.Status, r.Plan.Why = fleet.Shedding, "full" },
			want:   []string{"the plan sheds: full"},
		},
		"a policy that overloads": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				r.Plan.Status, r.Plan.Policy, r.Plan.Why = fleet.Routed, fleet.PolicyNearest, "B (120 %)"
			},
			want: []string{`policy "nearest" heeds no capacity: B (120 %)`},
		},
		"a policy that does not": {change: func(r *fleet.Round, _ *[]fleet.Client) { r.Plan.Status = fleet.Routed }},
		"a policy by command": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				r.Choice.Policy = fleet.Chosen{Name: fleet.PolicyNearest, File: fleet.PolicyOptimal}
			},
			want: []string{"policy \"nearest\" is in force by command, and not \"optimal\" as the fleet file says, until that changes: `weir policy optimal` ends it"},
		},
		"a shadow by command": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.Choice.Shadow.Name = fleet.PolicyEven },
			want:   []string{"the shadow is \"even\" by command, and not \"none\" as the fleet file says, until that changes: `weir policy --shadow none` ends it"},
		},
		"unpublished": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.Unpublished = "no line" },
			want:   []string{"the plan does not reach the fleet: no line"},
		},
		"no plan": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.Plan, r.Planned, r.Why = nil, time.Time{}, "no luck" },
			want:   []string{"no plan yet: no luck"},
		},
		"no round": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { *r = fleet.Round{} },
			want:   []string{"no plan yet: the first round waits for the engines' first health checks"},
		},
		"late but not stuck": {change: func(*fleet.Round, *[]fleet.Client) {}, after: 16 * time.Second},
		"stuck": {
			change: func(*fleet.Round, *[]fleet.Client) {},
			after:  17 * time.Second,
			want:   []string{"the loop is stuck: its last round began 17s ago"},
		},
		"held by a NACK": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) {
				(*cs)[0].Held, (*cs)[0].HeldBy = true, "a NACK of cluster bad"
				(*cs)[1].Held = true // an answer is awaited
			},
			want: []string{`front-end "eu": routes of envoy "eu-1" are held by a NACK of cluster bad`},
		},
		"no Envoy": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) { *cs = (*cs)[1:] },
			want:   []string{`front-end "eu": no Envoy is connected`},
		},
		"no weir-extproc": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) { *cs = append((*cs)[:1:1], (*cs)[2:]...) },
			want:   []string{`front-end "eu": 1 of 1 Envoys without a weir-extproc connected`},
		},
		"a second Envoy without weir-extproc": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) {
				second := fleet.Client{FrontEnd: "eu", Known: true, Node: "eu-2", Role: fleet.RoleEnvoy}
				*cs = append(append((*cs)[:2:2], second), (*cs)[2:]...)
			},
			want: []string{`front-end "eu": 1 of 2 Envoys without a weir-extproc connected`},
		},
		"a client that reconnects": {change: func(_ *fleet.Round, cs *[]fleet.Client) {
			*cs = append((*cs)[:1:1], *cs...)
			(*cs)[1].Connected = noon
		}},
		"behind for a moment": {change: func(_ *fleet.Round, cs *[]fleet.Client) {
			(*cs)[0].Types[0].Behind, (*cs)[0].Types[0].LagSeconds = 1, 15
		}},
		"behind for long": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) {
				(*cs)[0].Types[0].Behind, (*cs)[0].Types[0].LagSeconds = 1, 20
			},
			want: []string{`front-end "eu": 1 of 2 clients behind, for 20s`},
		},
		"refusing": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) { (*cs)[3].Types[0].Error = "bad taste" },
			want:   []string{`front-end "us": extproc "us-1" refuses Cluster: bad taste`},
		},
		"stand-in": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				r.State.Demand[stream] = fleet.Demand{Rps: 3, Source: fleet.SourceEnvoy}
			},
			want: []string{`front-end "eu": class "chat": weir-extprocs do not report arrivals, what Envoys issue stands in`},
		},
		"declared": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				r.State.Demand[stream] = fleet.Demand{Rps: 3, Source: fleet.SourceDeclared}
			},
			want: []string{`front-end "eu": class "chat": nobody reports load, the declared demand rules`},
		},
		"declared by order": {change: func(r *fleet.Round, _ *[]fleet.Client) {
			r.State.Demand[stream] = fleet.Demand{Rps: 3, Source: fleet.SourceDeclared}
			r.State.Fleet.Options.DeclaredOnly = true
		}},
		"an engine down": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.State.Pools["p"].Engines["p2"] = fleet.Unready },
			want:   []string{`pool "p": 1 of 2 engines not ready`},
		},
		"a pool down": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { r.State.Pools["q"].Engines["q1"] = fleet.Unready },
			want:   []string{`pool "q": none of 1 engines is ready`},
		},
		"a pool that fails": {
			change: func(r *fleet.Round, _ *[]fleet.Client) {
				p := r.State.Pools["p"]
				p.Signals.Failed = fleet.Reading{Value: 0.43, At: noon}
				r.State.Pools["p"] = p
			},
			want: []string{`pool "p": 43 % of the attempts there fail`},
		},
		"a pool that fails now and then": {change: func(r *fleet.Round, _ *[]fleet.Client) {
			p := r.State.Pools["p"]
			p.Signals.Failed = fleet.Reading{Value: 0.1, At: noon}
			r.State.Pools["p"] = p
		}},
		"an engine not probed": {
			change: func(r *fleet.Round, _ *[]fleet.Client) { delete(r.State.Pools, "p") },
			want:   []string{`pool "p": nothing is known of 2 of 2 engines`},
		},
		"a pool without engines": {change: func(r *fleet.Round, _ *[]fleet.Client) { r.State.Fleet.Pools[1].Engines = nil }},
		"an unknown front-end": {
			change: func(_ *fleet.Round, cs *[]fleet.Client) {
				stranger := fleet.Client{FrontEnd: "atlantis", Node: "a"}
				*cs = append([]fleet.Client{stranger, stranger}, *cs...)
			},
			want: []string{`unknown front-end "atlantis" (clients: 2): it gets nothing; add it to the fleet file or correct node.cluster`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, clients := testRound(), testClients()
			c.change(&r, &clients)
			got := newStatus(noon.Add(c.after), r, clients, "", "").Attention
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("attention (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFleetFileThatWasRefused(t *testing.T) {
	s := newStatus(noon, testRound(), testClients(), "line 3: no", "")
	if want := []string{"the fleet file is refused and the last one stays: line 3: no"}; !cmp.Equal(s.Attention, want) || s.FleetProblem != "line 3: no" {
		t.Errorf("attention %q, fleet problem %q", s.Attention, s.FleetProblem)
	}
}

// What clients choose is bounded: names, reasons, numbers of front-ends.
func TestStatusIsBounded(t *testing.T) {
	var clients []fleet.Client
	for i := range 3 * maxUnknown {
		clients = append(clients, fleet.Client{FrontEnd: fleet.FrontEndID(fmt.Sprintf("a%04d", i)), Node: "n"})
	}
	for i := range 3 * maxNacks {
		clients = append(clients, fleet.Client{FrontEnd: "eu", Known: true, Node: fmt.Sprint(i), Types: []fleet.Delivery{{Error: "no"}}})
	}
	s := newStatus(noon, testRound(), clients, "", "")
	if got := len(s.UnknownFrontEnds); got != maxUnknown {
		t.Errorf("%d unknown front-ends, want %d", got, maxUnknown)
	}
	if got := len(s.FrontEnds[0].Nacks); got != maxNacks {
		t.Errorf("%d refusals, want %d", got, maxNacks)
	}
	if got := len(s.Attention); got != maxAttention+1 || !strings.HasPrefix(s.Attention[maxAttention], "and ") {
		t.Errorf("%d things to look at, the last %q", got, s.Attention[got-1])
	}
}

// What is not known is null, and no list is.
func TestStatusOfNothing(t *testing.T) {
	text, err := json.Marshal(newStatus(noon, fleet.Round{}, nil, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"attention":["no plan yet: the first round waits for the engines' first health checks"],"fleetProblem":"",` +
		`"stateProblem":"","brakes":[],"sharedNodes":[],"plan":{"status":"","why":"no plan yet: the first round waits for the engines' first health checks",` +
		`"policy":"","meanSeconds":null,"ageSeconds":null,"roundAgeSeconds":null,"unpublished":""},` +
		`"policies":{"policy":{"name":"","file":""},"shadow":{"name":"","file":""}},"shadow":null,` +
		`"frontEnds":[],"pools":[],"profiles":[],"penalties":[],"unknownFrontEnds":[]}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
