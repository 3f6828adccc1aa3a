package control

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"weir/fleet"
)

var update = flag.Bool("update", false, "rewrite what the scenarios want; commit that only if each change is understood and wanted")

// TestScenarios runs the scripts in testdata against a loop on a clock of its
// own. Each holds commands and, after a line of dashes, all that the loop published
// and logged:
//
//	start                      start the loop
//	restored POOL:SHARE …      start with a plan of an earlier process
//	restored-by POLICY POOL:SHARE …
//	advance 2s                 let time pass
//	demand 90 [declared]       what chat's clients at A ask for
//	engine p1 ready|unready|unknown
//	planner ok|fails WORD|…    how plans are made; see world.makePlan
//	publisher ok|fails WORD
//	tick 5s                    change the fleet's tick
//	file policy|shadow NAME    change the fleet's policy or its shadow
//	choose policy|shadow NAME  as an operator does at run time; of a shadow also none
//	show                       print the policies and what the shadow made
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, want, _ := strings.Cut(string(data), separator)
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, script) })
			if *update {
				want = got
				if err := os.WriteFile(file, []byte(script+separator+got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// separator stands between the commands of a scenario and what comes of them.
const separator = "\n----\n"

// world is all that a loop sees: one front-end A, one class chat, and the pools p
// and q of two engines that do 50 RPS each.
type world struct {
	out       bytes.Buffer
	start     time.Time
	fleet     fleet.Fleet
	demand    fleet.Demand
	engines   map[fleet.EngineID]fleet.Readiness
	planner   []string
	publisher []string
	restored  *fleet.Plan
	post      func(func(time.Time)) bool
	loop      *Loop
}

var stream = fleet.Stream{FrontEnd: "A", Class: "chat"}

func newWorld() *world {
	return &world{
		start: time.Now(),
		fleet: fleet.Fleet{
			FrontEnds: []fleet.FrontEnd{{ID: "A"}},
			Pools: []fleet.Pool{
				{ID: "p", Engines: []fleet.EngineID{"p1", "p2"}},
				{ID: "q", Engines: []fleet.EngineID{"q1", "q2"}},
			},
			Classes: []fleet.Class{{ID: "chat"}},
		},
		demand:    fleet.Demand{Rps: 90, Source: fleet.SourceArrivals},
		engines:   map[fleet.EngineID]fleet.Readiness{},
		planner:   []string{"ok"},
		publisher: []string{"ok"},
		post:      func(do func(time.Time)) bool { do(time.Now()); return true },
	}
}

// play runs a script and returns what happened.
func play(t *testing.T, script string) string {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	running := false
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			continue
		case words[0] == "start":
			l := New(w.config())
			w.post, w.loop, running = l.Post, l, true
			go func() { done <- l.Run(ctx) }()
		case words[0] == "choose":
			w.choose(t, words[1], words[2])
		case words[0] == "advance":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			elapse(d)
		default:
			w.post(func(time.Time) { w.do(t, words) })
		}
		synctest.Wait()
	}
	cancel()
	if running {
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		w.printCounters()
	}
	return w.out.String()
}

func (w *world) do(t *testing.T, words []string) {
	var err error
	switch words[0] {
	case "demand":
		w.demand.Rps, err = strconv.ParseFloat(words[1], 64)
		w.demand.Source = fleet.SourceArrivals
		if len(words) > 2 {
			w.demand.Source = fleet.Source(words[2])
		}
	case "engine":
		readiness := map[string]fleet.Readiness{"ready": fleet.Ready, "unready": fleet.Unready, "unknown": fleet.Unknown}
		for _, id := range words[1 : len(words)-1] {
			w.engines[fleet.EngineID(id)] = readiness[words[len(words)-1]]
		}
	case "planner":
		w.planner = words[1:]
	case "publisher":
		w.publisher = words[1:]
	case "tick":
		next := w.fleet
		next.Options.Tick, err = time.ParseDuration(words[1])
		w.fleet = next
	case "file":
		next := w.fleet
		*map[string]*string{"policy": &next.Options.Policy, "shadow": &next.Options.Shadow}[words[1]] = words[2]
		w.fleet = next
	case "show":
		w.show()
	case "restored":
		w.restored, err = restoredPlan(words[1:])
	case "restored-by":
		if w.restored, err = restoredPlan(words[2:]); err == nil {
			w.restored.Policy = words[1]
		}
	default:
		err = errors.New("unknown command")
	}
	if err != nil {
		t.Errorf("%q: %v", words, err)
	}
}

func (w *world) choose(t *testing.T, which, name string) {
	if name == "none" {
		name = ""
	}
	policy, shadow := &name, (*string)(nil)
	if which == "shadow" {
		policy, shadow = shadow, policy
	}
	if _, err := w.loop.Choose(policy, shadow); err != nil {
		t.Errorf("choose %s %s: %v", which, name, err)
	}
}

func (w *world) show() {
	r := w.loop.Latest()
	w.printf("policy %+v, shadow %+v", r.Choice.Policy, r.Choice.Shadow)
	if sh := r.Shadow; sh != nil {
		fmt.Fprintf(&w.out, ": %s of %.1fs %q", sh.Policy, sh.At.Sub(w.start).Seconds(), sh.Why)
		if sh.Difference != nil {
			fmt.Fprintf(&w.out, " %+v", *sh.Difference)
		}
	}
	w.out.WriteByte('\n')
}

func restoredPlan(shares []string) (*fleet.Plan, error) {
	r := fleet.Route{FrontEnd: stream.FrontEnd, Class: stream.Class, DemandRps: 10}
	for _, s := range shares {
		pool, number, _ := strings.Cut(s, ":")
		share, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, err
		}
		r.Shares = append(r.Shares, fleet.Share{Pool: fleet.PoolID(pool), Share: share})
	}
	return &fleet.Plan{Status: fleet.Optimal, Routes: []fleet.Route{r}}, nil
}

