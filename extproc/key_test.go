package extproc

import (
	"strings"
	"testing"

	"weir/config"
	"weir/fleet"
)

// usualFleet is a fleet file that leaves affinity as it is by default.
const usualFleet = `
frontEnds: [{name: A, listen: "127.0.0.1:10001"}]
pools: [{name: P, models: [m1, e, claude-x], engines: ["127.0.0.1:11001", "127.0.0.1:11002"], profile: {capacity: 10 rps, ttft: 200ms}}]
classes: [{name: chat, match: [{models: [m1, e, claude-x]}]}]
network: {default: 5ms}
`

// usualTable is the table of usualFleet.
func usualTable(t testing.TB) *Table {
	t.Helper()
	f, err := config.Parse("fleet.yaml", []byte(usualFleet))
	if err != nil {
		t.Fatal(err)
	}
	v := &fleet.View{BodyLimit: f.Options.BodyLimit}
	for i := range f.Classes {
		c := &f.Classes[i]
		for _, r := range c.Match {
			v.Routes = append(v.Routes, fleet.ViewRoute{Class: c.ID, Rule: r})
		}
		v.Classes = append(v.Classes, fleet.ViewClass{ID: c.ID, Admitted: 1, Affinity: c.Affinity, Pools: []fleet.ViewPool{viewPool("a", 1, 3)}})
	}
	return NewTable(v)
}

// sdkHeaders are as many as the SDKs send.
func sdkHeaders(more ...string) []string {
	lines := []string{"accept: application/json", "accept-encoding: gzip, deflate", "user-agent: OpenAI/Python 3.1.0"}
	for _, name := range []string{"lang", "package-version", "os", "arch", "runtime", "runtime-version", "async", "read-timeout"} {
		lines = append(lines, "x-stainless-"+name+": some")
	}
	return append(append(lines, "x-stainless-retry-count: 0", "x-request-id: 5f0c", "x-forwarded-proto: https", "x-forwarded-for: 10.0.0.1"), more...)
}

// Each client is known by what it sends, whatever else is there: the first turn
// and the second have one key, and another conversation has another.
func TestClientsNameTheirConversations(t *testing.T) {
	t.Parallel()
	const session = "0b54a3d1-6f0e-4c5e-9b1a-d1f7a9c0e2b4"
	messages := func(more string) string {
		return `{"model":"m1","messages":[{"role":"user","content":"hi"}],"user":"everybody"` + more + `}`
	}
	tests := []struct{ client, line, body, source string }{
		{"any", "x-session-id: %s", messages(""), "header:x-session-id"},
		{"Codex", "session-id: %s", messages(`,"prompt_cache_key":"k"`), "header:session-id"},
		{"Codex, before", "session_id: %s", messages(`,"prompt_cache_key":"k"`), "header:session_id"},
		{"Claude Code", "x-claude-code-session-id: %s", messages(`,"metadata":{"user_id":"u"}`), "header:x-claude-code-session-id"},
		{"opencode at its own service", "x-opencode-session: %s", messages(""), "header:x-opencode-session"},
		{"opencode", "x-session-affinity: %s", messages(""), "header:x-session-affinity"},
		{"Open WebUI", "x-openwebui-chat-id: %s", messages(""), "header:x-openwebui-chat-id"},
		{"LibreChat", "x-conversation-id: %s", messages(""), "header:x-conversation-id"},
		{"LiteLLM", "x-litellm-session-id: %s", messages(""), "header:x-litellm-session-id"},
		{"LiteLLM's traces", "x-litellm-trace-id: %s", messages(""), "header:x-litellm-trace-id"},
		{"Dynamo", "x-dynamo-session-id: %s", messages(""), "header:x-dynamo-session-id"},
		{"chat", "", messages(`,"prompt_cache_key":"%s"`), "body:prompt_cache_key"},
		{"vLLM, SGLang", "", messages(`,"session_id":"%s"`), "body:session_id"},
		{"SGLang's sessions", "", messages(`,"session_params":{"rid":"r","id":"%s"}`), "body:session_params.id"},
		{"LiteLLM's field", "", messages(`,"litellm_session_id":"%s"`), "body:litellm_session_id"},
		{"LiteLLM's metadata", "", messages(`,"metadata":{"session_id":"%s","user_id":"u"}`), "body:metadata.session_id"},
		{"Claude Code's body", "", messages(`,"metadata":{"user_id":"user_1_account_2_session_%s"}`), "body:metadata.user_id"},
		{"Claude Code's object", "", messages(`,"metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"%s\"}"}`), "body:metadata.user_id"},
		{"safety_identifier", "", messages(`,"safety_identifier":"%s"`), "body:safety_identifier"},
		{"completions", "", `{"model":"m1","prompt":"hi","user":"%s"}`, "body:user"},
		{"embeddings", "", `{"model":"e","input":["a"],"user":"%s"}`, "body:user"},
		{"responses", "", `{"model":"m1","input":"hi","conversation":"%s","user":"u"}`, "body:conversation"},
		{"responses with an object", "", `{"model":"m1","input":"hi","conversation":{"id":"%s"}}`, "body:conversation"},
	}
	table := usualTable(t)
	for _, tt := range tests {
		t.Run(tt.client, func(t *testing.T) {
			t.Parallel()
			key := func(session string) affinity {
				lines := sdkHeaders()
				if tt.line != "" {
					lines = append(lines, strings.ReplaceAll(tt.line, "%s", session))
				}
				return decideOn(table, headOf(post("/v1/x", lines...)), strings.ReplaceAll(tt.body, "%s", session)).key
			}
			got := key(session)
			if source := table.sources[got.source]; source != tt.source || got.hash != hashOfName([]byte(session)) {
				t.Errorf("key %x from %s, want that of the session from %s", got.hash, source, tt.source)
			}
			if key("another") == got {
				t.Error("another conversation has the same key")
			}
		})
	}
}

