package control

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/fleet"
)

func some(name string) *string { return &name }

// An operator need not wait for the first round, nor for the next one before he
// changes the fleet file.
func TestChooseBetweenRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		state, file := c.State, fleet.PolicyEven
		c.State = func(now time.Time, previous *fleet.Plan) *fleet.State {
			s := state(now, previous)
			s.Fleet.Options.Policy = file
			return s
		}
		l := New(c)
		runLoop(t, l)
		for _, step := range []struct {
			choose, file, want string
		}{
			{fleet.PolicyNearest, fleet.PolicyEven, fleet.PolicyNearest},
			{fleet.PolicyLocal, fleet.PolicyWaterfall, fleet.PolicyWaterfall},
		} {
			if got, err := l.Choose(&step.choose, nil); err != nil || got.Policy.Name != step.choose {
				t.Errorf("chose %q (%v), want %q", got.Policy.Name, err, step.choose)
			}
			l.Post(func(time.Time) { file = step.file })
			elapse(DefaultTick)
			synctest.Wait()
			if got := l.Latest().Choice.Policy; got != (fleet.Chosen{Name: step.want, File: step.file}) {
				t.Errorf("chose %s, then the file said %s: %+v", step.choose, step.file, got)
			}
		}
	})
}

// The answer says what will be in force, both policies at once too.
func TestChooseAnswersWithWhatWillBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testConfig())
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		got, err := l.Choose(some(fleet.PolicyNearest), some(fleet.PolicyOptimal))
		want := fleet.Choice{
			Policy: fleet.Chosen{Name: fleet.PolicyNearest, File: fleet.PolicyOptimal},
			Shadow: fleet.Chosen{Name: fleet.PolicyOptimal},
		}
		if err != nil || got != want {
			t.Errorf("chose %+v (%v), want %+v", got, err, want)
		}
		if r := l.Latest(); r.Choice == want {
			t.Error("it is in force before the next round")
		}
		elapse(DefaultTick)
		synctest.Wait()
		if r := l.Latest(); r.Choice != want || r.Plan.Policy != fleet.PolicyNearest || r.State.Fleet.Options.Policy != fleet.PolicyNearest {
			t.Errorf("after the round: %+v, plan by %q, state by %q", r.Choice, r.Plan.Policy, r.State.Fleet.Options.Policy)
		}
	})
}

// A loop that is stuck does not keep the operator for ever.
func TestChooseOfALoopThatDoesNotHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testConfig()) // not running
		if _, err := l.Choose(some(fleet.PolicyEven), nil); !errors.Is(err, errNotHeard) {
			t.Errorf("error %v, want %v", err, errNotHeard)
		}
		for l.Post(func(time.Time) {}) {
		}
		if _, err := l.Choose(some(fleet.PolicyEven), nil); !errors.Is(err, errNotHeard) {
			t.Errorf("with too many events waiting: error %v, want %v", err, errNotHeard)
		}
	})
}

// However long the shadow takes, plans are published on time, and the rounds that it
// misses are counted.
func TestASlowShadowDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		makePlan, publish := c.Plan, c.Publish
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			if s.Fleet.Options.Policy == fleet.PolicyWaterfall {
				elapse(5 * time.Second)
			}
			return makePlan(s)
		}
		var published []time.Time
		c.Publish = func(s *fleet.State, p *fleet.Plan) error {
			published = append(published, time.Now())
			if p.Policy != fleet.PolicyOptimal {
				t.Errorf("a plan of %q was published", p.Policy)
			}
			return publish(s, p)
		}
		l := New(c)
		runLoop(t, l)
		elapse(time.Second)
		synctest.Wait()
		if _, err := l.Choose(nil, some(fleet.PolicyWaterfall)); err != nil {
			t.Fatal(err)
		}
		const rounds = 12
		elapse(rounds * DefaultTick)
		synctest.Wait()
		for i := 1; i < len(published); i++ {
			if wait := published[i].Sub(published[i-1]); wait != DefaultTick {
				t.Errorf("round %d was published %v after the one before, want %v", i, wait, DefaultTick)
			}
		}
		// Begun in rounds 1, 4, 7, 10: five seconds are two rounds missed and a half.
		if n := &l.Counters; len(published) != 1+rounds || n.ShadowsPlanned.Load() != 3 || n.ShadowsSkipped.Load() != 8 || n.ShadowsFailed.Load() != 0 {
			t.Errorf("%d rounds, %d planned by the shadow, %d skipped, %d failed", len(published), n.ShadowsPlanned.Load(), n.ShadowsSkipped.Load(), n.ShadowsFailed.Load())
		}
		if _, err := l.Choose(nil, some("")); err != nil {
			t.Fatal(err)
		}
		elapse(5 * time.Second) // the last one ends
	})
}

// A shadow goes by its own plans: what it would have done, not what was done.
func TestAShadowKeepsItsOwnChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		makePlan := c.Plan
		previous := map[string][]string{} // policies of previous plans, by policy
		elapsed := map[string]float64{}
		c.Plan = func(s *fleet.State) (*fleet.Plan, error) {
			by := "none"
			if s.Previous != nil {
				by = s.Previous.Policy
			}
			name := s.Fleet.Options.Policy
			previous[name] = append(previous[name], by)
			elapsed[name] = s.ElapsedSeconds
			return makePlan(s)
		}
		state := c.State
		c.State = func(now time.Time, previous *fleet.Plan) *fleet.State {
			s := state(now, previous)
			s.Fleet.Options.Shadow = fleet.PolicyEven
			return s
		}
		l := New(c)
		runLoop(t, l)
		elapse(time.Second)
		for range 3 {
			synctest.Wait() // the shadow has ended before its next round
			elapse(DefaultTick)
		}
		synctest.Wait()
		for policy, want := range map[string][]string{
			fleet.PolicyOptimal: {"none", "optimal", "optimal", "optimal"},
			fleet.PolicyEven:    {"none", "even", "even", "even"},
		} {
			if got := previous[policy]; !slices.Equal(got, want) {
				t.Errorf("%s planned from plans of %v, want %v", policy, got, want)
			}
			if elapsed[policy] != DefaultTick.Seconds() {
				t.Errorf("%s: the previous plan is %v s old, want %v", policy, elapsed[policy], DefaultTick)
			}
		}
	})
}
