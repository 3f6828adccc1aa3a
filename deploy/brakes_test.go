package deploy

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/admin"
	"weir/deploy/stage"
	"weir/fleet"
)

// The four brakes on real traffic. An engine drains under streams: none is cut, nothing
// new comes, and the plan counts on the others. A freeze holds shares while a round trip
// changes. A pinned pool gets its share and a limited class is refused to its fraction,
// before and after the control plane was killed and started again.
func TestBrakes(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{
		FleetFile:   talk,
		Edit:        func(text string) string { return strings.Replace(declared(text), "chat: 120 rps", "chat: 60 rps", 1) },
		EngineFlags: func(fleet.PoolID) []string { return []string{"--tbt", "200ms"} },
	})
	b := &braking{t, s}
	b.drains()
	b.freezes()
	b.pins(0.3)
	b.limits(95, 0.5)
	t.Run("restarted", func(t *testing.T) {
		check(t, s.Process("weir").Kill())
		check(t, s.Process("weir").Start())
		awaitPlan(t, s)
		r := &braking{t, s}
		if got, admitted := shares(t, s)[fleet.Link{FrontEnd: "B", Pool: "A"}], admittedAt(t, s, "B"); math.Abs(got-0.3) > 1e-6 || math.Abs(admitted-0.5) > 1e-6 {
			t.Errorf("the first that is served again pins %v and admits %v, want 0.3 and 0.5", got, admitted)
		}
		eventually(t, "every front-end is back", 20*time.Second, func() bool { return r.taken() })
		r.countPinned(0.3)
		r.countRefused(0.5)
		awaitStatus(t, s, 3, "BRAKES IN FORCE: 2", `limit of class "chat", 95 RPS`, `pin of B/chat to pool "A", 30 %`, "a test of pins")
	})
	b.weir("unpin", "B/chat", "A")
	b.weir("unlimit", "chat")
	awaitStatus(t, s, 0, "all is well")
	b.served("B", "B", 1)
}

// A limit on a class that nobody asks for holds from the first request on: one of nothing
// lets in nobody, and a low one little more than itself.
func TestALimitHoldsAfterIdleness(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/four.yaml", Edit: func(text string) string {
		return strings.NewReplacer("\noptions:\n  demand: declared\n", "\n", "2s, 100%: 2s", "50ms, 100%: 50ms").Replace(text)
	}})
	b := &braking{t, s}
	demand := func() admin.Stream {
		var st admin.Status
		adminPage(t, s, "/status", &st)
		return st.FrontEnds[0].Streams[0]
	}
	limited := func(rps float64, effect string) {
		t.Helper()
		eventually(t, "nobody asks for the class", 60*time.Second, func() bool {
			d := demand()
			return d.Source == fleet.SourceArrivals && d.DemandRps < 0.01
		})
		b.weir("limit", fmt.Sprintf("chat=%g", rps))
		eventually(t, "the limit is in force", 10*time.Second, func() bool {
			var brakes admin.Brakes
			adminPage(t, s, "/brakes", &brakes)
			return len(brakes.Brakes) == 1 && strings.Contains(brakes.Brakes[0].Effect, effect) && b.taken()
		})
	}
	b.lowLimit(limited)
	limited(0, "refuses nothing")
	eventually(t, "the gate is shut", 5*time.Second, func() bool {
		return number(t, page(t, s.AdminAddress("extproc-main"), "/metrics"), `weir_extproc_gate_refused{class="chat"}`) == 1
	})
	for i, r := range doAll(t, s, names("none", 40)) {
		mustRefuse(t, r, 429)
		if why := r.Header.Get("x-weir-shed-reason"); why != "limit" {
			t.Errorf("request %d was refused for %q, want limit", i, why)
		}
	}
}

