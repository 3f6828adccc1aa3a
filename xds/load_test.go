package xds

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"weir/envoy"
	"weir/fleet"
)

// classLoads draws reports in the form that reading gives: by class and pool, each
// once.
var classLoads = rapid.Custom(func(t *rapid.T) []fleet.ClassLoad {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 0, 4, rapid.ID)
	classes := []fleet.ClassLoad{}
	for _, class := range sorted(names.Draw(t, "classes")) {
		c := fleet.ClassLoad{
			Class:    fleet.ClassID(class),
			Arrivals: rapid.Uint64().Draw(t, "arrivals"),
			Shed:     rapid.Uint64().Draw(t, "shed"),
		}
		for _, pool := range sorted(names.Draw(t, "pools")) {
			c.Pools = append(c.Pools, fleet.PoolLoad{
				Pool:     fleet.PoolID(pool),
				Issued:   rapid.Uint64().Draw(t, "issued"),
				Failed:   rapid.Uint64().Draw(t, "failed"),
				InFlight: rapid.Uint64().Draw(t, "in flight"),
			})
		}
		classes = append(classes, c)
	}
	return classes
}).Filter(func(classes []fleet.ClassLoad) bool {
	return !slices.ContainsFunc(classes, func(c fleet.ClassLoad) bool { return c.Class == envoy.XDSCluster })
})

// classesOf reads the classes of a report.
func classesOf(role fleet.Role, stats []*endpointv3.ClusterStats) []fleet.ClassLoad {
	report, _ := decodeLoad(role, stats)
	return report.Classes
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

func TestLoadReportsReadBackAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := classLoads.Draw(t, "report")
		interval := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "interval"))
		wire, err := proto.Marshal(&loadv3.LoadStatsRequest{ClusterStats: encodeLoad(fleet.LoadReport{Classes: want}, interval)})
		if err != nil {
			t.Fatal(err)
		}
		var req loadv3.LoadStatsRequest
		if err := proto.Unmarshal(wire, &req); err != nil {
			t.Fatal(err)
		}
		for _, s := range req.ClusterStats {
			if err := s.ValidateAll(); err != nil {
				t.Fatalf("not a valid report: %v", err)
			}
		}
		if diff := cmp.Diff(want, classesOf(fleet.RoleExtProc, req.ClusterStats)); diff != "" {
			t.Fatalf("report (-want +got):\n%s", diff)
		}
		if got := statedInterval(req.ClusterStats); len(want) > 0 && got != interval {
			t.Fatalf("interval = %s, want %s", got, interval)
		}
	})
}

func locality(zone string, issued, failed, active uint64) *endpointv3.UpstreamLocalityStats {
	return &endpointv3.UpstreamLocalityStats{
		Locality:            &corev3.Locality{Zone: zone},
		TotalIssuedRequests: issued, TotalErrorRequests: failed, TotalRequestsInProgress: active,
	}
}