// A header names a conversation in one pass as it did by looking for each name.
func TestHeaderSources(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 80)
	keys := []fleet.AffinityKey{
		{Kind: fleet.AffinityHeader, Name: "a"},
		{Kind: fleet.AffinityHeader, Name: long},
		{Kind: fleet.AffinityHeader, Name: "b"},
	}
	tests := []struct {
		name   string
		lines  []string
		source string
		value  string
	}{
		{"none", []string{"c: 1"}, "random", ""},
		{"the first of the list, not of the request", []string{"b: 2", "a: 1"}, "header:a", "1"},
		{"an empty one does not count", []string{"a: ", "b: 2"}, "header:b", "2"},
		{"a long name", []string{long + ": 3", "b: 2"}, "header:" + long, "3"},
		{"another of its length", []string{long[1:] + "y: 3", "b: 2"}, "header:b", "2"},
		{"twice", []string{"a: 1", "b: 2", "a: 3"}, "header:a", "1,3"},
		{"twice, one empty", []string{"a: ", "a: 3"}, "header:a", ",3"},
	}
	table := routed(keys, fleet.Rule{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := decideOn(table, headOf(post("/", tt.lines...)), "{}")
			if source := table.sources[d.key.source]; source != tt.source || tt.value != "" && d.key.hash != hashOfName([]byte(tt.value)) {
				t.Errorf("key from %s, want %q from %s", source, tt.value, tt.source)
			}
		})
	}
}

// The sources of keys are counted by their names, those of the table in force.
func TestSourcesAreCounted(t *testing.T) {
	t.Parallel()
	v := twoPools()
	s, conn := serve(t, v)
	r := registered(t, s)
	ask(t, open(t, conn), `{"model":"small","conversation":"c"}`)
	ask(t, open(t, conn), `{"model":"small"}`)
	ask(t, open(t, conn), `{"model":"nobody's"}`)
	const head = "# HELP weir_extproc_keys_total Affinity keys of requests that belong to a class, by the source that named them and its kind.\n# TYPE weir_extproc_keys_total counter\n"
	compare(t, r, head+`
weir_extproc_keys_total{kind="body",source="body:conversation"} 1
weir_extproc_keys_total{kind="fingerprint",source="fingerprint"} 0
weir_extproc_keys_total{kind="header",source="header:x-session"} 0
weir_extproc_keys_total{kind="random",source="random"} 1
`, "weir_extproc_keys_total")
	v.Classes[0].Affinity = v.Classes[0].Affinity[1:2]
	s.Swap(NewTable(v))
	compare(t, r, head+`
weir_extproc_keys_total{kind="body",source="body:conversation"} 1
weir_extproc_keys_total{kind="random",source="random"} 1
`, "weir_extproc_keys_total")
}

// BenchmarkKeys is all that happens to a request, its body already in memory.
func BenchmarkKeys(b *testing.B) {
	table := usualTable(b)
	const turns = `"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]`
	for _, bb := range []struct{ name, line, body string }{
		{"header", "x-session-id: 0b54", `{` + turns + `,"model":"m1"}`},
		{"body", "", `{` + turns + `,"prompt_cache_key":"0b54","model":"m1"}`},
		{"fingerprint", "", `{` + turns + `,"model":"m1"}`},
	} {
		lines := sdkHeaders()
		if bb.line != "" {
			lines = append(lines, bb.line)
		}
		m := headersOf(post("/v1/chat/completions", lines...))
		b.Run(bb.name, func(b *testing.B) {
			body := []byte(bb.body)
			b.ReportAllocs()
			for b.Loop() {
				h := newHead(m)
				if table.need(&h) != theBody {
					b.Fatal("the headers decide")
				}
				f, err := table.read(b.Context(), &h, body)
				if d := table.decide(&h, f, err, 1); d.refusal != nil || d.key.hash == 1 {
					b.Fatal("no key")
				}
			}
		})
		b.Run(bb.name+", headers alone", func(b *testing.B) {
			c := table.routes[0].class
			f := facts{fingerprint: 1}
			b.ReportAllocs()
			for b.Loop() {
				h := newHead(m)
				c.needsBody(&h)
				c.keyOf(&h, &f, 1)
			}
		})
	}
}
