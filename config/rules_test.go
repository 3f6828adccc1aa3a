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
	body              fleet.BodyRule // what its body says; ContextOver: the tokens of its prompt
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
	return onPath && (r.Host == "" || r.Host == q.host) && (r.Model == "" || r.Model == q.model) &&
		(!r.Body.Tools || q.body.Tools) && (!r.Body.Vision || q.body.Vision) && (r.Body.ContextOver == 0 || q.body.ContextOver > r.Body.ContextOver)
}

func anyRule(t *rapid.T, label string) fleet.Rule {
	pick := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label+" "+what) }
	r := fleet.Rule{
		Host:  pick("host", "", "a", "b"),
		Path:  pick("path", "", "/v1", "/v1/chat", "/v2"),
		Model: pick("model", "", "m", "n"),
	}
	r.Exact = r.Path != "" && rapid.Bool().Draw(t, label+" exact")
	r.Body = fleet.BodyRule{
		Tools: rapid.Bool().Draw(t, label+" tools"), Vision: rapid.Bool().Draw(t, label+" vision"),
		ContextOver: rapid.SampledFrom([]int{0, 1000, 2000}).Draw(t, label+" context"),
	}
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
						for _, b := range everyBody() {
							out = append(out, request{host, path, model, map[string]string{"x": x, "y": y}, b})
						}
					}
				}
			}
		}
	}
	return out
}

func everyBody() []fleet.BodyRule {
	var out []fleet.BodyRule
	for _, tools := range []bool{false, true} {
		for _, vision := range []bool{false, true} {
			for _, tokens := range []int{500, 1001, 2001} {
				out = append(out, fleet.BodyRule{Tools: tools, Vision: vision, ContextOver: tokens})
			}
		}
	}
	return out
}

// Two rules meet exactly when a request can match both, whatever its body says.
func TestMeet(t *testing.T) {
	all := everyRequest()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRule(t, "a"), anyRule(t, "b")
		met := slices.ContainsFunc(all, func(q request) bool {
			q.body = fleet.BodyRule{Tools: true, Vision: true, ContextOver: 2001}
			return matches(a, q) && matches(b, q)
		})
		if got := meet(a, b); got != met {
			t.Errorf("meet(%+v, %+v) is %v, want %v", a, b, got, met)
		}
	})
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

// A rule by the body is no harm where the class that inherits its requests keeps
// them as near, or where neither keeps them anywhere.
func TestRulesByTheBodyThatStayPut(t *testing.T) {
	const rest = "\n  - {name: rest, match: [{model: m}]}"
	for name, classes := range map[string]string{
		"nothing behind":      "\n  - {name: a, match: [{model: m, tools: true}]}",
		"a wider one behind":  "\n  - {name: a, match: [{model: m, tools: true, vision: true, contextOver: 1000}], requires: {capabilities: [tools]}}" + rest,
		"the same region":     "\n  - {name: a, match: [{model: m, tools: true}], requires: {regions: [here], labels: {sku: x}}}\n  - {name: b, match: [{model: m}], requires: {labels: {sku: x}, regions: [here]}}",
		"its own rule behind": "\n  - {name: a, match: [{host: h, model: m, vision: true}, {host: h, model: m}], requires: {regions: [here]}}" + rest,
		"a region elsewhere":  "\n  - {name: a, match: [{path: /a, model: m, tools: true}]}\n  - {name: b, match: [{path: /b, model: m}], requires: {regions: [here]}}" + rest,
	} {
		text := strings.Replace(minimal, "    models: [m]\n", "    models: [m]\n    region: here\n    labels: {sku: x}\n    capabilities: [tools]\n", 1)
		from, to := strings.Index(text, "\n  - name: chat"), strings.Index(text, "\nnetwork:")
		text = strings.Replace(text[:from]+classes+text[to:], "demand: {chat", "demand: {a", 1)
		f, err := Parse("fleet.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !f.Classes[0].Match[0].Body.Any() {
			t.Errorf("%s: the rule asks for nothing: %+v", name, f.Classes[0].Match[0])
		}
	}
}
