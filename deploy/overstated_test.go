package deploy

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fleet"
)

const (
	overstatement = 1.3
	nearRps       = 40.0                    // what the profiles promise of near
	canRps        = nearRps / overstatement // what near does when its engines are slower by that
	overstatedRps = 33                      // what clients ask for: between the two
	rise          = 0.01                    // of a factor in a round of two seconds, with nothing against it
	few           = 6                       // requests that wait at both engines: by Erlang's formula an engine of 24 places at nine tenths has 3 in the mean
)

// overstated is a fleet whose engines have queues as real ones have: each does so
// many requests at once, and the others wait. What it does of them in a second is as
// its profile says, 24 / 1.2 s, or less where its faults make it slow.
type overstated struct {
	t      *testing.T
	stage  *stage.Stage
	load   *steady
	asked  *time.Ticker
	shares []inForce
}

// inForce is the share of near from a time on.
type inForce struct {
	from  time.Time
	share float64
}

// moment is what the control plane believes and plans at one, and the engines show.
type moment struct {
	factor  float64 // of near
	reason  string
	share   float64 // of the traffic, to near
	planned float64 // RPS to near
	waiting float64 // requests at near, as its engines' own pages say
}

func (m moment) String() string {
	return fmt.Sprintf("factor %.2f (%s), share %.2f, %.1f RPS, %v waiting", m.factor, m.reason, m.share, m.planned, m.waiting)
}

func startOverstated(t *testing.T) *overstated {
	t.Helper()
	s := start(t, stage.Options{FleetFile: "testdata/overstated.yaml", EngineFlags: func(fleet.PoolID) []string {
		return []string{"--slots", "24", "--ttft", "100ms", "--ttft-full", "100ms", "--tbt", "365ms"}
	}})
	o := &overstated{t: t, stage: s, load: startLoad(t, s, "overstated", overstatedRps), asked: time.NewTicker(200 * time.Millisecond)}
	o.load.flow(100)
	if m := o.now(); m.factor != 1 || m.share < 0.999 {
		t.Fatalf("%v: by the profile near has room for all", m)
	}
	return o
}

// slow makes the engines of near slower than their profile.
func (o *overstated) slow(by float64) {
	o.t.Helper()
	for _, e := range o.stage.Fleet.Pool("near").Engines {
		setFaults(o.t, e, fmt.Sprintf(`{"slow":%v}`, by))
	}
}

// now asks at most five times a second.
func (o *overstated) now() (m moment) {
	o.t.Helper()
	<-o.asked.C
	var b admin.Beliefs
	var p fleet.Plan
	adminPage(o.t, o.stage, "/beliefs", &b)
	adminPage(o.t, o.stage, "/plan", &p)
	for _, pool := range b.Pools {
		if pool.Pool == "near" {
			m.factor, m.reason = pool.CapacityFactor, pool.FactorReason
		} else if pool.CapacityFactor != 1 {
			o.t.Errorf("pool %s has a factor of %v because %s, though its profile is right", pool.Pool, pool.CapacityFactor, pool.FactorReason)
		}
	}
	for _, s := range p.Routes[0].Shares {
		if s.Pool == "near" {
			m.share, m.planned = s.Share, s.Rps
		}
	}
	for _, e := range o.stage.Fleet.Pool("near").Engines {
		m.waiting += sample(o.t, page(o.t, string(e), "/metrics"), "vllm:num_requests_waiting")
	}
	o.shares = append(o.shares, inForce{time.Now(), m.share})
	return m
}

// settled waits until nothing waits at near any more, for as long as a queue must
// last to be one.
func (o *overstated) settled(within time.Duration) (m moment) {
	o.t.Helper()
	const calm = 5 * time.Second
	last := time.Now()
	eventually(o.t, "the queue settles", within, func() bool {
		if m = o.now(); m.waiting > few {
			last = time.Now()
		}
		return time.Since(last) > calm
	})
	return m
}

