package xds

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"weir/envoy"
	"weir/fleet"
)

func TestClientKeepsItsTableThroughARestart(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	core, logs := observer.New(zap.InfoLevel)
	f := &follower{}
	c := NewClient(s.dial(t), envoy.Node("east", "n1", fleet.RoleExtProc), f.update, zap.New(core))
	run(t, c.Run)
	f.await(t, "chat=10 chat 1")
	updates := f.count()

	s.stop()
	eventually(t, "the outage is logged", func() bool {
		return logs.FilterMessage("control plane not reachable, retrying").Len() > 0
	})
	restarted := serveAt(t, s.address, Options{}, zap.NewNop(), "east")
	restarted.publish(t, "east", first)
	eventually(t, "the client is back and up to date", func() bool {
		c := restarted.Clients()
		return len(c) == 1 && len(c[0].Types) == 3 && c[0].UpToDate() && restarted.Counts().Pushes == 3
	})
	for _, d := range restarted.Clients()[0].Types {
		if d.Sent == "" {
			t.Errorf("%s was not answered", d.Type)
		}
	}
	if got := f.table(); got != "chat=10 chat 1" {
		t.Errorf("table is %q after the restart", got)
	}
	restarted.publish(t, "east", plan{weights: map[string]uint32{"chat": 20}, budget: 1})
	f.await(t, "chat=20 chat 1")
	if got := f.count(); got <= updates {
		t.Errorf("%d updates, want more than %d", got, updates)
	}
}

func TestClientRefusalIsRetriedWithTheNextUpdate(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	f.await(t, "chat=10 chat 1")

	f.setRefuse(errTest)
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 20}, budget: 1, listen: 1})
	eventually(t, "the refusal is shown", func() bool {
		return deliveryOf(t, s, "ClusterLoadAssignment").Error == errTest.Error()
	})
	if got := f.table(); got != "chat=10 chat 1" {
		t.Errorf("table is %q, want the last good one", got)
	}

	// The endpoints are not sent again, but they are part of the next whole.
	f.setRefuse(nil)
	s.publish(t, "east", plan{weights: map[string]uint32{"chat": 20}, budget: 2, listen: 1})
	f.await(t, "chat=20 chat 2")
}

func TestClientThatRefusedGetsAllAgainAfterReconnect(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", first)
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	f.await(t, "chat=10 chat 1")
	f.setRefuse(errTest)
	bad := plan{weights: map[string]uint32{"chat": 20}, budget: 1, listen: 1}
	s.publish(t, "east", bad)
	eventually(t, "the refusal is known", func() bool { return s.Counts().Nacks == 1 })
	s.stop()
	restarted := serveAt(t, s.address, Options{}, zap.NewNop(), "east")
	restarted.publish(t, "east", bad)
	eventually(t, "the refusal is known to the new server", func() bool {
		c := restarted.Clients()
		return restarted.Counts().Nacks > 0 && len(c) == 1 && !c[0].UpToDate()
	})
	if got := f.table(); got != "chat=10 chat 1" {
		t.Errorf("table is %q, want the last good one", got)
	}
	f.setRefuse(nil)
	restarted.publish(t, "east", plan{weights: map[string]uint32{"chat": 21}, budget: 3, listen: 2})
	f.await(t, "chat=21 chat 3")
}

func TestLargeResourcesArrive(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	r := first.resources()
	r.Runtimes[0].Layer.Fields["large"] = structString(strings.Repeat("x", 5<<20)) // gRPC's own limit is 4 MiB
	if err := s.Publish("east", r); err != nil {
		t.Fatal(err)
	}
	f.await(t, "chat=10 chat 1")
}

// script is a control plane that answers the first request of each type with a
// fixed response and notes the requests that follow.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	answers  map[string]*discoveryv3.DeltaDiscoveryResponse
	requests chan *discoveryv3.DeltaDiscoveryRequest
}

