package signals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"weir/fleet"
)

const (
	probeInterval = time.Second
	probeTimeout  = time.Second
	// maxProbes bounds the probes in flight, so that a fleet that hangs does not
	// exhaust file descriptors.
	maxProbes = 256
	// maxProbeBody is what is read of an answer so that its connection can be
	// used again; a longer answer costs a new connection.
	maxProbeBody = 64 << 10
)

// Prober asks every engine of the fleet for its health once a second.
type Prober struct {
	Counters ProbeCounters

	log    *zap.Logger
	report func(Probe)
	fleets chan *fleet.Fleet // holds the fleet to probe next
	slots  chan struct{}
}

// ProbeCounters count outcomes of probes. Any goroutine may read them.
type ProbeCounters struct {
	Ready, Unready atomic.Uint64
	PoolsUnprobed  atomic.Uint64 // pools that cannot be probed, once a fleet
}

// NewProber returns a prober of a fleet's engines. It calls report for each
// outcome, from many goroutines at once; report must not block.
func NewProber(log *zap.Logger, f *fleet.Fleet, report func(Probe)) *Prober {
	p := &Prober{
		log:    log,
		report: report,
		fleets: make(chan *fleet.Fleet, 1),
		slots:  make(chan struct{}, maxProbes),
	}
	p.SetFleet(f)
	return p
}

// SetFleet replaces the fleet that is probed. Engines that stay are probed on
// undisturbed; of a pool with TLS only while the fleet file is not read again, which
// reads its certificates anew. It does not block; call it from one goroutine at a time.
func (p *Prober) SetFleet(f *fleet.Fleet) {
	select {
	case <-p.fleets:
	default:
	}
	p.fleets <- f
}

// Run probes until ctx ends, and then returns nil.
func (p *Prober) Run(ctx context.Context) error {
	w := watches{running: map[target]context.CancelFunc{}, clients: map[fleet.PoolID]poolClient{}}
	defer w.end()
	for {
		select {
		case f := <-p.fleets:
			p.watchFleet(ctx, f, &w)
		case <-ctx.Done():
			return nil
		}
	}
}

// watches are the probes that run.
type watches struct {
	running map[target]context.CancelFunc
	clients map[fleet.PoolID]poolClient
	all     sync.WaitGroup
}

// poolClient is what a pool's engines are asked by.
type poolClient struct {
	tls    *fleet.TLS // another pointer is of another reading of the fleet file
	client *http.Client
	scheme string
}

// end ends all probes and waits for it.
func (w *watches) end() {
	for _, stop := range w.running {
		stop()
	}
	w.all.Wait()
	for _, c := range w.clients {
		c.client.CloseIdleConnections()
	}
}

// watchFleet begins the probes that a fleet needs and ends those that it does not.
func (p *Prober) watchFleet(ctx context.Context, f *fleet.Fleet, w *watches) {
	clients := p.poolClients(f, w.clients)
	wanted := map[target]bool{}
	for i := range f.Pools {
		pool := &f.Pools[i]
		c, ok := clients[pool.ID]
		if !ok {
			continue
		}
		for _, id := range pool.Engines {
			wanted[target{pool.ID, id, c.scheme + "://" + string(id) + f.Options.HealthPath, c.client}] = true
		}
	}
	for t, stop := range w.running {
		if !wanted[t] {
			stop()
			delete(w.running, t)
		}
	}
	for t := range wanted {
		if w.running[t] == nil {
			own, stop := context.WithCancel(ctx)
			w.running[t] = stop
			w.all.Go(func() { p.watch(own, t) })
		}
	}
	for id, c := range w.clients {
		if clients[id].client != c.client {
			c.client.CloseIdleConnections()
		}
	}
	w.clients = clients
}

// poolClients are those of a fleet's pools; a pool that cannot be probed has none.
func (p *Prober) poolClients(f *fleet.Fleet, old map[fleet.PoolID]poolClient) map[fleet.PoolID]poolClient {
	clients := make(map[fleet.PoolID]poolClient, len(f.Pools))
	for i := range f.Pools {
		pool := &f.Pools[i]
		if c, ok := old[pool.ID]; ok && c.tls == pool.TLS {
			clients[pool.ID] = c
			continue
		}
		client, scheme, err := newProbeClient(pool.TLS)
		if err != nil {
			p.Counters.PoolsUnprobed.Add(1)
			p.log.Warn("pool cannot be probed, its engines stay unknown; make its TLS files readable here as well",
				zap.String("pool", string(pool.ID)), zap.Error(err))
			continue
		}
		clients[pool.ID] = poolClient{pool.TLS, client, scheme}
	}
	return clients
}

// target is one engine to probe.
type target struct {
	pool   fleet.PoolID
	engine fleet.EngineID
	url    string
	client *http.Client
}

// watch probes one engine each second, give or take a tenth so that the probes
// of many engines do not fall into step.
func (p *Prober) watch(ctx context.Context, t target) {
	timer := time.NewTimer(rand.N(probeInterval / 5))
	defer timer.Stop()
	last := fleet.Unknown
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(probeInterval - probeInterval/10 + rand.N(probeInterval/5))
		answered, err := p.probe(ctx, t)
		if ctx.Err() != nil {
			return // the probe was cut short and says nothing
		}
		p.Counters.count(err)
		p.report(Probe{Pool: t.pool, Engine: t.engine, Err: err, Answered: answered})
		last = p.logChange(t, last, err)
	}
}

func (c *ProbeCounters) count(err error) {
	if err == nil {
		c.Ready.Add(1)
	} else {
		c.Unready.Add(1)
	}
}

// logChange logs that an engine has become ready or unready; other reasons to be
// so are not told.
func (p *Prober) logChange(t target, last fleet.Readiness, err error) fleet.Readiness {
	log := p.log.With(zap.String("pool", string(t.pool)), zap.String("engine", string(t.engine)))
	switch {
	case err == nil && last != fleet.Ready:
		log.Info("engine ready")
	case err != nil && last != fleet.Unready:
		log.Warn("engine unready", zap.String("reason", err.Error()))
	}
	if err == nil {
		return fleet.Ready
	}
	return fleet.Unready
}

// probe returns no error if the engine answers 200 in time, and whether it
// answered at all.
func (p *Prober) probe(ctx context.Context, t target) (answered bool, err error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("User-Agent", "weir")
	resp, err := t.client.Do(req)
	if err != nil {
		return false, reason(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("health check answered %d, want 200", resp.StatusCode)
	}
	if _, e := io.CopyN(io.Discard, resp.Body, maxProbeBody); err == nil && e != nil && e != io.EOF {
		err = reason(e)
	}
	return true, err
}

// reason strips the URL, which every reader knows, and says what a deadline means.
func reason(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s: %w", probeTimeout, err)
	}
	return err
}
