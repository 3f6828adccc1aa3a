package extproc

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// compressed returns what a compressor that writes to out makes of a body.
func compressed(t testing.TB, body string, open func(out io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var out bytes.Buffer
	z := open(&out)
	if _, err := io.WriteString(z, body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t testing.TB, body string) []byte {
	t.Helper()
	return compressed(t, body, func(out io.Writer) io.WriteCloser { return gzip.NewWriter(out) })
}

func zlibbed(t testing.TB, body string) []byte {
	t.Helper()
	return compressed(t, body, func(out io.Writer) io.WriteCloser { return zlib.NewWriter(out) })
}

// deflated is without zlib's header and checksum.
func deflated(t testing.TB, body string) []byte {
	t.Helper()
	return compressed(t, body, func(out io.Writer) io.WriteCloser {
		z, err := flate.NewWriter(out, flate.DefaultCompression)
		if err != nil {
			t.Fatal(err)
		}
		return z
	})
}

// chatTable wants a fingerprint and these fields of a body.
func chatTable(fields ...string) *Table {
	t := &Table{wanted: wanted{fingerprint: true}, bodyLimit: 32 << 20}
	for _, f := range fields {
		t.wanted.add(f)
	}
	return t
}

func TestReadModel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, model string
		err               error
	}{
		{"first", `{"model":"m","messages":[]}`, "m", nil},
		{"last", `{"messages":[{"role":"user","content":"x"}],"n":[1,{"model":"inner"}],"model":"m"}`, "m", nil},
		{"spaced", "\n {\t\"model\" : \"m\" }\r\n", "m", nil},
		{"escaped name and value", `{"mod\u0065l":"\u006d\/1"}`, "m/1", nil},
		{"escaped repeat", `{"model":"m","mod\u0065l":"m"}`, "", errDuplicate},
		{"repeat after a long body", `{"model":"m","pad":"` + strings.Repeat("p", 1<<20) + `","model":"m"}`, "", errDuplicate},
		{"repeat inside", `{"model":"m","tool":{"a":1,"a":2}}`, "", errDuplicate},
		{"other case", `{"MODEL":"m"}`, "", errNoModel},
		{"other case besides", `{"model":"m","Model":"n"}`, "", errCase},
		{"other case before", `{"mODel":null,"model":"m"}`, "", errCase},
		{"other case twice", `{"Model":"m","MODEL":"n"}`, "", errNoModel},
		{"other case inside", `{"model":"m","tool":{"Model":"n"}}`, "m", nil},
		{"alike", `{"model":"m","models":["n"],"modem":"o"}`, "m", nil},
		{"null", `{"model":null}`, "", errNoModel},
		{"number", `{"model":7}`, "", errNoModel},
		{"empty", `{"model":""}`, "", errNoModel},
		{"no UTF-8 elsewhere", "{\"user\":\"\xff\xfe\",\"\xe2\":[\"a\xe2\x82\"],\"model\":\"m\"}", "m", nil},
		{"lone surrogate elsewhere", `{"user":"\ud800","model":"m"}`, "m", nil},
		{"no UTF-8 in the model", "{\"model\":\"m\xff\"}", "m\xff", nil},
		{"lone surrogate in the model", `{"model":"m\ud800"}`, "m\ufffd", nil},
		{"control character", "{\"model\":\"m\",\"user\":\"\x01\"}", "", errSyntax},
		{"byte order mark", "\ufeff" + `{"model":"m"}`, "", errSyntax},
		{"UTF-16", "\xff\xfe{\x00\"\x00m\x00", "", errSyntax},
		{"UTF-16 without a mark", "{\x00\"\x00m\x00", "", errSyntax},
		{"big number", `{"seed":9007199254740993,"x":1e999,"model":"m"}`, "m", nil},
		{"array model", `{"model":["m"]}`, "", errNoModel},
		{"object model", `{"model":{"id":"m"}}`, "", errNoModel},
		{"array", `[{"model":"m"}]`, "", errNotObject},
		{"string", `"model"`, "", errNotObject},
		{"blank", "  ", "", errSyntax},
		{"cut in a string", `{"model":"m`, "", errSyntax},
		{"cut after a member", `{"model":"m",`, "", errSyntax},
		{"two documents", `{"model":"m"}{"model":"n"}`, "", errSyntax},
		{"zero byte behind", "{\"model\":\"m\"}\x00", "", errSyntax},
		{"single quotes", `{'model':'m'}`, "", errSyntax},
		{"comment", `{"model":"m"} // m`, "", errSyntax},
		{"NaN", `{"model":"m","temperature":NaN}`, "", errSyntax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := chatTable().read(t.Context(), &head{}, []byte(tt.body))
			if got.model != tt.model || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, want %q, %v", got.model, err, tt.model, tt.err)
			}
		})
	}
}