// lowLimit asks for ten times a low limit, one request after the other.
func (b *braking) lowLimit(limited func(rps float64, effect string)) {
	b.t.Helper()
	const rps, seconds, n = 2, 10, 200
	limited(rps, "refuses nothing")
	client, served := stage.NewClient(), 0
	tick := time.NewTicker(seconds * time.Second / n)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		r := stage.Do(b.t.Context(), client, chatCall(b.stage.URL("main"), fmt.Sprint("low-", i)))
		if r.OK() {
			served++
			continue
		}
		mustRefuse(b.t, r, 429)
		if why := r.Header.Get("x-weir-shed-reason"); why != "limit" {
			b.t.Errorf("request %d was refused for %q, want limit", i, why)
		}
	}
	// What comes before the gate has looked, each quarter of a second, is let in beside.
	b.t.Logf("%d of %d were served in %d s under a limit of %d RPS", served, n, seconds, rps)
	if most := rps*seconds + 0.25*n/seconds + 4*math.Sqrt(rps*seconds); float64(served) > most {
		b.t.Errorf("%d requests were served, at most %.0f may be", served, most)
	}
	if served == 0 {
		b.t.Error("nobody was served")
	}
}

// Under a freeze the brakes' effects are told by the plan that stays, before a restart and
// after it; who renews a brake learns whose it was.
func TestBrakesUnderAFreeze(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: talk, Edit: declaredOnly})
	b := &braking{t, s}
	effects := func() map[fleet.BrakeKind]string {
		var brakes admin.Brakes
		adminPage(t, s, "/brakes", &brakes)
		out := map[fleet.BrakeKind]string{}
		for _, x := range brakes.Brakes {
			out[x.Kind] = x.Effect
		}
		return out
	}
	b.weir("pin", "B/chat", "A=30%")
	b.served("B", "A", 0.3)
	b.weir("freeze", "--note", "the final")
	if out := b.weir("freeze", "--for", "5m"); !strings.Contains(out, "replaced: freeze by ") || strings.Count(out, "(the final)") != 1 || !strings.Contains(out, "  the final  ") {
		t.Errorf("a freeze renewed without a note:\n%s", out)
	}
	if out := b.weir("limit", "chat=95"); !strings.Contains(out, "given, in force from the next round on") {
		t.Errorf("a limit just given:\n%s", out)
	}
	if out := b.weir("brakes"); !strings.Contains(out, `limit of class "chat", 95 RPS`) {
		t.Errorf("it is not shown at once:\n%s", out)
	}
	b.weir("unpin", "B/chat", "A")
	told := func() bool {
		got := effects()
		return strings.Contains(got[fleet.BrakeLimit], "it waits for a new plan") &&
			strings.Contains(got[fleet.BrakeFreeze], `the plan that stays still has the pin of B/chat to pool "A", 30 %`)
	}
	eventually(t, "the limit waits, the pin stays", 10*time.Second, told)
	check(t, s.Process("weir").Kill())
	check(t, s.Process("weir").Start())
	awaitPlan(t, s)
	if !told() {
		t.Errorf("after a restart: %q", effects())
	}
	b.served("B", "A", 0.3)
	b.weir("unfreeze")
	eventually(t, "the limit is in force", 10*time.Second, func() bool { return strings.Contains(effects()[fleet.BrakeLimit], " RPS are refused") })
}

// braking is a stage whose operator uses the brakes.
type braking struct {
	t     *testing.T
	stage *stage.Stage
}

func (b *braking) weir(args ...string) string {
	b.t.Helper()
	return string(weir(b.t, append(args, "--admin", b.stage.AdminAddress("weir"))...))
}

// refused runs a command that must be, and returns what it says.
func (b *braking) refused(args ...string) string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), filepath.Join(bin, "weir"), append(args, "--admin", b.stage.AdminAddress("weir"))...).CombinedOutput()
	if err == nil {
		b.t.Errorf("weir %s was not refused", strings.Join(args, " "))
	}
	return string(out)
}

// taken says whether every client of every front-end is there and has all it was sent.
func (b *braking) taken() bool {
	var clients []fleet.Client
	adminPage(b.t, b.stage, "/clients", &clients)
	behind := slices.ContainsFunc(clients, func(c fleet.Client) bool { return !c.UpToDate() })
	return !behind && len(clients) == 2*len(b.stage.Fleet.FrontEnds)
}

