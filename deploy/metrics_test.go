package deploy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"weir/deploy/stage"
)

// docs/OPERATIONS.md names exactly the metrics that there are, with their types
// and labels.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	shadowed := func(text string) string {
		text, _ = fromFile(t, text, 2) // the last pool's
		return strings.Replace(text, "\noptions:\n", "\noptions:\n  shadow: nearest\n", 1)
	}
	s := start(t, stage.Options{FleetFile: talk, Edit: shadowed})
	caller := newCaller(t, s, "B")
	caller.send(40)
	call := chatCall(s.URL("B"), "usage") // TBT is measured of answers that say their tokens
	call.Body = []byte(strings.Replace(string(call.Body), `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1))
	if r := stage.Do(t.Context(), stage.NewClient(), call); !r.OK() {
		t.Fatal(&r)
	}
	documented := documentedMetrics(t)
	for process, chapter := range map[string]string{"weir": "### Control plane", "extproc-B": "### weir-extproc"} {
		t.Run(process, func(t *testing.T) {
			want := documented[chapter]
			var got []string
			eventually(t, "all metrics are there", 10*time.Second, func() bool {
				caller.send(1) // Envoy reports no load of before it was asked to
				got = scrape(t, s.AdminAddress(process))
				return len(got) >= len(want)
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("metrics (-documented +scraped):\n%s", diff)
			}
		})
	}
}

var metricRow = regexp.MustCompile("^\\| `(weir_\\w+)` \\| (\\w+) \\|(.*?)\\|")

// documentedMetrics reads the tables, by heading, as "name type label,label".
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	found, heading := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			heading = strings.TrimSpace(line)
		}
		if m := metricRow.FindStringSubmatch(line); m != nil {
			labels := strings.Split(strings.NewReplacer("`", "", " ", "").Replace(m[3]), ",")
			slices.Sort(labels)
			found[heading] = append(found[heading], fmt.Sprint(m[1], " ", m[2], " ", strings.Join(labels, ",")))
		}
	}
	for _, metrics := range found {
		slices.Sort(metrics)
	}
	return found
}

// scrape reads Weir's own metrics as "name type label,label", which must be clean.
func scrape(t *testing.T, address string) []string {
	t.Helper()
	text := page(t, address, "/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	var found []string
	for name, f := range families {
		if !strings.HasPrefix(name, "weir_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		found = append(found, fmt.Sprint(name, " ", strings.ToLower(f.GetType().String()), " ", strings.Join(labels, ",")))
	}
	slices.Sort(found)
	return found
}

// page gets one page of an admin API, which must answer 200.
func page(t *testing.T, address, path string) string {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s, %v: %s", path, response.Status, err, text)
	}
	return string(text)
}
