package fleet

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// braked has two pools for chat, of which one may serve code as well, and the brakes.
func braked(brakes ...Brake) *State {
	s := &State{
		Fleet: &Fleet{
			FrontEnds: []FrontEnd{{ID: "east"}, {ID: "west"}},
			Pools: []Pool{
				{ID: "both", Models: []string{"chat", "code"}, Engines: []EngineID{"10.0.0.1:8000", "10.0.0.2:8000"}},
				{ID: "chat", Models: []string{"chat"}, Engines: []EngineID{"10.0.0.3:8000"}},
				{ID: "none", Engines: []EngineID{"10.0.0.4:8000"}},
			},
			Classes: []Class{{ID: "chat", Match: []Rule{{Model: "chat"}}}, {ID: "code", Match: []Rule{{Model: "code"}}}},
		},
		Demand: map[Stream]Demand{{"east", "chat"}: {Rps: 30}, {"west", "chat"}: {Rps: 10}},
		Pools:  map[PoolID]PoolState{"both": {Engines: map[EngineID]Readiness{"10.0.0.1:8000": Ready, "10.0.0.2:8000": Unready}}},
	}
	s.Brake(brakes)
	return s
}

func brake(t BrakeTarget) Brake {
	return Brake{BrakeTarget: t, Owner: "ann@ops", Since: noon, Until: noon.Add(time.Hour)}
}

func pin(frontEnd FrontEndID, class ClassID, pool PoolID, share float64) Brake {
	b := brake(BrakeTarget{Kind: BrakePin, FrontEnd: frontEnd, Class: class, Pool: pool})
	b.Share = share
	return b
}

func drain(pool PoolID, engine EngineID) Brake {
	return brake(BrakeTarget{Kind: BrakeDrain, Pool: pool, Engine: engine})
}

func limit(class ClassID, rps float64) Brake {
	b := brake(BrakeTarget{Kind: BrakeLimit, Class: class})
	b.Rps = rps
	return b
}

