package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.uber.org/zap"

	"weir/config"
	"weir/control"
	"weir/envoy"
	"weir/fleet"
	"weir/signals/discover"
)

// restore reads the last plan of an earlier process and what operators had ordered of
// it, and makes this process the one that keeps them there. What there is not, or
// cannot be used, is empty, which is logged and no reason not to go on.
func (p *plane) restore(dir string, log *zap.Logger) (*control.Saved, *control.Orders) {
	if dir == "" {
		log.Warn("no --state directory: a restart begins without the last plan, and without brakes")
		return &control.Saved{}, nil
	}
	store := control.Store{Dir: dir}
	load, loadOrders := store.Load, store.LoadOrders
	if err := store.Lock(); err != nil {
		log.Error("plans are not kept", zap.Error(err))
		p.unkept, load, loadOrders = err.Error(), store.Read, store.ReadOrders // whose file it is is not for us to set aside
	} else {
		p.keeper = control.NewKeeper(store, log)
	}
	return p.restoreSaved(dir, load, log), p.restoreOrders(loadOrders, log)
}

func (p *plane) restoreOrders(load func() (*control.Orders, error), log *zap.Logger) *control.Orders {
	ordered, err := load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		p.counters.restoresFailed.Add(1)
		log.Error("brakes and policies by command not usable: beginning without them", zap.Error(err))
		return nil
	}
	log.Info("operators' orders loaded", zap.Int("brakes", len(ordered.Brakes)))
	return ordered
}

// Histories are saved every so many spans, and as often as that.
const (
	historyEvery  = 10
	historyWithin = 10 * time.Minute
)

// keepHistories hands what pools showed to the keeper now and then, if there is one.
func (p *plane) keepHistories(now time.Time, s *fleet.State) {
	step := cmp.Or(s.Fleet.Options.HistoryStep, fleet.DefaultHistoryStep)
	if p.keeper == nil || now.Sub(p.historiesKept) < min(historyEvery*step, historyWithin) {
		return
	}
	if !p.historiesKept.IsZero() { // what is there at the start is saved
		all := control.Histories{}
		for id := range s.Pools {
			if h := s.Pools[id].History; len(h) > 0 {
				all[id] = h
			}
		}
		p.keeper.KeepHistories(all)
	}
	p.historiesKept = now
}

// remember has the tracker begin with what an earlier process has kept of pools.
func (p *plane) remember(dir string, log *zap.Logger) {
	if dir == "" {
		return
	}
	store := control.Store{Dir: dir}
	load := store.LoadHistories
	if p.keeper == nil {
		load = store.ReadHistories // whose file it is is not for us to set aside
	}
	all, err := load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		p.counters.restoresFailed.Add(1)
		log.Error("histories of pools not usable: beginning without them", zap.Error(err))
	default:
		p.tracker.Remember(time.Now(), all)
	}
}

// keepOrders hands what operators ordered to the keeper, if there is one.
func (p *plane) keepOrders(o control.Orders) {
	if p.keeper != nil {
		p.keeper.KeepOrders(o)
	}
}

func (p *plane) restoreSaved(dir string, load func() (*control.Saved, error), log *zap.Logger) *control.Saved {
	saved, err := load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("no last plan: beginning anew", zap.String("state", dir))
		return &control.Saved{}
	case err != nil:
		p.counters.restoresFailed.Add(1)
		log.Error("last plan not usable: beginning anew", zap.Error(err))
		return &control.Saved{}
	}
	log.Info("last plan loaded", zap.Time("saved", saved.At), zap.String("state", dir))
	return saved
}

// keep hands a published plan to the keeper, if there is one.
func (p *plane) keep(plan *fleet.Plan) {
	if p.keeper != nil {
		p.keeper.Keep(control.Saved{At: time.Now(), Plan: plan, Fleet: p.fleetText, Engines: p.book.Answers()})
	}
}

// savedView is what a front-end was told by the last plan in a state directory.
// Which engines were ready then means nothing now, so all may be tried; and nobody is
// refused, since nobody could take that back.
func savedView(dir string, id fleet.FrontEndID) (*fleet.View, error) {
	saved, err := control.Store{Dir: dir}.Read()
	if err != nil {
		return nil, fmt.Errorf("no plan to render in %s: %w", dir, err)
	}
	f, err := config.Parse("fleet file of the last plan", []byte(saved.Fleet))
	if err != nil {
		return nil, err
	}
	if f.FrontEnd(id) == nil {
		return nil, fmt.Errorf("the last plan in %s names no front-end %q", dir, id)
	}
	for i := range saved.Plan.Routes {
		saved.Plan.Routes[i].ShedRps = 0
	}
	f = discover.NewBook(f, saved.Engines).Fleet()
	return fleet.NewView(fleet.Declared(f), saved.Plan, id), nil
}

// staticBootstrap renders the last plan in a state directory.
func staticBootstrap(dir string, l envoy.Local) ([]byte, error) {
	v, err := savedView(dir, l.FrontEnd)
	if err != nil {
		return nil, err
	}
	return envoy.StaticBootstrap(l, v)
}

// beginning is the fleet that a control plane begins with.
type beginning struct {
	fleet   *fleet.Fleet
	text    string
	problem error // why it is not the fleet file's; nil: it is
}

// beginWith reads the fleet file. One that is refused is no reason to be down, where
// the state directory has the fleet that was in force last: that one is taken, as it
// would have stayed if the control plane had not been restarted.
func beginWith(file, state string, log *zap.Logger) (beginning, error) {
	text, err := config.Read(file)
	if err != nil {
		return beginning{}, err
	}
	f, refused := config.Parse(file, text)
	if refused == nil {
		return beginning{f, string(text), nil}, nil
	}
	saved, err := control.Store{Dir: state}.Read()
	if state == "" || err != nil {
		return beginning{}, refused
	}
	f, err = config.Parse("fleet file of the last plan", []byte(saved.Fleet))
	if err != nil {
		return beginning{}, refused
	}
	log.Error("fleet file refused, beginning with the one of the last plan", zap.String("file", file), zap.Error(refused))
	return beginning{f, saved.Fleet, refused}, nil
}
