package xds

import (
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"weir/fleet"
)

func classes(names ...string) plan {
	p := plan{weights: map[string]uint32{}, budget: 1, listen: 1}
	for _, name := range names {
		p.weights[name] = 10
	}
	return p
}

// untilRoutes takes responses until the client has exactly these routes.
func (p *probe) untilRoutes(want string) {
	p.t.Helper()
	for p.routes != want {
		p.next()
	}
}

// settles waits until the one client has answered all, and says what holds it.
func (s *served) settles(t *testing.T, heldBy string) {
	t.Helper()
	eventually(t, "clients are held by "+heldBy, func() bool {
		return !slices.ContainsFunc(s.Clients(), func(c fleet.Client) bool { return c.HeldBy != heldBy || c.Held != (heldBy != "") })
	})
}

// A cluster or its endpoints are refused in one response with good ones: that class
// alone has no routes, and it has them as soon as it is corrected.
func TestRefusalHoldsNoOtherClass(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"Cluster bad", "ClusterLoadAssignment bad"} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			s := serveAt(t, "127.0.0.1:0", Options{}, zap.New(core), "east")
			p := settled(t, s)
			ext := s.follow(t, "east", "n1", fleet.RoleExtProc)
			p.bad = map[string]bool{bad: true}
			s.publish(t, "east", classes("bad", "chat", "good"))
			p.untilRoutes("chat good")
			ext.await(t, "bad=10 chat=10 good=10 chat good 1")
			s.settles(t, "a NACK of cluster bad")

			s.publish(t, "east", classes("bad", "chat", "good", "later"))
			p.untilRoutes("chat good later")
			ext.await(t, "bad=10 chat=10 good=10 later=10 chat good later 1")
			s.settles(t, "a NACK of cluster bad")
			if got := s.Counts(); got.Held != 2 || got.Forced != 0 {
				t.Errorf("counts are %+v, want one hold of each client, none forced", got)
			}
			if got := logs.FilterField(zap.String("heldBy", "a NACK of cluster bad")).Len(); got != 2 {
				t.Errorf("the hold is told %d times, want once a client: %v", got, logs.All())
			}

			p.bad = nil
			corrected := classes("bad", "chat", "good", "later")
			corrected.changed = "bad"
			s.publish(t, "east", corrected)
			p.untilRoutes("bad chat good later")
			ext.await(t, "bad=10 chat=10 good=10 later=10 bad chat good later 1")
			s.settles(t, "")
			eventually(t, "all is taken", func() bool {
				c := s.Clients()
				return c[0].UpToDate() && !c[0].Refusing() && c[1].UpToDate()
			})
		})
	}
}

// An Envoy that has an earlier form of a cluster goes on using it.
func TestRefusedChangeOfAClusterHoldsNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	p.bad = map[string]bool{"Cluster chat": true}
	next := classes("chat", "good")
	next.changed = "chat"
	s.publish(t, "east", next)
	p.untilRoutes("chat good")
	s.settles(t, "")
	if c := s.Clients()[0]; !c.Refusing() || c.UpToDate() {
		t.Errorf("client is %+v, want the refusal told", c)
	}
}

// Whatever is refused comes once in its response and once alone, if it had company.
func TestConstantRefusal(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	p.refuse = func(resp *discoveryv3.DeltaDiscoveryResponse) error {
		if resp.GetTypeUrl() == resource.ClusterType {
			return errTest
		}
		return nil
	}
	three := classes("a", "b", "chat")
	s.publish(t, "east", three)
	p.until("Cluster +b")
	s.settles(t, "a NACK of cluster a, b")
	s.publish(t, "east", three)
	s.endHolds(time.Now().Add(time.Hour))
	p.fence(s, three)
	want := []string{"Cluster +a +b", "Cluster +a", "Cluster +b", "Runtime +weir"}
	if diff := cmp.Diff(want, p.since(5)); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}

	gone := classes("b", "chat") // what is refused may leave
	gone.budget = 3
	s.publish(t, "east", gone)
	p.until("Cluster -a")
	s.settles(t, "a NACK of cluster b")
	s.publish(t, "east", first)
	p.until("Cluster -b")
	s.settles(t, "")
}

