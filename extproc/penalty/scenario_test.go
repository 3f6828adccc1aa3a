package penalty

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/fleet"
)

// scenario is a file of testdata:
//
//	engines a b c d         a pool
//	rps 10                  at each in the mean, while none is penalised
//	times 0.1 2 0.3         to the first token, from there to the last; spread of the former (σ of its logarithm)
//	even                    requests come evenly, else as chance has it
//	hold                    headers come with the first token
//	at 10 a slow=10         from that second on the engine behaves so
//	at 10 a fail=1 after=9  requests fail so many seconds after they began
//	at 10 a cut             what is under way there breaks off, and all is well again
//	want 13-60 a < 0.2      its part of the traffic, in parts of what it gets unpenalised
//	want 0-60 b = 1         it is not penalised
//	want 13-60 a mean< 0.3  the mean of its part
//
// Traffic follows the penalties. What the log tells, and when, is as Envoy's: of an
// attempt under way each second, of all others when they end.
type scenario struct {
	engines []fleet.EngineID
	rps     float64
	ttft    float64
	decode  float64
	spread  float64
	hold    bool
	even    bool
	changes []change
	wants   []want
	end     int
}

type change struct {
	at     int
	engine fleet.EngineID
	acts   acts
}

// acts is how an engine behaves.
type acts struct {
	slow, fail float64
	how        string  // of its failures
	after      float64 // seconds: when they come; 0: soon
	cut        bool
	hang       bool
	stall      bool
}

type want struct {
	from, to int
	engine   fleet.EngineID
	than     string
	value    float64
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		s := readScenario(t, file)
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(file), ".txt"), seed), func(t *testing.T) {
				t.Parallel()
				s.run(t, seed)
			})
		}
	}
}

func readScenario(t *testing.T, file string) *scenario {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &scenario{rps: 10, ttft: 0.1, decode: 2, spread: 0.3}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if words := strings.Fields(text); len(words) > 0 && !s.line(words) {
			t.Fatalf("%s:%d: %q", file, n, text)
		}
	}
	return s
}

func (s *scenario) line(words []string) bool {
	var err error
	number := func(text string) float64 {
		x, e := strconv.ParseFloat(text, 64)
		if e != nil {
			err = e
		}
		return x
	}
	switch n := len(words); {
	case words[0] == "engines":
		for _, w := range words[1:] {
			s.engines = append(s.engines, fleet.EngineID(w))
		}
	case words[0] == "rps" && n == 2:
		s.rps = number(words[1])
	case words[0] == "times" && n == 4:
		s.ttft, s.decode, s.spread = number(words[1]), number(words[2]), number(words[3])
	case words[0] == "hold":
		s.hold = true
	case words[0] == "even":
		s.even = true
	case words[0] == "at" && n > 3:
		s.changes = append(s.changes, change{int(number(words[1])), fleet.EngineID(words[2]), newActs(words[3:], number)})
	case words[0] == "want" && n == 5:
		from, to, _ := strings.Cut(words[1], "-")
		s.wants = append(s.wants, want{int(number(from)), int(number(to)), fleet.EngineID(words[2]), words[3], number(words[4])})
		s.end = max(s.end, int(number(to)))
	default:
		return false
	}
	return err == nil
}

func newActs(words []string, number func(string) float64) acts {
	a := acts{slow: 1, how: "server_error"}
	for _, w := range words {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "slow":
			a.slow = number(value)
		case "fail":
			a.fail = number(value)
		case "how":
			a.how = value
		case "after":
			a.after = number(value)
		case "cut":
			a.cut = true
		case "hang":
			a.hang = true
		case "stall":
			a.stall = true
		case "ok":
		default:
			number(w) // is none
		}
	}
	return a
}

// world is a run of a scenario.
type world struct {
	*scenario
	book  *Book
	luck  *rand.Rand
	acts  map[fleet.EngineID]acts
	under []*request
	due   map[fleet.EngineID]float64 // until the next request, in parts of the mean interval
	now   float64
	means map[want]mean
}

type mean struct{ sum, n float64 }

// request is one, and what of it comes when.
type request struct {
	engine      fleet.EngineID
	began       float64
	first, ends float64 // seconds after that; what never comes is infinite
	stalls      float64
	outcome     fleet.Outcome
	judged      bool
	idle        bool
	told        float64 // when the log told of it last
}

func date(s float64) time.Time { return time.Unix(1e9, 0).Add(time.Duration(s * float64(time.Second))) }

const (
	stepSeconds = 0.25
	slowAfter   = 30
)

func (s *scenario) run(t *testing.T, seed uint64) {
	w := &world{scenario: s, book: NewBook(), luck: rand.New(rand.NewPCG(seed, 7)), acts: map[fleet.EngineID]acts{}, due: map[fleet.EngineID]float64{}, means: map[want]mean{}}
	w.book.Set(date(0), map[fleet.PoolID][]fleet.EngineID{"pool": s.engines})
	for _, e := range s.engines {
		w.acts[e] = acts{slow: 1}
	}
	const warmUp = 30
	for i := -int(warmUp / stepSeconds); i <= int(float64(s.end)/stepSeconds); i++ {
		w.now = float64(i) * stepSeconds
		for _, c := range s.changes {
			if float64(c.at) == w.now {
				w.become(c.engine, c.acts)
			}
		}
		w.book.Step(date(w.now))
		w.check(t)
		w.send()
		w.log()
	}
	for x, m := range w.means {
		if got := m.sum / m.n; got >= x.value {
			t.Errorf("seconds %d to %d: %s has a share of %.3f in the mean, want %s %v", x.from, x.to, x.engine, got, x.than, x.value)
		}
	}
}

