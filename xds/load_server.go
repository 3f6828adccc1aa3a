package xds

import (
	"cmp"
	"time"

	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"weir/fleet"
)

// batchKey is the node metadata under which a [Reporter] names each batch.
const batchKey = "weir.batch"

// loadReports is the load reporting service.
type loadReports struct {
	loadv3.UnimplementedLoadReportingServiceServer
	server *Server
}

// StreamLoadStats takes one client's reports. An Envoy is told once what to send;
// a weir-extproc gets an answer to each batch, and repeats one that had none.
func (l loadReports) StreamLoadStats(stream loadv3.LoadReportingService_StreamLoadStatsServer) error {
	if err := l.server.enter(); err != nil {
		return err
	}
	defer l.server.leave()
	id, err := l.server.introduced(stream)
	if err != nil {
		return err
	}
	answer := &loadv3.LoadStatsResponse{
		SendAllClusters:       true,
		LoadReportingInterval: durationpb.New(l.server.options.LoadInterval),
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	for last := time.Now(); ; {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		now := time.Now()
		l.server.take(id, req, now.Sub(last))
		last = now
		if id.role == fleet.RoleExtProc {
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
	}
}

// enter makes room for a stream, before anything of it is waited for.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reporting >= s.options.MaxClients {
		s.counts.Refused++
		return status.Errorf(codes.ResourceExhausted, "%d clients report their load already: raise the limit or add a control plane", s.reporting)
	}
	s.reporting++
	return nil
}

// introduced reads who the client is. It does not wait for long: a stream that says
// nothing takes the room of one that does.
func (s *Server) introduced(stream loadv3.LoadReportingService_StreamLoadStatsServer) (identity, error) {
	hello := make(chan *loadv3.LoadStatsRequest, 1)
	failed := make(chan error, 1)
	go func() { // ends with the stream
		if req, err := stream.Recv(); err != nil {
			failed <- err
		} else {
			hello <- req
		}
	}()
	late := time.NewTimer(s.helloWithin)
	defer late.Stop()
	select {
	case req := <-hello:
		id, err := identify(req.GetNode())
		return id, s.refusal(err)
	case err := <-failed:
		return identity{}, err
	case <-late.C:
		return identity{}, s.refusal(status.Errorf(codes.DeadlineExceeded, "nothing came within %s: state the node in the first message", s.helloWithin))
	}
}

// refusal counts a stream that is turned away, if it is.
func (s *Server) refusal(err error) error {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts.Refused++
	}
	return err
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reporting--
}

// take passes a report on, once. It never waits: a report that finds no room is
// dropped and counted.
func (s *Server) take(id identity, req *loadv3.LoadStatsRequest, elapsed time.Duration) {
	report, refused := decodeLoad(id.role, req.GetClusterStats())
	report.FrontEnd, report.Node, report.Role = id.frontEnd, id.node, id.role
	report.Interval = cmp.Or(statedInterval(req.GetClusterStats()), elapsed)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.repeated(id, req):
		s.counts.ReportsRepeated++
		return
	case !s.frontEnds[id.frontEnd]:
		s.counts.ReportsUnknown++
		return
	}
	s.counts.Reports++
	s.counts.MeasuresRefused += refused
	select {
	case s.options.Reports <- report:
	default:
		s.counts.ReportsDropped++
	}
}

// repeated says whether the client sent this batch before, its answer having been
// lost, and remembers the batch.
func (s *Server) repeated(id identity, req *loadv3.LoadStatsRequest) bool {
	batch := req.GetNode().GetMetadata().GetFields()[batchKey].GetStringValue()
	if batch == "" || len(batch) > maxName {
		return false
	}
	if s.batches[id] == batch {
		return true
	}
	if len(s.batches) >= s.options.MaxClients {
		s.counts.BatchesForgotten++
		clear(s.batches) // costs at most one report counted twice per client
	}
	s.batches[id] = batch
	return false
}
