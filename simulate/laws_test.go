package simulate

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

var smallTalk = sync.OnceValues(func() (*scenario, error) { return theTalk(sessions, 90) })

// small is the talk's fleet for a short time. Nobody changes it.
func small(t *testing.T) *scenario {
	t.Helper()
	s, err := smallTalk()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scenario) with(t *testing.T, seed uint64, p Policy) Config {
	t.Helper()
	c, err := s.config(seed)
	if err != nil {
		t.Fatal(err)
	}
	c.Policy = p
	c.WarmUpSeconds = 30
	return c
}

// ran begins a run and lets it go to its end.
func ran(t *testing.T, c Config) *world {
	t.Helper()
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(&c)
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	w.run()
	return w
}

// Every request that arrives is served, refused, or under way at the end, and what is
// inside engines was inside for as long as it stayed.
func TestNoRequestIsLost(t *testing.T) {
	s := small(t)
	for _, tt := range []struct {
		name  string
		p     Policy
		drain float64
	}{
		{"optimal", optimal, 600},
		{"nearest, overloaded, cut off", nearest, 0},
		{"a third refused", shedding(optimal, 1.0/3), 600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.with(t, 1, tt.p)
			c.DrainSeconds = tt.drain
			w := ran(t, c)
			r := w.result()
			left, stay := 0, w.tally.sojourns
			for i := range w.jobs.all {
				if j := &w.jobs.all[i]; j.Prompt > 0 {
					left++
					if j.reached > 0 && j.left == 0 {
						stay += w.now - j.reached
					}
				}
			}
			if r.Arrived != r.Served+r.Shed+r.UnderWay || r.UnderWay != left || r.Arrived < 10_000 {
				t.Errorf("%d arrived, %d were served, %d refused, %d are under way, %d have a place", r.Arrived, r.Served, r.Shed, r.UnderWay, left)
			}
			if (tt.drain == 0) != (r.UnderWay > 0) {
				t.Errorf("%d are under way after %v s", r.UnderWay, tt.drain)
			}
			if len(w.tally.ttft) != r.Measured-w.tally.refused {
				t.Errorf("%d times for %d requests that were let in", len(w.tally.ttft), r.Measured-w.tally.refused)
			}
			inside := 0.0
			for _, e := range w.replicas {
				inside += e.told.insideSeconds
			}
			if math.Abs(inside/stay-1) > 1e-9 {
				t.Errorf("∫ requests inside dt = %v s, all stayed %v s together", inside, stay)
			}
		})
	}
}

// Without a warm-up what comes with the first moment counts, too.
func TestTheFirstMomentCounts(t *testing.T) {
	s := small(t)
	c := s.with(t, 1, nearest)
	c.WarmUpSeconds, c.DrainSeconds = 0, 0
	endless := Row{Prompt: 1000, Output: 1_000_000}
	later := endless
	later.At = 60
	var err error
	if c.Workload, err = (Replay{Rows: []Row{endless, later}, Mix: s.mix, Speed: 1}).New(1); err != nil {
		t.Fatal(err)
	}
	w := ran(t, c)
	if r := w.result(); r.Measured != 2 || r.UnderWay != 2 || len(w.tally.endToEnd) != 2 || r.EndToEnd.P99 != c.Seconds {
		t.Errorf("%d of %d requests are measured, %d have a time, of up to %v s", r.Measured, r.Arrived, len(w.tally.endToEnd), r.EndToEnd.P99)
	}
}

// shedding refuses a part of everything beside what the policy does.
func shedding(p Policy, part float64) Policy {
	return func(s *fleet.State) (*fleet.Plan, error) {
		plan, err := p(s)
		if err != nil {
			return nil, err
		}
		for i := range plan.Routes {
			r := &plan.Routes[i]
			r.ShedRps = part * r.DemandRps
			for k := range r.Shares {
				r.Shares[k].Rps *= 1 - part
			}
		}
		for i := range plan.Pools { // that there is no room is why: gates would let more in
			q := &plan.Pools[i]
			q.Rps *= 1 - part
			q.CapacityRps = q.Rps
		}
		return plan, nil
	}
}

