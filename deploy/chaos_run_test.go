package deploy

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"weir/admin"
	"weir/deploy/figures"
	"weir/deploy/stage"
	"weir/fleet"
)

const (
	// chaosCapacityRps is what the plan counts on: eight engines of ten, less a tenth.
	chaosCapacityRps = 72
	// erlangQueue is how many requests wait at an engine of forty places whose utilisation
	// is 0.9, in the mean, by Erlang's formula: twice that is no queue that grows.
	erlangQueue = 1.6
	// chaosEnginesRps is what they can do.
	chaosEnginesRps = 80
	chaosTick       = 2 * time.Second
	chaosLook       = 250 * time.Millisecond
)

// scenario is one way in which things go wrong.
type scenario struct {
	name   string
	short  bool          // it is over too soon for figures that take time
	load   float64       // that is usual, as part of the capacity
	warm   time.Duration // until things are as usual; 0: 10 s
	during float64       // and while it lasts; 0: as usual
	lasts  time.Duration // the disturbance
	after  time.Duration // it is watched for so long once that is over
	retry  bool          // clients come back
	flags  []string      // of the engines
	edit   func(string) string
	begin  func(*chaos)
	end    func(*chaos)
	judge  func(*chaos, *figures.Report)
}

// chaos is a run of one scenario.
type chaos struct {
	*testing.T
	scenario scenario
	stage    *stage.Stage
	load     *chaosLoad
	seen     *lookout

	started, began, ended, closed time.Time // the load, the disturbance, and the watch
	eased                         time.Time // when the disturbance began to end by steps; zero: it ended at once

	asked    []asked         // by clients, by time
	arrivals []stage.Arrival // at engines
}

// runChaos runs a scenario and judges it.
func runChaos(t *testing.T, sc scenario, f *figures.Report) {
	t.Helper()
	c := newChaos(t, sc)
	c.run()
	c.common(f)
	sc.judge(c, f)
	t.Log("\n" + c.timeline())
}

func newChaos(t *testing.T, sc scenario) *chaos {
	t.Helper()
	tokens, tbt := sc.stream()
	flags := append([]string{"--slots", "40", "--ttft", "200ms", "--ttft-full", "200ms", "--tbt", tbt, "--jitter", "0.1"}, sc.flags...)
	edit := func(text string) string {
		for long, now := range map[string]string{"outputTokens: 39": fmt.Sprint("outputTokens: ", tokens), "{0%: 100ms, 100%: 100ms}": fmt.Sprintf("{0%%: %s, 100%%: %[1]s}", tbt)} {
			if !strings.Contains(text, long) {
				t.Errorf("the fleet file has no %q", long)
			}
			text = strings.Replace(text, long, now, 1)
		}
		if sc.edit != nil {
			text = sc.edit(text)
		}
		return text
	}
	s := start(t, stage.Options{FleetFile: "testdata/chaos.yaml", Edit: edit, EngineFlags: func(fleet.PoolID) []string { return flags }})
	l := &chaosLoad{t: t, stage: s, prefix: sc.name, tokens: tokens}
	if sc.retry {
		l.retries = chaosRetries
	}
	return &chaos{T: t, scenario: sc, stage: s, load: l}
}

// stream is of how many tokens answers are, and how long after one the next comes: four
// seconds in all, with 200 ms for the first one. In short runs, which have the machine for
// themselves less, with fewer of them.
func (sc *scenario) stream() (tokens int, tbt string) {
	if sc.short {
		return 13, "316ms"
	}
	return 39, "100ms"
}

// run lets it happen.
func (c *chaos) run() {
	c.Helper()
	sc, ctx := c.scenario, c.Context()
	c.seen = watch(ctx, c.stage)
	c.Cleanup(c.seen.close)
	usual := sc.load * chaosCapacityRps
	c.started = time.Now()
	c.load.offer(ctx, usual, cmp.Or(sc.warm, 10*time.Second), 1)
	c.began = time.Now()
	if sc.begin != nil {
		sc.begin(c)
	}
	c.load.offer(ctx, usual*max(1, sc.during/sc.load), sc.lasts, 2)
	c.ended = time.Now()
	if sc.end != nil {
		sc.end(c)
	}
	c.load.offer(ctx, usual, sc.after, 3)
	c.closed = time.Now()
	c.asked = c.load.await()
	slices.SortFunc(c.asked, func(a, b asked) int { return a.Sent.Compare(b.Sent) })
	c.seen.close()
	c.arrivals = arrivals(c.T, c.stage)
}

