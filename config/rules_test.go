package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/fleet"
)

// request is what rules look at.
type request struct {
	host, path, model string
	headers           map[string]string
}

// matches is the meaning of a rule, as Envoy has it.
func matches(r fleet.Rule, q request) bool {
	for _, h := range r.Headers {
		if q.headers[h.Name] != h.Value {
			return false
		}
	}
	onPath := strings.HasPrefix(q.path, r.Path)
	if r.Exact {
		onPath = q.path == r.Path
	}
	return onPath && (r.Host == "" || r.Host == q.host) && (r.Model == "" || r.Model == q.model)
}

func anyRule(t *rapid.T, label string) fleet.Rule {
	pick := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label+" "+what) }
	r := fleet.Rule{
		Host:  pick("host", "", "a", "b"),
		Path:  pick("path", "", "/v1", "/v1/chat", "/v2"),
		Model: pick("model", "", "m", "n"),
	}
	r.Exact = r.Path != "" && rapid.Bool().Draw(t, label+" exact")
	for _, name := range []string{"x", "y"} {
		if v := pick(name, "", "1", "2"); v != "" {
			r.Headers = append(r.Headers, fleet.HeaderRule{Name: name, Value: v})
		}
	}
	return r
}

// everyRequest lists one request of each kind that the rules of anyRule can tell
// apart.
func everyRequest() []request {
	var out []request
	for _, host := range []string{"a", "b", "c"} {
		for _, path := range []string{"/", "/v1", "/v1x", "/v1/chat", "/v1/chat/x", "/v2", "/v2/x"} {
			for _, model := range []string{"", "m", "n", "o"} {
				for _, x := range []string{"", "1", "2"} {
					for _, y := range []string{"", "1", "2"} {
						out = append(out, request{host, path, model, map[string]string{"x": x, "y": y}})
					}
				}
			}
		}
	}
	return out
}

// One rule covers another exactly when it takes all requests of the other.
func TestCovers(t *testing.T) {
	all := everyRequest()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRule(t, "a"), anyRule(t, "b")
		missed := slices.IndexFunc(all, func(q request) bool { return matches(b, q) && !matches(a, q) })
		if got, want := covers(a, b), missed < 0; got != want {
			t.Errorf("covers(%+v, %+v) is %v, want %v", a, b, got, want)
		}
	})
}

// A pool lacks nothing exactly when the class may use it.
func TestLacksAgreesWithEligible(t *testing.T) {
	some := func(t *rapid.T, label string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, label)
	}
	labels := func(t *rapid.T, label string) map[string]string {
		return rapid.MapOfN(rapid.SampledFrom([]string{"k", "l"}), rapid.SampledFrom([]string{"", "1"}), 0, 2).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := &fleet.Pool{
			Region: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "region"),
			Models: some(t, "models"), Capabilities: some(t, "capabilities"), Labels: labels(t, "labels"),
		}
		c := &fleet.Class{Requires: fleet.Requirements{
			Models: some(t, "wanted models"), Capabilities: some(t, "wanted capabilities"),
			Labels: labels(t, "wanted labels"), Regions: some(t, "wanted regions"),
		}}
		if missing := lacks(c, p); (len(missing) == 0) != c.Eligible(p) {
			t.Errorf("lacks %v, eligible %v", missing, c.Eligible(p))
		}
	})
}

func TestNearestPoolIsNamed(t *testing.T) {
	text := strings.Replace(minimal, "- name: P", `- {name: far, models: [x], engines: ["127.0.0.1:11009"], profile: {capacity: 1 rps, ttft: 1s}}
  - name: P`, 1)
	text = strings.Replace(text, "- name: chat", "- name: chat\n    requires: {capabilities: [tools]}", 1)
	_, err := Parse("fleet.yaml", []byte(text))
	if want := `the nearest, pool "P", lacks the capability "tools";`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A class is not told off for what may be a slip in a pool.
func TestDoubtfulPoolsHideNothingElse(t *testing.T) {
	text := strings.Replace(minimal, "models: [m]", "model: [m]", 1)
	_, err := Parse("fleet.yaml", []byte(text))
	want := []string{`unknown key "model"`, "models is missing"}
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got %v", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want %s", err, w)
		}
	}
}
