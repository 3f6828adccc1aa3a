package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the engine answers into testdata/apis")

// TestAPIs compares answers with those in testdata/apis. An engine answers the
// requests of one file one after the other.
func TestAPIs(t *testing.T) {
	files, err := filepath.Glob("testdata/apis/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			want, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := answers(t, want)
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(want)), string(txtar.Format(got))); diff != "" {
				t.Errorf("answers (-want +got; -update if wanted):\n%s", diff)
			}
		})
	}
}

// answers fills in the answers of a case.
func answers(t *testing.T, asked *txtar.Archive) *txtar.Archive {
	t.Helper()
	got := &txtar.Archive{Comment: asked.Comment}
	synctest.Test(t, func(t *testing.T) {
		e, _ := testEngine(t)
		for _, file := range asked.Files {
			path, ok := strings.CutPrefix(file.Name, "POST ")
			if !ok {
				continue
			}
			w := post(t.Context(), e, path, string(file.Data))
			text := w.Body.String()
			var indented bytes.Buffer
			if json.Indent(&indented, w.Body.Bytes(), "", "  ") == nil {
				text = indented.String()
			}
			answer := fmt.Sprintf("%d %s\n%s", w.Code, w.Header().Get("Content-Type"), text)
			got.Files = append(got.Files, file, txtar.File{Name: "answer", Data: []byte(answer)})
		}
	})
	return got
}

func TestVectors(t *testing.T) {
	v := vector(1, "mock", "river", 100)
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if math.Abs(sum-1) > 1e-5 {
		t.Errorf("the square of the length = %v, want 1", sum)
	}
	if diff := cmp.Diff(v, vector(1, "mock", "river", 100)); diff != "" {
		t.Errorf("the same text has another vector:\n%s", diff)
	}
	for name, other := range map[string][]float32{
		"seed": vector(2, "mock", "river", 100), "model": vector(1, "m", "river", 100), "text": vector(1, "mock", "stone", 100),
	} {
		if cmp.Equal(v, other) {
			t.Errorf("another %s has the same vector", name)
		}
	}
}

func TestPackedVectorsAreTheSame(t *testing.T) {
	v := vector(1, "mock", "river", 5)
	raw, err := base64.StdEncoding.DecodeString(packed(v))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(v))
	if _, err := binary.Decode(raw, binary.LittleEndian, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
}

// The length of answers can be the engine's instead of the request's.
func TestAnswersEndByThemselves(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"within the limit", `{"model":"mock","messages":[{}],"max_tokens":100}`, "stop after 5"},
		{"at the limit", `{"model":"mock","messages":[{}],"max_tokens":5}`, "stop after 5"},
		{"beyond the limit", `{"model":"mock","messages":[{}],"max_tokens":4}`, "length after 4"},
		{"without a limit", `{"model":"mock","messages":[{}]}`, "stop after 5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine, _ *sink) {
				var r reply
				if err := json.Unmarshal(post(t.Context(), e, chatPath, tt.body).Body.Bytes(), &r); err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprintf("%s after %d", *r.Choices[0].Finish, r.Usage.Output); got != tt.want {
					t.Errorf("the answer ended with %s, want %s", got, tt.want)
				}
			}, "--answer=5")
		})
	}
}

// The text depends on the request and the seed alone, not on what came before.
func TestSameRequestSameText(t *testing.T) {
	text := func(e *engine) string {
		var r reply
		if err := json.Unmarshal(post(t.Context(), e, chatPath, whole).Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return *r.Choices[0].Message.Content
	}
	args := []string{"--ttft=0s", "--tbt=0s"}
	one, _ := testEngine(t, args...)
	other, _ := testEngine(t, append(args, "--jitter=1", "--name=other")...)
	post(t.Context(), other, chatPath, streamed)
	if a, b := text(one), text(other); a != b {
		t.Errorf("two engines answered %q and %q", a, b)
	}
}
