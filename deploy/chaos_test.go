package deploy

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/deploy/figures"
	"weir/fleet"
)

// sick is a scenario in which one engine of pool-east has a fault for a while.
func sick(name, faults string, flags ...string) scenario {
	return scenario{
		name: name, load: 0.6, lasts: 15 * time.Second, after: 42 * time.Second, flags: flags, retry: true,
		begin: func(c *chaos) { c.fault(c.engines("pool-east")[:1], faults) },
		end:   func(c *chaos) { c.fault(c.engines("pool-east")[:1], `{}`) },
		judge: func(c *chaos, f *figures.Report) { c.shunned(f, c.engines("pool-east")[0]) },
	}
}

// stuck is a scenario in which the engine is restarted in the end: what it has begun would
// else hold its places until clients give up.
func stuck(name, faults string, flags ...string) scenario {
	sc := sick(name, faults, flags...)
	sc.end = func(c *chaos) {
		c.kill(c.engines("pool-east")[:1])
		c.revive(c.engines("pool-east")[:1])
	}
	return sc
}

// holdHeaders is for engines that hold a response's headers until its first token.
const holdHeaders = "--hold-headers"

// withoutLimits is a fleet that sheds nobody and tries as often as it likes: with
// weir-extproc dead that leaves Envoy's weights alone.
func withoutLimits(text string) string {
	return strings.NewReplacer("capacity: 10 rps", "capacity: 1000 rps", "\nclasses:", "\noptions: {retryPercent: 100%, retryFloor: 100000}\n\nclasses:").Replace(text)
}

func unprotected(sc scenario, usual *calm) scenario {
	begin := sc.begin
	sc.name += ", protection off"
	sc.edit = withoutLimits
	sc.begin = func(c *chaos) {
		for _, fe := range c.stage.Fleet.FrontEnds {
			check(c.T, c.stage.Process("extproc-"+string(fe.ID)).Kill())
		}
		if begin != nil {
			begin(c)
		}
	}
	sc.judge = func(c *chaos, f *figures.Report) { c.overload(f, usual, false) }
	return sc
}

func overloaded(name string, times float64, usual *calm) scenario {
	return scenario{
		name: name, load: 0.6, during: times, lasts: 40 * time.Second, after: 20 * time.Second, retry: true,
		judge: func(c *chaos, f *figures.Report) { c.overload(f, usual, true) },
	}
}

func scenarios() []scenario {
	half := func(c *chaos) []fleet.EngineID {
		return append(c.engines("pool-east")[:2:2], c.engines("pool-west")[:2]...)
	}
	var usual calm
	return []scenario{
		sick("ten times slower, headers at once", `{"slow":10}`),
		sick("ten times slower, headers held", `{"slow":10}`, holdHeaders),
		stuck("stalled decode", `{"stallAfter":3}`),
		sick("30 % answered 500", `{"errorRate":0.3}`),
		sick("resets in mid-stream", `{"cutAfter":3}`),
		sick("refused connections", `{"refuse":true}`),
		stuck("silent hang, headers at once", `{"hang":true}`),
		stuck("silent hang, headers held", `{"hang":true}`, holdHeaders),
		{
			name: "busy 503 with retry-after", load: 0.6, lasts: 20 * time.Second, after: 12 * time.Second, retry: true,
			begin: func(c *chaos) {
				c.fault(c.engines("pool-east")[:1], `{"errorRate":0.5,"errorStatus":503,"retryAfter":1}`)
			},
			end:   func(c *chaos) { c.fault(c.engines("pool-east")[:1], `{}`) },
			judge: func(c *chaos, f *figures.Report) { c.spared(f, c.engines("pool-east")[:1]) },
		},
		{
			name: "all engines of a pool slow at once", load: 0.4, lasts: 20 * time.Second, after: 20 * time.Second, retry: true,
			begin: func(c *chaos) { c.fault(c.engines("pool-east"), `{"slow":1.5}`) },
			end:   func(c *chaos) { c.fault(c.engines("pool-east"), `{}`) },
			judge: func(c *chaos, f *figures.Report) { c.nobody(f) },
		},
		{
			name: "half of all engines answer 500", load: 0.8, lasts: 30 * time.Second, after: 35 * time.Second, retry: true,
			begin: func(c *chaos) { c.fault(half(c), `{"errorRate":1}`) },
			end:   func(c *chaos) { c.fault(half(c), `{}`) },
			judge: func(c *chaos, f *figures.Report) { c.halved(f, half(c)) },
		},
		{
			name: "half of all engines down", load: 0.8, lasts: 30 * time.Second, after: 35 * time.Second, retry: true,
			begin: func(c *chaos) { c.kill(half(c)) },
			end:   func(c *chaos) { c.revive(half(c)) },
			judge: func(c *chaos, f *figures.Report) { c.halved(f, half(c)) },
		},
		flapping(),
		{
			name: "a region lost", load: 0.8, lasts: 30 * time.Second, after: 35 * time.Second, retry: true,
			begin: func(c *chaos) { c.kill(c.engines("pool-west")) },
			end:   func(c *chaos) { c.revive(c.engines("pool-west")) },
			judge: func(c *chaos, f *figures.Report) { c.halved(f, c.engines("pool-west")) },
		},
		overloaded("demand 150 %", 1.5, &usual),
		overloaded("demand 300 %", 3.2, &usual),
		unprotected(overloaded("demand 300 %", 3.2, &usual), &usual),
		{
			name: "a tenfold burst of five seconds", load: 0.3, during: 3, lasts: 5 * time.Second, after: 30 * time.Second, retry: true,
			judge: func(c *chaos, f *figures.Report) { c.burst(f) },
		},
		slowRecovery(),
	}
}

