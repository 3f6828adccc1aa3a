package deploy

import (
	"fmt"
	"strings"
	"testing"

	"weir/deploy/stage"
	"weir/fleet"
)

// Requests go to the class that their bodies tell, in each API. A client cannot say
// it in a header; and with weir-extproc dead all go to the class that Envoy sees.
func TestClassesByWhatTheBodySays(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/bodies.yaml"})
	client := stage.NewClient()
	const each = 8
	for _, state := range []string{"alive", "dead"} {
		if state == "dead" {
			noTimeouts(t, s)
			check(t, s.Process("extproc-main").Kill())
			check(t, s.Await(t.Context(), "main", false))
		}
		for kind, b := range toldBodies() {
			for i := range each {
				headers := map[string]string{"x-test-id": state + "/" + kind}
				if i%2 == 1 {
					headers["x-weir-features"], headers["x-weir-context"] = "tools,vision", "1000000"
				}
				r := stage.Do(t.Context(), client, stage.Call{URL: s.URL("main"), Path: b.path, Body: []byte(b.body), Headers: headers})
				if !r.OK() {
					t.Errorf("%s, %s: %v", state, kind, &r)
				}
			}
		}
	}
	groups := byTest(arrivals(t, s))
	for kind, b := range toldBodies() {
		for state, want := range map[string]fleet.PoolID{"alive": b.pool, "dead": "plain"} {
			group := groups[state+"/"+kind]
			if len(group) != each {
				t.Errorf("%s, %s: %d requests arrived, want %d", state, kind, len(group), each)
			}
			for _, a := range group {
				if a.Pool != want {
					t.Errorf("%s, %s: reached pool %s, want %s", state, kind, a.Pool, want)
				}
			}
		}
	}
	noWeirHeaders(t, s)
}

type toldBody struct {
	path, body string
	pool       fleet.PoolID
}

func toldBodies() map[string]toldBody {
	const chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	const tool = `"tools":[{"type":"function","name":"f","function":{"name":"f"}}],`
	body := func(content, more string) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%s}],%s"max_tokens":2,"model":"llama-3.3-70b"}`, content, more)
	}
	input := func(content, more string) string {
		return fmt.Sprintf(`{"input":[{"role":"user","content":%s}],%s"max_output_tokens":2,"model":"llama-3.3-70b"}`, content, more)
	}
	long := `"` + strings.Repeat("many words ", 400) + `"`
	return map[string]toldBody{
		"a plain chat":          {chat, body(`"hi"`, ""), "plain"},
		"a chat with tools":     {chat, body(`"hi"`, tool), "agents"},
		"a chat without tools":  {chat, body(`"hi"`, `"tools":[],`), "plain"},
		"a chat with an image":  {chat, body(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO"}}]`, ""), "eyes"},
		"a chat with both":      {chat, body(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO"}}]`, tool), "eyes"},
		"a long chat":           {chat, body(long, ""), "long"},
		"a long chat, a tool":   {chat, body(long, tool), "agents"},
		"a big image":           {chat, body(`[{"type":"image_url","image_url":{"url":`+long+`}}]`, ""), "eyes"},
		"messages with tools":   {messages, body(`"hi"`, `"tools":[{"name":"f","input_schema":{"type":"object"}}],`), "agents"},
		"messages with images":  {messages, body(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}}]`, ""), "eyes"},
		"responses":             {responses, input(`"hi"`, ""), "plain"},
		"responses with tools":  {responses, input(`"hi"`, tool), "agents"},
		"responses with images": {responses, input(`[{"type":"input_image","image_url":"data:image/png;base64,iVBO"}]`, ""), "eyes"},
		"long responses":        {responses, input(long, ""), "long"},
	}
}