// timeline shows what happened, two seconds a line.
func (c *chaos) timeline() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "s\tplan\tdemand\tadmitted\tcapacity\tasked\trefused\tat engines\tgood\twaiting\t")
	for from := c.started; from.Before(c.closed); from = from.Add(chaosTick) {
		to := from.Add(chaosTick)
		fmt.Fprintf(w, "%.0f\t", from.Sub(c.began).Seconds())
		if sees := c.seen.between(from, to); len(sees) > 0 {
			p := &sees[len(sees)-1].plan
			demand, capacity := 0.0, 0.0
			for i := range p.Routes {
				demand += p.Routes[i].DemandRps
			}
			for i := range p.Pools {
				capacity += p.Pools[i].CapacityRps
			}
			fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t", p.Status, demand, demand-p.ShedRps(), capacity)
		} else {
			fmt.Fprint(w, "\t\t\t\t")
		}
		asked, refused := 0.0, 0.0
		for i := range c.asked {
			if a := &c.asked[i]; !a.Sent.Before(from) && a.Sent.Before(to) {
				asked++
				if a.Status == 429 {
					refused++
				}
			}
		}
		_, attempts := c.got(nil, from, to)
		each := chaosTick.Seconds()
		fmt.Fprintf(w, "%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", asked/each, refused/each, attempts/each, c.goodput(from, to), c.waiting(from, to))
	}
	w.Flush()
	return text.String() + c.seen.why(c.began)
}

// why says for what reasons pools were believed to be worth less, as they changed.
func (l *lookout) why(began time.Time) string {
	var text strings.Builder
	last := ""
	for _, s := range l.sees {
		if s.reasons != last {
			fmt.Fprintf(&text, "%.1f s: %s\n", s.at.Sub(began).Seconds(), s.reasons)
		}
		last = s.reasons
	}
	return text.String()
}

// engines of a pool, by its number.
func (c *chaos) engines(pool string) []fleet.EngineID {
	return c.stage.Fleet.Pool(fleet.PoolID(pool)).Engines
}

func (c *chaos) fault(engines []fleet.EngineID, faults string) {
	c.Helper()
	for _, e := range engines {
		setFaults(c.T, e, faults)
	}
}

func (c *chaos) kill(engines []fleet.EngineID) {
	c.Helper()
	for _, e := range engines {
		check(c.T, c.stage.Process("engine-"+string(e)).Kill())
	}
}

func (c *chaos) revive(engines []fleet.EngineID) {
	c.Helper()
	for _, e := range engines {
		check(c.T, c.stage.Process("engine-"+string(e)).Start())
	}
}

// sight is what the control plane says and engines show at one moment.
type sight struct {
	at      time.Time
	plan    fleet.Plan
	status  admin.Status
	waiting float64 // requests in the queues of the engines that answer
	reasons string  // why pools are believed to be worth less
}

// lookout looks until it is closed.
type lookout struct {
	stage *stage.Stage
	stop  context.CancelFunc
	done  sync.WaitGroup
	sees  []sight // belongs to its goroutine until it is closed
}

func watch(ctx context.Context, s *stage.Stage) *lookout {
	ctx, stop := context.WithCancel(ctx)
	l := &lookout{stage: s, stop: stop}
	l.done.Go(func() {
		tick := time.NewTicker(chaosLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.look(ctx)
			}
		}
	})
	return l
}

func (l *lookout) close() {
	l.stop()
	l.done.Wait()
}

// look notes a moment; one at which the control plane does not answer is left out.
func (l *lookout) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s := sight{at: time.Now()}
	address := l.stage.AdminAddress("weir")
	status, err := admin.FetchStatus(ctx, address)
	if err != nil || admin.Fetch(ctx, address, "/plan", nil, &s.plan) != nil {
		return
	}
	s.status = *status
	for _, p := range status.Penalties {
		s.reasons += fmt.Sprintf("%s penalised to %.2f for %s; ", p.Engine, p.Penalty, p.For)
	}
	var beliefs admin.Beliefs
	if admin.Fetch(ctx, address, "/beliefs", nil, &beliefs) == nil {
		for _, p := range beliefs.Pools {
			if p.Health < 1 || p.FactorReason != "" {
				s.reasons += fmt.Sprintf("%s: health %.2f, factor %.2f %s; ", p.Pool, p.Health, p.CapacityFactor, p.FactorReason)
			}
			for _, e := range p.Engines {
				if e.Waiting != nil {
					s.waiting += e.Waiting.Value
				}
			}
		}
	}
	l.sees = append(l.sees, s)
}

// between are the moments of a time.
func (l *lookout) between(from, to time.Time) []sight {
	var out []sight
	for _, s := range l.sees {
		if !s.at.Before(from) && s.at.Before(to) {
			out = append(out, s)
		}
	}
	return out
}

// settled is how many ticks after a time the plan has come to what it is at the end of
// the phase.
func (l *lookout) settled(from, to time.Time) float64 {
	sees := l.between(from, to)
	if len(sees) == 0 {
		return math.NaN()
	}
	last := sees[len(sees)-1]
	ticks := 0.0
	for _, s := range sees {
		if !alike(&s.plan, &last.plan) {
			ticks = math.Ceil(s.at.Sub(from).Seconds() / chaosTick.Seconds())
		}
	}
	return ticks
}