// flapping is an engine that is slow every other three seconds.
func flapping() scenario {
	sc := sick("a flapping engine", `{"slow":10}`)
	stop := make(chan struct{})
	done := make(chan struct{})
	sc.begin = func(c *chaos) {
		go func() {
			defer close(done)
			tick := time.NewTicker(3 * time.Second)
			defer tick.Stop()
			for i := 0; ; i++ {
				if err := putFaults(c.engines("pool-east")[0], fmt.Sprintf(`{"slow":%d}`, []int{10, 1}[i%2])); err != nil {
					c.Error(err)
				}
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		}()
	}
	sc.end = func(c *chaos) {
		close(stop)
		<-done
		c.fault(c.engines("pool-east")[:1], `{}`)
	}
	sc.judge = func(c *chaos, f *figures.Report) { c.flapped(f) }
	return sc
}

// slowRecovery is an engine that comes back as slowly as it can.
func slowRecovery() scenario {
	sc := sick("a slow recovery", `{"slow":10}`)
	sc.end = func(c *chaos) {
		c.eased = time.Now()
		for _, slow := range []float64{6, 3, 2, 1.5, 1.2, 1} {
			c.fault(c.engines("pool-east")[:1], fmt.Sprintf(`{"slow":%v}`, slow))
			c.load.offer(c.Context(), c.scenario.load*chaosCapacityRps, 3*time.Second, uint64(100*slow))
		}
		c.ended = time.Now()
	}
	return sc
}

// TestChaos runs four of the scenarios in short, two at once and before the other tests:
// what they hold depends on time.
func TestChaos(t *testing.T) {
	short := []string{"ten times slower, headers held", "busy 503 with retry-after", "half of all engines down", "demand 300 %"}
	for _, sc := range scenarios() {
		if !slices.Contains(short, sc.name) {
			continue
		}
		sc.short, sc.warm, sc.lasts, sc.after = true, 8*time.Second, 14*time.Second, 6*time.Second
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			f := &figures.Report{}
			runChaos(t, sc, f)
			for _, missed := range f.Missed() {
				t.Error(missed)
			}
			if t.Failed() {
				t.Log("\n" + f.String())
			}
		})
	}
}

// TestChaosAtLength runs all of them, one after the other, or those whose names have
// $CHAOS in them, and writes what it measured to $WEIR_FIGURES.
func TestChaosAtLength(t *testing.T) {
	path := os.Getenv(figures.Variable)
	if path == "" {
		t.Skip("runs for half an hour: use make chaos")
	}
	f := &figures.Report{Target: "chaos"}
	for _, sc := range scenarios() {
		if strings.Contains(sc.name, os.Getenv("CHAOS")) {
			t.Run(sc.name, func(t *testing.T) { runChaos(t, sc, f) })
		}
	}
	t.Log("\n" + f.String())
	check(t, figures.Write(path, f))
}

// shunned holds that an engine gets little while it is sick, and its part again soon
// after.
func (c *chaos) shunned(f *figures.Report, e fleet.EngineID) {
	c.Helper()
	first := c.firstBad(e)
	from, to := first.Add(3*time.Second), c.ended
	if !c.eased.IsZero() {
		to = c.eased
	}
	c.little(f, "share of its planned share, from 3 s after its first bad second", e, from, to, 0.2)
	f.Tell(c.say("share of its planned share, in these 3 s"), c.shareOf(e, first, from), "of 1")
	if c.scenario.short {
		return
	}
	back := c.ended.Add(30 * time.Second)
	c.much(f, "share of its planned share, from 30 s after recovery", e, back, c.closed, 0.9)
}

