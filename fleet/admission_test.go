package fleet

import (
	"math"
	"testing"
	"time"
)

// admissionOf makes a plan of one front-end and one pool of 100 RPS for classes of
// some priority and RPS, of which it sheds some, and returns the ceilings.
func admissionOf(queued float64, classes ...Class) func(rps, shed map[ClassID]float64) map[ClassID]float64 {
	s := &State{Fleet: &Fleet{FrontEnds: []FrontEnd{{ID: "east"}}, Pools: []Pool{{ID: "p"}}, Classes: classes}, Pools: map[PoolID]PoolState{"p": {
		Signals: PoolSignals{Engines: map[EngineID]EngineSignals{"e": {Queued: Reading{Value: queued, At: time.Unix(1, 0)}}}},
	}}}
	return func(rps, shed map[ClassID]float64) map[ClassID]float64 {
		plan := &Plan{Pools: []PoolPlan{{Pool: "p", CapacityRps: 100}}}
		for i := range classes {
			id := classes[i].ID
			plan.Routes = append(plan.Routes, Route{
				FrontEnd: "east", Class: id, DemandRps: rps[id] + shed[id], ShedRps: shed[id],
				Shares: []Share{{Pool: "p", Share: 1, Rps: rps[id]}},
			})
		}
		out := map[ClassID]float64{}
		for _, c := range NewAdmissions(s, plan)["east"].Classes {
			if c.CeilingRps.Known {
				out[c.Class] = c.CeilingRps.Value
			}
		}
		return out
	}
}

func TestCeilings(t *testing.T) {
	chat, batch, idle := Class{ID: "chat", Priority: 2}, Class{ID: "batch", Priority: 1}, Class{ID: "idle", Priority: 2}
	type rps = map[ClassID]float64
	for name, c := range map[string]struct {
		queued          float64
		classes         []Class
		rps, shed, want rps
	}{
		"alone":                            {0, []Class{chat}, rps{"chat": 40}, nil, rps{"chat": 100}},
		"full":                             {0, []Class{chat}, rps{"chat": 100}, nil, rps{"chat": 100}},
		"two that are alike":               {0, []Class{chat, idle}, rps{"chat": 40, "idle": 40}, nil, rps{"chat": 50, "idle": 50}},
		"one that was idle":                {0, []Class{chat, idle}, rps{"chat": 40, "idle": 0}, nil, rps{"chat": 100, "idle": 15}},
		"the high one takes the low one's": {0, []Class{batch, chat}, rps{"chat": 40, "batch": 60}, nil, rps{"chat": 100, "batch": 60}},
		"the low one is shed":              {0, []Class{batch, chat}, rps{"chat": 90, "batch": 10}, rps{"batch": 50}, rps{"chat": 100, "batch": 10}},
		"limited with room to spare":       {0, []Class{chat}, rps{"chat": 20}, rps{"chat": 5}, rps{"chat": 20}},
		"a queue that passes":              {45, []Class{chat}, rps{"chat": 40}, nil, rps{"chat": 100}},
		"a queue that must drain":          {250, []Class{chat}, rps{"chat": 90}, nil, rps{"chat": 60}},
		"a queue without end":              {1e6, []Class{chat}, rps{"chat": 90}, nil, rps{"chat": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			got := admissionOf(c.queued, c.classes...)(c.rps, c.shed)
			for id, want := range c.want {
				if math.Abs(got[id]-want) > 0.016*want {
					t.Errorf("%s: ceiling %v, want %v", id, got[id], want)
				}
			}
		})
	}
}

// What is refused for the sake of a limit is no shortage, unless not even the limit can
// be served.
func TestShort(t *testing.T) {
	limit := []Brake{{BrakeTarget: BrakeTarget{Kind: BrakeLimit, Class: "chat"}, Rps: 50}}
	for _, c := range []struct {
		name      string
		brakes    []Brake
		rps, shed float64 // at each of two front-ends
		want      bool
		declared  bool
	}{
		{"all is served", nil, 25, 0, false, false},
		{"a part is refused", nil, 25, 5, true, false},
		{"all is refused", nil, 0, 5, true, false},
		{"below the limit", limit, 20, 0, false, false},
		{"limited", limit, 25, 40, false, false},
		{"limited, rounded", limit, 25 - 1e-9, 40, false, false},
		{"limited, and less can be served", limit, 20, 45, true, false},
		{"of what the file declares nobody knows", nil, 25, 5, false, true},
	} {
		f := &Fleet{FrontEnds: []FrontEnd{{ID: "east"}, {ID: "west"}}, Classes: []Class{{ID: "chat"}}}
		f.Options.DeclaredOnly = c.declared
		plan := &Plan{}
		for _, fe := range f.FrontEnds {
			plan.Routes = append(plan.Routes, Route{FrontEnd: fe.ID, Class: "chat", DemandRps: c.rps + c.shed, ShedRps: c.shed})
		}
		for id, a := range NewAdmissions(&State{Fleet: f, Brakes: c.brakes}, plan) {
			if got := a.Class("chat").Short; got != c.want {
				t.Errorf("%s: short %v at %s", c.name, got, id)
			}
		}
	}
}

