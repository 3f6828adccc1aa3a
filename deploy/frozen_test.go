package deploy

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/admin"
	"weir/deploy/stage"
	"weir/fleet"
)

// frozenAfter is how long a page may say the same while its engine answers requests;
// the control plane needs a few seconds more to see that it does, and a tick.
const frozenAfter = 15 * time.Second

// Pages that stand still while engines serve change no weight, neither while they are
// believed nor after. What they do is to raise one alarm, when they have stood still
// for as long as that takes: for their pool, which ages alone, or for the fleet if it
// is all of them.
func TestFrozenPagesUnderTraffic(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/frozen.yaml"})
	l := startLoad(t, s, "frozen", 16)
	eventually(t, "every engine's page is read", 20*time.Second, func() bool { return told(beliefs(t, s)) == 4 })
	l.flow(200)
	f := &freezing{t: t, stage: s, before: heldNow(t, s), since: map[fleet.PoolID]time.Time{}, looks: time.NewTicker(200 * time.Millisecond)}
	if !f.before.split() {
		t.Fatalf("weights %v: want a front-end that uses two pools", f.before.Weights)
	}

	f.freeze("near")
	f.watch(8 * time.Second)
	f.freeze("far")
	f.await("near", `pool "near": the metrics of 2 of 2 engines are not believed: its page has said the same for`)
	if got := staleIn(t, s); !slices.Equal(got, []fleet.PoolID{"near"}) {
		t.Errorf("engines of pools %v are stale, want those of near alone", got)
	}
	f.await("far", "the metrics of all 4 engines are not believed")
	f.watch(2 * s.Fleet.Options.Tick)
	f.served()

	for _, e := range allEngines(s) {
		setFaults(t, e, `{}`)
	}
	awaitStatus(t, s, 0, "all is well")
	l.endWhole()
}

func allEngines(s *stage.Stage) (all []fleet.EngineID) {
	for _, p := range s.Fleet.Pools {
		all = append(all, p.Engines...)
	}
	return all
}

// freezing is a fleet whose pages freeze under traffic.
type freezing struct {
	t      *testing.T
	stage  *stage.Stage
	looks  *time.Ticker
	before held
	since  map[fleet.PoolID]time.Time
	alarm  string // that is raised, and begins so; empty: none
	frozen []struct {
		engine fleet.EngineID
		page   string
		came   int // requests, until then
	}
}

func (f *freezing) freeze(id fleet.PoolID) {
	f.t.Helper()
	for _, e := range f.stage.Fleet.Pool(id).Engines {
		setFaults(f.t, e, `{"freeze":true}`)
		f.frozen = append(f.frozen, struct {
			engine fleet.EngineID
			page   string
			came   int
		}{e, page(f.t, string(e), "/metrics"), f.came(e)})
	}
	f.since[id] = time.Now()
}

func (f *freezing) came(e fleet.EngineID) int { return len(atEngine(arrivals(f.t, f.stage), e)) }

// served holds that all the time frozen engines have served, and shown one page.
func (f *freezing) served() {
	f.t.Helper()
	for _, was := range f.frozen {
		if n := f.came(was.engine) - was.came; n < 10 || page(f.t, string(was.engine), "/metrics") != was.page {
			f.t.Errorf("engine %s served %d requests, want many, and the same page all the time", was.engine, n)
		}
	}
}

// look holds that nothing has changed that must not, and returns for what attention
// is asked.
func (f *freezing) look() []string {
	f.t.Helper()
	<-f.looks.C
	if diff := cmp.Diff(f.before, heldNow(f.t, f.stage)); diff != "" {
		f.t.Fatalf("%v after near froze (-before +now):\n%s", time.Since(f.since["near"]), diff)
	}
	var now admin.Status
	adminPage(f.t, f.stage, "/status", &now)
	return now.Attention
}

func alarmed(lines []string, begins string) bool {
	return begins == "" && len(lines) == 0 || len(lines) == 1 && strings.HasPrefix(lines[0], begins)
}

// watch looks on for a while, in which the alarm stays as it is.
func (f *freezing) watch(long time.Duration) {
	f.t.Helper()
	until := time.Now().Add(long)
	eventually(f.t, "time passes", long+10*time.Second, func() bool {
		if lines := f.look(); !alarmed(lines, f.alarm) {
			f.t.Fatalf("attention is asked for %q, want one line %q", lines, f.alarm)
		}
		return time.Now().After(until)
	})
}

// await waits for the alarm that is raised when a pool has stood still for its time.
func (f *freezing) await(id fleet.PoolID, alarm string) {
	f.t.Helper()
	eventually(f.t, alarm, frozenAfter+20*time.Second, func() bool {
		lines := f.look()
		if alarmed(lines, alarm) {
			return true
		}
		others := slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "said the same") }) // engines come one by one
		if len(others) > 0 && !alarmed(others, f.alarm) {
			f.t.Fatalf("attention is asked for %q, want one line %q, then %q", others, f.alarm, alarm)
		}
		return false
	})
	f.alarm = alarm
	took := time.Since(f.since[id])
	f.t.Logf("%v after %s froze: %s", took.Round(100*time.Millisecond), id, alarm)
	if took < frozenAfter-2*time.Second || took > frozenAfter+10*time.Second { // the page may have stood still before
		f.t.Errorf("the alarm came %v after %s froze, want about %v", took, id, frozenAfter)
	}
}

// held is what a frozen page must not change: the weights by which each Envoy works,
// and what pools are taken to be able to do.
type held struct {
	Weights    map[fleet.FrontEndID]map[string]int
	Factors    map[fleet.PoolID]float64
	Capacities map[fleet.PoolID]float64 // RPS
}

func heldNow(t *testing.T, s *stage.Stage) held {
	t.Helper()
	h := held{map[fleet.FrontEndID]map[string]int{}, map[fleet.PoolID]float64{}, map[fleet.PoolID]float64{}}
	for _, fe := range s.Fleet.FrontEnds {
		weights, err := s.Weights(t.Context(), string(fe.ID))
		check(t, err)
		h.Weights[fe.ID] = weights
	}
	var b admin.Beliefs
	var plan fleet.Plan
	adminPage(t, s, "/beliefs", &b)
	adminPage(t, s, "/plan", &plan)
	for _, p := range b.Pools {
		h.Factors[p.Pool] = p.CapacityFactor
	}
	for _, p := range plan.Pools {
		h.Capacities[p.Pool] = math.Round(1e6*p.CapacityRps) / 1e6
	}
	return h
}

// split says whether some Envoy sends requests to two pools.
func (h held) split() bool {
	for _, weights := range h.Weights {
		if weights["chat/0/near"] > 0 && weights["chat/0/far"] > 0 {
			return true
		}
	}
	return false
}

// staleIn are the pools with engines that are not believed.
func staleIn(t *testing.T, s *stage.Stage) (pools []fleet.PoolID) {
	t.Helper()
	var b admin.Beliefs
	adminPage(t, s, "/beliefs", &b)
	for _, p := range b.Pools {
		if slices.ContainsFunc(p.Engines, func(e admin.EngineBelief) bool { return e.Why != "" || e.Running == nil || e.Running.Stale }) {
			pools = append(pools, p.Pool)
		}
	}
	return pools
}
