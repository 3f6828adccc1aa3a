package deploy

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

	"weir/deploy/stage"
)

// requestsDoc says what becomes of every kind of body, method and path.
const requestsDoc = "../docs/REQUESTS.md"

// mine names the model of the chats, as a member of a body.
const mine = `"model":"llama-3.3-70b"`

// odd is a body that other routers broke on, and the statuses that its request gets
// with weir-extproc alive and dead; 200: the engine read it byte for byte.
type odd struct {
	name        string // as the document calls it
	body        string
	alive, dead int
	headers     map[string]string
	chunked     bool
}

func oddBodies(t *testing.T) []odd {
	return append(append(oddJSON(), oddSizes()...), oddKinds(t)...)
}

func oddJSON() []odd {
	deep := func(n int) string {
		return `{"x":` + strings.Repeat("[", n) + "0" + strings.Repeat("]", n) + "," + mine + "}"
	}
	return []odd{
		{name: "empty", body: ``, alive: 400, dead: 400},
		{name: "white space alone", body: " \n\t", alive: 400, dead: 400},
		{name: "cut short", body: `{` + mine + `,"user":"u`, alive: 400, dead: 400},
		{name: "an array, a text or a number", body: `[{` + mine + `}]`, alive: 400, dead: 400},
		{name: "no `model`", body: `{"messages":[]}`, alive: 400, dead: 400},
		{name: "`model` null or empty", body: `{"model":null}`, alive: 400, dead: 400},
		{name: "`model` a number, array or object", body: `{"model":["llama-3.3-70b"]}`, alive: 400, dead: 404},
		{name: "a model that nobody serves", body: `{"model":"gpt-9"}`, alive: 404, dead: 404},
		{name: "escapes in the key or the value", body: `{"mod\u0065l":"llama-3.3-70\u0062"}`, alive: 200, dead: 200},
		{name: "`model` twice", body: `{` + mine + `,` + mine + `}`, alive: 400, dead: 400},
		{name: "`model` twice, once escaped", body: `{` + mine + `,"mod\u0065l":"gpt-9"}`, alive: 400, dead: 400},
		{name: "another key twice, at any depth", body: `{` + mine + `,"tools":[{"a":1,"a":2}]}`, alive: 400, dead: 400},
		{name: "`Model` beside `model`", body: `{` + mine + `,"Model":"gpt-9"}`, alive: 400, dead: 200},
		{name: "`Model` alone", body: `{"Model":"llama-3.3-70b"}`, alive: 400, dead: 400},
		{name: "no UTF-8 in another text or key", body: "{\"user\":\"\xff\xfe\",\"\xc3\":1," + mine + "}", alive: 200, dead: 400},
		{name: "no UTF-8 in the model", body: "{\"model\":\"llama-3.3-70b\xff\"}", alive: 404, dead: 400},
		{name: "a lone surrogate in another text", body: `{"user":"\ud800",` + mine + `}`, alive: 200, dead: 400},
		{name: "a lone surrogate in the model", body: `{"model":"llama-3.3-70b\ud800"}`, alive: 404, dead: 400},
		{name: "a byte order mark", body: "\ufeff{" + mine + "}", alive: 400, dead: 400},
		{name: "UTF-16 or UTF-32", body: wide(`{` + mine + `}`), alive: 400, dead: 400},
		{name: "nested 90 deep", body: deep(90), alive: 200, dead: 200},
		{name: "nested 9,000 deep", body: deep(9000), alive: 200, dead: 400},
		{name: "nested 100,000 deep", body: deep(100_000), alive: 400, dead: 400},
		{name: "a key of 5 MB, or 200,000 keys", body: `{` + list(200_000, `"k%d":0`) + `,` + mine + `}`, alive: 400, dead: 200},
		{name: "a key of 3 MB", body: `{"` + strings.Repeat("k", 3_000_000) + `":0,` + mine + `}`, alive: 200, dead: 200},
		{name: "something behind the object", body: `{` + mine + `} {}`, alive: 400, dead: 400},
		{name: "a zero byte behind it", body: `{` + mine + "}\x00", alive: 400, dead: 400},
		{name: "white space behind it", body: `{` + mine + "}\r\n\t ", alive: 200, dead: 200},
		{name: "comments, `NaN`, `Infinity`", body: `{` + mine + `,"temperature":NaN}`, alive: 400, dead: 400},
		{name: "a number beyond 1e308", body: `{` + mine + `,"x":1e999}`, alive: 200, dead: 400},
		{name: "an integer of 30 digits", body: `{` + mine + `,"seed":123456789012345678901234567890}`, alive: 200, dead: 200},
		{name: "quotes of the wrong kind, control characters in texts", body: `{'model':'llama-3.3-70b'}`, alive: 400, dead: 200},
	}
}