// Where the pools that a class has are full, others that may serve it count: the next
// plan gives it these.
func TestCeilingsCountPoolsWithoutAShare(t *testing.T) {
	near, far, shut := Pool{ID: "near"}, Pool{ID: "far"}, Pool{ID: "shut", Region: "elsewhere"}
	c := Class{ID: "chat", Requires: Requirements{Regions: []string{""}}}
	s := &State{Fleet: &Fleet{FrontEnds: []FrontEnd{{ID: "east"}}, Pools: []Pool{near, far, shut}, Classes: []Class{c}}}
	plan := &Plan{
		Routes: []Route{{FrontEnd: "east", Class: "chat", DemandRps: 40, Shares: []Share{{Pool: "near", Share: 1, Rps: 40}}}},
		Pools:  []PoolPlan{{Pool: "far", CapacityRps: 40}, {Pool: "near", CapacityRps: 40}, {Pool: "shut", CapacityRps: 400}},
	}
	if got := NewAdmissions(s, plan)["east"].Class("chat").CeilingRps; math.Abs(got.Value-50) > 0.8 {
		t.Errorf("ceiling %v, want near's 40 and a quarter of far's 40", got)
	}
	plan.Routes[0].ShedRps = 1
	if got := NewAdmissions(s, plan)["east"].Class("chat").CeilingRps; math.Abs(got.Value-40) > 0.7 {
		t.Errorf("ceiling %v of what the plan sheds, want what it admits", got)
	}
}

// A pool whose capacity is not known makes no ceiling.
func TestCeilingUnknown(t *testing.T) {
	s := &State{Fleet: &Fleet{FrontEnds: []FrontEnd{{ID: "east"}}, Classes: []Class{{ID: "chat"}}}}
	plan := &Plan{Routes: []Route{{FrontEnd: "east", Class: "chat", DemandRps: 5, Shares: []Share{{Pool: "p", Share: 1, Rps: 5}}}}}
	if got := NewAdmissions(s, plan)["east"].Class("chat"); got.CeilingRps.Known {
		t.Errorf("ceiling %v of a pool that nothing is known of", got.CeilingRps)
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ demand, shed, want float64 }{{0, 0, 5}, {100, 0, 5}, {100, 50, 10}, {300, 200, 15}, {100, 100, 15}, {1e6, 1e6 - 1, 15}} {
		if got := (&Route{DemandRps: c.demand, ShedRps: c.shed}).retryAfter(); got != c.want {
			t.Errorf("%v of %v RPS refused: after %v s, want %v", c.shed, c.demand, got, c.want)
		}
	}
}

func TestShareOfANode(t *testing.T) {
	a := &Admission{Nodes: []NodeShare{{"a", 0.75}, {"b", 0.25}}}
	if a.ShareOf("b") != 0.25 || a.ShareOf("c") != 1.0/3 || (&Admission{}).ShareOf("a") != 1 {
		t.Error("a node has its share, and an unknown one that of any other")
	}
}

// Where an engine serves few, the queue that chance gives it is not drained; one of several
// tolerates as many at each.
func TestQueuesOfFew(t *testing.T) {
	for _, c := range []struct {
		engines      int
		queued, want float64 // at each, and the pool's RPS
	}{{1, 4, 2}, {1, 6.5, 1.5}, {2, 4, 2}, {2, 5.25, 1.5}, {8, 4, 2}} {
		s := &State{Pools: map[PoolID]PoolState{"p": {Signals: PoolSignals{Engines: map[EngineID]EngineSignals{}}}}}
		for i := range c.engines {
			s.Pools["p"].Signals.Engines[EngineID(rune('a'+i))] = EngineSignals{Queued: Reading{Value: c.queued, At: time.Unix(1, 0)}}
		}
		if got := left(s, &PoolPlan{Pool: "p", CapacityRps: 2}); got != c.want {
			t.Errorf("%d engines with %v waiting at each: %v RPS are left, want %v", c.engines, c.queued, got, c.want)
		}
	}
}

// All front-ends together may let in what the limit of a class allows, and no more: those
// that were idle, too, before a plan knows of them.
func TestALimitIsDividedOverFrontEnds(t *testing.T) {
	for _, n := range []int{1, 3, 10} {
		for _, limit := range []float64{0.01, 1, 7, 100} {
			for name, demand := range map[string]func(i int) float64{
				"idle":        func(int) float64 { return 0 },
				"half of it":  func(int) float64 { return limit / 2 / float64(n) },
				"one has all": func(i int) float64 { return []float64{limit * 2, 0}[min(i, 1)] },
				"far more":    func(int) float64 { return 1000 * limit },
			} {
				sum := 0.0
				for id, got := range limitedAdmissions(n, limit, demand) {
					if !got.Limited {
						t.Errorf("%s: %s is not told of the limit", name, id)
					}
					sum += got.CeilingRps.Value
				}
				if sum > limit*(1+1e-9) || sum < 0.99*limit {
					t.Errorf("%d front-ends, %s: %v RPS in all of a limit of %v", n, name, sum, limit)
				}
			}
		}
	}
}

// limitedAdmissions are those of a class with a limit at so many front-ends.
func limitedAdmissions(n int, limit float64, demand func(i int) float64) map[FrontEndID]*ClassAdmission {
	s := &State{Fleet: &Fleet{Classes: []Class{{ID: "chat"}}, Pools: []Pool{{ID: "p"}}}, Brakes: []Brake{{BrakeTarget: BrakeTarget{Kind: BrakeLimit, Class: "chat"}, Rps: limit}}}
	plan, all := &Plan{Pools: []PoolPlan{{Pool: "p", CapacityRps: 1e4}}}, 0.0
	for i := range n {
		all += demand(i)
	}
	for i := range n {
		id, rps := FrontEndID(rune('a'+i)), demand(i)
		shed := rps * max(0, 1-limit/max(all, limit))
		s.Fleet.FrontEnds = append(s.Fleet.FrontEnds, FrontEnd{ID: id})
		plan.Routes = append(plan.Routes, Route{FrontEnd: id, Class: "chat", DemandRps: rps, ShedRps: shed, Shares: []Share{{Pool: "p", Share: 1, Rps: rps - shed}}})
	}
	out := map[FrontEndID]*ClassAdmission{}
	for id, a := range NewAdmissions(s, plan) {
		out[id] = a.Class("chat")
	}
	return out
}
