package extproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// list joins n pieces of JSON by commas.
func list(n int, piece func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(piece(i))
	}
	return b.String()
}

func always(s string) func(int) string { return func(int) string { return s } }

func member(i int) string { return fmt.Sprintf(`"%x":0`, i) }

func TestTooMany(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want error
	}{
		"as many keys as may be": {`{"model":"m",` + list(maxNames-1, member) + `}`, nil},
		"a key more":             {`{"model":"m",` + list(maxNames, member) + `}`, errTooMany},
		"keys of many objects":   {`{"model":"m","x":[` + list(maxNames, always(`{"":0}`)) + `]}`, errTooMany},
		"spaced keys":            {`{"model":"m","x":[` + list(maxNames, always(`{"" : 0}`)) + `]}`, errTooMany},
		"long keys": {`{"model":"m",` + list(5, func(i int) string {
			return `"` + strings.Repeat(`\n`, maxNameBytes/8) + member(i)[1:]
		}) + `}`, errTooMany},
		"colons in a text":          {`{"model":"m","x":"` + strings.Repeat(`\":`, maxNames+1) + `"}`, nil},
		"as many values as may be":  {`{"model":"m","prompt":[` + list(maxValues-2, always("0")) + `]}`, nil},
		"a value more":              {`{"model":"m","prompt":[` + list(maxValues-1, always("0")) + `]}`, errTooMany},
		"arrays":                    {`{"model":"m","prompt":[` + list(maxValues/2, always("[]")) + `]}`, errTooMany},
		"commas in a text":          {`{"model":"m","x":"` + strings.Repeat(`,[{`, maxValues) + `"}`, nil},
		"a long text with escapes":  {`{"prompt":"` + strings.Repeat(`\n`, maxUnescaped) + `","mod\u0065l":"\u006d"}`, nil},
		"a text that ends in slash": {`{"model":"m","x":"\\` + strings.Repeat(" ", maxNames*5) + `\\","y":0}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, err := chatTable().read(t.Context(), &head{}, []byte(c.body))
			if !errors.Is(err, c.want) || (err == nil) != (plain.model == "m") {
				t.Errorf("got %q, %v, want %v", plain.model, err, c.want)
			}
			if ratio := len(c.body) / len(gzipped(t, c.body)); ratio >= maxInflateRatio {
				return // refused as a bomb
			}
			packed, err := chatTable().read(t.Context(), headOf(post("/", "content-encoding: gzip")), gzipped(t, c.body))
			if !errors.Is(err, c.want) || packed.model != plain.model {
				t.Errorf("compressed: got %q, %v, want %v", packed.model, err, c.want)
			}
		})
	}
}

// Too much is refused even where the headers say which class a request is of.
func TestTooManyIsRefused(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errTooMany, errDuplicate} {
		d := NewTable(twoPools()).decide(headOf(post("/")), facts{model: "small"}, err, 1)
		if d.refusal == nil || d.refusal.status != 400 || !strings.Contains(string(d.refusal.body), err.Error()) {
			t.Errorf("%v: got %s, want a 400 that says so", err, say(d))
		}
	}
}

// The scanner counts what a decoder finds.
func TestCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(anyJSON(3).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		s := scanner{text: body}
		if err := s.skip(); err != nil {
			t.Fatal(err)
		}
		if want := countedBy(t, body); s.counts != want {
			t.Errorf("%s: counted %+v, want %+v", body, s.counts, want)
		}
	})
}

// anyJSON draws values whose texts are hard to tell from structure.
func anyJSON(depth int) *rapid.Generator[any] {
	text := rapid.StringMatching(`[a"\\:,{\[]{0,5}`)
	if depth == 0 {
		return rapid.Map(text, func(s string) any { return s })
	}
	return rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.SliceOfN(anyJSON(depth-1), 0, 3), func(s []any) any { return s }),
		rapid.Map(rapid.MapOfN(text, anyJSON(depth-1), 0, 3), func(m map[string]any) any { return m }),
	)
}

// countedBy counts a body with a decoder.
func countedBy(t *rapid.T, body []byte) (s counts) {
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		var err error
		switch raw[0] {
		case '{':
			var members map[string]json.RawMessage
			err = json.Unmarshal(raw, &members)
			s.names += len(members)
			s.values += 1 + max(0, len(members)-1)
			for name, value := range members {
				quoted, _ := json.Marshal(name)
				s.nameBytes += len(quoted) - len(`""`)
				walk(value)
			}
		case '[':
			var elements []json.RawMessage
			err = json.Unmarshal(raw, &elements)
			s.values += 1 + max(0, len(elements)-1)
			for _, e := range elements {
				walk(e)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	walk(body)
	return s
}

func TestReadingEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, body := range map[string]string{
		"skipped":  `{"x":[` + list(5000, always("0")) + `],"model":"m"}`,
		"members":  `{` + list(5000, member) + `,"model":"m"}`,
		"elements": `{"prompt":[` + list(5000, always("0")) + `],"model":"m"}`,
	} {
		if _, err := chatTable().read(ended, &head{}, []byte(body)); !errors.Is(err, errGone) {
			t.Errorf("%s: got %v, want %v", name, err, errGone)
		}
		s := New(nil)
		x := exchange{table: chatTable(), phase: awaitingBody}
		if out := s.onBody(ended, &x, []byte(body)); out != nil || x.phase != awaitingBody {
			t.Errorf("%s: answered with %v", name, out)
		}
		if s.leave(&x); s.counters.Undecided.Load() != 1 {
			t.Errorf("%s: not counted as undecided", name)
		}
	}
}

// BenchmarkHostile reads bodies of the largest size, or with as much in them as
// the bounds let pass. Envoy waits a second for the answer.
func BenchmarkHostile(b *testing.B) {
	const size = 32 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	texts := list(32, always(`"`+strings.Repeat(`\ud800`, (1<<20)/6-1)+`"`))
	for _, c := range []struct{ name, body string }{
		{"distinct keys", `{` + list(1_500_000, member) + `}`},
		{"all the keys", `{` + list(maxNames-1, member) + `}`},
		{"all the values", `{"prompt":[` + list(maxValues-2, always("0")) + `]`},
		{"deep arrays", `{"prompt":[` + list(100, always(strings.Repeat("[", 9000)+strings.Repeat("]", 9000))) + `]`},
		{"one text", `{"prompt":"` + fill("word ") + `"`},
		{"escapes", `{"prompt":"` + fill(`\n`) + `"`},
		{"surrogates", `{"prompt":[` + texts + `]`},
		{"no UTF-8", `{"prompt":"` + fill("\xff") + `"`},
		{"spaces", `{"x":` + fill(" ") + `0`},
	} {
		body := append(bytes.TrimSuffix([]byte(c.body), []byte("}")), `,"model":"m"}`...)
		table := chatTable("conversation", "metadata.user_id")
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := table.read(b.Context(), &head{}, body); err != nil && !errors.Is(err, errTooMany) {
					b.Fatal(err)
				}
			}
		})
	}
}