// become has an engine behave otherwise, in the midst of its requests.
func (w *world) become(e fleet.EngineID, a acts) {
	stretch := a.slow / w.acts[e].slow
	w.acts[e] = a
	for _, r := range w.under {
		if age := w.now - r.began; r.engine == e {
			if r.first > age {
				r.first = age + (r.first-age)*stretch
			}
			if r.outcome == fleet.Answered {
				r.ends = age + (r.ends-age)*stretch
			}
			if a.cut && r.first < age {
				r.outcome, r.ends = fleet.Truncated, age
			}
		}
	}
}

// share is an engine's part of the traffic, where 1 is its fair part.
func (w *world) share(e fleet.EngineID) float64 {
	sum := 0.0
	for _, x := range w.engines {
		sum += w.book.Of(x)
	}
	return w.book.Of(e) / sum * float64(len(w.engines))
}

func (w *world) check(t *testing.T) {
	for _, x := range w.wants {
		if w.now < float64(x.from) || w.now > float64(x.to) {
			continue
		}
		for _, e := range w.engines {
			if x.engine != "all" && x.engine != e {
				continue
			}
			share, p := w.share(e), w.book.Of(e)
			if m := w.means[x]; x.than == "mean<" {
				w.means[x] = mean{m.sum + share, m.n + 1}
			}
			if x.than == "<" && share >= x.value || x.than == ">" && share <= x.value || x.than == "=" && p != x.value {
				t.Fatalf("second %.2f: %s has a penalty of %.3f and a share of %.3f, want %s %v: %s", w.now, e, p, share, x.than, x.value, w.describe())
			}
		}
	}
}

// send has the requests of a step begin.
func (w *world) send() {
	for _, e := range w.engines {
		left := w.rps * w.share(e) * stepSeconds
		for w.due[e] < left {
			w.under = append(w.under, w.request(e, w.now+w.due[e]/left*stepSeconds))
			w.due[e] += w.interval()
		}
		w.due[e] -= left
	}
}

// interval is between two requests, in parts of the mean.
func (w *world) interval() float64 {
	if w.even {
		return 0.75 + 0.5*w.luck.Float64()
	}
	return w.luck.ExpFloat64()
}

func (w *world) request(e fleet.EngineID, began float64) *request {
	a := w.acts[e]
	r := &request{engine: e, began: began, outcome: fleet.Answered, stalls: math.Inf(1)}
	r.first = w.ttft * a.slow * math.Exp(w.spread*w.luck.NormFloat64())
	r.ends = r.first + w.decode*a.slow
	switch {
	case w.luck.Float64() < a.fail:
		for o := fleet.Answered; o <= fleet.Aborted; o++ {
			if o.String() == a.how {
				r.outcome = o
			}
		}
		r.ends, r.first = 0.005, math.Inf(1)
		if r.outcome == fleet.Truncated {
			r.first, r.ends = 0.1, 0.3
		}
		r.ends = max(r.ends, a.after)
	case a.hang:
		r.first, r.ends, r.outcome = math.Inf(1), slowAfter, fleet.Slow
	case a.stall:
		r.stalls, r.ends, r.outcome = r.first+0.3, slowAfter, fleet.Truncated
	}
	return r
}

// log tells the book of a step what Envoy's log does.
func (w *world) log() {
	left := w.under[:0]
	for _, r := range w.under {
		for next := r.told + 1; r.began+next < w.now+stepSeconds && next < r.ends; next = r.told + 1 {
			w.during(r, next)
			r.told = next
		}
		if r.began+r.ends < w.now+stepSeconds {
			w.over(r)
			continue
		}
		left = append(left, r)
	}
	w.under = left
}

func (w *world) during(r *request, age float64) {
	began := date(r.began)
	if r.told == 0 {
		w.book.Lasts(r.engine, began)
	}
	if !r.judged {
		if r.first <= age {
			r.judged = true
			w.book.Time(r.engine, FirstToken, began, r.first)
		} else {
			r.judged = w.book.Waiting(r.engine, began, age, !w.hold)
		}
		return
	}
	if r.first > r.told {
		return
	}
	slow, since := w.acts[r.engine].slow, date(w.now-1)
	switch {
	case r.stalls <= r.told && !r.idle:
		r.idle = true
		w.book.Stalled(r.engine, since)
	case r.stalls > age:
		w.book.Time(r.engine, Pace, since, slow/1000)
	}
}

func (w *world) over(r *request) {
	began := date(r.began)
	if !r.judged && r.first < r.ends {
		w.book.Time(r.engine, FirstToken, began, r.first)
	}
	if r.told == 0 || r.outcome != fleet.Answered {
		w.book.Outcome(r.engine, began, r.outcome)
	}
	if r.outcome == fleet.Answered {
		w.book.Time(r.engine, Gap, began, (r.ends-r.first)/100)
	}
}

// describe tells how all engines stand.
func (w *world) describe() string {
	var out strings.Builder
	for _, id := range w.engines {
		e := w.book.engines[id]
		fmt.Fprintf(&out, "\n%s: %.2f for %q, relapses %d;", id, e.value, e.fault, e.relapses)
		for s, t := range e.tests {
			since := t.window.since(t.began, date(w.now))
			fmt.Fprintf(&out, " %d: score %.1f (+%.2f −%.2f), lately %.1f of %.1f, %v of %v since %.1f;", s, t.score, t.bad, t.good,
				t.lately.bad, t.lately.all, since.bad, since.all, max(-99, t.began.Sub(date(0)).Seconds()))
		}
	}
	return out.String()
}
