package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// withinStep is how far a number of [stepped] may be from what is meant.
const withinStep = 0.016

// One more request of a class that is ahead leaves room for one fewer where both go alike,
// and less where the other goes elsewhere.
func TestWhoIsAheadCountsWhereTheOtherGoes(t *testing.T) {
	type shares = []Share
	for _, c := range []struct {
		name        string
		ahead, last shares
		want        float64 // 0: nothing is said
	}{
		{"alike", shares{{Pool: "p", Share: 0.7}, {Pool: "q", Share: 0.3}}, shares{{Pool: "p", Share: 0.7}, {Pool: "q", Share: 0.3}}, 1},
		{"apart", shares{{Pool: "p", Share: 1}}, shares{{Pool: "q", Share: 1}}, 0},
		{"a part of the one ahead", shares{{Pool: "p", Share: 0.4}, {Pool: "q", Share: 0.6}}, shares{{Pool: "p", Share: 1}}, 0.4},
		{"all of it, a part of the last", shares{{Pool: "p", Share: 1}}, shares{{Pool: "p", Share: 0.5}, {Pool: "q", Share: 0.5}}, 1},
		{"little of the last", shares{{Pool: "p", Share: 1}}, shares{{Pool: "p", Share: 0.1}, {Pool: "q", Share: 0.9}}, 0.1 / 0.82},
		{"the last goes nowhere", shares{{Pool: "p", Share: 1}}, nil, 0},
	} {
		a := admissionAt("east", []Class{{ID: "ahead", Priority: 2}, {ID: "last", Priority: 1}}, []Route{
			{FrontEnd: "east", Class: "ahead", DemandRps: 20, Shares: c.ahead},
			{FrontEnd: "east", Class: "last", DemandRps: 50, ShedRps: 10, Shares: c.last},
			{FrontEnd: "west", Class: "ahead", DemandRps: 20, Shares: c.last},
		})
		last := a.Class("last")
		if len(a.Class("ahead").Ahead) != 0 || math.Abs(last.PlannedRps.Value-40) > withinStep*40 {
			t.Errorf("%s: ahead %+v, last %+v", c.name, a.Class("ahead"), last)
		}
		if got := parts(last); math.Abs(got-c.want) > withinStep*c.want || len(last.Ahead) > 1 {
			t.Errorf("%s: %+v, want a part of %v", c.name, last.Ahead, c.want)
		}
	}
}

// admissionAt is what may enter at a front-end whose classes share two pools.
func admissionAt(id FrontEndID, classes []Class, routes []Route) *Admission {
	s := &State{Fleet: &Fleet{FrontEnds: []FrontEnd{{ID: "east"}, {ID: "west"}}, Pools: []Pool{{ID: "p"}, {ID: "q"}}, Classes: classes}}
	plan := &Plan{Pools: []PoolPlan{{Pool: "p", CapacityRps: 100}, {Pool: "q", CapacityRps: 100}}, Routes: routes}
	return NewAdmissions(s, plan)[id]
}

func parts(c *ClassAdmission) (sum float64) {
	for _, p := range c.Ahead {
		sum += p.Part
	}
	return sum
}

// What classes ahead take or leave is divided among peers as what is planned of them, and
// comes whole to those of each priority below.
func TestPeersDivideWhatIsTaken(t *testing.T) {
	all := func(rps float64) []Share { return []Share{{Pool: "p", Share: 1, Rps: rps}} }
	classes := []Class{{ID: "a", Priority: 1}, {ID: "b", Priority: 1}, {ID: "gold", Priority: 3}, {ID: "idle", Priority: 0}, {ID: "idler", Priority: 0}}
	a := admissionAt("east", classes, []Route{
		{FrontEnd: "east", Class: "a", DemandRps: 30, Shares: all(30)},
		{FrontEnd: "east", Class: "b", DemandRps: 10, Shares: all(10)},
		{FrontEnd: "east", Class: "gold", DemandRps: 20, Shares: all(20)},
		{FrontEnd: "east", Class: "idle", Shares: all(0)},
		{FrontEnd: "east", Class: "idler", Shares: all(0)},
	})
	for id, want := range map[ClassID]float64{"a": 0.75, "b": 0.25, "idle": 1.5, "idler": 1.5} { // of a, b and gold a half each
		if got := parts(a.Class(id)); math.Abs(got-want) > withinStep*want {
			t.Errorf("%s: %+v, want %v in all", id, a.Class(id).Ahead, want)
		}
	}
}

// Of very many classes those that count most are told.
func TestNotAllOfManyAreTold(t *testing.T) {
	var classes []Class
	var routes []Route
	for i := range 200 {
		id := ClassID(fmt.Sprintf("c%03d", i))
		share := float64(1+i%100) / 100
		classes = append(classes, Class{ID: id, Priority: i})
		routes = append(routes, Route{FrontEnd: "east", Class: id, DemandRps: 1, Shares: []Share{{Pool: "p", Share: share, Rps: share}, {Pool: "q", Share: 1 - share, Rps: 1 - share}}})
	}
	routes[0].Shares = []Share{{Pool: "p", Share: 1, Rps: 1}}
	a := admissionAt("east", classes, routes)
	last := a.Class("c000")
	if len(last.Ahead) != mostAhead || !slices.IsSortedFunc(last.Ahead, func(a, b Precedence) int { return cmp.Compare(a.Class, b.Class) }) {
		t.Fatalf("%d are told: %+v", len(last.Ahead), last.Ahead)
	}
	for _, p := range last.Ahead {
		if p.Part < 0.9 {
			t.Errorf("%+v is told, and others count more", p)
		}
	}
}

