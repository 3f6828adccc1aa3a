package discover

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

const (
	drain = time.Minute
	doubt = 30 * time.Second
)

var (
	ofA = fleet.Discovery{Kind: fleet.DiscoverFile, Where: "/a", Every: time.Second, Drain: drain, Doubt: doubt}
	ofB = fleet.Discovery{Kind: fleet.DiscoverFile, Where: "/b", Every: time.Second, Drain: drain, Doubt: doubt}
)

// testFleet has two pools that discover their engines and one that lists them.
func testFleet() *fleet.Fleet {
	a, b := ofA, ofB
	return &fleet.Fleet{Pools: []fleet.Pool{
		{ID: "a", Discovery: &a, Awaited: true},
		{ID: "b", Discovery: &b, Awaited: true},
		{ID: "s", Engines: engines("9")},
	}}
}

// engines are those at 10.0.0.N:80.
func engines(numbers string) []fleet.EngineID {
	var out []fleet.EngineID
	for _, n := range strings.Fields(numbers) {
		out = append(out, fleet.EngineID("10.0.0."+n+":80"))
	}
	return out
}

// book drives a Book through a story.
type book struct {
	*Book
	t   *testing.T
	now time.Time
}

func newBook(t *testing.T, kept map[fleet.PoolID][]fleet.EngineID) *book {
	return &book{NewBook(testFleet(), kept), t, time.Unix(1e9, 0)}
}

func (b *book) hear(pool fleet.PoolID, numbers string) {
	b.Observe(b.now, &Answer{Pool: pool, Source: b.source(pool), Engines: engines(numbers)})
}

func (b *book) fail(pool fleet.PoolID) {
	b.Observe(b.now, &Answer{Pool: pool, Source: b.source(pool), Err: errors.New("is on fire")})
}

func (b *book) source(pool fleet.PoolID) fleet.Discovery { return *b.Fleet().Pool(pool).Discovery }

func (b *book) wait(d time.Duration, known Ending) {
	b.now = b.now.Add(d)
	b.Settle(b.now, func(fleet.PoolID, fleet.EngineID) Ending { return known })
}

// want holds a pool to its engines, those that leave and words of its problem; empty:
// it has none.
func (b *book) want(pool fleet.PoolID, all, leaving, problem string) {
	b.t.Helper()
	p := b.Fleet().Pool(pool)
	if diff := cmp.Diff(engines(all), p.Engines); diff != "" {
		b.t.Errorf("engines of %s (-want +got):\n%s", pool, diff)
	}
	if diff := cmp.Diff(engines(leaving), p.Leaving); diff != "" {
		b.t.Errorf("leaving %s (-want +got):\n%s", pool, diff)
	}
	got := b.Sources()[pool].Problem
	if problem == "" && got != "" || !strings.Contains(got, problem) {
		b.t.Errorf("problem of %s is %q, want %q", pool, got, problem)
	}
}

func TestEnginesComeAndLeave(t *testing.T) {
	b := newBook(t, nil)
	b.want("a", "", "", "has not answered yet")
	if !b.Fleet().Pool("a").Awaited {
		t.Error("a pool that nobody answered for is not awaited")
	}
	b.hear("a", "2 1")
	b.want("a", "1 2", "", "")
	if b.Fleet().Pool("a").Awaited {
		t.Error("a pool with engines is awaited")
	}
	b.hear("a", "2 3")
	b.want("a", "1 2 3", "1", "")
	b.wait(drain-1, Busy)
	b.want("a", "1 2 3", "1", "")
	b.wait(1, Busy)
	b.want("a", "2 3", "", "")
	if got := b.Counters.Cut.Load(); got != 1 {
		t.Errorf("%d engines were cut, want 1", got)
	}
}

func TestALeavingEngine(t *testing.T) {
	leave := func(t *testing.T) *book {
		b := newBook(t, nil)
		b.hear("a", "1 2")
		b.hear("a", "2")
		b.want("a", "1 2", "1", "")
		return b
	}
	t.Run("has no request left", func(t *testing.T) {
		b := leave(t)
		b.wait(drainAtLeast-1, Idle) // some may be on their way yet
		b.want("a", "1 2", "1", "")
		b.wait(1, Idle)
		b.want("a", "2", "", "")
	})
	t.Run("is unready", func(t *testing.T) {
		b := leave(t)
		b.wait(0, Unready)
		b.want("a", "2", "", "")
	})
	t.Run("is told to be unready", func(t *testing.T) {
		b := leave(t)
		b.Observe(b.now, &Answer{Pool: "a", Source: ofA, Engines: engines("2"), Unready: engines("1")})
		b.want("a", "2", "", "")
	})
	t.Run("comes back", func(t *testing.T) {
		b := leave(t)
		b.hear("a", "1 2")
		b.want("a", "1 2", "", "")
		b.wait(drain, Busy)
		b.want("a", "1 2", "", "")
	})
	t.Run("becomes another pool's", func(t *testing.T) {
		b := leave(t)
		b.hear("b", "1")
		b.want("a", "2", "", "")
		b.want("b", "1", "", "")
	})
}

