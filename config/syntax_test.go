package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// seeds are all fleets of the tests, good and bad.
func seeds(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"testdata/*.yaml", "testdata/bad/*.yaml", "../testdata/fleets/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(text))
		}
	}
	return append(out, minimal)
}

// A file that is made to cost much is refused at once, and never ends the process.
func TestHostileText(t *testing.T) {
	const n = 20_000
	tests := map[string]string{
		"nested lists":          strings.Repeat("[", n) + strings.Repeat("]", n),
		"nested lists, open":    strings.Repeat("[", n),
		"nested mappings":       strings.Repeat("{a: ", n) + strings.Repeat("}", n),
		"nested entries":        strings.Repeat("- ", n) + "x",
		"nested keys":           strings.Repeat("? ", n) + "x",
		"nested keys in a list": "[" + strings.Repeat("? ", n) + "x]",
		"tags":                  strings.Repeat("!!str ", n) + "x",
		"tags in a list":        "[" + strings.Repeat("!!str ", n) + "x]",
		"anchors":               strings.Repeat("&a ", n) + "x",
		"anchors in a list":     "[" + strings.Repeat("&a ", n) + "x]",
		"indented":              indented(1000),
		"alias of itself":       "pools: &a [*a]",
		"merge of itself":       "pools: &a {<<: *a}",
		"bare alias of itself":  "pools: &a *a",
		"invalid UTF-8":         "frontEnds: \xff",
		"control characters":    "\x00\x01\x02",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("fleet.yaml", []byte(text))
			if err == nil {
				t.Fatal("no error")
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func indented(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// bomb is a few kilobytes that stand for two million values.
func bomb() string {
	return "network: {roundTrip: {F: &row {" + many(1000, "P%d: 1ms, ") + "}, " + many(999, "F%d: *row, ") + "}}"
}

func TestPositionsCountCharacters(t *testing.T) {
	text := strings.Replace(minimal, "name: P\n", "name: P\n    labels: {größe: \"größer\", zone: 1}\n", 1)
	_, err := Parse("fleet.yaml", []byte(text))
	want := `fleet.yaml:5:37: pool "P": labels.zone: 1 is a number, not a text; write it in quotes: "1"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestInvalidUTF8HasAPlace(t *testing.T) {
	_, err := Parse("fleet.yaml", []byte("frontEnds:\n  ä: \xff\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "fleet.yaml:2:6: the text is not UTF-8") {
		t.Errorf("got %v", err)
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	tests := map[string]struct{ profile, want string }{
		"alias":                {"*p", ""},
		"merge":                {"{<<: *p}", ""},
		"own key wins":         {"{<<: *p, capacity: 20 rps}", ""},
		"merge of two":         {"{<<: [*p, *p]}", "a list merged into a mapping"},
		"merge of a text":      {"{<<: text}", "a text merged into a mapping"},
		"unknown key merged":   {"{<<: {capacty: 1 rps}, capacity: 20 rps, ttft: 1s}", `unknown key "capacty"`},
		"alias before anchor":  {"*later", "nothing above is named by the alias *later"},
		"problem at an anchor": {"{<<: *p, ttft: 1}", "ttft: 1 has no unit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(minimal, "profile: {", "profile: &p {", 1)
			text = strings.Replace(text, "classes:",
				"  - {name: Q, models: [m], engines: [\"127.0.0.1:11002\"], profile: "+test.profile+"}\nclasses:", 1)
			f, err := Parse("fleet.yaml", []byte(text))
			switch want := test.want; {
			case want == "" && err != nil:
				t.Fatal(err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Fatalf("got %v, want %s", err, want)
			case want == "" && len(f.Pools[1].Profile.TTFT) != 1:
				t.Errorf("profile is %+v", f.Pools[1].Profile)
			}
		})
	}
}
