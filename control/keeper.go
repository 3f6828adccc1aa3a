package control

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"weir/fleet"
)

// Keeper saves plans beside the loop, so that a slow or full disk delays nobody.
// Of plans that come faster than the disk takes them only the last is saved.
type Keeper struct {
	Failed atomic.Uint64 // saves that failed; the plan stays in force all the same

	OrdersFailed    atomic.Uint64 // likewise of orders; they are tried again each round
	HistoriesFailed atomic.Uint64 // likewise of histories; a restart begins with older ones

	store   Store
	log     *zap.Logger
	pending chan Saved
	orders  chan Orders

	histories chan Histories

	last       *Saved  // only the goroutine of Run touches these
	lastOrders *Orders // nil: none were saved, or it is not known

	problem       atomic.Pointer[string] // why the last save failed; nil: it did not
	ordersProblem atomic.Pointer[string] // likewise of orders
}

// Problem says why plans or orders are not saved at the moment; empty: they are.
func (k *Keeper) Problem() string {
	if p := k.problem.Load(); p != nil {
		return *p
	}
	if p := k.ordersProblem.Load(); p != nil {
		return *p
	}
	return ""
}

// NewKeeper returns a keeper for a store.
func NewKeeper(store Store, log *zap.Logger) *Keeper {
	return &Keeper{store: store, log: log, pending: make(chan Saved, 1), orders: make(chan Orders, 1), histories: make(chan Histories, 1)}
}

// Keep takes a plan to save. A held one is not: what it holds was saved when it
// was made. It is called from one goroutine.
func (k *Keeper) Keep(saved Saved) {
	if saved.Plan.Status == fleet.Held {
		return
	}
	select {
	case <-k.pending: // an older one that was not saved yet
	default:
	}
	k.pending <- saved
}

// KeepOrders takes the orders in force, each round: those that are saved already cost
// nothing. It is called from one goroutine.
func (k *Keeper) KeepOrders(o Orders) {
	select {
	case <-k.orders:
	default:
	}
	k.orders <- o
}

// KeepHistories takes what pools showed. It is called from one goroutine, every some
// minutes: there is much of it.
func (k *Keeper) KeepHistories(all Histories) {
	select {
	case <-k.histories:
	default:
	}
	k.histories <- all
}

// Run saves until the context ends, and what is pending then as well.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		select {
		case s := <-k.pending:
			k.save(&s)
		case o := <-k.orders:
			k.saveOrders(&o)
		case h := <-k.histories:
			k.saveHistories(h)
		case <-ctx.Done():
			k.saveRest()
			return nil
		}
	}
}

// saveRest saves what is pending.
func (k *Keeper) saveRest() {
	select {
	case s := <-k.pending:
		k.save(&s)
	default:
	}
	select {
	case o := <-k.orders:
		k.saveOrders(&o)
	default:
	}
	select {
	case h := <-k.histories:
		k.saveHistories(h)
	default:
	}
}

func (k *Keeper) saveHistories(all Histories) {
	if err := k.store.SaveHistories(all); err != nil {
		k.HistoriesFailed.Add(1)
		k.log.Warn("histories of pools not saved: a restart begins with older ones", zap.Error(err))
	}
}

func (k *Keeper) saveOrders(o *Orders) {
	if k.lastOrders.same(o) {
		return
	}
	err := k.store.SaveOrders(o)
	if err == nil {
		k.lastOrders = o
		k.ordersProblem.Store(nil)
		return
	}
	k.OrdersFailed.Add(1)
	complaint := err.Error()
	if k.ordersProblem.Load() == nil {
		k.log.Error("orders not saved: a restart forgets brakes and policies by command", zap.Error(err))
	}
	k.ordersProblem.Store(&complaint)
}

func (k *Keeper) save(s *Saved) {
	if k.last.same(s) {
		return
	}
	err := k.store.Save(*s)
	if err == nil {
		k.last = s
		k.problem.Store(nil)
		return
	}
	k.Failed.Add(1)
	complaint := err.Error()
	if complaint != k.Problem() {
		k.log.Error("plan not saved: after a restart an older one is in force at first", zap.Error(err))
	}
	k.problem.Store(&complaint)
}
