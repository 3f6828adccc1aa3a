package scrape

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"go.uber.org/zap"

	"weir/fleet"
	"weir/signals/dialect"
)

// SetFleet replaces the fleet that is scraped. Engines that stay are scraped on
// undisturbed, so that what changes elsewhere does not cost what is known of them; a
// pool whose TLS or metrics may have changed begins anew. It does not block; call it
// from one goroutine at a time.
func (s *Scraper) SetFleet(f *fleet.Fleet) {
	select {
	case <-s.fleets:
	default:
	}
	s.fleets <- f
}

// Run scrapes until ctx ends, and then returns nil.
func (s *Scraper) Run(ctx context.Context) error {
	w := watches{pools: map[fleet.PoolID]*watchedPool{}}
	defer w.end()
	for {
		select {
		case f := <-s.fleets:
			s.watchFleet(ctx, f, &w)
		case <-ctx.Done():
			return nil
		}
	}
}

// watches are the scrapes that run.
type watches struct {
	pools map[fleet.PoolID]*watchedPool
	all   sync.WaitGroup
}

// watchedPool is a pool whose engines are scraped.
type watchedPool struct {
	pool    fleet.Pool // as it was when it began
	client  *http.Client
	scheme  string
	book    *book
	running map[fleet.EngineID]context.CancelFunc
}

// end ends all scrapes and waits for it.
func (w *watches) end() {
	for _, p := range w.pools {
		p.stop()
	}
	w.all.Wait()
	for _, p := range w.pools {
		p.client.CloseIdleConnections()
	}
}

func (p *watchedPool) stop() {
	for _, stop := range p.running {
		stop()
	}
	p.client.CloseIdleConnections()
}

// watchFleet begins the scrapes that a fleet needs and ends those that it does not.
func (s *Scraper) watchFleet(ctx context.Context, f *fleet.Fleet, w *watches) {
	pools := map[fleet.PoolID]*watchedPool{}
	for i := range f.Pools {
		pool := &f.Pools[i]
		p := w.pools[pool.ID]
		if p == nil || !p.stillOf(pool) {
			p = s.watchedPool(pool)
		}
		if p != nil {
			pools[pool.ID] = p
			s.follow(ctx, p, pool.Engines, &w.all)
		}
	}
	for id, p := range w.pools {
		if pools[id] != p {
			p.stop()
		}
	}
	w.pools = pools
}

// stillOf says whether a pool is scraped as before. Another pointer to TLS is of another
// reading of the fleet file, at which certificates are read anew.
func (p *watchedPool) stillOf(pool *fleet.Pool) bool {
	was, is := &p.pool.Metrics, &pool.Metrics
	return p.pool.TLS == pool.TLS && p.pool.EngineType == pool.EngineType &&
		was.Dialect == is.Dialect && slices.Equal(was.Paths, is.Paths) && maps.EqualFunc(was.Names, is.Names, slices.Equal)
}

// watchedPool is a pool with nothing running yet; nil if it has no metrics, or they
// cannot be read.
func (s *Scraper) watchedPool(pool *fleet.Pool) *watchedPool {
	p, err := s.newWatchedPool(pool)
	if err != nil {
		s.Counters.PoolsSkipped.Add(1)
		s.log.Warn("pool's metrics cannot be read, they stay unknown",
			zap.String("pool", string(pool.ID)), zap.Error(err))
		return nil
	}
	return p
}

func (s *Scraper) newWatchedPool(pool *fleet.Pool) (*watchedPool, error) {
	var o dialect.Override
	if s.Override != nil {
		o = s.Override(pool)
	}
	told := o.Dialect != "" || len(o.Paths) > 0 || len(o.Fields) > 0
	if pool.EngineType == otherEngine && !told {
		return nil, nil
	}
	b := s.known
	if told {
		table, err := s.known.table.With(o)
		if err != nil {
			return nil, err
		}
		b = newBook(table)
	}
	client, scheme, err := s.clients(pool.TLS)
	if err != nil {
		return nil, err
	}
	return &watchedPool{*pool, client, scheme, b, map[fleet.EngineID]context.CancelFunc{}}, nil
}

// follow begins the scrapes of engines that are new and ends those of engines that are
// no more.
func (s *Scraper) follow(ctx context.Context, p *watchedPool, engines []fleet.EngineID, all *sync.WaitGroup) {
	stays := make(map[fleet.EngineID]bool, len(engines))
	for _, id := range engines {
		stays[id] = true
		if p.running[id] != nil {
			continue
		}
		t := &target{
			pool: p.pool.ID, engine: id, base: p.scheme + "://" + string(id),
			client: p.client, book: p.book, paths: p.book.table.Paths(p.pool.EngineType), likely: p.pool.EngineType,
		}
		own, stop := context.WithCancel(ctx)
		p.running[id] = stop
		all.Go(func() { s.watch(own, t) })
	}
	for id, stop := range p.running {
		if !stays[id] {
			stop()
			delete(p.running, id)
		}
	}
}
