package dialect_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"weir/signals/dialect"
)

func newReader() *dialect.Reader {
	return dialect.NewReader(dialect.NewTable(dialect.Dialects()...))
}

func mustRead(t *testing.T, text string) dialect.Page {
	t.Helper()
	p, err := newReader().Read(strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Wherever a page is cut, a value is that of the whole page or unknown, whatever
// is dropped.
func TestCutPagesNeverUndercount(t *testing.T) {
	for _, name := range []string{"lmdeploy-dp2.prom", "vllm-two-models-two-ranks.prom", "sglang-dp2-tp2.prom", "tgi-with-sizes.prom"} {
		t.Run(name, func(t *testing.T) {
			text := fixture(t, name)
			r := newReader()
			whole, _ := r.Read(strings.NewReader(text), "")
			for n := 0; n < len(text); n += 7 { // lines are of all lengths, so this cuts everywhere
				for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF} {
					cut := io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(broken))
					got, _ := r.Read(cut, "")
					torn := broken != io.EOF || n > 0 && text[n-1] != '\n'
					if torn {
						neverLess(t, text[:n], &got, &whole)
					}
					if torn != got.Cut {
						t.Fatalf("Cut = %t after %q", got.Cut, text[:n])
					}
				}
			}
		})
	}
}

func neverLess(t *testing.T, text string, got, whole *dialect.Page) {
	t.Helper()
	g, w := &got.Values, &whole.Values
	for f, pair := range [][2]dialect.Value{
		{g.Running, w.Running},
		{g.Waiting, w.Waiting},
		{g.KVUsage, w.KVUsage},
		{g.PromptTokens, w.PromptTokens},
		{g.GeneratedTokens, w.GeneratedTokens},
		{g.TTFT.Count, w.TTFT.Count},
		{g.TBT.Count, w.TBT.Count},
	} {
		if pair[0].Known() && pair[0].X != pair[1].X {
			t.Fatalf("field %d = %v, want %v or unknown, after\n%s", f, pair[0].X, pair[1].X, text)
		}
	}
}

func TestReadOneByteAtATime(t *testing.T) {
	text := fixture(t, "openmetrics-crlf.prom")
	got, err := newReader().Read(iotest.OneByteReader(strings.NewReader(text)), "")
	if err != nil {
		t.Fatal(err)
	}
	want := mustRead(t, text)
	if diff := cmp.Diff(view(&got), view(&want)); diff != "" {
		t.Errorf("values (-one byte at a time +at once):\n%s", diff)
	}
}

func TestNotesNameWhatWasDropped(t *testing.T) {
	p := mustRead(t, fixture(t, "vllm-bad-samples.prom"))
	all := strings.Join(p.Notes, "\n")
	for _, want := range []string{
		`vllm:num_requests_running: dropped a sample: a value that cannot be: "-1"`,
		`vllm:num_requests_running: dropped a sample: no number: "six"`,
		`vllm:num_requests_running: dropped a sample: unreadable labels: "{engine=\"4} 1"`,
		`vllm:num_requests_waiting: dropped a sample: its series is there twice`,
		`vllm:kv_cache_usage_perc: dropped a sample: a value that cannot be: "42.19"`,
		`vllm:time_to_first_token_seconds: dropped a sample: its bucket is there twice: "1"`,
		`vllm:time_to_first_token_seconds: dropped a sample: a bucket without a bound`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no note %q in\n%s", want, all)
		}
	}
}

func TestUnknownIsToldWithItsReason(t *testing.T) {
	p := mustRead(t, "# TYPE tgi_queue_size gauge\ntgi_batch_current_size 3\n")
	want := []string{
		"waiting is unknown: tgi_queue_size has no sample that can be used",
		"kvUsage is unknown: tgi has no metric for it",
		"ttft is unknown: tgi has no metric for it",
		"tbt is unknown: the page has no metric for it",
		"promptTokens is unknown: the page has no metric for it",
		"generatedTokens is unknown: the page has no metric for it",
	}
	if diff := cmp.Diff(p.Missing(), want); diff != "" {
		t.Errorf("Missing (-got +want):\n%s", diff)
	}
}

// endless is a page without end.
type endless struct {
	text string // again and again
	read int
}

func newEndless() *endless {
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "vllm:num_requests_running{engine=\"%d\"} 1\n", i)
		fmt.Fprintf(&text, "vllm:inter_token_latency_seconds_bucket{le=\"%d\",engine=\"%d\"} 1\n", i, i%7)
	}
	return &endless{text: text.String()}
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.read%len(e.text):])
	e.read += n
	return n, nil
}

func TestEndlessPageIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	e, r := newEndless(), newReader()
	runtime.ReadMemStats(&before)
	p, err := r.Read(e, "")
	runtime.ReadMemStats(&after)
	if !errors.Is(err, dialect.ErrTooLong) || !p.Cut {
		t.Errorf("err = %v, cut = %t, want ErrTooLong and a cut page", err, p.Cut)
	}
	if most := dialect.MaxPage + 1<<20; e.read > most {
		t.Errorf("read %d bytes, want at most %d", e.read, most)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes were allocated for it", grown)
	}
	if len(p.Notes) > 20 || p.Dropped < 1000 {
		t.Errorf("%d notes of %d dropped samples, want a few of many", len(p.Notes), p.Dropped)
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	p := mustRead(t, "# HELP vllm:num_requests_running "+long+"\n"+
		`vllm:num_requests_running{model_name="`+long+"\"} 1\n"+
		`vllm:cache_config_info{all="`+long+"\"} 1\n"+
		"vllm:num_requests_waiting 2\n")
	if !p.Values.Waiting.Known() || p.Values.Waiting.X != 2 || p.Values.Running.Known() {
		t.Errorf("waiting = %v, running = %v, want 2 and unknown", p.Values.Waiting, p.Values.Running)
	}
	if want := "its line is too long"; p.Dropped != 1 || !strings.Contains(p.Notes[0], want) {
		t.Errorf("%d dropped, notes %q, want one that says %q", p.Dropped, p.Notes, want)
	}
}

// A reader forgets a page when it reads the next.
func TestReaderKeepsNothing(t *testing.T) {
	r := newReader()
	if _, err := r.Read(io.LimitReader(newEndless(), 2<<20), ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lmdeploy-dp2.prom", "sglang-0.4.3.prom", "lmdeploy-dp2.prom"} {
		got, err := r.Read(strings.NewReader(fixture(t, name)), "")
		if err != nil {
			t.Fatal(err)
		}
		want := mustRead(t, fixture(t, name))
		if diff := cmp.Diff(view(&got), view(&want)); diff != "" {
			t.Errorf("%s (-used reader +fresh reader):\n%s", name, diff)
		}
	}
}

func TestRecognition(t *testing.T) {
	both := "vllm:num_requests_running 1\nsglang:num_running_reqs 2\n"
	tests := []struct{ name, page, likely, want string }{
		{"most fields", both + "sglang:num_queue_reqs 0\n", "vllm", "sglang"},
		{"the likely one of equals", both, "sglang", "sglang"},
		{"the first of equals", both, "", "vllm"},
		{"another than was likely", "sglang:num_running_reqs 2\n", "vllm", "sglang"},
		{"by its prefix alone", "llamacpp:n_decode_total 1\n", "", "llamacpp"},
		{"declared only", "# TYPE lmdeploy:num_requests_running gauge\n", "", "lmdeploy"},
		{"none", "process_cpu_seconds_total 1\n", "vllm", ""},
		{"an empty page", "", "", ""},
		{"JSON", `[{"numActiveRequests": 3}]` + "\n", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := newReader().Read(strings.NewReader(tt.page), tt.likely)
			if err != nil || p.Dialect != tt.want {
				t.Errorf("dialect = %q (%v), want %q", p.Dialect, err, tt.want)
			}
		})
	}
}

// A page in an old reader costs the copies of its histograms, and no more.
func TestReadAllocatesLittle(t *testing.T) {
	text := fixture(t, "vllm-two-names.prom")
	r, src := newReader(), strings.NewReader(text)
	got := testing.AllocsPerRun(100, func() {
		src.Reset(text)
		if _, err := r.Read(src, "vllm"); err != nil {
			t.Fatal(err)
		}
	})
	if got > 4 {
		t.Errorf("%v allocations a page, want at most 4", got)
	}
}

func BenchmarkRead(b *testing.B) {
	var page strings.Builder
	for i := range 12 { // as long as a page of vLLM
		for _, line := range strings.SplitAfter(fixture(b, "vllm-two-names.prom"), "\n") {
			if i > 0 {
				line = strings.ReplaceAll(line, "vllm:", fmt.Sprintf("vllm:other_%d_", i))
			}
			page.WriteString(line)
		}
	}
	r, src := newReader(), strings.NewReader("")
	b.SetBytes(int64(page.Len()))
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(page.String())
		if p, err := r.Read(src, "vllm"); err != nil || !p.Values.Running.Known() {
			b.Fatal(err)
		}
	}
}
