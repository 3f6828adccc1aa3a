package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A colon in a word is a part of it wherever the word stands.
func TestColonsInWords(t *testing.T) {
	tests := map[string][]string{
		"[m, tern:7b]":              {"m", "tern:7b"},
		"[m, a:b:c, 7:b, d:8, é:x]": {"m", "a:b:c", "7:b", "d:8", "é:x"},
		"[m, 'a:b', \"c\"]":         {"m", "a:b", "c"},
		"[m, # all\n    a:b]":       {"m", "a:b"},
	}
	for list, want := range tests {
		for _, form := range []string{"- name: P\n    models: %s", "- name: P\n    <<: {models: %s}"} {
			text := strings.Replace(minimal, "    models: [m]\n", "", 1)
			text = strings.Replace(text, "- name: P", strings.Replace(form, "%s", list, 1), 1)
			f, err := Parse("fleet.yaml", []byte(text))
			if err != nil {
				t.Errorf("%s: %v", list, err)
				continue
			}
			if diff := cmp.Diff(want, f.Pools[0].Models); diff != "" {
				t.Errorf("%s (-want +got):\n%s", list, diff)
			}
		}
	}
}

// With a space behind the colon, or quotes before it, it is a mapping.
func TestMappingsInLists(t *testing.T) {
	for _, item := range []string{"{a:b}", "a: b", `"a":b`} {
		_, err := Parse("fleet.yaml", []byte(strings.Replace(minimal, "models: [m]", "<<: {models: [m, "+item+"]}", 1)))
		if err == nil || !strings.Contains(err.Error(), "models: a mapping where a single value belongs") {
			t.Errorf("%s: %v, want a complaint of a mapping", item, err)
		}
	}
}
