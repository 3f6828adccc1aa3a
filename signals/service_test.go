package signals

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"weir/fleet"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

// served feeds a tracker with a second's service at pool "big" for so many seconds.
func served(t *Tracker, from time.Time, seconds int, issued uint64, ttft float64, each func(at time.Time)) time.Time {
	for range seconds {
		from = from.Add(time.Second)
		var times fleet.Buckets
		for range issued {
			times.Observe(ttft)
		}
		t.ObserveLoad(from, fleet.LoadReport{
			FrontEnd: "east", Node: "a", Role: fleet.RoleEnvoy, Interval: time.Second,
			Classes: []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{{Pool: "big", Issued: issued}}}},
		})
		t.ObserveLoad(from, fleet.LoadReport{
			FrontEnd: "east", Node: "a", Role: fleet.RoleExtProc, Interval: time.Second,
			Classes: []fleet.ClassLoad{{
				Class: "chat", Arrivals: issued,
				Tokens: fleet.TokenLoad{Requests: issued, Prompt: 3000 * float64(issued), Output: 50 * float64(issued)},
				Pools:  []fleet.PoolLoad{{Pool: "big", Engines: []fleet.EngineLoad{{Engine: "10.0.0.1:80", TTFT: times, Outcomes: fleet.Outcomes{fleet.Answered: issued}}}}},
			}},
			RoundTrips: []fleet.RoundTrip{{Pool: "big", Count: 1, Seconds: 0.04}},
		})
		if each != nil {
			each(from)
		}
		t.State(from, nil)
	}
	return from
}

// serviceFleet has one pool of two engines that do 10 RPS each.
func serviceFleet() *fleet.Fleet {
	f := testFleet()
	for i := range f.Pools {
		f.Pools[i].Profile = fleet.Profile{
			CapacityRps: 10, Reference: fleet.Tokens{Prompt: 1000, Output: 100}, OutputTokenCost: 10,
			TTFT: fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.6}},
		}
	}
	return f
}

func near(got, want, relative float64) bool { return math.Abs(got-want) <= relative*math.Abs(want) }

func TestServiceIsBelieved(t *testing.T) {
	f := serviceFleet()
	tracker := NewTracker(f)
	engines := float64(len(f.Pool("big").Engines))
	now := served(tracker, epoch, 200, 10, 0.34, nil).Add(time.Second / 2) // reports are read between two of them
	s := tracker.State(now, nil)
	size := s.TokensOf(f.Class("chat"))
	if !near(size.Prompt, 3000, 0.05) || !near(size.Output, 50, 0.05) {
		t.Errorf("mean request %+v, want about 3000 and 50 tokens", size)
	}
	if got := s.Network[fleet.Link{FrontEnd: "east", Pool: "big"}]; !near(got, 0.04, 1e-6) {
		t.Errorf("round trip %v s, want 0.04 s", got)
	}
	st := s.Pools["big"].Signals
	if want := 10 * f.Pool("big").Profile.Work(size) / engines; !near(st.Load.Value, want, 0.05) {
		t.Errorf("load %v, want %v engine-seconds per second", st.Load.Value, want)
	}
	if !near(st.SentRps.Value, 10, 0.05) {
		t.Errorf("%v RPS sent, want 10", st.SentRps.Value)
	}
	if !near(st.TTFTSeconds.Value, 0.30, 1e-3) {
		t.Errorf("TTFT %v s, want 0.3 s: the measured 0.34 s less the network", st.TTFTSeconds.Value)
	}
	if again := tracker.State(now, nil); again.Pools["big"].CapacityFactor != s.Pools["big"].CapacityFactor {
		t.Error("asking again moved the capacity factor")
	}
}

// The first seconds of traffic are no more than what they count.
func TestLoadIsRightFromTheStart(t *testing.T) {
	f := serviceFleet()
	for seconds := 1; seconds < 20; seconds++ {
		tracker := NewTracker(f)
		now := served(tracker, epoch, seconds, 10, 0.34, nil).Add(time.Second / 2)
		s := tracker.State(now, nil)
		want := 10 * f.Pool("big").Profile.Work(s.TokensOf(f.Class("chat"))) / 2
		if got := s.Pools["big"].Signals.Load.Value; seconds > 1 && !near(got, want, 0.2) || got > 1.2*want {
			t.Errorf("after %d s the load is %v, want about %v", seconds, got, want)
		}
	}
}

