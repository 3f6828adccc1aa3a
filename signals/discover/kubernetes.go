package discover

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"weir/fleet"
)

const (
	// listTimeout bounds one list of a Service's slices.
	listTimeout = 30 * time.Second
	// watchLonger is how long a watch may last beyond the time that it was asked for: a
	// connection that is dead and does not say so ends then at the latest.
	watchLonger = 30 * time.Second
	// settleTime is how long after a change further ones are awaited: a pod that moves
	// from one slice to another is in none of them for a moment.
	settleTime = 100 * time.Millisecond
)

// retries are how long it is between two attempts to list where they fail. Client-go's
// own grow to a minute, in which nobody knows that an engine has left.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 10 * time.Second}

// service follows the EndpointSlices of one Service.
type service struct {
	source  fleet.Discovery
	changed chan struct{} // holds one: there is news

	mu      sync.Mutex                   // guards what follows: the reflector writes, the Finder's goroutine reads
	slices  []*discoveryv1.EndpointSlice // never changed, but replaced
	heard   bool                         // slices are known
	fresh   bool                         // and nobody has asked since
	trouble error                        // why the API server cannot tell what changes; nil: it does
}

func newService(d fleet.Discovery) *service {
	return &service{source: d, changed: make(chan struct{}, 1)}
}

// run follows the slices until ctx ends, and then returns with nothing left behind.
func (s *service) run(ctx context.Context, of *cluster) {
	namespace, name, _ := strings.Cut(s.source.Where, "/")
	for {
		from, err := of.slices(namespace, name)
		if err == nil {
			s.reflect(ctx, from)
			return
		}
		s.note(ctx, err)
		select {
		case <-time.After(lookTimeout):
		case <-ctx.Done():
			return
		}
	}
}

// reflect keeps what the API server has, client-go's way: it lists, watches, watches
// again where it left off, and lists again where that is too long ago.
func (s *service) reflect(ctx context.Context, from *cache.ListWatch) {
	own := retries
	quiet := klog.NewContext(ctx, klog.Logger{}) // the Finder tells what goes wrong
	r := cache.NewReflectorWithOptions(&attempts{from, s}, &discoveryv1.EndpointSlice{},
		cache.NewUndeltaStore(s.take, cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{Name: s.source.Where, Backoff: &own})
	r.RunWithContext(quiet)
}

// take takes all slices that there are now.
func (s *service) take(all []any) {
	slices := make([]*discoveryv1.EndpointSlice, 0, len(all))
	for _, one := range all {
		if slice, ok := one.(*discoveryv1.EndpointSlice); ok {
			slices = append(slices, slice)
		}
	}
	s.mu.Lock()
	s.slices, s.heard, s.fresh = slices, true, true
	s.mu.Unlock()
	s.wake()
}

// note notes whether the API server could be asked.
func (s *service) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	had := s.trouble != nil
	s.trouble = err
	s.mu.Unlock()
	if had || err != nil {
		s.wake()
	}
}

func (s *service) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// look says what the slices say. What was heard is said once even where the API server
// does not tell of changes to it.
func (s *service) look(context.Context) (named, time.Duration, error) {
	s.mu.Lock()
	slices, heard, fresh, trouble := s.slices, s.heard, s.fresh, s.trouble
	s.fresh = false
	s.mu.Unlock()
	switch {
	case trouble != nil && !fresh:
		return named{}, 0, explainTrouble(trouble)
	case !heard:
		return named{}, 0, fmt.Errorf("the API server has not answered within %v", lookTimeout)
	}
	n, err := endpoints(&s.source, slices)
	return n, 0, err
}

// attempts are a Service's slices, and note how each attempt to get them ends: the
// reflector tries again and again, and does not always say why.
type attempts struct {
	from *cache.ListWatch
	of   *service
}

// IsWatchListSemanticsUnSupported has the reflector list before it watches: the slices of
// one Service are few, and to stream them instead waits where it cannot be ended.
func (*attempts) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements [cache.ListerWithContext].
func (a *attempts) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := a.from.ListWithContext(bounded, options)
	a.of.note(ctx, err)
	return list, err
}

// WatchWithContext implements [cache.WatcherWithContext].
func (a *attempts) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	most := watchLonger
	if options.TimeoutSeconds != nil {
		most += time.Duration(*options.TimeoutSeconds) * time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, most)
	w, err := a.from.WatchWithContext(bounded, options)
	a.of.note(ctx, err)
	if err != nil {
		cancel()
		return nil, err
	}
	return &watching{w, cancel}, nil
}

// List implements [cache.Lister].
func (a *attempts) List(options metav1.ListOptions) (runtime.Object, error) {
	return a.ListWithContext(context.Background(), options)
}

// Watch implements [cache.Watcher].
func (a *attempts) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return a.WatchWithContext(context.Background(), options)
}

// watching is a watch that ends with its deadline.
type watching struct {
	watch.Interface
	end context.CancelFunc
}

// Stop implements [watch.Interface].
func (w *watching) Stop() {
	w.end()
	w.Interface.Stop()
}