func TestOpenAhead(t *testing.T) {
	c := &ClassAdmission{Ahead: []Precedence{{"gold", 1}, {"silver", 0.5}}}
	if got := c.OpenAhead(func(ClassID) float64 { return 8 }); got != 12 {
		t.Errorf("%v open ahead of it, want 12", got)
	}
}

// A request counts by its work.
func TestLongRequestsCountMore(t *testing.T) {
	all := []Share{{Pool: "p", Share: 1, Rps: 10}}
	profile := Profile{CapacityRps: 10, Reference: Tokens{Output: 100}, OutputTokenCost: 1}
	for _, c := range []struct{ ahead, last, want float64 }{{100, 100, 1}, {400, 100, 4}, {100, 400, 0.25}, {1e9, 1, mostWork}} {
		f := &Fleet{FrontEnds: []FrontEnd{{ID: "east"}}, Pools: []Pool{{ID: "p", Profile: profile}}, Classes: []Class{
			{ID: "ahead", Priority: 2, Tokens: Tokens{Output: c.ahead}}, {ID: "last", Priority: 1, Tokens: Tokens{Output: c.last}},
		}}
		plan := &Plan{Pools: []PoolPlan{{Pool: "p", CapacityRps: 100}}, Routes: []Route{
			{FrontEnd: "east", Class: "ahead", DemandRps: 10, Shares: all}, {FrontEnd: "east", Class: "last", DemandRps: 10, Shares: all},
		}}
		if got := parts(NewAdmissions(&State{Fleet: f}, plan)["east"].Class("last")); math.Abs(got-c.want) > withinStep*c.want {
			t.Errorf("%v tokens ahead of %v: a part of %v, want %v", c.ahead, c.last, got, c.want)
		}
	}
}

// A limit rules where it is less than what could be served; else that does, and no class
// ahead is held up by a limit that nobody comes near.
func TestALimitRulesWhereItIsLess(t *testing.T) {
	for _, c := range []struct {
		limit, ceiling, spare float64
		limited               bool
	}{{30, 30, 70, true}, {1000, 100, 0, false}} {
		s := &State{
			Fleet:  &Fleet{FrontEnds: []FrontEnd{{ID: "east"}}, Pools: []Pool{{ID: "p"}}, Classes: []Class{{ID: "chat"}}},
			Brakes: []Brake{{BrakeTarget: BrakeTarget{Kind: BrakeLimit, Class: "chat"}, Rps: c.limit}},
		}
		plan := &Plan{Pools: []PoolPlan{{Pool: "p", CapacityRps: 100, Rps: 20}}, Routes: []Route{
			{FrontEnd: "east", Class: "chat", DemandRps: 20, Shares: []Share{{Pool: "p", Share: 1, Rps: 20}}},
		}}
		got := NewAdmissions(s, plan)["east"].Class("chat")
		if got.Limited != c.limited || math.Abs(got.CeilingRps.Value-c.ceiling) > withinStep*c.ceiling || math.Abs(got.SpareRps-c.spare) > 2*withinStep*c.spare {
			t.Errorf("limit %v: %+v", c.limit, got)
		}
	}
}

// What any class may take at once of spare capacity becomes less where those who come back,
// whom no plan counts, use it. What lower priorities were to have is not used by others.
func TestWhatIsUsedIsNotSpare(t *testing.T) {
	at := time.Unix(1, 0)
	for _, c := range []struct {
		planned, sent float64
		stale         bool
		priority      int
		want          float64 // RPS of a class without demand, beside one of priority 1 in a pool of 100 RPS
	}{
		{40, 40, false, 1, 15},
		{40, 10, false, 1, 15},
		{40, 70, false, 1, 7.5},
		{40, 130, false, 1, 1.2},
		{40, 130, true, 1, 15},
		{40, 130, false, 2, 11.2},
		{100, 99, false, 2, 25},
		{100, 101, false, 2, 25},
		{100 * (1 - 1e-12), 101, false, 2, 25},
		{100 * (1 + 1e-12), 99, false, 2, 25},
	} {
		s := &State{
			Fleet: &Fleet{FrontEnds: []FrontEnd{{ID: "east"}}, Pools: []Pool{{ID: "p"}}, Classes: []Class{{ID: "chat", Priority: 1}, {ID: "idle", Priority: c.priority}}},
			Pools: map[PoolID]PoolState{"p": {Signals: PoolSignals{SentRps: Reading{Value: c.sent, At: at, Stale: c.stale}}}},
		}
		share := func(rps float64) []Share { return []Share{{Pool: "p", Share: 1, Rps: rps}} }
		plan := &Plan{Pools: []PoolPlan{{Pool: "p", CapacityRps: 100, Rps: c.planned}}, Routes: []Route{
			{FrontEnd: "east", Class: "chat", DemandRps: c.planned, Shares: share(c.planned)}, {FrontEnd: "east", Class: "idle", Shares: share(0)},
		}}
		a := NewAdmissions(s, plan)["east"]
		if got := a.Class("idle").CeilingRps.Value; math.Abs(got-c.want) > withinStep*c.want {
			t.Errorf("%+v: %v RPS", c, got)
		}
		if got := a.Class("chat").CeilingRps.Value; math.Abs(got-100) > withinStep*100 {
			t.Errorf("%+v: %v RPS for who has all of it, want 100", c, got)
		}
	}
}