// An error is shown to the client and counted, and says nothing of the body.
func TestErrorsDoNotQuoteTheBody(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"secret":secret}`, `{"secret":1,"secret":2}`, `{"secret":{"secret":[}}`, `secret`} {
		if _, err := chatTable("secret").read(t.Context(), &head{}, []byte(body)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestReadNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, field, body string
		want              string // empty: none
	}{
		{"string", "user", `{"user":"u"}`, "u"},
		{"object with id", "conversation", `{"conversation":{"x":{"id":"no"},"id":"c"}}`, "c"},
		{"dotted", "metadata.chat.id", `{"metadata":{"id":"no","chat":{"id":"c"}}}`, "c"},
		{"dotted, object with id", "metadata.chat", `{"metadata":{"chat":{"id":"c"}}}`, "c"},
		{"session behind the mark", "metadata.user_id", `{"metadata":{"user_id":"user_1_session_s"}}`, "s"},
		{"session in an object", "metadata.user_id", `{"metadata":{"user_id":"{\"device_id\":\"d\",\"account\":{\"session_id\":\"no\"},\"session_id\":\"s\"}"}}`, "s"},
		{"session in an object, spaced", "metadata.user_id", `{"metadata":{"user_id":"{ \"session_id\" : \"s\" , \"x\":1}"}}`, "s"},
		{"object without a session", "metadata.user_id", `{"metadata":{"user_id":"{\"device_id\":\"d\"}"}}`, `{"device_id":"d"}`},
		{"object with an empty session", "metadata.user_id", `{"metadata":{"user_id":"{\"session_id\":\"\"}"}}`, `{"session_id":""}`},
		{"object whose session is no text", "metadata.user_id", `{"metadata":{"user_id":"{\"session_id\":7}"}}`, `{"session_id":7}`},
		{"object that breaks off", "metadata.user_id", `{"metadata":{"user_id":"{\"session_id\""}}`, `{"session_id"`},
		{"object in another field", "user", `{"user":"{\"session_id\":\"s\"}"}`, `{"session_id":"s"}`},
		{"no mark", "metadata.user_id", `{"metadata":{"user_id":"user_1"}}`, "user_1"},
		{"mark in another field", "user", `{"user":"a_session_s"}`, "a_session_s"},
		{"escaped", "user", `{"user":"\u0075"}`, "u"},
		{"empty", "user", `{"user":""}`, ""},
		{"nothing behind the mark", "metadata.user_id", `{"metadata":{"user_id":"u_session_"}}`, ""},
		{"null", "user", `{"user":null}`, ""},
		{"number", "user", `{"user":7}`, ""},
		{"array", "user", `{"user":["u"]}`, ""},
		{"object without id", "user", `{"user":{"name":"u"}}`, ""},
		{"string where an object is expected", "metadata.chat", `{"metadata":"u"}`, ""},
		{"other case", "user", `{"User":"u"}`, ""},
		{"absent", "user", `{}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := chatTable("unused", tt.field).read(t.Context(), &head{}, []byte(tt.body))
			if !errors.Is(err, errNoModel) {
				t.Fatal(err)
			}
			var want uint64
			if tt.want != "" {
				want = hashOfName([]byte(tt.want))
			}
			if got.name(1) != want || got.name(0) != 0 || got.name(2) != 0 {
				t.Errorf("got %v, want the hash of %q second", got.names, tt.want)
			}
		})
	}
}

