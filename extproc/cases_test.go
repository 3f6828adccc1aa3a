package extproc

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const cases = "../../shared/cases"

func caseFile(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{cases}, parts...)...))
	if err != nil {
		t.Skipf("the shared cases are not here: %v", err)
	}
	return data
}

func TestSharedBodies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file, encoding string
		want, source   string
	}{
		{"big-int-seed.json", "", "chat: admitted", "fingerprint"},
		{"body-1.2m.json", "", "chat: admitted", "fingerprint"},
		{"body-64k.json", "", "chat: admitted", "fingerprint"},
		{"content-null.json", "", "chat: admitted", "random"},
		{"conversation-object.json", "", "chat: admitted", "body:conversation"},
		{"conversation-string.json", "", "chat: admitted", "body:conversation"},
		{"deep-nesting-10k.json", "", "none: 400", "random"},
		{"dup-key-model.json", "", "none: 400", "random"},
		{"empty-body.bin", "", "none: 400", "random"},
		{"invalid-utf8.bin", "", "chat: admitted", "body:user"},
		{"metadata-user-id-claude.json", "", "chat: admitted", "body:metadata.user_id"},
		{"missing-model.json", "", "none: 400", "random"},
		{"model-null.json", "", "none: 400", "random"},
		{"ok.gz", "gzip", "chat: admitted", "body:prompt_cache_key"},
		{"ok.zst", "zstd", "chat: admitted", "body:prompt_cache_key"},
		{"prompt-array-of-tokens.json", "", "chat: admitted", "fingerprint"},
		{"top-level-array.json", "", "none: 400", "random"},
		{"truncated.json", "", "none: 400", "random"},
		{"user-object.json", "", "chat: admitted", "body:user"},
	}
	table := usualTable(t)
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			h := headOf(post("/v1/chat/completions", "content-encoding: "+tt.encoding))
			got := decideOn(table, h, string(caseFile(t, "bodies", tt.file)))
			if source := table.sources[got.key.source]; say(got) != tt.want || source != tt.source {
				t.Errorf("got %s with model %q, key from %s; want %s, %s", say(got), got.model, source, tt.want, tt.source)
			}
		})
	}
}

func TestSharedBodiesOfOneConversation(t *testing.T) {
	t.Parallel()
	table := usualTable(t)
	key := func(file string) affinity {
		return decideOn(table, headOf(post("/")), string(caseFile(t, "bodies", file))).key
	}
	if a, b := key("conversation-object.json"), key("conversation-string.json"); a != b {
		t.Errorf("object gives %+v, string %+v", a, b)
	}
	session := hashOfName([]byte("66666666-7777-8888-9999-000000000000"))
	if got := key("metadata-user-id-claude.json"); got.hash != session {
		t.Errorf("the session is not the key")
	}
}

// clientSources is what names the conversation in each request that a client's
// library sent, if it is not the fingerprint.
var clientSources = map[string]string{
	"anthropic-python/001-POST-v1_messages.http":      "body:metadata.user_id",
	"openai-node/001-POST-v1_chat_completions.http":   "body:prompt_cache_key",
	"openai-python/002-POST-v1_chat_completions.http": "body:prompt_cache_key",
	"openai-python/005-POST-v1_chat_completions.http": "header:x-session-id",
	"openai-python/006-POST-v1_embeddings.http":       "body:user",
	"openai-python/007-POST-v1_responses.http":        "body:prompt_cache_key",
	"openai-python/009-POST-v1_responses.http":        "body:conversation",
	"openai-python/010-POST-v1_responses.http":        "body:conversation",
}

// clientFollows are those that follow a response, which nobody knows here.
var clientFollows = map[string]bool{
	"openai-node/002-POST-v1_responses.http":   true,
	"openai-python/008-POST-v1_responses.http": true,
}

// Requests as clients' libraries send them are read.
func TestSharedClients(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(cases, "clients", "*", "*.http"))
	if err != nil || len(files) == 0 {
		t.Skipf("the shared cases are not here: %d files, %v", len(files), err)
	}
	table := usualTable(t)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, body := sharedClient(t, file)
			d := decideOn(table, h, body)
			source, want := table.sources[d.key.source], cmp.Or(clientSources[name], "fingerprint")
			if say(d) != "chat: admitted" || source != want {
				t.Errorf("got %s with model %q, key from %s; want it from %s", say(d), d.model, source, want)
			}
			if follows := d.hint == hintMiss; follows != clientFollows[name] || d.hint == hintHit {
				t.Errorf("follows a response: %v, want %v", follows, clientFollows[name])
			}
			again, _ := h.value(retryCount)
			if got, want := h.clientRetry(), again != "" && again != "0"; got != want {
				t.Errorf("a client's retry: %v, want %v", got, want)
			}
		})
	}
}

// sharedClient reads a request that was captured.
func sharedClient(t *testing.T, file string) (*head, string) {
	t.Helper()
	raw := caseFile(t, strings.TrimPrefix(file, cases))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for name, values := range r.Header {
		lines = append(lines, strings.ToLower(name)+": "+values[0])
	}
	return headOf(request(r.Method, r.URL.Path, lines...)), string(body)
}