// little holds that an engine gets less than a part of what is planned for it, and much
// that it gets more: unless chance alone, two standard errors, may have it otherwise.
func (c *chaos) little(f *figures.Report, what string, e fleet.EngineID, from, to time.Time, part float64) {
	n, planned := c.gotAndPlanned(e, from, to)
	f.Add(figures.Figure{What: c.say(what), Value: n / planned, Unit: "of 1", Bar: fmt.Sprintf("≤ %v but for 2 σ", part), Holds: n <= part*planned+2*math.Sqrt(part*planned)})
}

func (c *chaos) much(f *figures.Report, what string, e fleet.EngineID, from, to time.Time, part float64) {
	n, planned := c.gotAndPlanned(e, from, to)
	f.Add(figures.Figure{What: c.say(what), Value: n / planned, Unit: "of 1", Bar: fmt.Sprintf("≥ %v but for 2 σ", part), Holds: n >= part*planned-2*math.Sqrt(part*planned)})
}

func (c *chaos) gotAndPlanned(e fleet.EngineID, from, to time.Time) (n, planned float64) {
	n, _ = c.got([]fleet.EngineID{e}, from, to)
	return n, c.planned(e, from, to)
}

// firstBad is the end of the first second in which the engine was sick and had requests.
func (c *chaos) firstBad(e fleet.EngineID) time.Time {
	for i := range c.arrivals {
		if a := &c.arrivals[i]; a.Engine == e && a.Time.After(c.began) && a.Time.Before(c.ended) {
			return a.Time.Add(time.Second)
		}
	}
	return c.began.Add(time.Second) // it refused before it noted anything
}

// shareOf is what an engine got of what it would have got well.
func (c *chaos) shareOf(e fleet.EngineID, from, to time.Time) float64 {
	n, planned := c.gotAndPlanned(e, from, to)
	return n / planned
}

// spared holds that engines that are only busy are not ejected or penalised.
func (c *chaos) spared(f *figures.Report, busy []fleet.EngineID) {
	c.Helper()
	f.AtMost(c.say("engines ejected by Envoy"), c.ejections(), "", 0)
	c.much(f, "share of its planned share, while it is busy", busy[0], c.began.Add(5*time.Second), c.ended, 0.9)
	f.AtMost(c.say("penalised engines, at most"), c.penalised(c.began, c.ended), "", 0)
}

// ejections counts those of all Envoys and classes.
func (c *chaos) ejections() float64 {
	sum := 0
	for _, fe := range c.stage.Fleet.FrontEnds {
		for _, class := range c.stage.Fleet.Classes {
			n, err := c.stage.Stat(c.Context(), string(fe.ID), "cluster."+string(class.ID)+".outlier_detection.ejections_enforced_total")
			check(c.T, err)
			sum += n
		}
	}
	return float64(sum)
}

// nobody holds that nobody is penalised while everybody is slow.
func (c *chaos) nobody(f *figures.Report) {
	c.Helper()
	f.AtMost(c.say("penalised engines, at most"), c.penalised(c.began, c.closed), "", 0)
	f.AtMost(c.say("engines ejected by Envoy"), c.ejections(), "", 0)
}

// penalised is how many engines were penalised at one moment, at most.
func (c *chaos) penalised(from, to time.Time) float64 {
	most := 0
	for _, s := range c.seen.between(from, to) {
		most = max(most, len(s.status.Penalties))
	}
	return float64(most)
}

// halved holds that retries do not overrun those that are left.
func (c *chaos) halved(f *figures.Report, gone []fleet.EngineID) {
	c.Helper()
	left := float64(8-len(gone)) * 10
	most, span, bar := 0.0, 10*time.Second, 1.05
	if c.scenario.short {
		span, bar = 6*time.Second, 1.3
	}
	for from := c.began.Add(5 * time.Second); from.Add(span).Before(c.ended); from = from.Add(time.Second) {
		n, all := c.got(gone, from, from.Add(span))
		most = max(most, (all-n)/span.Seconds())
	}
	f.AtMost(c.say(fmt.Sprintf("offered to the survivors over %v, at most, of what they can", span)), most/left, "of 1", bar)
	attempts, requests := c.attempts(c.began, c.ended)
	f.Tell(c.say("attempts at engines for each request that reached one"), attempts/max(1, requests), "")
	if c.scenario.short {
		return
	}
	f.AtMost(c.say("waiting in queues at the end of it"), c.waiting(c.ended.Add(-3*time.Second), c.ended), "requests", 2*erlangQueue*left/10)
	f.AtMost(c.say("waiting in queues at the end"), c.waiting(c.closed.Add(-3*time.Second), c.closed), "requests", 4)
	f.Tell(c.say("goodput meanwhile, of what survivors can"), c.goodput(c.began.Add(10*time.Second), c.ended)/left, "of 1")
}