func TestOnePlaceForTwoClasses(t *testing.T) {
	t.Parallel()
	table := chatTable("user", "user.id", "user")
	if table.wanted.fields != 2 {
		t.Errorf("%d fields are wanted, want 2", table.wanted.fields)
	}
	got, err := table.read(t.Context(), &head{}, []byte(`{"model":"m","user":{"id":"u"}}`))
	want := hashOfName([]byte("u"))
	if err != nil || got.names[0] != want || got.names[1] != want {
		t.Errorf("got %v, %v, want twice %d", got.names, err, want)
	}
}

func zstandard(t testing.TB, body string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll([]byte(body), nil)
}

// packed is a compressed body and what is wrong with it.
type packed struct {
	name string
	body []byte
	want error
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	for name, pack := range map[string]func(testing.TB, string) []byte{
		"GZIP": gzipped, "x-gzip": gzipped, "zstd": zstandard, "deflate": zlibbed, "deflate, bare": deflated,
	} {
		encoding, _, bare := strings.Cut(name, ",")
		good := pack(t, `{"messages":[],"model":"m"}`)
		broken := bytes.Clone(good)
		broken[len(broken)-1] ^= 1 // its checksum or length
		bomb := pack(t, `{"pad":"`+strings.Repeat("0", 2*minInflated)+`","model":"m"}`)
		late := pack(t, `{"model":"m"}`+strings.Repeat(" ", 2*minInflated))
		tests := []packed{
			{"good", good, nil},
			{"a dense prompt", pack(t, `{"pad":"`+strings.Repeat("again ", 50_000)+`","model":"m"}`), nil},
			{"not compressed", []byte(`{"model":"m"}`), errEncoding},
			{"cut", good[:len(good)-10], errEncoding},
			{"something behind", append(bytes.Clone(good), "more"...), errEncoding},
			{"bomb", bomb, errTooLarge},
			{"bomb after the object", late, errTooLarge},
			{"not JSON", pack(t, `model=m`), errSyntax},
		}
		if !bare { // which has no checksum
			tests = append(tests, packed{"wrong checksum", broken, errEncoding})
		}
		for _, tt := range tests {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				h := headOf(post("/", "content-encoding: "+encoding))
				got, err := chatTable().read(t.Context(), h, tt.body)
				if !errors.Is(err, tt.want) || (err == nil) != (got.model == "m") {
					t.Errorf("got %q, %v, want %v", got.model, err, tt.want)
				}
			})
		}
	}
}

func TestInspectable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		header string
		want   error
	}{
		{"content-type: application/json", nil},
		{"content-type: Application/JSON; charset=utf-8", nil},
		{"content-type: application/vnd.api+json", nil},
		{"x-other: as engines do, no type is taken for JSON", nil},
		{"content-type: multipart/form-data; boundary=x", errContentType},
		{"content-type: text/plain", errContentType},
		{"content-type: ;", errContentType},
		{"content-encoding: identity", nil},
		{"content-encoding:  gzip ", nil},
		{"content-encoding: zstd", nil},
		{"content-encoding: deflate", nil},
		{"content-encoding: X-Gzip", nil},
		{"content-encoding: br", errEncoding},
		{"content-encoding: gzip, gzip", errEncoding},
	}
	for _, tt := range tests {
		if got := headOf(request("POST", "/", tt.header)).inspectable(); !errors.Is(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.header, got, tt.want)
		}
	}
}

