package envoy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/envoy"
	"weir/fleet"
)

// example is a view with one of everything.
func example() *fleet.View {
	return &fleet.View{
		FrontEnd:  "eu",
		Listen:    "127.0.0.1:10001",
		BodyLimit: 32 << 20,
		Idle:      5 * time.Minute,
		Models:    []string{"large", "maker/small", "odd%20name"},
		Origins:   []string{"https://app.example.org", "*"},
		Routes: []fleet.ViewRoute{
			{Class: "chat", Rule: fleet.Rule{Model: "gpt-4o", As: "large"}},
			{Class: "chat", Rule: fleet.Rule{Model: "large"}},
			{Class: "batch", Rule: fleet.Rule{Host: "batch.example.com", Path: "/v1/", Headers: []fleet.HeaderRule{{Name: "x-tier", Value: "low"}}}},
			{Class: "empty", Rule: fleet.Rule{Path: "/v1/embeddings", Exact: true, Model: "small"}},
			{Class: "batch", Rule: fleet.Rule{Model: "small", Body: fleet.BodyRule{Tools: true, Vision: true, ContextOver: 32000}}},
		},
		Classes: []fleet.ViewClass{
			{
				ID: "batch", Admitted: 0.75, Retry: fleet.RetryBudget{Percent: 20, Floor: 3},
				Pools: []fleet.ViewPool{{
					ID: "p1", Region: "r1", Weight: 10_000_000,
					Engines: []fleet.ViewEngine{{ID: "10.0.0.1:80", Readiness: fleet.Ready}, {ID: "[::1]:81", Readiness: fleet.Unready}},
				}},
			},
			{
				ID: "chat", Priority: 2, Admitted: 1, Retry: fleet.RetryBudget{Percent: 50, Floor: 64},
				Affinity: []fleet.AffinityKey{
					{Kind: fleet.AffinityHeader, Name: "x-session-id"},
					{Kind: fleet.AffinityBody, Name: "prompt_cache_key"},
					{Kind: fleet.AffinityFingerprint},
				},
				Pools: []fleet.ViewPool{
					{
						ID: "p1", Region: "r1", Weight: 7_000_000, TLS: &fleet.TLS{SNI: "engines.example.com", CAFile: "/ca.pem", CertFile: "/cert.pem", KeyFile: "/key.pem"},
						Engines: []fleet.ViewEngine{{ID: "10.0.0.1:80", Readiness: fleet.Ready}},
					},
					{ID: "p2", Region: "r2", Weight: 3_000_000, Engines: []fleet.ViewEngine{{ID: "10.0.0.2:80"}}},
					{ID: "p3", Region: "r2", Engines: []fleet.ViewEngine{{ID: "10.0.0.3:80"}}},
				},
			},
			{ID: "empty", Admitted: 1, Retry: fleet.RetryBudget{Percent: 50, Floor: 64}},
		},
		Unreadable:   "batch",
		TellDecision: true,
		TenantHeader: "x-tenant",
		Hold:         90 * time.Second,
	}
}

func TestAViewSurvivesTheRoundTrip(t *testing.T) {
	want := example()
	if diff := cmp.Diff(roundTrip(t, want), want); diff != "" {
		t.Errorf("decoded view differs (-got +want):\n%s", diff)
	}
}

func roundTrip(t interface{ Fatal(...any) }, v *fleet.View) *fleet.View {
	r, err := envoy.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := envoy.Decode(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAnyViewSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyView(t)
		if diff := cmp.Diff(roundTrip(t, want), want); diff != "" {
			t.Fatalf("decoded view differs (-got +want):\n%s", diff)
		}
	})
}

func TestARuleBelowTheListOfModelsIsNoModel(t *testing.T) {
	want := example()
	for _, class := range []fleet.ClassID{"chat", "empty"} {
		rule := fleet.Rule{Path: "/v1/models/" + string(class), Exact: true}
		want.Routes = append(want.Routes, fleet.ViewRoute{Class: class, Rule: rule})
	}
	if diff := cmp.Diff(roundTrip(t, want).Models, want.Models); diff != "" {
		t.Errorf("decoded models differ (-got +want):\n%s", diff)
	}
}

func anyView(t *rapid.T) *fleet.View {
	v := &fleet.View{
		FrontEnd:  fleet.FrontEndID(rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "front-end")),
		Listen:    fmt.Sprintf("10.0.0.%d:80", rapid.IntRange(0, 255).Draw(t, "listen")),
		BodyLimit: rapid.Int64Range(1<<10, 1<<30).Draw(t, "limit"),

		Hold:         time.Duration(rapid.IntRange(0, 3_600_000).Draw(t, "hold")) * time.Millisecond,
		TellDecision: rapid.Bool().Draw(t, "tell"),
		TenantHeader: rapid.SampledFrom([]string{"", "x-tenant"}).Draw(t, "tenant"),
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "classes") {
		c := anyClass(t, fleet.ClassID(fmt.Sprintf("class.%d", i)))
		v.Classes = append(v.Classes, c)
		for range rapid.IntRange(1, 3).Draw(t, "rules") {
			v.Routes = append(v.Routes, fleet.ViewRoute{Class: c.ID, Rule: anyRule(t)})
		}
	}
	return v
}