// Of two clients with one node id, one that refuses all or says nothing does not
// hold the other.
func TestSecondClientOfANodeHoldsNot(t *testing.T) {
	t.Parallel()
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		s := serve(t, Options{}, "east")
		p := settled(t, s)
		ext := s.follow(t, "east", "n1", fleet.RoleExtProc)
		second := s.probe(t, envoyNode("n1"), nil)
		second.refuse = func(*discoveryv3.DeltaDiscoveryResponse) error { return errTest }
		second.until("Runtime +weir")
		s.publish(t, "east", classes("chat", "code"))
		second.until("Cluster +code")
		p.untilRoutes("chat code")
		second.until("RouteConfiguration +weir")
		ext.await(t, "chat=10 code=10 chat code 1")
		s.settles(t, "")
		s.publish(t, "east", first)
		second.until("RouteConfiguration +weir")
		p.until("Cluster -code")
		if got := s.Counts().Forced; got != 0 {
			t.Errorf("forced = %d, want 0: everybody has answered", got)
		}
	})
	t.Run("is silent", func(t *testing.T) {
		t.Parallel()
		s := serve(t, Options{HoldFor: 1}, "east")
		p := settled(t, s)
		second := s.probe(t, envoyNode("n1"), nil)
		second.silent = "Cluster"
		second.next()
		s.publish(t, "east", classes("chat", "code"))
		p.untilRoutes("chat code")
	})
}

// What an Envoy refuses of its routes keeps its weir-extproc and its old clusters as
// they are, however long, until there is a better version.
func TestRefusedRoutesHoldTheNode(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	p := settled(t, s)
	ext := s.follow(t, "east", "n1", fleet.RoleExtProc)
	ext.await(t, "chat=10 chat 1")
	p.bad = map[string]bool{"RouteConfiguration weir": true}
	s.publish(t, "east", classes("code"))
	p.until("RouteConfiguration +weir")
	s.settles(t, "a NACK of routes or listeners")
	s.endHolds(time.Now().Add(time.Hour))
	ext.await(t, "chat=10 code=10 chat 1")
	p.fence(s, classes("code"))
	if slices.Contains(p.log, "Cluster -chat") {
		t.Error("a cluster that is in use was removed")
	}

	p.bad = nil
	s.publish(t, "east", classes("code", "more"))
	p.until("Cluster -chat")
	ext.await(t, "code=10 more=10 code more 1")
	s.settles(t, "")
}

// A weir-extproc refuses the whole of what it has; with the next version that it
// takes, all of it is known to be taken.
func TestExtProcThatRefusedTakesAll(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{}, "east")
	s.publish(t, "east", classes("chat", "code"))
	f := s.follow(t, "east", "n1", fleet.RoleExtProc)
	f.await(t, "chat=10 code=10 chat code 1")
	eventually(t, "all is taken", func() bool { return s.Clients()[0].UpToDate() })

	f.setRefuse(errTest)
	next := classes("chat", "code")
	next.weights = map[string]uint32{"chat": 11, "code": 11}
	s.publish(t, "east", next)
	eventually(t, "the refusal is known", func() bool { return s.Counts().Nacks == 1 })
	pushes := s.Counts().Pushes

	f.setRefuse(nil)
	next.weights = map[string]uint32{"chat": 11, "code": 12}
	s.publish(t, "east", next)
	f.await(t, "chat=11 code=12 chat code 1")
	eventually(t, "all is taken", func() bool { return s.Clients()[0].UpToDate() && !s.Clients()[0].Refusing() })
	if got := s.Counts().Pushes - pushes; got != 2 {
		t.Errorf("%d more responses, want the new version and what was refused with the last", got)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	all := snapshotOf(t, classes("chat", "code", "more"), nil)[resource.RouteType]
	var f filter
	if got, err := f.without(nil, all); err != nil || got != all {
		t.Errorf("nothing is withheld: %v, %v, want all routes", got, err)
	}
	got, err := f.without([]string{"chat", "more"}, all)
	if want := snapshotOf(t, classes("code"), nil)[resource.RouteType]; err != nil || got.version != want.version {
		t.Errorf("got %v, %v, want the routes of a fleet without the classes", got, err)
	}
	if again, err := f.without([]string{"chat", "more"}, all); err != nil || again != got {
		t.Errorf("asked again: %v, %v, want the same", again, err)
	}
	if other, err := f.without([]string{"chat"}, all); err != nil || other.version == got.version {
		t.Errorf("other classes: %v, %v, want other routes", other, err)
	}
	if version := snapshotOf(t, classes("chat", "code", "more"), nil)[resource.RouteType].version; all.version != version {
		t.Error("the collection, which clients share, was changed")
	}
}

