// Package roundtrip measures how far a front-end is from each pool: one TCP
// handshake every few seconds with some engine of it, which costs the engine
// nothing. Nothing is smoothed here, and a failed handshake is no measure.
package roundtrip

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

const (
	period  = 7500 * time.Millisecond // mean time between two measures of one pool
	spread  = 1.0 / 3                 // of the time between two measures: 5 to 10 s
	timeout = time.Second
)

// Prober measures the pools of the last view. The zero value is not ready: use
// [New].
type Prober struct {
	period  time.Duration
	pools   atomic.Pointer[[]target]
	changed chan struct{}

	mu   sync.Mutex // guards sums
	sums map[fleet.PoolID]*fleet.RoundTrip

	measured *prometheus.HistogramVec
	failed   atomic.Uint64
}

// target is a pool and the engines that one may connect to.
type target struct {
	pool    fleet.PoolID
	engines []fleet.EngineID
}

// New returns a prober without a pool.
func New() *Prober {
	return &Prober{
		period:  period,
		changed: make(chan struct{}, 1),
		sums:    map[fleet.PoolID]*fleet.RoundTrip{},
		measured: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_extproc_round_trip_seconds",
			Help:    "Round trips to the engines of a pool, as TCP handshakes take.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 11), // to 0.5 s
		}, []string{"pool"}),
	}
}

// Swap makes the pools of v the ones that are measured.
func (p *Prober) Swap(v *fleet.View) {
	targets := targetsOf(v)
	p.pools.Store(&targets)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func targetsOf(v *fleet.View) []target {
	engines := map[fleet.PoolID][]fleet.EngineID{}
	for _, c := range v.Classes {
		for _, pool := range c.Pools {
			if engines[pool.ID] != nil {
				continue
			}
			for _, e := range pool.Engines {
				if e.Readiness.Serves() {
					engines[pool.ID] = append(engines[pool.ID], e.ID)
				}
			}
		}
	}
	targets := make([]target, 0, len(engines))
	for pool, list := range engines {
		targets = append(targets, target{pool, list})
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.pool, b.pool) })
	return targets
}

// Run measures one pool after the other until the context ends. It returns nil.
func (p *Prober) Run(ctx context.Context) error {
	for next := 0; ; next++ {
		targets := p.targets()
		if len(targets) > 0 {
			p.measure(ctx, targets[next%len(targets)])
		}
		pause := time.Duration(float64(p.period) / float64(max(1, len(targets))) * (1 + spread*(2*rand.Float64()-1)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		case <-p.changed:
		}
	}
}

func (p *Prober) targets() []target {
	if all := p.pools.Load(); all != nil {
		return *all
	}
	return nil
}

func (p *Prober) measure(ctx context.Context, t target) {
	dialer := net.Dialer{Timeout: timeout}
	began := time.Now()
	conn, err := dialer.DialContext(ctx, "tcp", string(t.engines[rand.IntN(len(t.engines))]))
	took := time.Since(began).Seconds()
	if err != nil {
		p.failed.Add(1)
		return
	}
	_ = conn.Close() // nothing was sent
	p.measured.WithLabelValues(string(t.pool)).Observe(took)
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.sums[t.pool]
	if sum == nil {
		sum = &fleet.RoundTrip{Pool: t.pool}
		p.sums[t.pool] = sum
	}
	sum.Count++
	sum.Seconds += took
}

// Take returns what was measured since it was last called, by pool, and begins
// anew.
func (p *Prober) Take() []fleet.RoundTrip {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []fleet.RoundTrip
	for _, r := range p.sums {
		all = append(all, *r)
	}
	clear(p.sums)
	slices.SortFunc(all, func(a, b fleet.RoundTrip) int { return cmp.Compare(a.Pool, b.Pool) })
	return all
}

// RegisterMetrics has what the prober counts collected.
func (p *Prober) RegisterMetrics(r prometheus.Registerer) error {
	failed := prometheus.CounterOpts{Name: "weir_extproc_round_trips_failed_total", Help: "Handshakes with engines that failed, and measure nothing."}
	return errors.Join(
		r.Register(p.measured),
		r.Register(prometheus.NewCounterFunc(failed, func() float64 { return float64(p.failed.Load()) })),
	)
}
