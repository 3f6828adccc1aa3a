package demo

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/config"
	"weir/deploy/stage"
	"weir/fleet"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a turn at front-end f that was sent so many seconds into the demo.
func at(second float64, talk string, n int, engine fleet.EngineID) turn {
	return turn{
		talk: talk, n: n, frontEnd: "f", class: "k", engine: engine, pool: fleet.PoolID(engine[:1]),
		reply: stage.Reply{Sent: t0.Add(time.Duration(second * float64(time.Second))), Status: 200}, prompt: 100, cached: 90,
	}
}

func TestCountJudgesByThePlanInForce(t *testing.T) {
	h := &history{plans: map[fleet.FrontEndID][]planned{"f": {
		{t0, map[place]float64{{"k", "p"}: 1}, nil},
		{t0.Add(10 * time.Second), map[place]float64{{"k", "p"}: 0.25, {"k", "q"}: 0.75}, nil},
	}}}
	cells := []cell{{frontEnd: "f", place: place{"k", "p"}}, {frontEnd: "f", place: place{"k", "q"}}}
	count(cells, h, []turn{
		at(1, "a", 0, "p1"), at(2, "a", 1, "p1"), // a follow-up is no draw
		at(11, "b", 0, "q1"), at(12, "c", 0, "p2"),
	})
	want := []cell{
		{frontEnd: "f", place: place{"k", "p"}, began: 3, got: 2, expected: 1.5, variance: 2 * 0.25 * 0.75},
		{frontEnd: "f", place: place{"k", "q"}, began: 3, got: 1, expected: 1.5, variance: 2 * 0.25 * 0.75},
	}
	if diff := cmp.Diff(cells, want, cmp.AllowUnexported(cell{}, place{})); diff != "" {
		t.Errorf("cells (-got +want):\n%s", diff)
	}
}

func TestZLeavesNothingToChanceWhereThePlanDoesNot(t *testing.T) {
	if z := (&cell{got: 5, expected: 5}).z(); z != 0 {
		t.Errorf("as planned: z = %v, want 0", z)
	}
	if z := (&cell{got: 4, expected: 5}).z(); !math.IsInf(z, -1) {
		t.Errorf("one missing of a share of 1: z = %v, want −∞", z)
	}
	if z := (&cell{got: 30, expected: 20, variance: 25}).z(); z != 2 {
		t.Errorf("z = %v, want 2", z)
	}
}

func TestFollowCountsMoves(t *testing.T) {
	all := []turn{
		at(0, "a", 0, "p1"), at(1, "a", 1, "p1"), at(2, "a", 2, "p2"), at(3, "a", 3, "p1"),
		at(0, "b", 0, "q1"), at(9, "b", 1, "q2"),
	}
	got := follow(all, func(t *turn) bool { return t.reply.Sent.Before(t0.Add(5 * time.Second)) })[byHeader]
	want := affinity{followUps: 3, moved: 2, prompt: 300, cached: 270}
	if got != want {
		t.Errorf("follow = %+v, want %+v", got, want)
	}
}

func TestTallyTellsOutcomesApart(t *testing.T) {
	cut := errors.New("cut")
	reply := func(second float64, status int, err error, engine fleet.EngineID) turn {
		x := at(second, "a", 0, engine)
		x.reply.Status, x.reply.Err = status, err
		return x
	}
	a := act{begun: t0, ended: t0.Add(10 * time.Second), excused: "p1"}
	got := a.tally([]turn{
		reply(1, 200, nil, "p1"), reply(2, 429, nil, "p1"), reply(3, 200, cut, "p1"),
		reply(4, 200, cut, "p2"), reply(5, 503, nil, "p1"), reply(11, 503, nil, "p1"),
	})
	got.first = nil
	if want := (outcomes{sent: 5, shed: 1, cut: 1, failed: 2}); got != want {
		t.Errorf("tally = %+v, want %+v", got, want)
	}
}

func TestUsageIsReadFromTheLastEvent(t *testing.T) {
	stream := "data: {\"choices\":[]}\n\ndata: {\"usage\":{\"prompt_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n"
	if prompt, cached := usage([]byte(stream)); prompt != 12 || cached != 8 {
		t.Errorf("usage = %d, %d, want 12, 8", prompt, cached)
	}
	if prompt, cached := usage([]byte("data: nonsense\n")); prompt != 0 || cached != 0 {
		t.Errorf("usage of nonsense = %d, %d, want none", prompt, cached)
	}
}

// The file that the second act writes is right, and changes one pool alone.
func TestWithCapacityChangesOnePool(t *testing.T) {
	text, err := config.Read("../../testdata/fleets/talk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for pool, before := range map[fleet.PoolID]float64{"B": 50, "C": 40} {
		changed, err := withCapacity(scaleRates(string(text), 0.5), pool, 7)
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Parse("changed.yaml", []byte(changed))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Pools {
			want := map[fleet.PoolID]float64{"A": 25, "B": 25, "C": 20}[p.ID]
			if p.ID == pool {
				want = 7
			}
			if p.Profile.CapacityRps != want {
				t.Errorf("with pool %s changed from %v, pool %s has %v RPS, want %v", pool, before, p.ID, p.Profile.CapacityRps, want)
			}
		}
	}
	if _, err := withCapacity(string(text), "nobody", 1); err == nil {
		t.Error("a pool that is not there was changed")
	}
}

func TestThePictureFitsATerminal(t *testing.T) {
	p := &picture{
		title: "talk.yaml", journals: true, act: "one of pool B's engines is killed", at: "B", elapsed: 12 * time.Second, length: 46 * time.Second,
		told:    map[fleet.FrontEndID]planned{"B": {shares: map[place]float64{{"chat", "B"}: 0.8}, refused: map[fleet.ClassID]float64{"chat": 0.04}}},
		refused: map[fleet.Stream]refusals{{FrontEnd: "B", Class: "chat"}: {200, 10}},
		cells:   []cell{{frontEnd: "B", place: place{"chat", "B"}, began: 10, got: 8}, {frontEnd: "B", place: place{"chat", "C"}}},
		ttfts:   map[fleet.Link][]time.Duration{{FrontEnd: "B", Pool: "B"}: {20 * time.Millisecond, 250 * time.Millisecond}},
		pools:   []poolLoad{{"B", 30, 40}},
	}
	p.affinity[byField] = affinity{followUps: 40, moved: 1, prompt: 1000, cached: 990}
	var text strings.Builder
	p.draw(&text)
	for line := range strings.Lines(text.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	for _, want := range []string{"B chat → B      80.0%    80.0%", "B chat refused  4.0%     5.0%", "none failed", " 75%  30.0 of 40 RPS", "40 turns,   1 moved, 99% of their prompts cached"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the picture lacks %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "→ C") {
		t.Error("the picture shows a pool that nothing goes to")
	}
}