func TestASourceFails(t *testing.T) {
	b := newBook(t, nil)
	b.hear("a", "1 2")
	b.now = b.now.Add(time.Hour)
	b.fail("a")
	b.want("a", "1 2", "", "is on fire; its last answer stays")
	if got := b.Sources()["a"].Heard; !got.Equal(b.now.Add(-time.Hour)) {
		t.Errorf("last heard at %v: a failure is no answer", got)
	}
	b.hear("a", "1 2")
	b.want("a", "1 2", "", "")
	b.fail("b")
	b.want("b", "", "", "is on fire")
	if !b.Fleet().Pool("b").Awaited {
		t.Error("a failure is taken for an answer")
	}
}

func TestAnEmptyAnswerIsDoubted(t *testing.T) {
	b := newBook(t, nil)
	b.hear("a", "1 2")
	b.hear("a", "")
	b.want("a", "1 2", "", "names no engine since")
	b.wait(doubt-1, Busy)
	b.hear("a", "")
	b.want("a", "1 2", "", "names no engine since")
	b.wait(1, Busy)
	b.want("a", "1 2", "1 2", "names no engine")
	b.hear("a", "2")
	b.want("a", "1 2", "1", "")
	b.hear("a", "")
	b.fail("a") // what it says before and after is not one long silence
	b.wait(doubt, Busy)
	b.want("a", "1 2", "1", "is on fire")
	b.hear("a", "")
	b.want("a", "1 2", "1", "names no engine since")
}

// A source that says of each engine that it ends, or is unready, has forgotten none: that
// is no reason to doubt. What it says nothing of is doubted as ever.
func TestAnAnswerWithoutEnginesThatNamesThem(t *testing.T) {
	hear := func(b *book, leaving, unready string) {
		b.Observe(b.now, &Answer{Pool: "a", Source: ofA, Leaving: engines(leaving), Unready: engines(unready)})
	}
	t.Run("all end", func(t *testing.T) {
		b := newBook(t, nil)
		b.hear("a", "1 2")
		hear(b, "1 2", "")
		b.want("a", "1 2", "1 2", "names no engine")
		if got := b.Counters.Doubted.Load(); got != 0 {
			t.Errorf("%d answers were doubted", got)
		}
	})
	t.Run("all are unready", func(t *testing.T) {
		b := newBook(t, nil)
		b.hear("a", "1 2")
		hear(b, "", "1 2 3")
		b.want("a", "", "", "names no engine that is ready, of 3")
	})
	t.Run("some are not named", func(t *testing.T) {
		b := newBook(t, nil)
		b.hear("a", "1 2 3 4")
		hear(b, "1", "2")
		b.want("a", "1 3 4", "1", "names no engine since")
		b.wait(doubt-1, Busy)
		hear(b, "1", "")
		b.want("a", "1 3 4", "1", "names no engine since")
		b.wait(1, Busy)
		b.want("a", "1 3 4", "1 3 4", "names no engine")
	})
	t.Run("those that end were never there", func(t *testing.T) {
		b := newBook(t, nil)
		hear(b, "1", "2")
		b.want("a", "", "", "names no engine that is ready, of 1")
	})
}

func TestAnEmptyAnswerIsTheFirst(t *testing.T) {
	b := newBook(t, nil)
	b.hear("a", "")
	b.want("a", "", "", "names no engine")
	if b.Fleet().Pool("a").Awaited {
		t.Error("a pool without engines is awaited")
	}
}

func TestOneEngineInTwoPools(t *testing.T) {
	b := newBook(t, nil)
	b.hear("b", "1 2 9")
	b.want("b", "1 2", "", `engine 10.0.0.9:80 is in pool "s" already (fleet file)`)
	b.hear("a", "1 3") // by name a would be the first, but b has it
	b.want("a", "3", "", `engine 10.0.0.1:80 is in pool "b" already (file /b)`)
	b.want("b", "1 2", "", "pool \"s\"")
	if got := b.Sources()["a"].Refused; got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
	b.hear("b", "2") // lets go of it
	b.want("a", "1 3", "", "")
	b.want("b", "2", "", "")
	if got := b.Counters.Refused.Load(); got != 2 {
		t.Errorf("%d counted as refused, want 2", got)
	}
	f := testFleet()
	f.Pools[2].Engines = engines("3")
	b.SetFleet(b.now, f) // what the file lists is the file's
	b.want("a", "1", "", `engine 10.0.0.3:80 is in pool "s" already`)
}

