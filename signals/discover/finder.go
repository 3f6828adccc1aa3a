package discover

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

const (
	// lookTimeout bounds one look at a source.
	lookTimeout = 5 * time.Second
	// maxLooks bounds those that are under way at once.
	maxLooks = 64
	// againAfter is when an answer that was not taken comes again at the latest.
	againAfter = time.Second
)

// Finder asks the sources of a fleet's pools for their engines.
type Finder struct {
	// Kubeconfig is the file that says where the API server of Kubernetes is; empty: it is
	// looked for as kubectl does, else as pods do. It is read when a pool first needs it;
	// set it before Run.
	Kubeconfig string

	log    *zap.Logger
	report func(Answer) bool
	fleets chan *fleet.Fleet // holds the fleet file to find engines for next
	slots  chan struct{}
	files  files
	kube   *cluster // nil until Run
}

// NewFinder returns a finder for a fleet file. It calls report for each answer, from
// many goroutines at once; report must not block, and says false if it could not take
// the answer, which then comes again.
func NewFinder(log *zap.Logger, f *fleet.Fleet, report func(Answer) bool) *Finder {
	n := &Finder{log: log, report: report, fleets: make(chan *fleet.Fleet, 1), slots: make(chan struct{}, maxLooks), files: files{read: readFile}}
	n.SetFleet(f)
	return n
}

// SetFleet replaces the fleet file. Sources that stay go on undisturbed. It does not
// block; call it from one goroutine at a time.
func (n *Finder) SetFleet(f *fleet.Fleet) {
	select {
	case <-n.fleets:
	default:
	}
	n.fleets <- f
}

// task is one pool's source.
type task struct {
	pool   fleet.PoolID
	source fleet.Discovery
}

// Run finds engines until ctx ends, and then returns nil.
func (n *Finder) Run(ctx context.Context) error {
	n.kube = &cluster{kubeconfig: n.Kubeconfig}
	var running sync.WaitGroup
	defer running.Wait()
	stops := map[task]context.CancelFunc{}
	for {
		select {
		case f := <-n.fleets:
			n.follow(ctx, f, stops, &running)
		case <-ctx.Done():
			return nil // and with it the contexts of all tasks
		}
	}
}

// follow ends the tasks that a fleet file has no more and begins those that are new.
func (n *Finder) follow(ctx context.Context, f *fleet.Fleet, stops map[task]context.CancelFunc, running *sync.WaitGroup) {
	wanted := map[task]bool{}
	for i := range f.Pools {
		if p := &f.Pools[i]; p.Discovery != nil {
			wanted[task{p.ID, *p.Discovery}] = true
		}
	}
	for t, stop := range stops {
		if !wanted[t] {
			stop()
			delete(stops, t)
		}
	}
	for t := range wanted {
		if stops[t] != nil {
			continue
		}
		own, stop := context.WithCancel(ctx)
		stops[t] = stop
		running.Go(func() { n.run(own, t) })
	}
}

// run follows one source.
func (n *Finder) run(ctx context.Context, t task) {
	switch t.source.Kind {
	case fleet.DiscoverFile:
		n.poll(ctx, t, n.files.look(t.source), nil)
	case fleet.DiscoverDNS, fleet.DiscoverSRV:
		n.poll(ctx, t, dnsLook(t.source), nil)
	case fleet.DiscoverKubernetes:
		n.listen(ctx, t)
	}
}

// listen follows a source that tells when it has changed, and looks when it does. What
// holds is said again now and then: it may not have been taken, and its age is shown.
func (n *Finder) listen(ctx context.Context, t task) {
	var running sync.WaitGroup
	defer running.Wait()
	s := newService(t.source)
	running.Go(func() { s.run(ctx, n.kube) })
	select {
	case <-s.changed:
	case <-time.After(lookTimeout):
	case <-ctx.Done():
		return
	}
	n.poll(ctx, t, s.look, s.changed)
}

// named is what a source says of engines when it is asked, as an [Answer] has it.
type named struct{ engines, leaving, unready []fleet.EngineID }

// look asks a source once: its engines, and for how long the answer is good; 0: it
// does not say.
type look func(context.Context) (says named, good time.Duration, err error)

// poll looks again and again, and when there is news.
func (n *Finder) poll(ctx context.Context, t task, ask look, news <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := saying{log: n.log.With(zap.String("pool", string(t.pool)), zap.Stringer("source", &t.source))}
	settling := false // the timer is that of the first of some changes
	for {
		select {
		case <-timer.C:
			settling = false
		case <-news:
			if !settling {
				settling = true
				timer.Reset(settleTime)
			}
			continue
		case <-ctx.Done():
			return
		}
		says, good, err := n.ask(ctx, ask)
		if ctx.Err() != nil {
			return
		}
		said.note(len(says.engines), err)
		wait := pause(good, &t.source)
		if !n.report(Answer{Pool: t.pool, Source: t.source, Engines: says.engines, Leaving: says.leaving, Unready: says.unready, Err: err}) {
			wait = min(wait, againAfter)
		}
		timer.Reset(wait)
	}
}

// ask looks once, when there is a slot, for a bounded time.
func (n *Finder) ask(ctx context.Context, ask look) (named, time.Duration, error) {
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	case <-ctx.Done():
		return named{}, 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return ask(ctx)
}

// Answers that say for how long they are good are believed within these, and no longer
// than the fleet file says.
const (
	minGood = time.Second
	maxGood = 5 * time.Minute
)

// pause is the time to the next look.
func pause(good time.Duration, source *fleet.Discovery) time.Duration {
	if good == 0 {
		return source.Every
	}
	most := maxGood
	if source.AtMost > 0 {
		most = min(most, source.AtMost)
	}
	return min(max(good, minGood), most)
}

// saying logs what a source says, when it changes.
type saying struct {
	log     *zap.Logger
	engines int
	problem string
	begun   bool
}

func (s *saying) note(engines int, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	same := s.begun && problem == s.problem && (err != nil || engines == s.engines)
	s.begun, s.problem, s.engines = true, problem, engines
	switch {
	case same:
	case err != nil:
		s.log.Error("engines cannot be found, the last answer stays", zap.Error(err))
	case engines == 0:
		s.log.Warn("the source names no engine")
	default:
		s.log.Info("engines found", zap.Int("engines", engines))
	}
}