// followed holds the engines' journals against the shares that were in force when
// requests came.
func (o *overstated) followed() {
	o.t.Helper()
	n, got, want, variance, next := 0, 0.0, 0.0, 0.0, 0
	for _, a := range arrivals(o.t, o.stage) {
		for next < len(o.shares) && o.shares[next].from.Before(a.Time) {
			next++
		}
		if next == 0 || next == len(o.shares) {
			continue // nobody looked yet, or any more
		}
		share := o.shares[next-1].share
		want += share
		variance += share * (1 - share)
		n++
		if a.Pool == "near" {
			got++
		}
	}
	z := (got - want) / math.Sqrt(max(variance, 1))
	o.t.Logf("near got %v of %d requests, by its shares it should have had %.0f: z = %.1f", got, n, want, z)
	// Fewer may go there: while its engines tell of a queue, new conversations are
	// diverted, which is no matter of the plan.
	if z > 4 || got < want/2 {
		o.t.Errorf("near got %v of %d requests, by its shares it should have had %.0f: z = %.1f", got, n, want, z)
	}
}

// What a profile promises too much is found out by the engines' queues: the factor of
// their pool falls, with the reason, until the plan sends no more there than they can
// do; when the truth improves, the factor rises and the share follows.
func TestAProfileIsNotBelievedAgainstTheEvidence(t *testing.T) {
	t.Parallel()
	o := startOverstated(t)
	o.slow(overstatement)
	eventually(t, "a queue at near", 30*time.Second, func() bool { return o.now().waiting >= 10 })
	// Near is planned full, and chance decides for how long a few wait there: most often less
	// than a minute, and now and then two. How long on the whole is measured at length.
	low := o.settled(200 * time.Second)
	t.Logf("settled: %v", low)
	if low.planned > canRps || low.factor > 0.9 {
		t.Errorf("%v: want no more than the %.1f RPS that near can do", low, canRps)
	}
	if !strings.Contains(low.reason, "TTFT") && !strings.Contains(low.reason, "wait") {
		t.Errorf("the reason is %q", low.reason)
	}
	o.slow(1)
	const steps = 5
	var m moment
	eventually(t, "factor and share come back", 2*rising(steps*rise), func() bool {
		m = o.now()
		return m.factor > low.factor+steps*rise-1e-9 && m.planned > low.planned && m.waiting <= few
	})
	t.Logf("coming back: %v", m)
	o.load.endWhole()
	o.followed()
}

// rising is how long a factor takes to rise so far.
func rising(by float64) time.Duration {
	return time.Duration(by / rise * float64(2*time.Second))
}

// The same at length: how well a pool is used while its profile is wrong, and how
// long it takes until it is used in full again. It writes its figures to $WEIR_FIGURES.
func TestOverstatedAtLength(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("runs for minutes: use make test-capacity")
	}
	o := startOverstated(t)
	f := figures.Report{Target: "test-capacity"}
	o.slow(overstatement)
	began := time.Now()
	low := o.settled(2 * time.Minute)
	f.AtMost("until the queue has settled", time.Since(began).Seconds(), "s", 60)
	f.AtLeast("factor then", low.factor, "", 0.55)

	var factors, planned, queues []float64
	calm := 0.0
	for since := time.Now(); time.Since(since) < 4*time.Minute; {
		m := o.now()
		factors, planned, queues = append(factors, m.factor), append(planned, m.planned), append(queues, m.waiting)
		if m.waiting <= few {
			calm++
		}
	}
	f.Tell("factor from then on, mean", mean(factors), "")
	f.Tell("true factor", 1/overstatement, "")
	f.AtLeast("planned for near, mean, of what it can do", mean(planned)/canRps, "of 1", 0.75)
	f.AtMost("planned for near, mean, of what it can do", mean(planned)/canRps, "of 1", 1.05)
	f.Tell("requests that wait at near, mean", mean(queues), "")
	f.AtLeast("time without a queue at near", calm/float64(len(queues)), "of 1", 0.5)

	o.slow(1)
	began, low = time.Now(), o.now()
	within := 2*rising(1-low.factor) + 20*time.Second
	eventually(t, "factor and share are back", within, func() bool { m := o.now(); return m.factor > 0.999 && m.share > 0.999 })
	f.Tell("factor when the truth improves", low.factor, "")
	f.AtMost("until factor and share are 1 again, of the least that it takes", time.Since(began).Seconds()/rising(1-low.factor).Seconds(), "of 1", 1.5)
	o.settled(100 * time.Second)
	o.load.endWhole()
	o.followed()
	check(t, figures.Write(path, &f))
	t.Log("\n" + f.String())
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(len(all))
}
