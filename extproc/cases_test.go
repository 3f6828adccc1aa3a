package extproc

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/fleet"
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

// casesTable serves the models of the cases, with keys as a fleet would have them.
func casesTable() *Table {
	affinity := []fleet.AffinityKey{
		{Kind: fleet.AffinityHeader, Name: "x-session-id"},
		{Kind: fleet.AffinityBody, Name: "conversation"},
		{Kind: fleet.AffinityBody, Name: "metadata.user_id"},
		{Kind: fleet.AffinityBody, Name: "prompt_cache_key"},
		{Kind: fleet.AffinityFingerprint},
		{Kind: fleet.AffinityBody, Name: "user"},
	}
	v := &fleet.View{BodyLimit: 32 << 20}
	for _, model := range []string{"m1", "e", "claude-x"} {
		v.Routes = append(v.Routes, fleet.ViewRoute{Class: fleet.ClassID(model), Rule: fleet.Rule{Model: model}})
		v.Classes = append(v.Classes, fleet.ViewClass{
			ID: fleet.ClassID(model), Admitted: 1, Affinity: affinity,
			Pools: []fleet.ViewPool{viewPool("a", 1, 3)},
		})
	}
	return NewTable(v)
}

func TestSharedBodies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file, encoding string
		want           string
		from           origin
	}{
		{"big-int-seed.json", "", "m1: admitted", fromFingerprint},
		{"body-1.2m.json", "", "m1: admitted", fromFingerprint},
		{"body-64k.json", "", "m1: admitted", fromFingerprint},
		{"content-null.json", "", "m1: admitted", fromNowhere},
		{"conversation-object.json", "", "m1: admitted", fromBody},
		{"conversation-string.json", "", "m1: admitted", fromBody},
		{"deep-nesting-10k.json", "", "none: 400", fromNowhere},
		{"dup-key-model.json", "", "none: 400", fromNowhere},
		{"empty-body.bin", "", "none: 400", fromNowhere},
		{"invalid-utf8.bin", "", "m1: admitted", fromFingerprint},
		{"metadata-user-id-claude.json", "", "m1: admitted", fromBody},
		{"missing-model.json", "", "none: 400", fromNowhere},
		{"model-null.json", "", "none: 400", fromNowhere},
		{"ok.gz", "gzip", "m1: admitted", fromBody},
		{"ok.zst", "zstd", "m1: admitted", fromBody},
		{"prompt-array-of-tokens.json", "", "m1: admitted", fromFingerprint},
		{"top-level-array.json", "", "none: 400", fromNowhere},
		{"truncated.json", "", "none: 400", fromNowhere},
		{"user-object.json", "", "m1: admitted", fromFingerprint},
	}
	table := casesTable()
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			h := headOf(post("/v1/chat/completions", "content-encoding: "+tt.encoding))
			got := decideOn(table, h, string(caseFile(t, "bodies", tt.file)))
			if say(got) != tt.want || got.key.from != tt.from {
				t.Errorf("got %s with model %q, key from %d; want %s, %d", say(got), got.model, got.key.from, tt.want, tt.from)
			}
		})
	}
}

func TestSharedBodiesOfOneConversation(t *testing.T) {
	t.Parallel()
	table := casesTable()
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

// Requests as clients' libraries send them are read.
func TestSharedClients(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(cases, "clients", "*", "*.http"))
	if err != nil || len(files) == 0 {
		t.Skipf("the shared cases are not here: %d files, %v", len(files), err)
	}
	table := casesTable()
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
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
			h := headOf(request(r.Method, r.URL.Path, lines...))
			d := decideOn(table, h, string(body))
			if d.refusal != nil || d.key.from == fromNowhere {
				t.Errorf("got %s with model %q, key from %d", say(d), d.model, d.key.from)
			}
			again := r.Header.Get("x-stainless-retry-count")
			if got, want := h.clientRetry(), again != "" && again != "0"; got != want {
				t.Errorf("a client's retry: %v, want %v", got, want)
			}
		})
	}
}