// alike says whether plans are the same but for what demand has changed by, for chance
// has it waver, five hundredths of the traffic and, where they shed, a tenth of what they
// admit.
func alike(p, q *fleet.Plan) bool {
	admitted, admits := servedRps(p), servedRps(q)
	sheds := p.ShedRps() > 0
	return fleet.Moved(p, q) <= 0.05+demandMoved(p, q) && sheds == (q.ShedRps() > 0) && (!sheds || math.Abs(admitted-admits) <= 0.1*admits)
}

// demandMoved is by how much the demand of two plans differs, of all of it.
func demandMoved(p, q *fleet.Plan) float64 {
	moved, all := 0.0, 0.0
	for i := range q.Routes {
		r := &q.Routes[i]
		all += r.DemandRps
		was := 0.0
		if before := p.Route(fleet.Stream{FrontEnd: r.FrontEnd, Class: r.Class}); before != nil {
			was = before.DemandRps
		}
		moved += math.Abs(r.DemandRps - was)
	}
	return moved / max(all, 1e-9)
}

func servedRps(p *fleet.Plan) (sum float64) {
	for i := range p.Pools {
		sum += p.Pools[i].Rps
	}
	return sum
}

// common is what holds in every scenario.
func (c *chaos) common(f *figures.Report) {
	c.Helper()
	longest, endless, failed, final := time.Duration(0), 0, 0, 0
	for i := range c.asked {
		a := &c.asked[i]
		longest = max(longest, a.Took)
		if a.Took >= chaosPatience {
			endless++
		}
		if a.attempt == 0 {
			final++
		}
	}
	for _, ok := range outcomes(c.asked) {
		if !ok {
			failed++
		}
	}
	f.Tell(c.say("requests"), float64(final), "")
	f.Tell(c.say("of them without an answer in the end"), float64(failed), "")
	f.AtMost(c.say("requests that waited without a limit"), float64(endless), "", 0)
	f.Tell(c.say("longest wait for an end"), longest.Seconds(), "s")
	if c.scenario.short {
		return
	}
	f.AtMost(c.say("plan settled after the disturbance began"), c.seen.settled(c.began, c.ended), "ticks", 5)
	f.AtMost(c.say("plan settled after it ended"), c.seen.settled(c.ended, c.closed), "ticks", 5)
}

func (c *chaos) say(what string) string { return fmt.Sprintf("%s: %s", c.scenario.name, what) }

// outcomes says of each turn whether it was answered in the end.
func outcomes(all []asked) map[string]bool {
	out := map[string]bool{}
	for i := range all {
		id := fmt.Sprintf("%s/%d", all[i].name, all[i].turn)
		out[id] = out[id] || all[i].OK()
	}
	return out
}

// got counts what some engines got in a time, as part of all that engines got.
func (c *chaos) got(engines []fleet.EngineID, from, to time.Time) (n, all float64) {
	for i := range c.arrivals {
		a := &c.arrivals[i]
		if a.Time.Before(from) || !a.Time.Before(to) {
			continue
		}
		all++
		if slices.Contains(engines, a.Engine) {
			n++
		}
	}
	return n, all
}

// planned is what the plan would give an engine of a pool in a time if all its engines
// were well: its pool's planned requests over its engines.
func (c *chaos) planned(engine fleet.EngineID, from, to time.Time) float64 {
	sum, pools := 0.0, c.stage.Fleet.Pools
	sees := c.seen.between(from, to)
	for _, s := range sees {
		for i := range pools {
			if slices.Contains(pools[i].Engines, engine) {
				if q := s.plan.Pool(pools[i].ID); q != nil {
					sum += q.Rps / float64(len(pools[i].Engines))
				}
			}
		}
	}
	return sum / max(1, float64(len(sees))) * to.Sub(from).Seconds()
}

// ttfts are those of the answered requests that began in a time, sorted, in seconds.
func (c *chaos) ttfts(from, to time.Time) []float64 {
	var out []float64
	for i := range c.asked {
		if a := &c.asked[i]; a.OK() && !a.Sent.Before(from) && a.Sent.Before(to) {
			out = append(out, a.TTFT.Seconds())
		}
	}
	slices.Sort(out)
	return out
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// goodTTFT is how late the first token of a good answer may be.
const goodTTFT = 2 * time.Second

// goodput is how many good answers a second ended in a time.
func (c *chaos) goodput(from, to time.Time) float64 {
	n := 0.0
	for i := range c.asked {
		a := &c.asked[i]
		if end := a.Sent.Add(a.Took); a.OK() && a.TTFT <= goodTTFT && !end.Before(from) && end.Before(to) {
			n++
		}
	}
	return n / to.Sub(from).Seconds()
}