// The work is bounded by the body's size, however it is nested.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{9_000, 10_000, 90_000} {
		for _, bracket := range []string{"[]", `{"":}`} {
			left, right := bracket[:len(bracket)-1], bracket[len(bracket)-1:]
			nested := strings.Repeat(left, depth) + "0" + strings.Repeat(right, depth)
			for _, member := range []string{"x", "messages", "system", "user"} {
				body := fmt.Sprintf(`{%q:%s,"model":"m"}`, member, nested)
				got, err := chatTable("user").read(t.Context(), &head{}, []byte(body))
				if depth < 10_000 && (err != nil || got.model != "m") {
					t.Errorf("%d × %s in %s: got %q, %v", depth, left, member, got.model, err)
				}
				if depth > 10_000 && !errors.Is(err, errSyntax) {
					t.Errorf("%d × %s in %s: got %v, want %v", depth, left, member, err, errSyntax)
				}
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		`{"input":[{"content":"a","role":"user"}],"instructions":"b","conversation":{"id":"c"},"model":"m"}`,
		`{"model":"a","model":"b"}`, `{"model":"a","MODEL":"b"}`, `{"model":null}`, `{"mod\u0065l":"\ud83d\ude00"}`, `[]`, `{"model":"m"} x`,
		"{\"model\":\"m\",\"user\":\"\xff\"}", `{"prompt":[[1,2],[3]],"metadata":{"user_id":"u_session_s"},"model":"m"}`,
	} {
		f.Add([]byte(seed))
	}
	table := chatTable("conversation", "metadata.user_id", "user")
	f.Fuzz(func(t *testing.T, body []byte) {
		given := bytes.Clone(body)
		got, err := table.read(t.Context(), &head{}, body)
		if !bytes.Equal(body, given) {
			t.Fatal("the body was changed")
		}
		want, ok := oracle(body)
		switch {
		case ok && err != nil:
			t.Fatalf("got %v, want model %q", err, want)
		case !ok && err == nil:
			t.Fatalf("got model %q, want an error", got.model)
		case ok && utf8.ValidString(want) && !strings.ContainsRune(want, utf8.RuneError) && got.model != want:
			t.Fatalf("got model %q, want %q", got.model, want)
		}
		if again, err2 := table.read(t.Context(), &head{}, body); fmt.Sprint(again, err2) != fmt.Sprint(got, err) {
			t.Fatalf("got %v, then %v", got, again)
		}
	})
}

// oracle reads the model in the slow way.
func oracle(body []byte) (model string, ok bool) {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil || repeats(json.NewDecoder(bytes.NewReader(body))) {
		return "", false
	}
	for name := range object {
		if name != "model" && strings.EqualFold(name, "model") && object["model"] != nil {
			return "", false
		}
	}
	model, ok = object["model"].(string)
	return model, ok && model != ""
}

// repeats says whether an object of the next value, which is valid, repeats a key.
func repeats(dec *json.Decoder) bool {
	token, err := dec.Token()
	if err != nil {
		return false
	}
	open, _ := token.(json.Delim)
	if open != '{' && open != '[' {
		return false
	}
	found, seen := false, map[any]bool{}
	for dec.More() {
		if open == '{' {
			name, _ := dec.Token()
			found = found || seen[name]
			seen[name] = true
		}
		found = repeats(dec) || found
	}
	_, _ = dec.Token()
	return found
}

func BenchmarkRead(b *testing.B) {
	table := chatTable("conversation", "metadata.user_id")
	for _, size := range []int{1 << 10, 64 << 10, 2 << 20} {
		turns := strings.Repeat(`{"role":"assistant","content":"`+strings.Repeat("word ", 100)+`"},`, size/500)
		body := []byte(`{"messages":[{"role":"user","content":"hi"},` + turns + `{"role":"user","content":"so"}],"model":"m"}`)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.read(b.Context(), &head{}, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
