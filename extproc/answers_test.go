package extproc

import (
	"fmt"
	"strings"
	"testing"

	"weir/fleet"
)

// following is twoPools with classes that heed previous_response_id.
func following() *fleet.View {
	v := twoPools()
	v.Classes[0].Affinity = []fleet.AffinityKey{
		{Kind: fleet.AffinityBody, Name: "conversation"},
		{Kind: fleet.AffinityPrevious},
		{Kind: fleet.AffinityFingerprint},
	}
	return v
}

// A request that follows a response by its ID goes to the engine that made it,
// whatever the plan would choose, and its conversation keeps its key.
func TestFollowing(t *testing.T) {
	t.Parallel()
	const key = 0x1234
	maker := fleet.EngineID("10.101.0.1:8000") // of pool east
	tests := []struct {
		name, body string
		change     func(*fleet.View)
		engine     fleet.EngineID // empty: anywhere but there
		key        uint64         // 0: another
		want       [3]uint64      // hits, misses, not eligible
	}{
		{"known", `{"model":"small","input":"x","previous_response_id":"resp_1"}`, nil, maker, key, [3]uint64{1, 0, 0}},
		{"known, in a list", `{"input":[{"role":"user","content":"x"}],"previous_response_id":"resp_1","model":"small"}`, nil, maker, key, [3]uint64{1, 0, 0}},
		{"not known", `{"model":"small","input":"x","previous_response_id":"resp_2"}`, nil, "", 0, [3]uint64{0, 1, 0}},
		{"a conversation goes before", `{"model":"small","input":"x","previous_response_id":"resp_1","conversation":"c"}`, nil, "", hashOfText("c"), [3]uint64{}},
		{"null", `{"model":"small","input":"x","previous_response_id":null}`, nil, "", 0, [3]uint64{}},
		{"empty", `{"model":"small","input":"x","previous_response_id":""}`, nil, "", 0, [3]uint64{}},
		{"its engine is not ready", `{"model":"small","input":"x","previous_response_id":"resp_1"}`, func(v *fleet.View) {
			v.Classes[0].Pools[0].Engines[1].Readiness = fleet.Unready
		}, "", key, [3]uint64{0, 0, 1}},
		{"its pool is not the class's", `{"model":"small","input":"x","previous_response_id":"resp_1"}`, func(v *fleet.View) {
			v.Classes[0].Pools = v.Classes[0].Pools[1:]
		}, "", key, [3]uint64{0, 0, 1}},
		{"its pool has no share", `{"model":"small","input":"x","previous_response_id":"resp_1"}`, func(v *fleet.View) {
			v.Classes[0].Pools[0].Weight = 0
		}, maker, key, [3]uint64{1, 0, 0}},
		{"the class does not ask", `{"model":"small","input":"x","previous_response_id":"resp_1"}`, func(v *fleet.View) {
			v.Classes[0].Affinity = v.Classes[0].Affinity[:1]
		}, "", 0, [3]uint64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := following()
			if tt.change != nil {
				tt.change(v)
			}
			s, conn := serve(t, v)
			s.Answered("resp_1", maker, key)
			c := open(t, conn)
			c.headers(post("/v1/responses"))
			got := c.body(tt.body)
			common := got.GetRequestBody().GetResponse()
			pick := fleet.EngineID(picked(t, common))
			if tt.engine != "" && pick != tt.engine {
				t.Errorf("picked %s, want %s", pick, tt.engine)
			}
			if gone := tt.want[2] > 0; gone && pick == maker {
				t.Errorf("picked %s, which may not be", pick)
			}
			if affinity := mutations(common)["x-weir-affinity"]; tt.key != 0 && affinity != string(inHex(tt.key)) {
				t.Errorf("key %s, want %x", affinity, tt.key)
			}
			n := s.Counters()
			if counted := [3]uint64{n.Followed.Load(), n.FollowsUnknown.Load(), n.FollowsGone.Load()}; counted != tt.want {
				t.Errorf("hits, misses and not eligible: %v, want %v", counted, tt.want)
			}
			next := got.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["next"].GetStringValue()
			if strings.Contains(","+next+",", ","+string(pick)+",") {
				t.Errorf("picked %s, which is an alternative as well: %s", pick, next)
			}
		})
	}
}