func TestCheckBrake(t *testing.T) {
	long := func(b Brake, d time.Duration) Brake { b.Until = b.Since.Add(d); return b }
	said := func(b Brake, owner, note string) Brake { b.Owner, b.Note = owner, note; return b }
	var full []Brake
	for i := range MaxBrakes {
		full = append(full, drain("", EngineID(fmt.Sprint(i))))
	}
	for name, c := range map[string]struct {
		brake Brake
		force bool
		with  []Brake
		err   string // empty: it is taken
	}{
		"a pool":                      {brake: drain("chat", "")},
		"an engine":                   {brake: drain("", "10.0.0.3:8000")},
		"a freeze":                    {brake: brake(BrakeTarget{Kind: BrakeFreeze})},
		"a pin of a class":            {brake: pin("east", "chat", "both", 0.3)},
		"a pin of all":                {brake: pin("east", "", "both", 1)},
		"a pin to nothing":            {brake: pin("east", "", "both", 0)},
		"a limit":                     {brake: limit("chat", 3)},
		"a limit to nothing":          {brake: limit("chat", 0)},
		"another kind":                {brake: brake(BrakeTarget{Kind: "brake"}), err: `there is no brake "brake"`},
		"an unknown pool":             {brake: drain("bth", ""), err: `there is no pool "bth": name one of both, chat, none`},
		"an unknown engine":           {brake: drain("", "10.0.0.4:800"), err: `there is no engine "10.0.0.4:800": name one of 10.0.0.4:8000, 10.0.0.1:8000, 10.0.0.2:8000, …`},
		"an unknown class":            {brake: limit("cod", 3), err: `there is no class "cod": name one of code, chat`},
		"an unknown front-end":        {brake: pin("est", "", "both", 0.5), err: `there is no front-end "est": name one of east, west`},
		"a drain of nothing":          {brake: drain("", ""), err: "drain: name either a pool or an engine"},
		"a drain of both":             {brake: drain("chat", "10.0.0.3:8000"), err: "drain: name either a pool or an engine"},
		"a drain with a share":        {brake: Brake{BrakeTarget: drain("chat", "").BrakeTarget, Share: 0.5, Owner: "a", Since: noon, Until: noon.Add(1)}, err: "share 0.5"},
		"a freeze of a class":         {brake: brake(BrakeTarget{Kind: BrakeFreeze, Class: "chat"}), err: "it takes no class"},
		"a pin without a front-end":   {brake: pin("", "chat", "both", 0.5), err: "it needs a front-end"},
		"a pin above all":             {brake: pin("east", "chat", "both", 1.1), err: "share 1.1: want 0, or 0.0001 to 1"},
		"a pin of next to nothing":    {brake: pin("east", "chat", "both", 1e-9), err: "share 1e-09: want 0, or 0.0001 to 1"},
		"a limit that is none":        {brake: limit("chat", 1e300), err: "1e+300 RPS: want 0, or 0.001 to 10000000"},
		"a limit of next to nothing":  {brake: limit("chat", 1e-300), err: "1e-300 RPS: want 0"},
		"a pin that is no number":     {brake: pin("east", "chat", "both", math.NaN()), err: "share NaN: want 0"},
		"a pin to an ineligible pool": {brake: pin("east", "code", "chat", 0.5), err: `pool "chat" may not serve class "code"`},
		"a pin to a pool of no class": {brake: pin("east", "", "none", 0.5), err: `pool "none" may serve no class`},
		"a limit below nothing":       {brake: limit("chat", -1), err: "-1 RPS"},
		"an endless limit":            {brake: limit("chat", math.Inf(1)), err: "+Inf RPS"},
		"a limit of no class":         {brake: limit("", 3), err: "it needs a class"},
		"for ever":                    {brake: long(drain("chat", ""), 25*time.Hour), err: "24h0m0s at most"},
		"for no time":                 {brake: long(drain("chat", ""), 0), err: "want more than 0"},
		"nobody's":                    {brake: said(drain("chat", ""), "", "why"), err: "an owner"},
		"a long note":                 {brake: said(drain("chat", ""), "a", strings.Repeat("x", 301)), err: "the note has 301 bytes"},
		"pins of more than all":       {brake: pin("east", "chat", "chat", 0.6), with: []Brake{pin("east", "", "both", 0.5)}, err: `class "chat" at "east" has 110 % of its traffic pinned`},
		"pins of all":                 {brake: pin("east", "chat", "chat", 0.5), with: []Brake{pin("east", "", "both", 0.5)}},
		"a pin anew":                  {brake: pin("east", "chat", "chat", 0.6), with: []Brake{pin("east", "chat", "chat", 1)}},
		"a class's before all":        {brake: pin("east", "chat", "both", 0.1), with: []Brake{pin("east", "", "both", 0.9), pin("east", "chat", "chat", 0.9)}},
		"the last engine of a class":  {brake: drain("both", ""), err: `the drain of pool "both" would leave no engine for class "code"`},
		"by force":                    {brake: drain("both", ""), force: true},
		"the last of two drains":      {brake: drain("", "10.0.0.1:8000"), with: []Brake{drain("chat", "")}, err: `no engine for class "chat", "code"`},
		"one too many":                {brake: limit("chat", 1), with: full, err: "100 brakes are in force"},
		"as many, one of them anew":   {brake: limit("chat", 1), with: append([]Brake{limit("chat", 3)}, full[1:]...)},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckBrake(braked(c.with...), &c.brake, c.force)
			if c.err == "" && err != nil || c.err != "" && (!errors.Is(err, ErrBrake) || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
}

// Engines that are not ready just now are not the less wanted: a drain of the last that others
// leave needs force, too.
func TestDrainsWhileNothingIsReady(t *testing.T) {
	last := drain("both", "")
	for _, left := range []bool{true, false} {
		s := braked()
		for id, p := range s.Pools {
			p.Engines = map[EngineID]Readiness{}
			for _, e := range s.Fleet.Pool(id).Engines {
				p.Engines[e] = Unready
			}
			s.Pools[id] = p
		}
		if !left {
			s.Brake([]Brake{drain("chat", "")})
		}
		err := CheckBrake(s, &last, false)
		if !errors.Is(err, ErrBrake) || !strings.Contains(err.Error(), `"code"`) {
			t.Errorf("%v, want no engine for class \"code\"", err)
		}
		if all := err != nil && strings.Contains(err.Error(), `"chat"`); all == left {
			t.Errorf("%v, and pool chat has engines: %v", err, left)
		}
	}
}

func TestCheckRelease(t *testing.T) {
	brakes := []Brake{drain("both", ""), limit("chat", 3)}
	for want, target := range map[string]BrakeTarget{
		"": brakes[0].BrakeTarget,
		`there is no drain of pool "chat"; in force: drain of pool "both"`: {Kind: BrakeDrain, Pool: "chat"},
		"no freeze is in force": {Kind: BrakeFreeze},
	} {
		err := CheckRelease(brakes, target)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrBrake) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v, want %q", target, err, want)
		}
	}
}