// attempts counts what reached engines in a time, and of how many requests.
func (c *chaos) attempts(from, to time.Time) (attempts, requests float64) {
	seen := map[string]bool{}
	for i := range c.arrivals {
		a := &c.arrivals[i]
		if a.Time.Before(from) || !a.Time.Before(to) {
			continue
		}
		attempts++
		if id := a.Headers["x-test-id"]; !seen[id] {
			seen[id] = true
			requests++
		}
	}
	return attempts, requests
}

// waiting is how many requests waited in queues in a time, on average.
func (c *chaos) waiting(from, to time.Time) float64 {
	sees := c.seen.between(from, to)
	sum := 0.0
	for _, s := range sees {
		sum += s.waiting
	}
	return sum / max(1, float64(len(sees)))
}

// flapped holds that an engine which comes and goes is not trusted each time it comes.
func (c *chaos) flapped(f *figures.Report) {
	c.Helper()
	e := c.engines("pool-east")[0]
	f.AtMost(c.say("share of its planned share, from the second swing on"), c.shareOf(e, c.began.Add(9*time.Second), c.ended), "of 1", 0.5)
	c.much(f, "share of its planned share, from 30 s after recovery", e, c.ended.Add(30*time.Second), c.closed, 0.9)
}

// overload holds what is let in against what can be served. Without protection it is
// only told.
func (c *chaos) overload(f *figures.Report, usual *calm, protected bool) {
	c.Helper()
	if c.scenario.short {
		c.overloadInShort(f)
		return
	}
	atLeast, atMost := f.AtLeast, f.AtMost
	if !protected {
		tell := func(what string, value float64, unit string, _ float64) { f.Tell(what, value, unit) }
		atLeast, atMost = tell, tell
	}
	settled := c.began.Add(15 * time.Second)
	gold, goldShed := c.first(settled, c.ended, true)
	basic, basicShed := c.first(settled, c.ended, false)
	f.Tell(c.say("first attempts of clients, of the capacity"), (gold+basic)/c.ended.Sub(settled).Seconds()/chaosCapacityRps, "of 1")
	atLeast(c.say("goodput, of the capacity"), c.goodput(settled, c.ended)/chaosCapacityRps, "of 1", 0.95)
	ttft := quantile(c.ttfts(settled, c.ended), 0.95)
	f.Tell(c.say("TTFT p95 of who is admitted"), ttft, "s")
	atMost(c.say("TTFT p95 of who is admitted, of that at 90 % utilisation"), ttft/usual.of(c), "of 1", 2)
	f.Tell(c.say("basic requests refused at first"), basicShed/basic, "of 1")
	atMost(c.say("gold requests refused at first"), goldShed/gold, "of 1", 0)
	cut, follow := c.cut()
	f.Tell(c.say("turns of conversations that had begun before"), follow, "")
	atMost(c.say("of these refused in the end"), cut, "", 0)
	atMost(c.say("requests refused from 10 s after it"), c.refusedFrom(c.ended.Add(10*time.Second)), "", 0)
	// Those who were refused come back, and keep engines at what headroom leaves.
	back := c.ended.Add(10 * time.Second)
	atMost(c.say("waiting in queues from 10 s after it"), c.waiting(back, c.closed), "requests", 2*erlangQueue*chaosEnginesRps/10)
	atMost(c.say("TTFT p95 from 10 s after it, of that at 90 % utilisation"), quantile(c.ttfts(back, c.closed), 0.95)/usual.of(c), "of 1", 2)
	atMost(c.say("measured demand, off the first attempts by"), c.demandError(settled, c.ended), "of 1", 0.02)
}