// served waits until a front-end sends a pool that share, and its clients know.
func (b *braking) served(f fleet.FrontEndID, p fleet.PoolID, share float64) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("%s sends %s %.3f of its traffic", f, p, share), 20*time.Second, func() bool {
		return math.Abs(shares(b.t, b.stage)[fleet.Link{FrontEnd: f, Pool: p}]-share) < 1e-6 && b.taken()
	})
}

func (b *braking) drains() {
	b.t.Helper()
	t, s := b.t, b.stage
	if out := b.refused("drain", "BB"); !strings.Contains(out, `there is no pool "BB": name one of B, A, C`) {
		t.Errorf("a drain of an unknown pool: %s", out)
	}
	victim := s.Fleet.Pool("B").Engines[1]
	streams := newCaller(t, s, "B")
	streams.begin(40, 60) // 60 tokens at 200 ms outlast the drain
	eventually(t, "the streams have begun", 10*time.Second, func() bool { return streams.at(t, "B") == 40 })
	there := len(atEngine(arrivals(t, s), victim))
	if there == 0 {
		t.Fatal("the engine that is to drain has no stream: the test shows nothing")
	}
	began := time.Now()
	b.weir("drain", string(victim), "--for", "10m", "--note", "new driver")
	eventually(t, "the engine drains", 10*time.Second, func() bool { return health(s, "B", victim) == "draining" })
	b.served("B", "C", 1.0/6) // the other engine serves 50 of the 60 RPS
	t.Logf("drained %v after it was ordered, with %d streams", time.Since(began).Round(time.Millisecond), there)
	after := newCaller(t, s, "B")
	after.send(200)
	if n := len(atEngine(arrivals(t, s), victim)); n != there {
		t.Errorf("the engine got %d requests while it drained", n-there)
	}
	awaitStatus(t, s, 3, "BRAKES IN FORCE: 1", fmt.Sprintf("drain of engine %s by ", victim), "(new driver): 1 draining", "1/2, 1 draining")
	streams.wait() // each is whole, or the caller says so
	for name, group := range byTest(arrivals(t, s)) {
		if strings.HasPrefix(name, streams.prefix+"-") && len(group) != 1 {
			t.Errorf("stream %s was tried %d times", name, len(group))
		}
	}
	b.weir("undrain", string(victim))
	b.served("B", "B", 1)
}

func (b *braking) freezes() {
	b.t.Helper()
	t, s := b.t, b.stage
	b.weir("freeze", "--note", "the final")
	awaitStatus(t, s, 3, "Held", "frozen by ", "(the final)")
	before := shares(t, s)
	rewrite(t, s, func(text string) string {
		return strings.Replace(text, "B: {A: 80ms, B: 2ms", "B: {A: 80ms, B: 500ms", 1)
	})
	eventually(t, "the round trip is believed", 10*time.Second, func() bool {
		return slices.ContainsFunc(beliefs(t, s).Network, func(l admin.LinkBelief) bool {
			return l.FrontEnd == "B" && l.Pool == "B" && l.RoundTripSeconds == 0.5
		})
	})
	until := time.Now().Add(3 * s.Fleet.Options.Tick)
	eventually(t, "three ticks have gone by", 20*time.Second, func() bool {
		if diff := differ(before, shares(t, s)); diff != "" {
			t.Fatalf("shares changed while frozen (-before +now):\n%s", diff)
		}
		return time.Now().After(until)
	})
	// Nobody froze the news of engines.
	victim := s.Fleet.Pool("B").Engines[0]
	b.weir("drain", string(victim))
	eventually(t, "an engine drains while frozen", 10*time.Second, func() bool { return health(s, "B", victim) == "draining" })
	b.weir("undrain", string(victim))
	b.weir("unfreeze")
	b.served("B", "B", 0) // others are nearer now, and give up room for it
	rewrite(t, s, func(text string) string {
		return strings.Replace(text, "B: {A: 80ms, B: 500ms", "B: {A: 80ms, B: 2ms", 1)
	})
	b.served("B", "B", 1)
}