// A fraction that is refused by the hash of conversations is that part of requests.
func TestShedShareIsThePlans(t *testing.T) {
	w := ran(t, small(t).with(t, 2, shedding(even, 0.25)))
	// Conversations are refused, not requests: four turns each.
	n := float64(w.tally.measured) / 4
	if z := (w.result().ShedShare - 0.25) / math.Sqrt(0.25*0.75/n); math.Abs(z) > 4 {
		t.Errorf("%.4f are refused, want 0.25: z = %.1f", w.result().ShedShare, z)
	}
}

// The same seed gives the same result, bit for bit, with several classes and the LP,
// and another seed another.
func TestSameSeedSameResult(t *testing.T) {
	s, err := theWorld(sessions, 60)
	if err != nil {
		t.Fatal(err)
	}
	once, again, other := s.with(t, 1, optimal), s.with(t, 1, optimal), s.with(t, 2, optimal)
	first, err1 := Run(once)
	second, err2 := Run(again)
	third, err3 := Run(other)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the same seed gives another result (-first +second):\n%s", diff)
	}
	if first.EndToEnd == third.EndToEnd {
		t.Errorf("another seed gives the same result: %+v", third)
	}
}

// Under the same policy as under another the same requests come, as far as nobody
// waits for an answer.
func TestPoliciesFaceTheSameLuck(t *testing.T) {
	s := small(t)
	w, v := ran(t, s.with(t, 3, even)), ran(t, s.with(t, 3, nearest))
	a, b := w.result(), v.result()
	if math.Abs(float64(a.Arrived)/float64(b.Arrived)-1) > 0.05 || math.Abs(a.Tokens.Output/b.Tokens.Output-1) > 0.01 {
		t.Errorf("%d requests of %v, and %d of %v", a.Arrived, a.Tokens, b.Arrived, b.Tokens)
	}
}

// scattered sends every turn of a conversation to an engine of its own.
type scattered struct{ Workload }

func (s scattered) Next() (Request, bool) {
	r, ok := s.Workload.Next()
	r.Key = mix(r.Key)
	return r, ok
}

func (s scattered) After(r *Request, end float64) (Request, bool) {
	next, ok := s.Workload.After(r, end)
	next.Key = mix(next.Key)
	return next, ok
}

// At equal loads affinity is worth what it keeps in caches.
func TestAffinityRaisesWhatIsCached(t *testing.T) {
	s := *small(t)
	s.mix = s.mix.Scaled(0.5) // at which no engine is full
	sticky := ran(t, s.with(t, 4, even)).result()
	c := s.with(t, 4, even)
	c.Workload = scattered{c.Workload}
	loose := ran(t, c).result()
	if sticky.CachedShare < 0.7 || loose.CachedShare > sticky.CachedShare-0.2 {
		t.Errorf("%.2f of the prompts is cached with affinity, %.2f without", sticky.CachedShare, loose.CachedShare)
	}
	if sticky.TTFT.Mean >= loose.TTFT.Mean || sticky.WorkPerRequest >= loose.WorkPerRequest {
		t.Errorf("TTFT %.3f s with affinity, %.3f without; work %.2f and %.2f", sticky.TTFT.Mean, loose.TTFT.Mean, sticky.WorkPerRequest, loose.WorkPerRequest)
	}
	if sticky.MovedShare != 0 {
		t.Errorf("%.3f of the conversations moved under weights that stand still", sticky.MovedShare)
	}
}

func TestConfigIsChecked(t *testing.T) {
	s := small(t)
	for _, tt := range []struct {
		name string
		do   func(*Config)
		want string
	}{
		{"no policy", func(c *Config) { c.Policy = nil }, "want a fleet, a workload and a policy"},
		{"only a warm-up", func(c *Config) { c.WarmUpSeconds = c.Seconds }, "nothing would be measured"},
		{"a pool without a model", func(c *Config) { c.Engines = map[fleet.PoolID]Engine{"A": c.Engines["A"]} }, `pool "B": no engine model`},
		{"an engine without slots", func(c *Config) {
			e := c.Engines["A"]
			e.Slots = 0
			c.Engines = map[fleet.PoolID]Engine{"A": e, "B": e, "C": e}
		}, `pool "A": want a window, slots`},
		{"a fault elsewhere", func(c *Config) { c.Faults = []Fault{{1, "Z", 2}} }, `there is no pool "Z"`},
		{"a policy that fails at once", func(c *Config) {
			c.Policy = func(*fleet.State) (*fleet.Plan, error) { return nil, errors.New("broken") }
		}, "no first plan: broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.with(t, 1, even)
			tt.do(&c)
			if _, err := Run(c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
