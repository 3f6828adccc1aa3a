package extproc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// texts that are JSON, or nearly.
var texts = []string{
	``, ` `, `{}`, `[]`, `{"a":1}`, ` { "a" : [ 1 , 2 , { "b" : null } ] , "c" : "d" } `, `[1,]`, `[,1]`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{1:2}`,
	`{"a":1 "b":2}`, `[1 2]`, `[1}`, `{"a":1]`, `}`, `]`, `{"a":1}}`, `{"a":1} {}`, `{"a"`, `[`, `[[[`, `"a`, `"a\`, `"\u12`, `"\u12g4"`, `"\x"`, `"\ud800"`, `"\ud83d\ude00"`,
	`{"a":1,"a":2}`, `{"a":{"a":1},"b":{"a":2}}`, `{"a":1,"\u0061":2}`, `{"":1,"":2}`, "{\"\xff\":1,\"\xfe\":2}", "{\"é\":1,\"\\u00e9\":2}", `[{"a":1},{"a":1}]`,
	`0`, `-0`, `01`, `-01`, `00`, `-`, `1.`, `.5`, `1.5`, `1e`, `1e5`, `1E+05`, `1e-`, `1.5e3.2`, `1a`, `+1`, `tru`, `true`, `truee`, `false`, `null`, `nul`, `NaN`, `[true,false,null]`, `[truefalse]`,
	"\"\x01\"", "\"\x7f\x80\xff\"", "\"tab\there\"", "\"1234567\x1f\"", "\"123456\\\"89\"", `"12345678\n2345678\"2345678\\"`, "{\"a\":1}\x00", "\xef\xbb\xbf{}",
	`{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":0,"11":1,"12":2,"13":3,"14":4,"15":5,"16":6,"17":7,"18":8,"1":1}`,
	`{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":0,"11":1,"12":2,"13":3,"14":4,"15":5,"16":6,"17":7,"18":8,"18":1}`,
	`{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":0,"11":1,"12":2,"13":3,"14":4,"15":5,"16":6,"17":{"1":1},"18":8,"19":1}`,
	`{"model":"m","messages":[{"role":"system","content":"You are terse."},{"role":"user","content":[{"type":"text","text":"hi\n"}]}],"stream":true,"seed":-1.5e-3}`,
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
}

// sameTokens holds that the scanner reads what jsontext reads, up to the end of the
// first value; jsontext takes another behind it, or none at all.
func sameTokens(t *testing.T, text []byte) {
	t.Helper()
	want, wantErr := tokensOf(jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowInvalidUTF8(true)))
	s := scanner{text: text}
	var got []string
	s.walk(func(token string) { got = append(got, token) })
	if (s.err == nil) != (wantErr == nil) || errors.Is(s.err, errDuplicate) != errors.Is(wantErr, jsontext.ErrDuplicateName) {
		t.Fatalf("%.200q: got %v, want %v", text, s.err, wantErr)
	}
	if s.err == nil && !slices.Equal(got, want) {
		t.Fatalf("%.200q: got tokens %q, want %q", text, got, want)
	}
	skipped := scanner{text: text}
	raw, err := skipped.raw()
	if fmt.Sprint(err) != fmt.Sprint(s.err) {
		t.Fatalf("%.200q: skipped with %v, walked with %v", text, err, s.err)
	}
	if value, _ := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowInvalidUTF8(true)).ReadValue(); err == nil && string(raw) != string(value) {
		t.Fatalf("%.200q: got value %q, want %q", text, raw, value)
	}
}

// tokensOf lists the tokens of one value.
func tokensOf(dec *jsontext.Decoder) (all []string, err error) {
	for len(all) == 0 || dec.StackDepth() > 0 {
		token, err := dec.ReadToken()
		if err != nil {
			return all, err
		}
		all = append(all, token.String())
	}
	return all, nil
}

// walk tells all tokens of the value that is next.
func (s *scanner) walk(tell func(string)) {
	opening, from := string(s.peek()), s.at
	if !s.begin() {
		if s.err == nil {
			tell(said(s.text[from:s.at]))
		}
		return
	}
	tell(opening)
	end := s.levels[len(s.levels)-1].end
	for fresh := true; s.more(fresh); fresh = false {
		if end == '}' {
			tell(string(s.name()))
		}
		s.walk(tell)
	}
	tell(string(end))
}

// said is how jsontext shows a token.
func said(raw []byte) string {
	if raw[0] == '"' {
		raw, _ = jsontext.AppendUnquote(nil, raw)
	}
	return string(raw)
}

func TestScan(t *testing.T) {
	for _, text := range texts {
		sameTokens(t, []byte(text))
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { sameTokens(t, text) })
}

// What ends a string is found wherever it stands.
func TestPlainEnd(t *testing.T) {
	for length := range 40 {
		for at := range length + 1 {
			for c := range 256 {
				b := bytes.Repeat([]byte{'x'}, length)
				want := length
				if at < length {
					b[at] = byte(c)
					if c == '"' || c == '\\' || c < ' ' {
						want = at
					}
				}
				if got := plainEnd(b, 0); got != want {
					t.Fatalf("%q: %d, want %d", b, got, want)
				}
			}
		}
	}
}