func TestDecodeLoadOfAnEnvoy(t *testing.T) {
	t.Parallel()
	stats := []*endpointv3.ClusterStats{
		{
			ClusterName:          "chat",
			TotalDroppedRequests: 5, // by a circuit breaker: not what Weir shed
			LoadReportInterval:   durationpb.New(time.Second),
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{
				locality("west", 1, 0, 1), locality("east", 8, 2, 3), locality("west", 2, 1, 0), // one pool at two priorities
				locality("", 9, 9, 9), // no pool
			},
		},
		{ClusterName: envoy.XDSCluster, UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality("", 1, 0, 1)}},
		{ClusterName: envoy.ExtProc, UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality("", 7, 0, 1)}},
		{UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality("east", 7, 0, 1)}},
	}
	want := []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{
		{Pool: "east", Issued: 8, Failed: 2, InFlight: 3},
		{Pool: "west", Issued: 3, Failed: 1, InFlight: 1},
	}}}
	if diff := cmp.Diff(want, classesOf(fleet.RoleEnvoy, stats)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestStatedInterval(t *testing.T) {
	t.Parallel()
	stats := func(intervals ...time.Duration) (out []*endpointv3.ClusterStats) {
		for _, d := range intervals {
			out = append(out, &endpointv3.ClusterStats{LoadReportInterval: durationpb.New(d)})
		}
		return out
	}
	tests := []struct {
		name  string
		stats []*endpointv3.ClusterStats
		want  time.Duration
	}{
		{"nothing", nil, 0},
		{"a cluster that was idle for long", stats(time.Minute, time.Second), time.Second},
		{"nonsense", stats(-time.Second, 0), 0},
	}
	for _, test := range tests {
		if got := statedInterval(test.stats); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// reported takes one report from a channel.
func reported(t *testing.T, reports <-chan fleet.LoadReport) fleet.LoadReport {
	t.Helper()
	select {
	case r := <-reports:
		return r
	case <-time.After(patience):
		t.Fatal("no report")
		return fleet.LoadReport{}
	}
}

// counter is a source of counts: what was added since it was last asked.
type counter struct {
	mu    sync.Mutex // guards the rest
	loads []fleet.ClassLoad
	taken uint64 // arrivals handed out
}

func (c *counter) add(arrivals, shed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.loads) == 0 {
		c.loads = []fleet.ClassLoad{{Class: "chat"}}
	}
	c.loads[0].Arrivals += arrivals
	c.loads[0].Shed += shed
}

func (c *counter) take() fleet.LoadReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	loads := c.loads
	c.loads = nil
	for _, l := range loads {
		c.taken += l.Arrivals
	}
	return fleet.LoadReport{Classes: loads}
}

// until adds up reports to a number of arrivals.
func until(t *testing.T, reports <-chan fleet.LoadReport, arrivals uint64) (shed uint64, last fleet.LoadReport) {
	t.Helper()
	var sum uint64
	for sum < arrivals {
		last = reported(t, reports)
		for _, c := range last.Classes {
			sum += c.Arrivals
			shed += c.Shed
		}
	}
	if sum != arrivals {
		t.Errorf("%d arrivals were reported, want %d", sum, arrivals)
	}
	return shed, last
}

func TestReporterRoundTrip(t *testing.T) {
	t.Parallel()
	reports := make(chan fleet.LoadReport, 1000)
	s := serve(t, Options{Reports: reports, LoadInterval: 10 * time.Millisecond}, "east")
	var c counter
	r := NewReporter(s.dial(t), envoy.Node("east", "n1", fleet.RoleExtProc), c.take, zap.NewNop())
	start := time.Now()
	run(t, r.Run)

	if idle := reported(t, reports); len(idle.Classes) != 0 || idle.Interval <= 0 {
		t.Errorf("an idle ext_proc reports %+v, want an empty report with an interval", idle)
	}
	c.add(7, 2)
	shed, last := until(t, reports, 7)
	if shed != 2 {
		t.Errorf("shed = %d, want 2", shed)
	}
	if last.FrontEnd != "east" || last.Node != "n1" || last.Role != fleet.RoleExtProc {
		t.Errorf("report is from %+v", last)
	}
	if last.Interval <= 0 || last.Interval > time.Since(start) {
		t.Errorf("interval = %s, want a part of the %s since the start", last.Interval, time.Since(start))
	}
}

func TestReporterLosesNothingInAnOutage(t *testing.T) {
	t.Parallel()
	reports := make(chan fleet.LoadReport, 1000)
	o := Options{Reports: reports, LoadInterval: 10 * time.Millisecond}
	s := serve(t, o, "east")
	var c counter
	r := NewReporter(s.dial(t), envoy.Node("east", "n1", fleet.RoleExtProc), c.take, zap.NewNop())
	run(t, r.Run)
	c.add(5, 0)
	until(t, reports, 5)
	reported(t, reports) // a further batch: the one before has been answered
	s.stop()
	c.add(6, 1)
	for len(reports) > 0 { // what was on its way at the end was idle
		if last := reported(t, reports); len(last.Classes) != 0 {
			t.Errorf("report %+v after the end", last)
		}
	}
	serveAt(t, s.address, o, zap.NewNop(), "east")
	if shed, _ := until(t, reports, 6); shed != 1 {
		t.Errorf("shed = %d, want 1", shed)
	}
}

// deaf is a control plane whose first streams end when a batch has come, before
// it is answered.
type deaf struct {
	loadv3.UnimplementedLoadReportingServiceServer
	deafTo  int // batches
	batches chan *loadv3.LoadStatsRequest
}

func (d *deaf) StreamLoadStats(stream loadv3.LoadReportingService_StreamLoadStatsServer) error {
	answer := &loadv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(10 * time.Millisecond)}
	for hello := true; ; hello = false {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if !hello {
			d.batches <- req
			if d.deafTo--; d.deafTo >= 0 {
				return io.ErrUnexpectedEOF
			}
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func TestReporterRepeatsABatchUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	d := &deaf{deafTo: 2, batches: make(chan *loadv3.LoadStatsRequest, 100)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	loadv3.RegisterLoadReportingServiceServer(server, d)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := Dial(l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var c counter
	c.add(3, 1)
	r := NewReporter(conn, envoy.Node("east", "n1", fleet.RoleExtProc), c.take, zap.NewNop())
	stop := run(t, r.Run)
	next := func() *loadv3.LoadStatsRequest {
		select {
		case b := <-d.batches:
			return b
		case <-time.After(patience):
			t.Fatal("no batch")
			return nil
		}
	}
	batch := next()
	if got := classesOf(fleet.RoleExtProc, batch.ClusterStats); len(got) != 1 || got[0].Arrivals != 3 {
		t.Errorf("batch is %+v, want 3 arrivals", got)
	}
	c.add(4, 0) // must not get into the batch under way
	for range 2 {
		if diff := cmp.Diff(batch, next(), protoEqual); diff != "" {
			t.Errorf("repeated batch (-first +again):\n%s", diff)
		}
	}
	following := next()
	if got := classesOf(fleet.RoleExtProc, following.ClusterStats); len(got) != 1 || got[0].Arrivals != 4 {
		t.Errorf("following batch is %+v, want 4 arrivals", got)
	}
	if batchOf(following) == batchOf(batch) || batchOf(batch) == "" {
		t.Errorf("batches are named %q and %q", batchOf(batch), batchOf(following))
	}
	stop()
}

func batchOf(r *loadv3.LoadStatsRequest) string {
	return r.GetNode().GetMetadata().GetFields()[batchKey].GetStringValue()
}

// loadStream opens a load report stream by hand and waits for its greeting.
func (s *served) loadStream(t *testing.T, node *corev3.Node) loadv3.LoadReportingService_StreamLoadStatsClient {
	t.Helper()
	stream, err := loadv3.NewLoadReportingServiceClient(s.dial(t)).StreamLoadStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&loadv3.LoadStatsRequest{Node: node}) // should it fail, Recv says why
	return stream
}

func TestEnvoyIsToldWhatToReport(t *testing.T) {
	t.Parallel()
	reports := make(chan fleet.LoadReport, 10)
	s := serve(t, Options{Reports: reports, LoadInterval: 3 * time.Second}, "east")
	stream := s.loadStream(t, envoyNode("n1"))
	hello, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if !hello.SendAllClusters || hello.LoadReportingInterval.AsDuration() != 3*time.Second {
		t.Errorf("greeting is %v, want all clusters each 3 s", hello)
	}
	stats := []*endpointv3.ClusterStats{{
		ClusterName: "chat", LoadReportInterval: durationpb.New(2 * time.Second),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality("pool", 4, 1, 2)},
	}}
	if err := stream.Send(&loadv3.LoadStatsRequest{ClusterStats: stats}); err != nil { // later messages may lack the node
		t.Fatal(err)
	}
	want := fleet.LoadReport{
		FrontEnd: "east", Node: "n1", Role: fleet.RoleEnvoy, Interval: 2 * time.Second,
		Classes: []fleet.ClassLoad{{Class: "chat", Pools: []fleet.PoolLoad{{Pool: "pool", Issued: 4, Failed: 1, InFlight: 2}}}},
	}
	if diff := cmp.Diff(want, reported(t, reports)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if err := stream.Send(&loadv3.LoadStatsRequest{}); err != nil {
		t.Fatal(err)
	}
	if idle := reported(t, reports); len(idle.Classes) != 0 || idle.Interval <= 0 {
		t.Errorf("an idle Envoy's report is %+v, want no class and an interval", idle)
	}
}

func TestBatchIsCountedOnce(t *testing.T) {
	t.Parallel()
	reports := make(chan fleet.LoadReport, 10)
	s := serve(t, Options{Reports: reports}, "east")
	send := func(batch string, arrivals uint64) {
		t.Helper()
		node := envoy.Node("east", "n1", fleet.RoleExtProc)
		stream := s.loadStream(t, node)
		node.Metadata.Fields[batchKey] = structString(batch)
		err := stream.Send(&loadv3.LoadStatsRequest{
			Node: node, ClusterStats: encodeLoad(fleet.LoadReport{Classes: []fleet.ClassLoad{{Class: "chat", Arrivals: arrivals}}}, time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // greeting and answer
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
	}
	send("a", 1)
	send("a", 1)
	send("b", 2)
	var got []uint64
	for len(reports) > 0 {
		got = append(got, (<-reports).Classes[0].Arrivals)
	}
	if diff := cmp.Diff([]uint64{1, 2}, got); diff != "" {
		t.Errorf("arrivals (-want +got):\n%s", diff)
	}
}

func TestSlowConsumerNeverBlocks(t *testing.T) {
	t.Parallel()
	reports := make(chan fleet.LoadReport, 1)
	s := serve(t, Options{Reports: reports, LoadInterval: 10 * time.Millisecond}, "east")
	var c counter
	r := NewReporter(s.dial(t), envoy.Node("east", "n1", fleet.RoleExtProc), c.take, zap.NewNop())
	run(t, r.Run)
	eventually(t, "reports are dropped", func() bool { return s.Counts().ReportsDropped >= 3 })
	if got := s.Counts(); got.Reports-got.ReportsDropped != 1 || len(reports) != 1 {
		t.Errorf("counts are %+v with %d reports waiting, want one", got, len(reports))
	}
}

func TestLoadStreamsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{MaxClients: 1}, "east")
	for _, node := range []*corev3.Node{nil, envoy.Node("", "n2", fleet.RoleEnvoy)} {
		if _, err := s.loadStream(t, node).Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("node %v: got %v, want %s", node, err, codes.InvalidArgument)
		}
	}
	stay := s.loadStream(t, envoyNode("n1"))
	if _, err := stay.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.loadStream(t, envoyNode("n2")).Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: got %v, want %s", err, codes.ResourceExhausted)
	}
	if got := s.Counts().Refused; got != 3 {
		t.Errorf("refused = %d, want 3", got)
	}
	if err := stay.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room again", func() bool {
		_, err := s.loadStream(t, envoyNode("n2")).Recv()
		return err == nil
	})
}