func anyClass(t *rapid.T, id fleet.ClassID) fleet.ViewClass {
	c := fleet.ViewClass{
		ID:       id,
		Priority: rapid.IntRange(-5, 5).Draw(t, "priority"),
		Admitted: 1 - float64(rapid.IntRange(0, 1_000_000).Draw(t, "shed"))/1_000_000,
		Retry:    fleet.RetryBudget{Percent: rapid.Float64Range(0, 100).Draw(t, "retries"), Floor: rapid.Uint32Range(0, 1000).Draw(t, "floor")},
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "pools") {
		p := fleet.ViewPool{ID: fleet.PoolID(fmt.Sprint("p", i)), Region: "r", Weight: rapid.Uint32Range(0, 10_000_000).Draw(t, "weight")}
		for j := range rapid.IntRange(1, 3).Draw(t, "engines") {
			p.Engines = append(p.Engines, fleet.ViewEngine{
				ID:        fleet.EngineID(fmt.Sprintf("10.0.%d.%d:8000", i, j)),
				Readiness: rapid.SampledFrom([]fleet.Readiness{fleet.Unknown, fleet.Ready, fleet.Unready, fleet.Draining}).Draw(t, "readiness"),
			})
		}
		c.Pools = append(c.Pools, p)
	}
	return c
}

func anyRule(t *rapid.T) fleet.Rule {
	r := fleet.Rule{
		Host:  rapid.SampledFrom([]string{"", "a.example.com", "x-y.example"}).Draw(t, "host"),
		Path:  rapid.SampledFrom([]string{"", "/v1/chat", "/v1/embeddings"}).Draw(t, "path"),
		Model: rapid.SampledFrom([]string{"", "org/model:1", `we"ird`}).Draw(t, "model"),
	}
	if r.Model != "" {
		r.As = rapid.SampledFrom([]string{"", "org/model:2"}).Draw(t, "as")
	}
	r.Exact = r.Path != "" && rapid.Bool().Draw(t, "exact")
	if rapid.Bool().Draw(t, "header") {
		r.Headers = []fleet.HeaderRule{{Name: "x-tier", Value: "gold"}}
	}
	r.Body = fleet.BodyRule{
		Tools: rapid.Bool().Draw(t, "tools"), Vision: rapid.Bool().Draw(t, "vision"),
		ContextOver: rapid.SampledFrom([]int{0, 1, 32000, 100_000_000}).Draw(t, "context"),
	}
	return r
}

func TestPriorityZeroIsNeverEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := envoy.Encode(anyView(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range r.Endpoints {
			first := 0
			for _, l := range a.Endpoints {
				if l.Priority == 0 {
					first += len(l.LbEndpoints)
				}
				for _, e := range l.LbEndpoints {
					if e.LoadBalancingWeight.GetValue() == 0 {
						t.Fatalf("cluster %s has an endpoint of weight 0, which Envoy refuses", a.ClusterName)
					}
				}
			}
			if first == 0 {
				t.Fatalf("cluster %s has no endpoint of priority 0", a.ClusterName)
			}
		}
	})
}

func TestAPoolWithoutEnginesIsRefused(t *testing.T) {
	v := example()
	v.Classes[0].Pools[0].Engines = nil
	_, err := envoy.Encode(v)
	if err == nil || !strings.Contains(err.Error(), `class "batch": pool "p1"`) {
		t.Errorf("Encode = %v, want an error that names the class and the pool", err)
	}
}

func TestDecodeRefusesWhatItCannotEvaluate(t *testing.T) {
	r, err := envoy.Encode(example())
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range r.Routes[0].VirtualHosts[0].Routes {
		if route.Name == "batch" && len(route.Match.Headers) > 0 {
			route.Match.Headers[0].GetStringMatch().GetSafeRegex().Regex = "a|b(:[0-9]+)?"
			break
		}
	}
	if _, err := envoy.Decode(r); err == nil {
		t.Error("Decode took a host pattern that is not one host")
	}
}

// A class that no pool can serve says when to come back, on each of its routes.
func TestAClassWithoutPoolsSaysWhenToComeBack(t *testing.T) {
	r, err := envoy.Encode(example())
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	for _, route := range r.Routes[0].VirtualHosts[0].Routes {
		if route.GetDirectResponse().GetStatus() != 503 || !strings.Contains(string(route.GetDirectResponse().GetBody().GetInlineBytes()), `"no_engine"`) {
			continue
		}
		answers++
		after := ""
		for _, h := range route.ResponseHeadersToAdd {
			if h.Header.Key == "retry-after" {
				after = h.Header.Value
			}
		}
		if after != "5" {
			t.Errorf("route %q has retry-after %q, want 5", route.Name, after)
		}
	}
	if answers == 0 {
		t.Error("no route answers for the class")
	}
}

func TestEqualViewsGiveEqualBytes(t *testing.T) {
	a, errA := envoy.Bootstrap(local())
	b, errB := envoy.Bootstrap(local())
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if diff := cmp.Diff(string(a), string(b)); diff != "" {
		t.Errorf("two bootstraps of the same Envoy differ:\n%s", diff)
	}
}

func local() envoy.Local {
	return envoy.Local{FrontEnd: "eu", NodeID: "eu-1", XDS: "127.0.0.1:18000", ExtProc: "/run/weir/extproc.sock", Admin: "127.0.0.1:9901"}
}

func TestBootstrapNamesTheBadAddress(t *testing.T) {
	for name, spoil := range map[string]func(*envoy.Local){
		"admin":   func(l *envoy.Local) { l.Admin = "nowhere" },
		"xds":     func(l *envoy.Local) { l.XDS = "control-plane" },
		"extproc": func(l *envoy.Local) { l.ExtProc = "relative.sock" },
	} {
		t.Run(name, func(t *testing.T) {
			l := local()
			spoil(&l)
			if _, err := envoy.Bootstrap(l); err == nil || !strings.HasPrefix(err.Error(), name+":") {
				t.Errorf("Bootstrap = %v, want an error that starts with %q", err, name+":")
			}
		})
	}
}
