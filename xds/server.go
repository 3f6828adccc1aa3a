// Package xds delivers resources to Envoys and ext_procs and knows who took them:
// ACK, NACK and lag. It holds the server and the client of delta xDS, and both
// ends of the load reports that flow back.
//
// # Serving
//
// [Server.SetFrontEnds] says which front-ends exist, [Server.Publish] what one of
// them is served. A front-end is served nothing before its first Publish, and
// never an empty cluster: a client that waits keeps its last resources, one that
// is told of emptiness drops its engines.
//
// # Refusals
//
// What a client refuses is not sent again until it has a new version, and holds
// back no more than what cannot work without it.
//
// An Envoy that refuses some of the resources in a response takes the others, and
// does not say in a form to rely on which is which. So each of them is sent once
// more, alone: then an ACK or a NACK is about one resource. The routes to a cluster
// that was refused and has no earlier form in force are left out for that Envoy and
// its weir-extproc, as if its class did not exist yet; all others are served as soon
// as their clusters are taken. To hold the whole route configuration back would let
// one bad class stop all, and to send the routes all the same would lead requests
// that an older class still serves to a cluster that is not there. Routes or
// listeners that are refused stay as they were, with the clusters that they use.
//
// A weir-extproc refuses the whole of what it has, not a resource. What was sent in
// the meantime is sent again when it takes something.
//
// A hold behind a NACK is logged once, counted and named in [Server.Clients]. Every
// other wait for a client ends after [Options].HoldFor. Of two clients that share a
// node id, one that refuses does not hold the other.
//
// # Reading
//
// [Dial] opens the connection that a [Client] and a [Reporter] share. Both run
// until their context ends, through every outage of the control plane.
package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	cachelog "github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"weir/envoy"
	"weir/fleet"
)

// Options are the choices of a server. The zero value is ready to use.
type Options struct {
	// Reports takes the load reports. It should have a buffer: a report that
	// finds it full is dropped and counted. Nil: reports are not wanted.
	Reports chan<- fleet.LoadReport
	// LoadInterval is how often clients shall report; 0: each second.
	LoadInterval time.Duration
	// MaxClients bounds the streams of each kind, xDS and load reports; 0: 10,000.
	MaxClients int
	// HoldFor bounds how long new routes wait for a client that neither takes
	// nor refuses what they need; 0: 10 s.
	HoldFor time.Duration
	// Credentials of the listener; nil: plain text.
	Credentials credentials.TransportCredentials
}

// Server serves each front-end its resources over delta ADS and takes load
// reports over LRS. Its methods may be called from any goroutine.
type Server struct {
	options Options
	log     *zap.Logger
	cache   cache.SnapshotCache

	helloWithin time.Duration // a stream of load reports that does not say whose it is by then is ended

	mu        sync.Mutex // guards everything below; taken before the cache's own locks
	frontEnds map[fleet.FrontEndID]bool
	current   map[fleet.FrontEndID]snapshot
	levels    *collection                      // for every weir-extproc; nil: none
	own       map[fleet.FrontEndID]*collection // for those of one front-end
	levelled  map[fleet.FrontEndID]levelled
	nodes     map[identity]*node
	streams   map[int64]*stream
	warned    map[identity]bool   // unknown front-ends' nodes that were logged
	batches   map[identity]string // last batch of load reports, to tell a repetition
	reporting int                 // open streams of load reports
	counts    Counts
}

// Counts are totals since the server was made.
type Counts struct {
	Pushes           uint64 `json:"pushes"`           // responses sent
	Nacks            uint64 `json:"nacks"`            // responses refused by a client
	Refused          uint64 `json:"refused"`          // clients turned away
	Unanswered       uint64 `json:"unanswered"`       // responses forgotten that a client never answered
	NotSet           uint64 `json:"notSet"`           // changes of what a client is served that failed
	BatchesForgotten uint64 `json:"batchesForgotten"` // times that it was forgotten which load reports were taken
	Forced           uint64 `json:"forced"`           // routes sent to a client that was silent about their clusters
	Held             uint64 `json:"held"`             // times that routes were held back because of a NACK
	Reports          uint64 `json:"reports"`          // load reports of known front-ends, repetitions left out
	ReportsUnknown   uint64 `json:"reportsUnknown"`   // load reports of front-ends that do not exist
	ReportsRepeated  uint64 `json:"reportsRepeated"`  // load reports that were taken before
	ReportsDropped   uint64 `json:"reportsDropped"`   // of these, the ones that found the channel full
	MeasuresRefused  uint64 `json:"measuresRefused"`  // measures in load reports that cannot be true, left out
}

