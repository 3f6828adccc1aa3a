package dialect_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"weir/signals/dialect"
)

// FuzzRead reads anything without a panic, and whatever Prometheus' own parser
// reads as that does.
func FuzzRead(f *testing.F) {
	pages, err := filepath.Glob("testdata/*.prom")
	if err != nil || len(pages) == 0 {
		f.Fatalf("no pages: %v", err)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"", "\n", "#", "# TYPE", "{", "vllm:num_requests_running", "vllm:num_requests_running{} 1\n",
		"vllm:num_requests_running{a=\"\\\"} 1\n", "vllm:num_requests_running{=\"\"} 1\n", "sglang:token_usage -0\n",
	} {
		f.Add([]byte(text))
	}
	r := newReader()
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := r.Read(bytes.NewReader(text), "")
		if err != nil {
			t.Fatalf("a page in memory cannot be read: %v", err)
		}
		sane(t, &got)
		if got.Cut || got.Dropped > 0 {
			return // the other parser has no word for it
		}
		if samples, ok := parsed(text); ok {
			compare(t, &got, samples)
		}
	})
}

func sane(t *testing.T, p *dialect.Page) {
	t.Helper()
	v := &p.Values
	for _, x := range []dialect.Value{v.Running, v.Waiting, v.KVUsage, v.PromptTokens, v.GeneratedTokens, v.TTFT.Mean(), v.TBT.Quantile(0.9)} {
		if x.X < 0 || math.IsNaN(x.X) || x.State == dialect.Unknown && x.X != 0 {
			t.Fatalf("%v (%s) was read", x.X, x.State)
		}
	}
	if v.KVUsage.X > 1 {
		t.Fatalf("KV usage %v was read", v.KVUsage.X)
	}
	dialect.Between(v, v)
}

// flat is one sample as Prometheus' parser reads it.
type flat struct {
	name   string
	labels map[string]string
	value  float64
}

// parsed is a page by Prometheus' parser, which refuses the whole for one mistake.
func parsed(text []byte) (samples []flat, ok bool) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil || bytes.Contains(text, []byte("\r")) || quotesNames(text) {
		return nil, false
	}
	for name, family := range families {
		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			one := func(suffix string, x float64) { samples = append(samples, flat{name + suffix, labels, x}) }
			switch {
			case m.Gauge != nil:
				one("", m.Gauge.GetValue())
			case m.Counter != nil:
				one("", m.Counter.GetValue())
			case m.Untyped != nil:
				one("", m.Untyped.GetValue())
			case m.Summary != nil:
				one("_sum", m.Summary.GetSampleSum())
				one("_count", float64(m.Summary.GetSampleCount()))
			case m.Histogram != nil:
				if m.Histogram.SampleSum == nil || m.Histogram.SampleCount == nil {
					return nil, false // it has its count in its last bucket, where this parser does not look
				}
				one("_sum", m.Histogram.GetSampleSum())
				one("_count", float64(m.Histogram.GetSampleCount()))
			}
		}
	}
	return samples, true
}

// quotesNames says whether names may be quoted, which no engine does.
func quotesNames(text []byte) bool {
	squeezed := bytes.Map(func(c rune) rune {
		if c == ' ' || c == '\t' {
			return -1
		}
		return c
	}, text)
	return bytes.Contains(squeezed, []byte(`{"`)) || bytes.Contains(squeezed, []byte(`,"`))
}

// compare adds up by name what the other parser read, the slow way. It passes
// over metrics whose labels the reader treats as more than names of series.
func compare(t *testing.T, got *dialect.Page, samples []flat) {
	t.Helper()
	v := &got.Values
	for field, value := range map[dialect.Field]dialect.Value{
		dialect.Running: v.Running, dialect.Waiting: v.Waiting,
		dialect.PromptTokens: v.PromptTokens, dialect.GeneratedTokens: v.GeneratedTokens,
	} {
		want, n := 0.0, 0
		for _, s := range samples {
			if s.name == got.Names[field] && !inLockstep(s.labels) {
				want += s.value
				n++
			}
		}
		if lockstep := slices.ContainsFunc(samples, func(s flat) bool { return inLockstep(s.labels) }); n == 0 || lockstep {
			continue
		}
		if diff := math.Abs(value.X - want); diff > 1e-9*math.Abs(want) {
			t.Fatalf("%s = %v, Prometheus reads %v", field, value.X, want)
		}
	}
	for field, h := range map[dialect.Field]dialect.Histogram{dialect.TTFT: v.TTFT, dialect.TBT: v.TBT} {
		compareHistogram(t, got.Names[field], h, samples)
	}
}

func compareHistogram(t *testing.T, name string, h dialect.Histogram, samples []flat) {
	t.Helper()
	var counts []float64
	total, sums := 0.0, 0
	for _, s := range samples {
		if inLockstep(s.labels) {
			return
		}
		if s.name == name+"_count" {
			counts = append(counts, s.value)
		}
		if s.name == name+"_sum" {
			total += s.value
			sums++
		}
	}
	if len(counts) != 1 || sums != 1 || !h.Sum.Known() {
		return // series that lack a part: each parser has its own view of them
	}
	if strconv.FormatFloat(math.Trunc(h.Count.X), 'g', -1, 64) != strconv.FormatFloat(counts[0], 'g', -1, 64) ||
		math.Abs(h.Sum.X-total) > 1e-9*total {
		t.Fatalf("%s: count %v and sum %v, Prometheus reads %v and %v", name, h.Count.X, h.Sum.X, counts[0], total)
	}
}

func inLockstep(labels map[string]string) bool {
	for name := range labels {
		if strings.HasSuffix(name, "_rank") && name != "dp_rank" {
			return true
		}
	}
	return false
}

// Our pages, as Prometheus' parser writes them, read the same.
func TestFixturesRewrittenReadTheSame(t *testing.T) {
	compared := 0
	pages, _ := filepath.Glob("testdata/*.prom")
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		before := mustRead(t, string(text))
		if err != nil || before.Dropped > 0 {
			continue
		}
		var rewritten bytes.Buffer
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(&rewritten, family); err != nil {
				t.Fatal(err)
			}
		}
		after := mustRead(t, rewritten.String())
		if got, want := view(&after), view(&before); got != want {
			t.Errorf("%s: rewritten it reads %+v, want %+v", path, got, want)
		}
		compared++
	}
	if compared < 8 {
		t.Errorf("%d pages were compared, want at least 8", compared)
	}
}