// A request for a response itself goes to the engine that made it, whatever names its
// conversation, and Envoy is told the model that leads there.
func TestResponsesByID(t *testing.T) {
	t.Parallel()
	const key = 0x1234
	maker := fleet.EngineID("10.101.0.1:8000") // of pool east
	byHeader := func(v *fleet.View) {
		v.Classes[0].Affinity = append([]fleet.AffinityKey{{Kind: fleet.AffinityHeader, Name: "x-session"}}, v.Classes[0].Affinity...)
	}
	byPath := func(v *fleet.View) {
		rule := fleet.ViewRoute{Class: "chat", Rule: fleet.Rule{Path: "/v1/responses/"}}
		v.Routes = append([]fleet.ViewRoute{rule}, v.Routes...)
	}
	tests := []struct {
		name, method, path, body string
		change                   func(*fleet.View)
		pick                     bool   // the maker
		model                    string // that Envoy is told; empty: nothing
		passed                   bool   // Envoy answers by itself
		want                     [3]uint64
	}{
		{"get", "GET", "/v1/responses/resp_1?include=x", "", nil, true, "small", false, [3]uint64{1, 0, 0}},
		{"input items", "GET", "/tenant/v1/responses/resp_1/input_items", "", nil, true, "small", false, [3]uint64{1, 0, 0}},
		{"delete", "DELETE", "/v1/responses/resp_1", "", nil, true, "small", false, [3]uint64{1, 0, 0}},
		{"cancel with an object", "POST", "/v1/responses/resp_1/cancel", "{}", nil, true, "small", false, [3]uint64{1, 0, 0}},
		{"a session is named first", "GET", "/v1/responses/resp_1", "", byHeader, true, "small", false, [3]uint64{1, 0, 0}},
		{"a rule takes the path", "GET", "/v1/responses/resp_1", "", byPath, true, "", false, [3]uint64{1, 0, 0}},
		{"a rule takes the path, not known", "GET", "/v1/responses/resp_2", "", byPath, false, "", false, [3]uint64{0, 1, 0}},
		{"a model is named", "POST", "/v1/responses/resp_1", `{"model":"small"}`, nil, false, "small", false, [3]uint64{}},
		{"not known", "GET", "/v1/responses/resp_2", "", nil, false, "", true, [3]uint64{}},
		{"no ID", "GET", "/v1/responses/compact", "", nil, false, "", true, [3]uint64{}},
		{"another path", "GET", "/v1/files/resp_1", "", nil, false, "", true, [3]uint64{}},
		{"on another host", "GET", "/v1/responses/resp_1", "", func(v *fleet.View) { v.Routes[0].Rule.Host = "other.example.org" }, false, "", true, [3]uint64{}},
		{"its engine is not ready", "GET", "/v1/responses/resp_1", "", func(v *fleet.View) {
			v.Classes[0].Pools[0].Engines[1].Readiness = fleet.Unready
		}, false, "", true, [3]uint64{}},
		{"another class has the model before", "GET", "/v1/responses/resp_1", "", func(v *fleet.View) {
			v.Classes = append(v.Classes, fleet.ViewClass{ID: "first", Admitted: 1, Pools: v.Classes[0].Pools[1:]})
			v.Routes = append([]fleet.ViewRoute{{Class: "first", Rule: fleet.Rule{Model: "small"}}}, v.Routes...)
		}, false, "", true, [3]uint64{}},
		{"the class does not ask", "GET", "/v1/responses/resp_1", "", func(v *fleet.View) {
			v.Classes[0].Affinity = v.Classes[0].Affinity[:1]
		}, false, "", true, [3]uint64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := following()
			if tt.change != nil {
				tt.change(v)
			}
			s, conn := serve(t, v)
			s.Answered("resp_1", maker, key)
			c := open(t, conn)
			head := request(tt.method, tt.path, "content-type: application/json", "x-session: s")
			head.EndOfStream = tt.body == ""
			got := c.headers(head)
			common := got.GetRequestHeaders().GetResponse()
			if tt.body != "" {
				common = c.body(tt.body).GetRequestBody().GetResponse()
			}
			if passed := s.Counters().PassedThrough.Load() > 0; passed != tt.passed || got.GetImmediateResponse() != nil {
				t.Fatalf("passed through: %v, want %v; %v", passed, tt.passed, got)
			}
			set := mutations(common)
			if tt.pick && (picked(t, common) != string(maker) || set["x-weir-affinity"] != inHex(key)) {
				t.Errorf("picked %s by key %s, want %s by %x", picked(t, common), set["x-weir-affinity"], maker, key)
			}
			if set["x-weir-model"] != tt.model {
				t.Errorf("the model is %q, want %q", set["x-weir-model"], tt.model)
			}
			n := s.Counters()
			if counted := [3]uint64{n.Followed.Load(), n.FollowsUnknown.Load(), n.FollowsGone.Load()}; counted != tt.want {
				t.Errorf("hits, misses and not eligible: %v, want %v", counted, tt.want)
			}
		})
	}
}