func TestHoldsAreDescribedInBounds(t *testing.T) {
	t.Parallel()
	many := make([]string, maxNamed+5)
	for i := range many {
		many[i] = "c"
	}
	for want, got := range map[string]string{
		"":                              describeHold(nil, false),
		"a NACK of cluster a, b":        describeHold([]string{"a", "b"}, false),
		"a NACK of routes or listeners": describeHold([]string{"a"}, true),
		"a NACK of cluster c, c, c, c, c, c, c, c, c, c and 5 more": describeHold(many, false),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is sent again, and after which answers.
func TestRetries(t *testing.T) {
	t.Parallel()
	abc := map[string]string{"a": "1", "b": "1", "c": "1"}
	now := time.Unix(0, 0)
	one := func(d *delivery, nonce, name string) {
		d.pushed(pushOf(nonce, map[string]string{name: d.sent[name]}), now)
	}
	expect := func(t *testing.T, d *delivery, req *discoveryv3.DeltaDiscoveryRequest, want ...string) {
		t.Helper()
		_, again := d.answered(req)
		if diff := cmp.Diff(want, again, emptyIsNil); diff != "" {
			t.Errorf("after the answer to %s, sent again (-want +got):\n%s", req.ResponseNonce, diff)
		}
	}
	t.Run("one by one", func(t *testing.T) {
		d := newDelivery(nil, false)
		d.pushed(pushOf("1", abc), now)
		expect(t, d, nack("1", "no"), "a")
		one(d, "2", "a")
		expect(t, d, ack("2"), "b")
		one(d, "3", "b")
		expect(t, d, nack("3", "no"), "c")
		one(d, "4", "c")
		expect(t, d, ack("4"))
		if d.settled("a", "2") || !d.settled("b", "1") || !d.refuses(map[string]string{"b": "1"}) || d.refuses(map[string]string{"a": "1", "b": "2"}) {
			t.Errorf("delivery is %+v, want b alone refused", d)
		}
	})
	t.Run("not what has a new version, is gone or under way", func(t *testing.T) {
		d := newDelivery(nil, false)
		d.pushed(pushOf("1", abc), now)
		d.pushed(pushOf("2", map[string]string{"a": "2"}, "b"), now)
		expect(t, d, nack("1", "no"), "c")
		one(d, "3", "c")
		expect(t, d, ack("2"))
		expect(t, d, ack("3"))
		if d.behind() != 0 || d.refusal != "" {
			t.Errorf("delivery is %+v, want all taken", d)
		}
	})
	t.Run("the whole, after something was taken", func(t *testing.T) {
		d := newDelivery(nil, true)
		d.pushed(pushOf("1", abc), now)
		expect(t, d, nack("1", "no"))
		d.pushed(pushOf("2", map[string]string{"a": "2"}), now)
		expect(t, d, nack("2", "no"))
		d.pushed(pushOf("3", map[string]string{"a": "3"}), now)
		expect(t, d, ack("3"), "b", "c")
		d.pushed(pushOf("4", map[string]string{"b": "1", "c": "1"}), now)
		expect(t, d, ack("4"))
		if d.behind() != 0 || d.refusal != "" {
			t.Errorf("delivery is %+v, want all taken", d)
		}
	})
}