func (s *script) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if req.GetResponseNonce() != "" {
			s.requests <- req
			continue
		}
		if answer := s.answers[req.GetTypeUrl()]; answer != nil {
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
	}
}

// against runs a client against scripted responses.
func against(t *testing.T, answers ...*discoveryv3.DeltaDiscoveryResponse) (*script, *follower) {
	t.Helper()
	s := &script{answers: map[string]*discoveryv3.DeltaDiscoveryResponse{}, requests: make(chan *discoveryv3.DeltaDiscoveryRequest, 16)}
	for _, a := range answers {
		a.Nonce = "nonce of " + shortName(a.TypeUrl)
		s.answers[a.TypeUrl] = a
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	at := &served{address: l.Addr().String()}
	return s, at.follow(t, "east", "n1", fleet.RoleExtProc)
}

func TestClientRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	good := wrap(assignment("chat", 1))
	tests := []struct {
		name     string
		resource *discoveryv3.Resource
		want     string
	}{
		{"cut off", &discoveryv3.Resource{Name: "chat", Resource: &anypb.Any{TypeUrl: good.TypeUrl, Value: good.Value[:len(good.Value)-1]}}, `ClusterLoadAssignment "chat"`},
		{"no content", &discoveryv3.Resource{Name: "chat"}, `is of type ""`},
		{"another type", &discoveryv3.Resource{Name: "chat", Resource: wrap(cluster("chat"))}, "is of type"},
		{"another name", &discoveryv3.Resource{Name: "chat", Resource: wrap(assignment("code", 1))}, `calls itself "code"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, f := against(t, &discoveryv3.DeltaDiscoveryResponse{
				TypeUrl: resource.EndpointType, Resources: []*discoveryv3.Resource{test.resource},
			})
			select {
			case req := <-s.requests:
				if got := req.GetErrorDetail().GetMessage(); !strings.Contains(got, test.want) {
					t.Errorf("reason is %q, want %q", got, test.want)
				}
				if got := req.GetResponseNonce(); got != "nonce of ClusterLoadAssignment" {
					t.Errorf("nonce is %q", got)
				}
			case <-time.After(patience):
				t.Fatal("no answer")
			}
			if f.count() != 0 {
				t.Error("the consumer was called before all types were there")
			}
		})
	}
}

func TestClientWaitsForEveryType(t *testing.T) {
	t.Parallel()
	s, f := against(t,
		&discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.EndpointType, Resources: []*discoveryv3.Resource{{Name: "chat", Resource: wrap(assignment("chat", 1))}}},
		&discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.RouteType},
	)
	for range 2 {
		select {
		case req := <-s.requests:
			if req.GetErrorDetail() != nil {
				t.Errorf("refused: %v", req.GetErrorDetail())
			}
		case <-time.After(patience):
			t.Fatal("no answer")
		}
	}
	if f.count() != 0 {
		t.Error("the consumer was called without the runtime")
	}
}

func TestForeverWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Time
		reachedAt := 8
		err := forever(ctx, zap.NewNop(), func(context.Context) (bool, error) {
			at = append(at, time.Now())
			if len(at) == 10 {
				cancel()
			}
			return len(at) == reachedAt, errTest
		})
		if err != nil || len(at) != 10 {
			t.Fatalf("ended after %d attempts with %v", len(at), err)
		}
		for i := 1; i < len(at); i++ {
			wait := min(firstWait<<(i-1), longestWait)
			if i >= reachedAt {
				wait = firstWait << (i - reachedAt)
			}
			if gap := at[i].Sub(at[i-1]); gap < wait/2 || gap >= wait+wait/2 {
				t.Errorf("wait %d is %s, want about %s", i, gap, wait)
			}
		}
	})
}

func TestForeverEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), firstWait/4)
		defer cancel()
		start := time.Now()
		if err := forever(ctx, zap.NewNop(), func(context.Context) (bool, error) { return false, errTest }); err != nil {
			t.Error(err)
		}
		if got := time.Since(start); got != firstWait/4 {
			t.Errorf("ended after %s, want %s", got, firstWait/4)
		}
	})
}

func TestDialNamesABadTarget(t *testing.T) {
	t.Parallel()
	if _, err := Dial("bad\x7f://target", nil); err == nil || !strings.Contains(err.Error(), "control plane") {
		t.Errorf("got %v, want an error that names the control plane", err)
	}
}

// gRPC's resolver, which waits between two questions, is not to be in the way.
func TestDialAsksForNamesAnew(t *testing.T) {
	t.Parallel()
	conn, err := Dial("weir.test:18000", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, want := conn.CanonicalTarget(), "passthrough:///weir.test:18000"; got != want {
		t.Errorf("target %s, want %s", got, want)
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	m := newMirror(servedTypes(fleet.RoleEnvoy))
	r := first.resources()
	for typeURL, added := range map[string]*discoveryv3.Resource{
		resource.ClusterType:  {Name: "chat", Version: "1", Resource: wrap(r.Clusters[0])},
		resource.EndpointType: {Name: "chat", Version: "1", Resource: wrap(r.Endpoints[0])},
		resource.ListenerType: {Name: "weir", Version: "1", Resource: wrap(r.Listeners[0])},
		resource.RouteType:    {Name: "weir", Version: "1", Resource: wrap(r.Routes[0])},
		resource.RuntimeType:  {Name: "weir", Version: "1", Resource: wrap(r.Runtimes[0])},
	} {
		if m.complete() {
			t.Errorf("complete before %s arrived", typeURL)
		}
		if err := m[typeURL].apply(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Resources: []*discoveryv3.Resource{added}}); err != nil {
			t.Fatal(err)
		}
	}
	if !m.complete() {
		t.Error("not complete with all types")
	}
	if diff := cmp.Diff(r, m.content(), protoEqual); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}

	// One bad resource leaves its last good form and does not keep others out.
	err := m[resource.EndpointType].apply(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.EndpointType, Resources: []*discoveryv3.Resource{
		{Name: "chat", Version: "2", Resource: wrap(cluster("chat"))},
		{Name: "code", Version: "2", Resource: wrap(assignment("code", 2))},
	}})
	if err == nil || !strings.Contains(err.Error(), `"chat"`) || strings.Contains(err.Error(), `"code"`) {
		t.Errorf("got %v, want an error about chat alone", err)
	}
	if diff := cmp.Diff(map[string]string{"chat": "1", "code": "2"}, m[resource.EndpointType].versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if err := m[resource.EndpointType].apply(&discoveryv3.DeltaDiscoveryResponse{RemovedResources: []string{"chat", "unheard of"}}); err != nil {
		t.Fatal(err)
	}
	if got := m.content().Endpoints; len(got) != 1 || got[0].ClusterName != "code" {
		t.Errorf("endpoints are %v, want those of code", got)
	}
}

func TestShortenKeepsBothEnds(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"short":         "short",
		"12345678":      "12345678",
		"abcdefghijklm": "ab … hijklm",
		"ööööööö":       "ö … ööö",
		"aöaaaaaaaaaaa": "a … aaaaaa", // no half characters
	} {
		if got := shorten(s, 8); got != want {
			t.Errorf("shorten(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestStreamErrorsReachTheCaller(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	core, logs := observer.New(zap.WarnLevel)
	c := NewClient(s.dial(t), envoy.Node("east", "", fleet.RoleExtProc), func(*envoy.Resources) error { return nil }, zap.New(core))
	run(t, c.Run)
	eventually(t, "the remedy is logged", func() bool {
		return slices.ContainsFunc(logs.All(), func(e observer.LoggedEntry) bool {
			err, _ := e.ContextMap()["error"].(string)
			return strings.Contains(err, "set node.id")
		})
	})
}
