package simulate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadAzure(t *testing.T) {
	got, err := ReadAzure(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-02 23:59:59.5000000,10,20\n2023-01-03 00:00:01.7500001,30,0"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{{At: 0, Prompt: 10, Output: 20}, {At: 2.2500001, Prompt: 30}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadMooncake(t *testing.T) {
	want := []Row{
		{At: 0, Prompt: 600, Output: 7, Blocks: []uint64{0, 5}},
		{At: 3, Prompt: 20, Output: 8, Blocks: []uint64{0}},
		{At: 4.5, Prompt: 30, Output: 9, Blocks: []uint64{0}}, // the last moment lasts as long as the one before
	}
	for _, began := range []int64{0, 1_700_000_000_000, -5000} { // from its own start, from 1970, from another's
		got, err := ReadMooncake(strings.NewReader(fmt.Sprintf(`{"timestamp": %d, "input_length": 600, "output_length": 7, "hash_ids": [0, 5]}
{"timestamp": %d, "input_length": 20, "output_length": 8, "hash_ids": [0]}
{"timestamp": %[2]d, "input_length": 30, "output_length": 9, "hash_ids": [0]}
`, began, began+3000)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %d ms on (-want +got):\n%s", began, diff)
		}
	}
}

// The turns of a conversation, whether its trace names it or its blocks do, are slow and
// fast each by its own luck, which goes by conversation and turn.
func TestTurnsOfATraceHaveTheirOwnLuck(t *testing.T) {
	for name, rows := range map[string][]Row{
		"by blocks": {{Blocks: []uint64{1, 2}}, {Blocks: []uint64{1, 2, 3}}, {At: 9}},
		"by name":   {{Talk: 7}, {Talk: 7}, {At: 9}},
	} {
		w, err := Replay{Rows: rows, Mix: Mix{Sources: []Source{{Rps: 1}}}, BlockTokens: 16, Speed: 1}.New(1)
		if err != nil {
			t.Fatal(err)
		}
		one, _ := w.Next()
		other, _ := w.Next()
		if one.Key != other.Key || one.Turn == other.Turn {
			t.Errorf("%s: conversation %x, turn %d, and conversation %x, turn %d: want two turns of one", name, one.Key, one.Turn, other.Key, other.Turn)
		}
	}
}

func TestReadTracesRefuses(t *testing.T) {
	azure, mooncake := ReadAzure, ReadMooncake
	tests := []struct {
		name, text, want string
		azure            bool
	}{
		{"a time", "h,h,h\nyesterday,1,2\n", `line 2: TIMESTAMP "yesterday" is no time; write it like 2023`, true},
		{"a number", "h,h,h\n2023-01-02 03:04:05.0000000,many,2\n", `line 2: ContextTokens "many" is no number of tokens; write a whole one`, true},
		{"a number after a gap", "h,h,h\n\n2023-01-02 03:04:05.0000000,1,1e300\n", `line 3: GeneratedTokens "1e300" is no number`, true},
		{"a column too few", "h,h,h\n2023-01-02 03:04:05.0000000,1\n", "wrong number of fields", true},
		{"below zero", "h,h,h\n2023-01-02 03:04:05.0000000,-1,2\n", "line 2: -1 and 2 tokens; write 0 to", true},
		{"back in time", "h,h,h\n2023-01-02 03:04:05.0000000,1,2\n2023-01-02 03:04:04.0000000,1,2\n", "line 3: ", true},
		{"no JSON", "{\n", `line 1: no JSON: unexpected end of JSON input; write an object a line, with "timestamp"`, false},
		{"no object", "{}\n7\n", "line 2: a number is no row; write an object a line, with", false},
		{"a text for hashes", "{\"timestamp\":1}\n{\"timestamp\":1,\"hash_ids\":\"abc\"}", `line 2: hash_ids: a string is no value for it; write "timestamp" in ms`, false},
		{"half a token", `{"input_length":1.5}`, "line 1: input_length: a number 1.5 is no value for it", false},
		{"a long line", "{}\n" + strings.Repeat(" ", 17<<20), "line 2: bufio.Scanner: token too long; write an object a line", false},
		{"a negative hash", `{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[-1]}`, "line 1: hash_ids: a number -1 is no value for it", false},
		{"back in time", "{\"timestamp\":2}\n{\"timestamp\":1}", "line 2: it is earlier", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			read := mooncake
			if tt.azure {
				read = azure
			}
			if rows, err := read(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v: want an error with %q", rows, err, tt.want)
			}
		})
	}
}

func FuzzReadAzure(f *testing.F) {
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-02 23:59:59.5000000,10,20\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := ReadAzure(strings.NewReader(text))
		sane(t, rows, err)
	})
}

func FuzzReadMooncake(f *testing.F) {
	f.Add(`{"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [0, 5]}`)
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := ReadMooncake(strings.NewReader(text))
		sane(t, rows, err)
	})
}

// sane holds that what was read can be replayed.
func sane(t *testing.T, rows []Row, err error) {
	t.Helper()
	if err != nil {
		return
	}
	last := 0.0
	for _, r := range rows {
		if !(r.At >= last) || math.IsInf(r.At, 0) || r.Prompt < 0 || r.Output < 0 {
			t.Fatalf("row %+v after %v s", r, last)
		}
		last = r.At
	}
	if w, err := (Replay{Rows: rows, Mix: Mix{Sources: []Source{{Rps: 1}}}, BlockTokens: 16}).New(1); err == nil {
		for range 10 {
			if q, ok := w.Next(); !ok || !(q.At >= 0) || q.Prompt < 1 || q.Output < 1 || len(q.Context)*16 > q.Prompt {
				t.Fatalf("request %+v, %v", q, ok)
			}
		}
	}
}