// Envoy is told the key of answers that may be followed, and of no others.
func TestFollowableAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path string
		view *fleet.View
		want bool
	}{
		{"/v1/responses", following(), true},
		{"/tenant/v1/responses?x=1", following(), true},
		{"/v1/chat/completions", following(), false},
		{"/v1/responses", twoPools(), false},
	} {
		_, conn := serve(t, tt.view)
		c := open(t, conn)
		c.headers(post(tt.path))
		got := c.body(`{"model":"small","input":"x"}`)
		key, ok := got.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["key"]
		if affinity := mutations(got.GetRequestBody().GetResponse())["x-weir-affinity"]; ok != tt.want || ok && key.GetStringValue() != affinity {
			t.Errorf("%s: key %v, want %v and %s", tt.path, key, tt.want, affinity)
		}
	}
}

func TestAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	known := func(a *answers, id uint64, now int64) bool { return a.find(id, now) != followed{} }
	keep := func(a *answers, id uint64, now int64) { a.keep(id, followed{1, 1}, now) }

	var a answers
	keep(&a, 1, 100)
	keep(&a, 2, 100)
	for now := int64(100); now < 100+10*answersIdle; now += answersIdle / 3 {
		if !known(&a, 1, now) {
			t.Fatalf("forgotten after %d s, though it was asked for", now-100)
		}
	}
	if known(&a, 2, 100+10*answersIdle) {
		t.Error("not forgotten, though nobody asked for it")
	}
	keep(&a, 3, 1e6)
	if !known(&a, 3, 1e6+answersIdle/2-1) {
		t.Error("forgotten before half of its time")
	}

	var full answers
	for id := range uint64(3 * maxAnswers) {
		keep(&full, id+1, 100)
		if kept, _ := full.counts(); kept > maxAnswers {
			t.Fatalf("%d kept, at most %d", kept, maxAnswers)
		}
	}
	kept, forgotten := full.counts()
	if kept < maxAnswers/2 || uint64(kept)+forgotten != 3*maxAnswers {
		t.Errorf("%d kept and %d forgotten of %d", kept, forgotten, 3*maxAnswers)
	}
	if !known(&full, 3*maxAnswers, 100) || known(&full, 1, 100) {
		t.Error("the latest must be known, and the first forgotten")
	}
}

func BenchmarkFollowing(b *testing.B) {
	var a answers
	for i := range maxAnswers {
		a.keep(mix(uint64(i)), followed{1, 1}, 100)
	}
	ids := make([]uint64, 1024)
	for i := range ids {
		ids[i] = hashOfText(fmt.Sprint("resp_", i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		a.keep(ids[i%len(ids)], followed{1, 1}, 100)
		a.find(ids[(i+7)%len(ids)], 100)
	}
}
