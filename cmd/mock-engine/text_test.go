package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestText(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"nothing", "", ""},
		{"null", "null", ""},
		{"string", `"a\nb"`, "a\nb"},
		{"parts", `[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]`, "ab"},
		{"an image among them", `["a",{"url":"x"}]`, `"a"{"url":"x"}`},
		{"object", `{"id":1}`, `{"id":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(json.RawMessage(tt.raw)); got != tt.want {
				t.Errorf("text(%s) = %q, want %q", tt.raw, got, tt.want)
			}
		})
	}
}

func TestInputs(t *testing.T) {
	tests := []struct {
		name, raw string
		want      []string
	}{
		{"a text", `"ab"`, []string{"ab"}},
		{"texts", `["a","b"]`, []string{"a", "b"}},
		{"tokens", `[1,258]`, []string{"\x00\x00\x00\x01\x00\x00\x01\x02"}},
		{"lists of tokens", `[[1],[2]]`, []string{"\x00\x00\x00\x01", "\x00\x00\x00\x02"}},
		{"nothing", ``, nil},
		{"an empty list", `[]`, nil},
		{"an object", `{}`, nil},
		{"a negative token", `[-1]`, nil},
		{"a list of objects", `[{}]`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := inputs(json.RawMessage(tt.raw))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("inputs (-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.want == nil) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","properties":{"x":`, 20) + `{}` + strings.Repeat("}}", 20)
	tests := []struct{ name, parameters, want string }{
		{"no schema", ``, `{}`},
		{"a wrong one", `7`, `{}`},
		{
			"every type", `{"properties":{"a":{"type":"string"},"b":{"type":"number"},"c":{"type":"boolean"},
			"d":{"type":"array"},"e":{"enum":["x","y"]},"f":{"type":["integer","null"]},"g":{"$ref":"#/h"}}}`,
			`{"a":"word","b":5,"c":true,"d":[],"e":"x","f":5,"g":null}`,
		},
		{"nested too deep", deep, strings.Repeat(`{"x":`, 8) + "null" + strings.Repeat("}", 8)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCall(&tool{"f", json.RawMessage(tt.parameters)}, func() string { return " word" })
			if got := strings.Join(c.pieces, ""); got != tt.want {
				t.Errorf("arguments = %s, want %s", got, tt.want)
			}
		})
	}
}