// What is declared rules until enough was measured, and where nothing is declared
// nothing is made up.
func TestSizesNeedEvidence(t *testing.T) {
	var s sizes
	s.observe(epoch, fleet.TokenLoad{Requests: 10, Prompt: 10_000, Output: 1000, Cached: 6000})
	b, ok := s.belief(epoch, fleet.Tokens{Prompt: 100, Output: 10})
	if want := (50*100 + 10_000) / 60.0; !ok || !near(b.Mean.Prompt, want, 1e-9) {
		t.Errorf("ten requests beside a declared size: %+v, %v, want a prompt of %v", b, ok, want)
	}
	if want := 0.6 * b.Mean.Prompt; !near(b.Mean.Cached, want, 1e-9) {
		t.Errorf("%v tokens of a mean prompt were cached, want %v", b.Mean.Cached, want)
	}
	b, _ = s.belief(epoch, fleet.Tokens{Prompt: 100, Output: 10, Cached: 30})
	if want := (10*0.6 + 50*0.3) / 60 * b.Mean.Prompt; !near(b.Mean.Cached, want, 1e-9) {
		t.Errorf("beside a declared part %v tokens of a mean prompt were cached, want %v", b.Mean.Cached, want)
	}
	if _, ok := s.belief(epoch, fleet.Tokens{}); ok {
		t.Error("ten requests alone were taken for the size of a class")
	}
	s.observe(epoch, fleet.TokenLoad{Requests: 100, Estimated: 90, Prompt: 1e6, Output: 1e6})
	if _, ok := s.belief(epoch, fleet.Tokens{Prompt: 100, Output: 10}); ok {
		t.Error("a size that rests mostly on estimates was believed")
	}
}

func page(at time.Time, waiting, prompt float64) scrape.Sample {
	return scrape.Sample{
		Pool: "big", Engine: "10.0.0.1:80", At: at, ReadAt: at, Dialect: "vllm",
		Values: dialect.Values{Running: dialect.Is(3), Waiting: dialect.Is(waiting), PromptTokens: dialect.Is(prompt)},
	}
}

func TestPagesAreBelievedWhileTheyMove(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	prompt := 0.0
	now := served(tracker, epoch, 30, 10, 0.3, func(at time.Time) {
		prompt += 1000
		tracker.ObserveSample(page(at, 0, prompt))
	})
	told := func() fleet.EngineSignals { return tracker.State(now, nil).Pools["big"].Signals.Engines["10.0.0.1:80"] }
	if e := told(); !e.Waiting.Fresh() || e.Waiting.Value != 0 || e.Running.Value != 3 || e.KVUsage.Known() || e.Why != "" {
		t.Errorf("a page that moves: %+v, want a fresh queue of 0, 3 running, and an unknown KV usage", e)
	}
	now = served(tracker, now, 20, 10, 0.3, func(at time.Time) { tracker.ObserveSample(page(at, 9, prompt)) })
	if e := told(); e.Waiting.Fresh() || !strings.Contains(e.Why, "said the same") {
		t.Errorf("a page that stands still under load: %+v, want it stale, with the reason", e)
	}
	failed := page(now, 9, prompt)
	failed.Err, failed.Values = errors.New("connection refused"), failed.Values.Stale()
	tracker.ObserveSample(failed)
	if e := told(); e.Waiting.Fresh() || !e.Waiting.Known() || e.Why != "connection refused" {
		t.Errorf("a page that cannot be had: %+v, want the last values, stale, with the reason", e)
	}
	tracker.ObserveSample(scrape.Sample{Pool: "nobody", Engine: "10.9.9.9:80", At: now})
	if got := tracker.Counters.SamplesUnknown.Load(); got != 1 {
		t.Errorf("%d samples of unknown engines counted, want 1", got)
	}
}

// A page may stand still where its engine answers nothing, however busy its pool is,
// and where it counts nothing that would move.
func TestAPageMayStandStill(t *testing.T) {
	gauges := func(at time.Time) scrape.Sample {
		s := page(at, 0, 7)
		s.Values.PromptTokens = dialect.Value{}
		return s
	}
	idle := func(at time.Time) scrape.Sample {
		s := page(at, 0, 7)
		s.Engine = "10.0.0.2:80" // served speaks of the other one
		return s
	}
	once := func(at time.Time) scrape.Sample { return page(at, 0, math.Min(at.Sub(epoch).Seconds(), 10)) }
	tests := []struct {
		name   string
		engine fleet.EngineID
		page   func(time.Time) scrape.Sample
		rps    uint64
	}{
		{"an idle pool", "10.0.0.1:80", once, 0},
		{"an idle engine of a busy pool", "10.0.0.2:80", idle, 10},
		{"gauges alone", "10.0.0.1:80", gauges, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tracker := NewTracker(serviceFleet())
			observe := func(at time.Time) { tracker.ObserveSample(tt.page(at)) }
			now := served(tracker, epoch, 10, 10, 0.3, observe)
			now = served(tracker, now, 60, tt.rps, 0.3, observe)
			if e := tracker.State(now, nil).Pools["big"].Signals.Engines[tt.engine]; !e.Waiting.Fresh() || e.Why != "" {
				t.Errorf("believed %+v, want it fresh", e)
			}
		})
	}
}