func (b *braking) pins(share float64) {
	b.t.Helper()
	b.weir("pin", "B/chat", fmt.Sprintf("A=%g%%", 100*share), "--note", "a test of pins")
	b.served("B", "A", share)
	b.countPinned(share)
	if out := b.refused("pin", "B", "C=0.8"); !strings.Contains(out, `class "chat" at "B" has 110 % of its traffic pinned`) {
		b.t.Errorf("pins of more than all there is: %s", out)
	}
}

// countPinned counts conversations of B in the journals of A's engines.
func (b *braking) countPinned(share float64) {
	b.t.Helper()
	const n = 600
	name := fmt.Sprint("pin-", time.Now().UnixNano())
	answered := map[string]bool{}
	for i, r := range b.send("B", names(name, n)) {
		if r.OK() {
			answered[fmt.Sprintf("%s-%d", name, i)] = true
		} else if r.Status != 429 {
			b.t.Errorf("%s-%d: %v", name, i, &r)
		}
	}
	at := 0.0
	for _, a := range arrivals(b.t, b.stage) {
		if answered[a.Headers["x-test-id"]] && a.Pool == "A" {
			at++
		}
	}
	z := zScore(at, float64(len(answered)), share)
	b.t.Logf("pinned to %.0f %%: %.0f of %d conversations, z = %+.2f", 100*share, at, len(answered), z)
	if !(math.Abs(z) <= 4) {
		b.t.Errorf("A got %.0f of %d conversations, %v are pinned to it: z = %.1f", at, len(answered), share, z)
	}
}

// limits lets in so many of the 190 RPS that are asked for.
func (b *braking) limits(rps, fraction float64) {
	b.t.Helper()
	b.weir("limit", fmt.Sprintf("chat=%g", rps))
	eventually(b.t, "the limit is served", 20*time.Second, func() bool {
		for _, fe := range b.stage.Fleet.FrontEnds {
			if math.Abs(admittedAt(b.t, b.stage, fe.ID)-fraction) > 1e-6 {
				return false
			}
		}
		return b.taken()
	})
	awaitStatus(b.t, b.stage, 3, "Shedding", "limited by ", fmt.Sprintf("to %g RPS of chat", rps))
	b.countRefused(fraction)
}

func (b *braking) countRefused(admitted float64) {
	b.t.Helper()
	const n = 400
	refused := 0
	for _, r := range b.send("B", names(fmt.Sprint("limit-", time.Now().UnixNano()), n)) {
		if !r.OK() {
			refused++
			mustRefuse(b.t, r, 429)
		}
	}
	z := zScore(float64(refused), n, 1-admitted)
	b.t.Logf("%d of %d refused, z = %+.2f", refused, n, z)
	if !(math.Abs(z) <= 4) {
		b.t.Errorf("%d of %d refused, want %v: z = %.1f", refused, n, 1-admitted, z)
	}
}

// send begins conversations at a front-end, some at a time.
func (b *braking) send(id fleet.FrontEndID, names []string) []stage.Reply {
	client := stage.NewClient()
	replies := make([]stage.Reply, len(names))
	slots := make(chan struct{}, 32)
	var clients sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		clients.Go(func() {
			defer func() { <-slots }()
			replies[i] = stage.Do(b.t.Context(), client, chatCall(b.stage.URL(id), name))
		})
	}
	clients.Wait()
	return replies
}

// admittedAt is the fraction of chat that a front-end is told to let in.
func admittedAt(t *testing.T, s *stage.Stage, id fleet.FrontEndID) float64 {
	t.Helper()
	got, err := snapshotOf(s, id)
	check(t, err)
	for _, c := range got.Classes {
		if c.Class == "chat" {
			return c.Admitted
		}
	}
	t.Fatalf("%s is not served chat", id)
	return 0
}