func TestBounds(t *testing.T) {
	many := func(n int) (out []fleet.EngineID) {
		for i := range n {
			out = append(out, fleet.EngineID(fmt.Sprintf("10.1.%d.%d:80", i/250, i%250)))
		}
		return out
	}
	t.Run("one answer", func(t *testing.T) {
		b := newBook(t, nil)
		b.hear("a", "1")
		b.Observe(b.now, &Answer{Pool: "a", Source: ofA, Engines: many(MaxPoolEngines + 1)})
		b.want("a", "1", "", "names more engines than a pool may have: 5001, at most 5000; its last answer stays")
	})
	t.Run("all of them", func(t *testing.T) {
		f := testFleet()
		f.Pools[2].Engines = many(MaxEngines - 1)
		b := &book{NewBook(f, nil), t, time.Unix(1e9, 0)}
		b.hear("a", "1 2")
		b.want("a", "1", "", "engine 10.0.0.2:80 is beyond the 20000 that a fleet may have")
	})
	t.Run("those that leave", func(t *testing.T) {
		b := newBook(t, nil)
		b.Observe(b.now, &Answer{Pool: "a", Source: ofA, Engines: many(maxLeaving + 7)})
		b.hear("a", "1")
		if got := len(b.Fleet().Pool("a").Leaving); got != maxLeaving {
			t.Errorf("%d are leaving, want %d", got, maxLeaving)
		}
	})
}

func TestTheFileChanges(t *testing.T) {
	b := newBook(t, nil)
	b.hear("a", "1")
	b.hear("b", "2")
	before := b.Fleet()
	f := testFleet()
	f.Options.HealthPath = "/other"
	other := ofB
	other.Where = "/elsewhere"
	f.Pools[1].Discovery = &other
	late := ofA
	late.Where = "/late"
	f.Pools[2] = fleet.Pool{ID: "s", Discovery: &late, Awaited: true}
	b.SetFleet(b.now, f)
	if b.Fleet() == before || b.Fleet().Options.HealthPath != "/other" {
		t.Error("the file's other news are not taken")
	}
	b.want("a", "1", "", "")
	b.want("b", "2", "", "has not answered yet: the engines are those of before")
	b.want("s", "9", "", "has not answered yet: the engines are those of before")
	b.Observe(b.now, &Answer{Pool: "b", Source: ofB, Engines: engines("7")}) // late, of the source before
	b.want("b", "2", "", "those of before")
	b.hear("b", "3")
	b.want("b", "2 3", "2", "")
	f = testFleet()
	f.Pools = f.Pools[1:]
	b.SetFleet(b.now, f)
	b.hearGone()
}

// hearGone has a pool's source speak that is no more.
func (b *book) hearGone() {
	b.Observe(b.now, &Answer{Pool: "a", Source: ofA, Engines: engines("5")})
	if p := b.Fleet().Pool("a"); p != nil {
		b.t.Errorf("a pool that the file has no more has engines %v", p.Engines)
	}
}

func TestWhatIsKeptOverARestart(t *testing.T) {
	b := newBook(t, nil)
	b.hear("a", "1 2")
	again := newBook(t, b.Answers())
	again.want("a", "1 2", "", "has not answered yet: the engines are those of before")
	again.want("b", "", "", "has not answered yet")
	if again.Fleet().Pool("a").Awaited {
		t.Error("a pool with engines of before is awaited")
	}
	again.fail("a")
	again.want("a", "1 2", "", "its last answer stays")
	again.hear("a", "")
	again.want("a", "1 2", "", "names no engine since")
	again.hear("a", "2")
	again.want("a", "1 2", "1", "")
}

// What has not changed is the same fleet, so that nobody has to look.
func TestTheSameFleet(t *testing.T) {
	b := newBook(t, nil)
	b.hear("a", "1 2")
	f := b.Fleet()
	b.hear("a", "2 1")
	b.fail("a")
	if b.Fleet() != f {
		t.Error("the fleet was made anew for no news")
	}
	b.hear("b", "")
	before := b.Fleet()
	if f == before {
		t.Error("b has answered, and the fleet is the one that awaits it")
	}
	b.hear("b", "")
	b.wait(time.Second, Busy)
	if b.Fleet() != before {
		t.Error("the fleet was made anew for what it has")
	}
}