// A stream that does not say whose it is counts from the start, and not for long.
func TestSilentLoadStreamsEnd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := New(Options{MaxClients: 1}, zap.NewNop())
	limited.helloWithin = 200 * time.Millisecond
	s := &served{limited, l.Addr().String(), run(t, func(ctx context.Context) error { return limited.Run(ctx, l) })}
	silent, err := loadv3.NewLoadReportingServiceClient(s.dial(t)).StreamLoadStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the silent stream counts", func() bool { _, _, reporting := s.groups(); return reporting == 1 })
	if _, err := s.loadStream(t, envoyNode("n1")).Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beside it: %v, want that there is no room", err)
	}
	if _, err := silent.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the silent stream ends with %v, want its deadline", err)
	}
	eventually(t, "there is room again", func() bool {
		_, err := s.loadStream(t, envoyNode("n1")).Recv()
		return err == nil
	})
	if got := s.Counts().Refused; got < 2 {
		t.Errorf("refused = %d, want both counted", got)
	}
}

func TestReportsOfUnknownFrontEndsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	reports := make(chan fleet.LoadReport, 10)
	s := serve(t, Options{Reports: reports, LoadInterval: 10 * time.Millisecond}, "east")
	for i, id := range []fleet.FrontEndID{"atlantis", "east"} {
		stream := s.loadStream(t, envoy.Node(id, fmt.Sprint(i), fleet.RoleExtProc))
		if err := stream.Send(&loadv3.LoadStatsRequest{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(reports) != 1 || reported(t, reports).FrontEnd != "east" {
		t.Error("want the report of the known front-end alone")
	}
}