// From a page that stands still no queue is concluded, long before it is disbelieved.
func TestAFrozenQueueIsNoEvidence(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	prompt := 0.0
	now := served(tracker, epoch, 20, 5, 0.3, func(at time.Time) { prompt += 1000; tracker.ObserveSample(page(at, 0, prompt)) })
	prompt += 1000
	now = served(tracker, now, 15, 5, 0.3, func(at time.Time) { tracker.ObserveSample(page(at, 9, prompt)) })
	st := tracker.State(now, nil).Pools["big"]
	if e := st.Signals.Engines["10.0.0.1:80"]; st.CapacityFactor != 1 || !e.Waiting.Fresh() {
		t.Errorf("factor %v because %q, queue %+v: want 1 and a page that is believed yet", st.CapacityFactor, st.Signals.FactorReason, e.Waiting)
	}
}

// A queue that comes and goes is a burst, and no shortage.
func TestABurstIsNoQueue(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	prompt, seconds := 0.0, 0
	now := served(tracker, epoch, 60, 10, 0.3, func(at time.Time) {
		prompt += 1000
		seconds++
		tracker.ObserveSample(page(at, float64(9*(seconds%3)), prompt))
	})
	if st := tracker.State(now, nil).Pools["big"]; st.CapacityFactor != 1 {
		t.Errorf("factor %v because %q, want 1", st.CapacityFactor, st.Signals.FactorReason)
	}
}

// A queue at the engines lowers the factor of their pool, with the reason; when it
// has settled the factor comes back.
func TestAQueueLowersTheFactor(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	prompt := 0.0
	queue := func(n float64) func(time.Time) {
		return func(at time.Time) { prompt += 1000; tracker.ObserveSample(page(at, n, prompt)) }
	}
	now := served(tracker, epoch, 20, 10, 0.3, queue(12))
	st := tracker.State(now, nil).Pools["big"]
	if !(st.CapacityFactor < 0.8) || !strings.Contains(st.Signals.FactorReason, "12.0 requests wait") {
		t.Errorf("factor %v because %q, want it well below 1 for the queue", st.CapacityFactor, st.Signals.FactorReason)
	}
	now = served(tracker, now, 240, 2, 0.21, queue(0))
	if st := tracker.State(now, nil).Pools["big"]; st.CapacityFactor != 1 || st.Signals.FactorReason != "" {
		t.Errorf("factor %v because %q after the queue has settled, want 1", st.CapacityFactor, st.Signals.FactorReason)
	}
}

// pageOf is a page that counted some first tokens since the one before.
func pageOf(at time.Time, t *fleet.Buckets) scrape.Sample {
	p := page(at, 0, at.Sub(epoch).Seconds())
	p.Window.TTFT = dialect.Histogram{Count: dialect.Is(float64(t.Count())), Sum: dialect.Is(t.Sum)}
	return p
}

// A queue is one that two pages in a row tell of: a burst passes between them.
func TestQueuedOnTwoPages(t *testing.T) {
	tracker := NewTracker(serviceFleet())
	now := epoch
	for i, c := range []struct {
		waiting float64
		want    fleet.Reading
	}{
		{7, fleet.Reading{Value: 7, At: epoch}}, // the first says what it says
		{9, fleet.Reading{Value: 7, At: epoch.Add(time.Second)}},
		{0, fleet.Reading{Value: 0, At: epoch.Add(2 * time.Second)}},
		{12, fleet.Reading{Value: 0, At: epoch.Add(3 * time.Second)}},
		{11, fleet.Reading{Value: 11, At: epoch.Add(4 * time.Second)}},
	} {
		tracker.ObserveSample(page(now, c.waiting, float64(i)))
		if got := tracker.State(now, nil).Pools["big"].Signals.Engines["10.0.0.1:80"].Queued; got != c.want {
			t.Errorf("page %d: %+v, want %+v", i, got, c.want)
		}
		now = now.Add(time.Second)
	}
}