func (w *world) config() Config {
	return Config{
		State:    w.state,
		Plan:     w.makePlan,
		Publish:  w.publish,
		Restored: w.restored,
		Log:      w.logger(),
	}
}

func (w *world) state(_ time.Time, previous *fleet.Plan) *fleet.State {
	fl := w.fleet
	s := &fleet.State{
		Fleet:    &fl,
		Demand:   map[fleet.Stream]fleet.Demand{stream: w.demand},
		Pools:    map[fleet.PoolID]fleet.PoolState{},
		Previous: previous,
	}
	for _, p := range fl.Pools {
		s.Pools[p.ID] = fleet.PoolState{Engines: maps.Clone(w.engines)}
	}
	return s
}

// makePlan fills p, then q, then sheds; policy nearest fills p alone, for ever. Or it
// does what the script says is wrong, with one policy if it names it.
func (w *world) makePlan(s *fleet.State) (*fleet.Plan, error) {
	policy, planner := s.Fleet.Options.Policy, w.planner
	if len(planner) > 2 && planner[2] != policy {
		planner = []string{"ok"}
	}
	switch planner[0] {
	case "fails":
		return nil, errors.New(planner[1])
	case "panics":
		panic(planner[1])
	}
	plan := &fleet.Plan{Status: fleet.Optimal, Policy: policy}
	r := fleet.Route{FrontEnd: stream.FrontEnd, Class: stream.Class, DemandRps: max(s.Demand[stream].Rps, 0.01)}
	left := r.DemandRps
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		capacity := 50 * s.Replicas(p)
		rps := min(left, capacity)
		if policy == fleet.PolicyNearest && i == 0 {
			rps = left
		}
		left -= rps
		if rps > 0 {
			r.Shares = append(r.Shares, fleet.Share{Pool: p.ID, Rps: rps})
		}
		plan.MeanSeconds += 0.1 * float64(i+1) * rps / r.DemandRps
		plan.Pools = append(plan.Pools, fleet.PoolPlan{
			Pool: p.ID, CapacityRps: capacity, Rps: rps, Utilisation: rps / max(capacity, 1),
		})
	}
	if left > 0 {
		r.ShedRps, plan.Status, plan.Why = left, fleet.Shedding, "capacity is short"
	}
	if len(r.Shares) == 0 {
		r.Shares = []fleet.Share{{Pool: "p", Share: 1}}
	}
	for i := range r.Shares {
		if admitted := r.DemandRps - r.ShedRps; admitted > 0 {
			r.Shares[i].Share = r.Shares[i].Rps / admitted
		}
	}
	plan.Routes = []fleet.Route{r}
	if planner[0] == "shifts" { // the shares sum to more than 1
		plan.Routes[0].Shares[0].Share += 0.5
	}
	return plan, nil
}

func (w *world) publish(s *fleet.State, p *fleet.Plan) error {
	if w.publisher[0] == "fails" {
		return errors.New(w.publisher[1])
	}
	r := p.Route(stream)
	w.printf("publish %s: %.4g RPS", p.Status, r.DemandRps)
	for _, sh := range r.Shares {
		fmt.Fprintf(&w.out, ", %s %.0f%%", sh.Pool, 100*sh.Share)
	}
	if r.ShedRps > 0 {
		fmt.Fprintf(&w.out, ", shed %.4g RPS", r.ShedRps)
	}
	for _, id := range slices.Sorted(maps.Keys(w.engines)) {
		if readiness := s.Readiness("p", id); readiness != fleet.Ready {
			fmt.Fprintf(&w.out, ", %s %s", id, readiness)
		}
	}
	w.out.WriteByte('\n')
	return nil
}

func (w *world) printf(format string, args ...any) {
	fmt.Fprintf(&w.out, "%5.1fs ", time.Since(w.start).Seconds())
	fmt.Fprintf(&w.out, format, args...)
}

func (w *world) printCounters() {
	c := &w.loop.Counters
	fmt.Fprintf(&w.out, "%d rounds: %d failed, %d refused, %d held, %d empty, %d publish errors\n", c.Rounds.Load(),
		c.PlansFailed.Load(), c.PlansRefused.Load(), c.RoundsHeld.Load(), c.RoundsEmpty.Load(), c.PublishErrors.Load())
	if planned, failed, skipped := c.ShadowsPlanned.Load(), c.ShadowsFailed.Load(), c.ShadowsSkipped.Load(); planned+failed+skipped > 0 {
		fmt.Fprintf(&w.out, "shadow: %d planned, %d failed, %d skipped\n", planned, failed, skipped)
	}
}

// logger prints entries between the publications.
func (w *world) logger() *zap.Logger {
	return zap.New(&logCore{w})
}

type logCore struct{ *world }

func (c *logCore) Enabled(zapcore.Level) bool        { return true }
func (c *logCore) With([]zapcore.Field) zapcore.Core { return c }
func (c *logCore) Sync() error                       { return nil }

func (c *logCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, c)
}

func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	c.printf("%s %s:", e.Level, e.Message)
	for _, k := range slices.Sorted(maps.Keys(enc.Fields)) {
		switch v := enc.Fields[k].(type) {
		case float64:
			fmt.Fprintf(&c.out, " %s=%.4g", k, v)
		default:
			fmt.Fprintf(&c.out, " %s=%q", k, v)
		}
	}
	c.out.WriteByte('\n')
	return nil
}
