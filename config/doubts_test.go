package config

import (
	"strings"
	"testing"
)

const doubtless = `
frontEnds:
  - {name: A, listen: "127.0.0.1:10001", demand: {chat: 10 rps}}
pools:
  - name: P
    models: [m]
    engines: ["10.0.0.1:8000", "10.0.0.2:8000"]
    min: 90 rps
    profile: {capacity: 50 rps, ttft: {0%: 1.5s, 100%: 3s}}
  - name: Q
    models: [m]
    engines: ["10.0.0.3:8000"]
    profile: {capacity: 50 rps, ttft: 200ms}
classes:
  - {name: chat, match: [{model: m}]}
network: {roundTrip: {A: {P: 500ms, Q: 2ms}}}
limits:
  - {frontEnd: A, class: chat, pool: P, min: 40%, max: 60%}
  - {frontEnd: A, class: chat, pool: Q, min: 40%, max: 60%}
options: {idle: 3s, headroom: 10%}
`

// What can never be kept is named; what can just be is not.
func TestDoubts(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"none":                   {"", "", ""},
		"silence before a token": {"idle: 3s", "idle: 2s", `options.idle ends a request after 2s of silence, and the first token of pool "P" takes 2s at best`},
		"too much headroom":      {"headroom: 10%", "headroom: 20%", `pool "P" is to have 90 rps at least (min), and its 2 engines less the headroom of 20 % can do 80 rps`},
		"a min above all":        {"min: 90 rps", "min: 100 rps", `pool "P" is to have 100 rps`},
		"mins beyond all":        {"pool: Q, min: 40%, max: 60%", "pool: Q, min: 61%, max: 80%", `class "chat" at "A" is to send 101 % of its traffic in all (min)`},
		"maxes below all":        {"pool: Q, min: 40%, max: 60%", "pool: Q, max: 30%", `class "chat" at "A" may send 90 % of its traffic anywhere (max)`},
		"a pool without a max":   {"  - {frontEnd: A, class: chat, pool: Q, min: 40%, max: 60%}\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("fleet", []byte(strings.Replace(doubtless, c.from, c.to, 1)))
			if err != nil {
				t.Fatal(err)
			}
			got := Doubts(f)
			if c.want == "" && got != nil || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
