package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// inBubble runs a test on a fresh engine in a bubble of fake time.
func inBubble(t *testing.T, test func(t *testing.T, e *engine, log *sink), args ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, log := testEngine(t, args...)
		test(t, e, log)
	})
}

func TestWholeAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		w := post(t.Context(), e, chatPath, whole)
		var got reply
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Object != "chat.completion" || got.Model != "mock" || got.Fingerprint != "engine" {
			t.Errorf("reply = %+v", got)
		}
		if len(got.Choices) != 1 || got.Choices[0].Message.Role != "assistant" ||
			len(strings.Fields(*got.Choices[0].Message.Content)) != 3 || *got.Choices[0].Finish != "length" {
			t.Errorf("choices = %+v, want one of three words", got.Choices)
		}
		if want := (usage{Prompt: 3, Output: 3, Total: 6}); *got.Usage != want {
			t.Errorf("usage = %+v, want %+v", *got.Usage, want)
		}
	})
}

// events splits a stream into the data of its events.
func events(t *testing.T, body string) []string {
	t.Helper()
	var data []string
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		d, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			t.Fatalf("event %q has no data", event)
		}
		data = append(data, d)
	}
	return data
}

func TestStream(t *testing.T) {
	tests := []struct {
		name, path, body string
		tokens           int
		usage            bool
	}{
		{"chat with usage", chatPath, streamed, 3, true},
		{"chat without usage", chatPath, `{"model":"mock","messages":[{}],"max_completion_tokens":2,"stream":true}`, 2, false},
		{"older API", "/v1/completions", `{"model":"mock","prompt":[1,2],"stream":true}`, defaultOutput, false},
		{"capped", chatPath, `{"model":"mock","messages":[{}],"max_tokens":9999,"stream":true}`, 20, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine, _ *sink) {
				w := post(t.Context(), e, tt.path, tt.body)
				if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
					t.Errorf("content type %q", got)
				}
				data := events(t, w.Body.String())
				if last := data[len(data)-1]; last != "[DONE]" {
					t.Fatalf("last event %q, want [DONE]", last)
				}
				checkChunks(t, data[:len(data)-1], tt.tokens, tt.usage)
			}, "--max-output=20")
		})
	}
}

