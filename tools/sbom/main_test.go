package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// A program's bill names it, by its content, and what it was built of.
func TestOfThisProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(self, []string{"coinor-libclp-dev=1.17.6-3"}, &out); err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	sum, err := sha256Of(self)
	if err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || len(b.Metadata.Component.Hashes) != 1 || b.Metadata.Component.Hashes[0].Content != sum {
		t.Errorf("bill %s %+v, want one of the program with the hash %s", b.Format, b.Metadata.Component, sum)
	}
	last := b.Components[len(b.Components)-1]
	if b.Components[0].Name != "std" || last.PURL != "pkg:deb/debian/coinor-libclp-dev@1.17.6-3" {
		t.Errorf("components %+v", b.Components)
	}
}

func TestModules(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}, Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.2.3+incompatible", Sum: "h1:x"},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0"}},
	}}
	b, err := newBOM("x", "00", info, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range b.Components {
		got = append(got, c.PURL)
	}
	want := "pkg:golang/std@1.26.8 pkg:golang/example.com/a@v1.2.3%2Bincompatible pkg:golang/example.com/c@v2.0.0"
	if strings.Join(got, " ") != want || b.Components[1].Properties[0].Value != "h1:x" {
		t.Errorf("components %v", b.Components)
	}
}

func TestRefused(t *testing.T) {
	if err := run("main.go", nil, &bytes.Buffer{}); err == nil {
		t.Error("a bill of what is no program")
	}
	if _, err := newBOM("x", "00", &debug.BuildInfo{}, []string{"a"}); err == nil || !strings.Contains(err.Error(), "want PACKAGE=VERSION") {
		t.Errorf("a package without a version: %v", err)
	}
}