// New returns a server that knows no front-end yet.
func New(o Options, log *zap.Logger) *Server {
	if o.LoadInterval <= 0 {
		o.LoadInterval = time.Second
	}
	if o.MaxClients <= 0 {
		o.MaxClients = 10_000
	}
	if o.HoldFor <= 0 {
		o.HoldFor = 10 * time.Second
	}
	return &Server{
		options:     o,
		log:         log,
		cache:       cache.NewSnapshotCache(true, byIdentity{}, cacheLog(log)),
		helloWithin: answerWithin,

		frontEnds: map[fleet.FrontEndID]bool{},
		current:   map[fleet.FrontEndID]snapshot{},
		own:       map[fleet.FrontEndID]*collection{},
		levelled:  map[fleet.FrontEndID]levelled{},
		nodes:     map[identity]*node{},
		streams:   map[int64]*stream{},
		warned:    map[identity]bool{},
		batches:   map[identity]string{},
	}
}

// Run serves on the listener until the context ends; it is called once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	server := grpc.NewServer(s.grpcOptions()...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, ads{delta: delta.NewServer(ctx, renewing{s.cache}, callbacks{s})})
	loadv3.RegisterLoadReportingServiceServer(server, loadReports{server: s})
	group.Go(func() error {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve xDS on %s: %w", l.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		server.Stop()
		return nil
	})
	group.Go(func() error { return s.watchHolds(ctx) })
	return group.Wait()
}

func (s *Server) grpcOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
		// A dead peer's streams are closed, and forgotten, within 40 s.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if s.options.Credentials != nil {
		options = append(options, grpc.Creds(s.options.Credentials))
	}
	return options
}

// SetFrontEnds states which front-ends exist. One that is gone is served nothing
// more: its clients keep what they have.
func (s *Server) SetFrontEnds(ids []fleet.FrontEndID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.frontEnds)
	for _, id := range ids {
		s.frontEnds[id] = true
	}
	for id := range s.current {
		if !s.frontEnds[id] {
			delete(s.current, id)
			delete(s.levelled, id)
			delete(s.own, id)
		}
	}
	clear(s.warned)
}

// Publish sets what a front-end is served. Resources that are as before are not
// sent again. The resources must not be changed afterwards: clients share them.
func (s *Server) Publish(id fleet.FrontEndID, r *envoy.Resources) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.frontEnds[id] {
		return fmt.Errorf("front-end %q is not known: name it in SetFrontEnds before publishing", id)
	}
	next, err := newSnapshot(r, s.current[id])
	if err != nil {
		return fmt.Errorf("front-end %q: %w", id, err)
	}
	s.current[id] = next
	for _, n := range s.nodes {
		if n.id.frontEnd == id {
			s.advance(n, time.Now())
		}
	}
	return nil
}

// cacheLog brings the cache's log down to our levels: it tells each ACK as news.
func cacheLog(log *zap.Logger) cachelog.Logger {
	sugar := log.Sugar()
	return cachelog.LoggerFuncs{
		DebugFunc: sugar.Debugf, InfoFunc: sugar.Debugf, WarnFunc: sugar.Warnf, ErrorFunc: sugar.Errorf,
	}
}

// Counts returns the server's totals.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// ads is the discovery service: delta only.
type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta delta.Server
}

// DeltaAggregatedResources serves one client.
func (a ads) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.delta.DeltaStreamHandler(stream, resource.AnyType)
}

// StreamAggregatedResources says what to use instead.
func (a ads) StreamAggregatedResources(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return status.Error(codes.Unimplemented, "only delta xDS is served: set ads_config.api_type to DELTA_GRPC in the bootstrap")
}