// list joins n times a format of the number by commas.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(items, ",")
}

// wide is a text in UTF-16, with its mark.
func wide(s string) string {
	var b []byte
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(s))...) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return string(b)
}

// oddSizes are about the limit, which is 4 MiB here.
func oddSizes() []odd {
	const padded = `{"pad":"%s",` + mine + `}`
	return []odd{
		{name: "as long as `bodyLimit`", body: fill(padded, 4<<20), alive: 200, dead: 200},
		{name: "the same, its length not said", body: fill(padded, 4<<20), chunked: true, alive: 200, dead: 200},
		{name: "a byte longer", body: fill(padded, 4<<20+1), alive: 413, dead: 413},
		{name: "the same, its length not said", body: fill(padded, 4<<20+1), chunked: true, alive: 413, dead: 413},
	}
}

func oddKinds(t *testing.T) []odd {
	kind := func(name, value string) map[string]string { return map[string]string{name: value} }
	packed := func(encoding, body string) odd {
		return odd{body: pack(t, encoding, body), headers: kind("content-encoding", strings.TrimSuffix(encoding, ", bare")), alive: 200, dead: 400}
	}
	named := func(name string, o odd) odd { o.name = name; return o }
	plain := `{"user":"u",` + mine + `}`
	broken := packed("gzip", plain)
	broken.body, broken.alive = broken.body[:len(broken.body)-4], 400
	bomb := packed("gzip", fill(`{"pad":"%s",`+mine+`}`, 8<<20))
	bomb.alive = 400
	return []odd{
		named("gzip, x-gzip", packed("gzip", plain)),
		named("deflate, with zlib's header or without", packed("deflate", plain)),
		named("deflate, with zlib's header or without", packed("deflate, bare", plain)),
		named("zstd", packed("zstd", plain)),
		named("br, or several encodings", odd{body: "x", headers: kind("content-encoding", "br"), alive: 400, dead: 400}),
		named("compressed and broken", broken),
		named("compressed, and grows beyond 100 times its size or `bodyLimit`", bomb),
		named("no content type", odd{body: plain, headers: kind("content-type", ""), alive: 200, dead: 400}),
		named("`application/json` with parameters", odd{body: plain, headers: kind("content-type", "application/json; charset=utf-8"), alive: 200, dead: 200}),
		named("`Application/JSON`, `application/vnd.api+json`", odd{body: plain, headers: kind("content-type", "application/vnd.api+json"), alive: 200, dead: 400}),
		named("any other content type", odd{body: plain, headers: kind("content-type", "text/plain"), alive: 400, dead: 400}),
	}
}

func pack(t *testing.T, encoding, body string) string {
	t.Helper()
	var out bytes.Buffer
	var z io.WriteCloser
	var err error
	switch encoding {
	case "gzip":
		z = gzip.NewWriter(&out)
	case "deflate":
		z = zlib.NewWriter(&out)
	case "deflate, bare":
		z, err = flate.NewWriter(&out, flate.BestSpeed)
	case "zstd":
		z, err = zstd.NewWriter(&out)
	}
	check(t, err)
	_, err = io.WriteString(z, body)
	check(t, err)
	check(t, z.Close())
	return out.String()
}

// Every kind of body that broke other routers has its rule, in the document, with
// weir-extproc alive and dead: it reaches an engine byte for byte, or is refused in
// the clear; never an error of ours.
func TestOddBodies(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	text, err := os.ReadFile(requestsDoc)
	check(t, err)
	client := stage.NewClient()
	bodies := oddBodies(t)
	eachState(t, s, func(t *testing.T, state string) {
		for i, o := range bodies {
			if !inDocs(string(text), o.name, o.alive, o.dead) {
				t.Errorf("%s: docs/REQUESTS.md does not say that it gets %d, and %d", o.name, o.alive, o.dead)
			}
			mark := fmt.Sprint(state, i)
			r := sendPlea(t, client, s, mark, plea{body: o.body, headers: o.headers, chunked: o.chunked})
			want := o.alive
			if state == "dead" {
				want = o.dead
			}
			if want != 200 {
				mustRefuse(t, r, want)
				if seen := engines.of(mark); len(seen) != 0 {
					t.Errorf("%s, %s: reached an engine", state, o.name)
				}
				continue
			}
			if !r.OK() {
				t.Errorf("%s, %s: %v", state, o.name, &r)
				continue
			}
			if got := engines.one(t, mark); string(got.body) != o.body || got.header.Get("content-encoding") != o.headers["content-encoding"] {
				t.Errorf("%s, %s: the engine read %d bytes that are not the %d sent", state, o.name, len(got.body), len(o.body))
			}
		}
		if state == "alive" {
			noTimeouts(t, s)
		}
	})
}