// A drain takes engines that serve, and no others; what the state was made of stays.
func TestDrains(t *testing.T) {
	s := braked()
	known := s.Pools["both"].Engines
	s.Brake([]Brake{drain("both", ""), drain("", "10.0.0.3:8000")})
	for engine, want := range map[EngineID]Readiness{"10.0.0.1:8000": Draining, "10.0.0.2:8000": Unready} {
		if got := s.Readiness("both", engine); got != want {
			t.Errorf("%s is %v, want %v", engine, got, want)
		}
	}
	if got := s.Readiness("chat", "10.0.0.3:8000"); got != Draining {
		t.Errorf("an engine of which nothing is known is %v, want draining", got)
	}
	if known["10.0.0.1:8000"] != Ready {
		t.Error("what was known was changed")
	}
	if n := s.ReadyEngines(s.Fleet.Pool("both")) + s.ReadyEngines(s.Fleet.Pool("chat")); n != 0 {
		t.Errorf("%d engines are ready, want none", n)
	}
}

func TestAdmittedByLimit(t *testing.T) {
	for _, c := range []struct{ rps, want float64 }{{20, 0.5}, {0, 0}, {40, 1}, {50, 1}} {
		if got := braked(limit("chat", c.rps)).AdmittedByLimit("chat"); got != c.want {
			t.Errorf("limited to %v of 40 RPS: %v, want %v", c.rps, got, c.want)
		}
	}
	if got := braked(limit("chat", 0)).AdmittedByLimit("code"); got != 1 {
		t.Errorf("a class without a limit: %v, want 1", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"eu-h100", "eu-h100", 0}, {"eu-h100", "us-h100", 2}, {"h100", "h-100", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != got {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Between two plans no more gets in than this front-end's part of what the limit leaves,
// and a plan that does not know of it yet is not held to it.
func TestCeilingWithinALimit(t *testing.T) {
	for name, c := range map[string]struct{ limit, east, west, shed, want float64 }{
		"not reached":          {limit: 50, east: 30, west: 10, want: 36.25},
		"reached":              {limit: 40, east: 30, west: 10, want: 30},
		"kept by the plan":     {limit: 20, east: 30, west: 10, shed: 0.5, want: 15},
		"of which nobody asks": {limit: 20, west: 10, want: 2.5},
		"not known yet":        {limit: 20, east: 30, west: 10, want: 70.5},
	} {
		s := braked(limit("chat", c.limit))
		plan := &Plan{Pools: []PoolPlan{{Pool: "chat", CapacityRps: 94}}}
		for _, r := range []struct {
			at  FrontEndID
			rps float64
		}{{"east", c.east}, {"west", c.west}} {
			plan.Routes = append(plan.Routes, Route{
				FrontEnd: r.at, Class: "chat", DemandRps: r.rps, ShedRps: c.shed * r.rps,
				Shares: []Share{{Pool: "chat", Share: 1, Rps: (1 - c.shed) * r.rps}},
			})
		}
		got := NewAdmissions(s, plan)["east"].Class("chat").CeilingRps
		if !got.Known || math.Abs(got.Value-c.want) > 0.016*c.want {
			t.Errorf("%s: ceiling %+v, want %v", name, got, c.want)
		}
	}
}
