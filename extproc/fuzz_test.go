package extproc

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/klauspost/compress/zstd"

	"weir/fleet"
)

// packers compress in all ways that are read, and unpackers tell what a body is that
// was compressed so, or is not.
var (
	packers = map[string]func(testing.TB, string) []byte{"gzip": gzipped, "deflate": zlibbed, "zstd": zstandard}

	unpackers = map[string]func(io.Reader) (io.Reader, error){
		"gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"zstd": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow)) },
		"deflate": func(r io.Reader) (io.Reader, error) {
			whole, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			if z, err := zlib.NewReader(bytes.NewReader(whole)); err == nil {
				return z, nil
			}
			return flate.NewReader(bytes.NewReader(whole)), nil
		},
	}
)

// A compressed body is read as what it holds, and within bounds, whatever stands in
// its place.
func FuzzInflate(f *testing.F) {
	for _, seed := range []string{`{"model":"m","user":"u"}`, `{"model":`, "", strings.Repeat(" ", 4096) + `{"model":"m"}`, `{"model":"m"} x`} {
		f.Add([]byte(seed))
		for _, pack := range packers {
			f.Add(pack(f, seed))
		}
		f.Add(deflated(f, seed))
	}
	table := chatTable("user")
	f.Fuzz(func(t *testing.T, body []byte) {
		plain, plainErr := table.read(t.Context(), &head{}, body)
		for encoding, pack := range packers {
			h := headOf(post("/", "content-encoding: "+encoding))
			got, err := table.read(t.Context(), h, pack(t, string(body)))
			if !errors.Is(err, errTooLarge) && (cause(err) != cause(plainErr) || !alike(got, plain)) {
				t.Fatalf("%s: got %+v, %v, want as without: %+v, %v", encoding, got, err, plain, plainErr)
			}
			got, err = table.read(t.Context(), h, body)
			if err != nil {
				continue
			}
			unpacked, err := unpackers[encoding](bytes.NewReader(body))
			if err != nil {
				t.Fatalf("%s: read %+v of what is not: %v", encoding, got, err)
			}
			content, err := io.ReadAll(io.LimitReader(unpacked, table.bodyLimit))
			if want, err2 := table.read(t.Context(), &head{}, content); err != nil || err2 != nil || !alike(got, want) {
				t.Fatalf("%s: read %+v, want %+v, %v, %v", encoding, got, want, err, err2)
			}
		}
	})
}

// cause is the error without the place.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func alike(a, b facts) bool {
	return a.model == b.model && a.fingerprint == b.fingerprint && fmt.Sprint(a.names) == fmt.Sprint(b.names)
}

// Whatever the headers, rules match as Envoy's routes for them do, and what is said
// of the body is said.
func FuzzHeaders(f *testing.F) {
	f.Add("POST", "/v1/chat?a=/b#c", "Api.Example.org:443", "content-type", "application/json; charset=utf-8")
	f.Add("GET", "/v1#x?y", "api.example.org:", "content-encoding", " GZIP ")
	f.Add("CONNECT", "", "", "content-length", "18446744073709551616")
	f.Add("OPTIONS", "*", "api.example.orgs", "upgrade", "websocket")
	f.Add("PUT", "/v1", "api.example.org", "tier", "gold")
	rules := []fleet.Rule{
		{Host: "api.example.org", Path: "/v1/chat", Exact: true},
		{Headers: []fleet.HeaderRule{{Name: "tier", Value: "gold"}}, Path: "/v1"},
		{Host: "api.example.org", Model: "m"},
	}
	table := routed(nil, rules...)
	table.bodyLimit = 1 << 20
	f.Fuzz(func(t *testing.T, method, path, host, name, value string) {
		if strings.HasPrefix(name, ":") || !utf8.ValidString(name) {
			return // there is one of each, and Envoy has such names refused
		}
		fields := []*corev3.HeaderValue{
			{Key: ":method", RawValue: []byte(method)},
			{Key: ":path", RawValue: []byte(path)},
			{Key: ":authority", RawValue: []byte(host)},
			{Key: name, RawValue: []byte(value)},
		}
		h := headOf(&extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: fields}})
		for i := range table.routes {
			if r := &table.routes[i]; ascii(host) && r.matches(h) != matchesLikeEnvoy(r.rule, path, host, name, value) {
				t.Errorf("rule %+v: got %v", r.rule, r.matches(h))
			}
		}
		if n := h.length(); name == "content-length" && n >= 0 && strings.TrimLeft(value, "0") != strings.TrimLeft(strconv.FormatInt(n, 10), "0") {
			t.Errorf("%q is taken for a length of %d", value, n)
		}
		if name == "content-encoding" && h.inspectable() == nil && !strings.Contains("identity gzip x-gzip deflate zstd", strings.ToLower(strings.TrimSpace(value))) {
			t.Errorf("bodies in %q are read", value)
		}
		if table.need(h) == nothing {
			return
		}
		if d := decideOn(table, h, value); d.refusal == nil || table.cost(h, min(h.length(), table.bodyLimit)) < 0 {
			t.Errorf("admitted where there is no engine: %+v", d)
		}
	})
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// matchesLikeEnvoy evaluates a rule by its definition: patterns of the whole text.
func matchesLikeEnvoy(r fleet.Rule, path, host, name, value string) bool {
	whole := func(pattern, text string) bool {
		return regexp.MustCompile(`(?s)^(?:` + pattern + `)$`).MatchString(text)
	}
	path = regexp.MustCompile(`(?s)[?#].*`).ReplaceAllString(path, "")
	ok := strings.HasPrefix(path, r.Path)
	if r.Exact {
		ok = path == r.Path
	}
	if r.Host != "" {
		ok = ok && whole(`(?i)`+regexp.QuoteMeta(r.Host)+`(:[0-9]+)?`, host)
	}
	for _, h := range r.Headers {
		ok = ok && h.Name == name && h.Value == value
	}
	return ok
}