// overloadInShort holds what shows at once: counts, for on a machine that does much besides,
// what was asked in one second may come to an engine in another.
func (c *chaos) overloadInShort(f *figures.Report) {
	c.Helper()
	from := c.began.Add(5 * time.Second)
	_, n := c.got(nil, from, c.ended)
	f.AtMost(c.say("let through to engines, of what they can"), n/c.ended.Sub(from).Seconds()/chaosEnginesRps, "of 1", 1.2)
	f.Tell(c.say("TTFT p95 of who is admitted"), quantile(c.ttfts(from, c.ended), 0.95), "s")
	_, goldShed := c.first(from, c.ended, true)
	f.AtMost(c.say("gold requests refused at first"), goldShed, "", 0)
	_, basicShed := c.first(from, c.ended, false)
	f.AtLeast(c.say("basic requests refused at first"), basicShed, "", 100)
	cut, _ := c.cut()
	f.AtMost(c.say("turns of conversations that had begun before, refused in the end"), cut, "", 0)
	for _, why := range []string{"burst", "plan"} {
		n := 0.0
		for i := range c.asked {
			if a := &c.asked[i]; a.Status == 429 && a.Header.Get("x-weir-shed-reason") == why {
				n++
			}
		}
		f.AtLeast(c.say("refused for the reason "+why), n, "", 1)
	}
}

// calm is what is usual at a utilisation of 90 %, by the engines' capacity as profiles
// mean it, which headroom keeps from the rest of; measured once.
type calm struct{ ttft float64 } // 95th percentile, seconds; 0: not measured

func (u *calm) of(c *chaos) float64 {
	if u.ttft == 0 {
		c.Run("at 90 % utilisation", func(t *testing.T) {
			calm := newChaos(t, scenario{name: "calm", load: 0.9 * chaosEnginesRps / chaosCapacityRps, lasts: 20 * time.Second, after: time.Second})
			calm.run()
			u.ttft = quantile(calm.ttfts(calm.began, calm.ended), 0.95)
		})
	}
	return u.ttft
}

// first counts the first attempts of a tier in a time, and those refused with a 429.
func (c *chaos) first(from, to time.Time, gold bool) (n, refused float64) {
	for i := range c.asked {
		a := &c.asked[i]
		if a.attempt > 0 || a.gold != gold || a.Sent.Before(from) || !a.Sent.Before(to) {
			continue
		}
		n++
		if a.Status == 429 {
			refused++
		}
	}
	return n, refused
}

// cut counts the turns of conversations that had begun before the overload, and those of
// them that were not answered in the end.
func (c *chaos) cut() (failed, turns float64) {
	before := map[string]bool{}
	for i := range c.asked {
		if a := &c.asked[i]; a.turn == 0 && a.OK() && a.Sent.Before(c.began) {
			before[a.name] = true
		}
	}
	for id, ok := range outcomes(c.asked) {
		name, _, _ := strings.Cut(id, "/")
		if before[name] {
			turns++
			if !ok {
				failed++
			}
		}
	}
	return failed, turns
}

// refusedFrom counts the first attempts that were refused from a time on.
func (c *chaos) refusedFrom(from time.Time) float64 {
	n := 0.0
	for i := range c.asked {
		if a := &c.asked[i]; a.attempt == 0 && a.Status == 429 && a.Sent.After(from) {
			n++
		}
	}
	return n
}

// demandWindow is the time over which demand is measured, once its jump is known.
const demandWindow = 10 * time.Second

// demandError is how far the measured demand is from the first attempts of clients: at each
// moment from those of the window before it, for of the next ones nobody knows.
func (c *chaos) demandError(from, to time.Time) float64 {
	measured, asked := 0.0, 0.0
	for _, s := range c.seen.between(from, to) {
		for _, fe := range s.status.FrontEnds {
			for _, st := range fe.Streams {
				measured += st.DemandRps
			}
		}
		gold, _ := c.first(s.at.Add(-demandWindow), s.at, true)
		basic, _ := c.first(s.at.Add(-demandWindow), s.at, false)
		asked += (gold + basic) / demandWindow.Seconds()
	}
	return math.Abs(measured-asked) / asked // NaN, which misses any bar, if nothing was seen
}

// burst holds that a burst passes.
func (c *chaos) burst(f *figures.Report) {
	c.Helper()
	most := 0.0
	for _, s := range c.seen.between(c.began, c.closed) {
		most = max(most, s.waiting)
	}
	f.AtMost(c.say("waiting in queues, at most"), most/chaosCapacityRps, "s of capacity", 3)
	f.AtMost(c.say("requests refused from 10 s after it"), c.refusedFrom(c.ended.Add(10*time.Second)), "", 0)
	f.Tell(c.say("TTFT p95 meanwhile"), quantile(c.ttfts(c.began, c.ended.Add(5*time.Second)), 0.95), "s")
	f.Tell(c.say("goodput meanwhile, of the capacity"), c.goodput(c.began, c.ended)/chaosCapacityRps, "of 1")
}