// checkChunks checks that there is one chunk a token, that the last one says why
// it is the last, and the chunk of the usage.
func checkChunks(t *testing.T, data []string, tokens int, withUsage bool) {
	t.Helper()
	chunks := make([]reply, len(data))
	for i := range data {
		if err := json.Unmarshal([]byte(data[i]), &chunks[i]); err != nil {
			t.Fatalf("chunk %q: %v", data[i], err)
		}
	}
	if withUsage {
		last := chunks[len(chunks)-1]
		if last.Usage == nil || last.Usage.Output != tokens || len(last.Choices) != 0 {
			t.Errorf("usage chunk = %+v, want %d tokens and no choice", last, tokens)
		}
		chunks = chunks[:len(chunks)-1]
	}
	if len(chunks) != tokens {
		t.Fatalf("%d chunks, want %d", len(chunks), tokens)
	}
	for i, c := range chunks {
		if ended := c.Choices[0].Finish != nil; ended != (i == tokens-1) {
			t.Errorf("chunk %d of %d: has a finish reason: %v", i+1, tokens, ended)
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name, path, body string
		status           int
		message          string
	}{
		{"no body", chatPath, "", 400, "not a completion request"},
		{"truncated", chatPath, `{"model":"mo`, 400, "not a completion request"},
		{"top-level array", chatPath, `[]`, 400, "not a completion request"},
		{"wrong type", chatPath, `{"model":7}`, 400, "not a completion request"},
		{"no model", chatPath, `{"messages":[{}]}`, 400, "names no model"},
		{"no messages", chatPath, `{"model":"mock"}`, 400, "no messages"},
		{"no prompt", "/v1/completions", `{"model":"mock"}`, 400, "no prompt"},
		{"no tokens", chatPath, `{"model":"mock","messages":[{}],"max_tokens":0}`, 400, "max_tokens is 0"},
		{"another model", chatPath, `{"model":"other","messages":[{}]}`, 404, `"other" does not exist`},
		{"another path", "/v1/other", `{}`, 404, "POST /v1/other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, _ := testEngine(t)
			w := post(t.Context(), e, tt.path, tt.body)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			var got struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("body %q: %v", w.Body, err)
			}
			if !strings.Contains(got.Error.Message, tt.message) || got.Error.Type != "invalid_request_error" || got.Error.Code == "" {
				t.Errorf("error = %+v, want %q", got.Error, tt.message)
			}
			if e.meter.rate != 0 {
				t.Errorf("a refused request was counted as work")
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	e, log := testEngine(t)
	body := io.MultiReader(strings.NewReader(`{"model":"`), io.LimitReader(endless{}, bodyLimit))
	w := httptest.NewRecorder()
	e.handler().ServeHTTP(w, httptest.NewRequest("POST", chatPath, body))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413", w.Code)
	}
	if got := lines[arrival](t, log, "arrival"); len(got) != 1 || got[0].Bytes != bodyLimit {
		t.Errorf("journal has %+v, want one arrival of %d bytes", got, bodyLimit)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestJournal(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, log *sink) {
		body := `{"model":"mock","messages":[{"role":"system","content":"be brief"},` +
			`{"role":"user","content":"conversation 7"}],"max_tokens":2,"user":"ann","prompt_cache_key":"k"}`
		r := httptest.NewRequest("POST", chatPath, strings.NewReader(body))
		r.Header.Set("X-Session-ID", "s-7")
		r.Header.Set("X-Weir-Pick", "secret")
		r.Header.Set("Accept", "*/*")
		e.handler().ServeHTTP(httptest.NewRecorder(), r)
		got := lines[map[string]any](t, log, "arrival")[0]
		want := map[string]any{
			"event": "arrival", "engine": "engine", "id": 1.0,
			"source": "192.0.2.1", "delaySeconds": 0.0, "method": "POST", "path": chatPath,
			"model": "mock", "stream": false, "bytes": float64(len(body)),
			"xHeaders": []any{"x-session-id", "x-weir-pick"},
			"user":     "ann", "promptCacheKey": "k", "conversation": "conversation 7",
			"promptTokens": 8.0, "cachedTokens": 0.0, "utilisation": 0.0, "running": 0.0,
			"headers": map[string]any{"x-session-id": "s-7"},
		}
		unstable := cmp.FilterPath(func(p cmp.Path) bool {
			last := p.Last().String()
			return last == `["time"]` || last == `["sha256"]`
		}, cmp.Ignore())
		if diff := cmp.Diff(want, got, unstable); diff != "" {
			t.Errorf("arrival (-want +got):\n%s", diff)
		}
		end := lines[ending](t, log, "end")[0]
		if end.ID != 1 || end.Outcome != done || end.Status != 200 || end.Tokens != 2 || *end.TTFT != 0.2 {
			t.Errorf("end = %+v, TTFT %v", end, *end.TTFT)
		}
	})
}

func TestJournalProvesTheBytes(t *testing.T) {
	e, log := testEngine(t)
	post(t.Context(), e, chatPath, "hello")
	const want = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	if got := lines[arrival](t, log, "arrival")[0]; got.SHA256 != want || got.Bytes != 5 {
		t.Errorf("journal says %d bytes, %s", got.Bytes, got.SHA256)
	}
	if got := lines[ending](t, log, "end")[0]; got.Outcome != rejected || got.Status != 400 {
		t.Errorf("end = %+v, want rejected with 400", got)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(whole)
	f.Add(streamed)
	f.Add(`{"model":"mock","model":"x","messages":[{"role":"user","content":[{"type":"text"}]}],"user":{"id":1}}`)
	f.Add(`{"model":"mock","messages":null,"max_tokens":-1e99}`)
	f.Add(`{"model":"mock","input":[{"role":"user"},7],"conversation":{"id":7},"tools":[{"type":"function"}],"stream":true}`)
	f.Add(`{"model":"mock","prompt":[[1],"a"],"input":[4294967296],"tools":{},"tool_choice":"required","max_tokens":1}`)
	f.Add(`{"model":"mock","messages":[{}],"max_tokens":9,"tools":[{"name":"a","input_schema":[]}],"tool_choice":{"type":"any"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{chatPath, completionsPath, responsesPath, messagesPath, embeddingsPath} {
			checkAnswer(t, path, body)
		}
	})
}

// checkAnswer checks that a body is answered or refused, in JSON or events, and
// that the journal has it.
func checkAnswer(t *testing.T, path, body string) {
	t.Helper()
	e, log := testEngine(t, "--ttft=0s", "--tbt=0s", "--max-output=4")
	w := post(t.Context(), e, path, body)
	if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s: the answer is no JSON: %s", path, w.Body)
	}
	if w.Code != 200 && w.Code != 400 && w.Code != 404 {
		t.Errorf("status %d", w.Code)
	}
	if a, b := lines[arrival](t, log, "arrival"), lines[ending](t, log, "end"); len(a) != 1 || len(b) != 1 {
		t.Errorf("journal has %d arrivals and %d ends, want one each: %s", len(a), len(b), log)
	}
}
