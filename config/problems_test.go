package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/many.txt")

// Each bad file has one mistake, and in its first line how that is reported.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			first, _, _ := strings.Cut(read(t, file), "\n")
			want := file + ":" + strings.TrimPrefix(first, "# ")
			_, err := Load(file)
			var problems Problems
			if !errors.As(err, &problems) || len(problems) != 1 {
				t.Fatalf("got %v, want one problem", err)
			}
			if got := problems[0].String(); !strings.HasPrefix(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// Nothing that is wrong hides anything else that is wrong.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Load("testdata/many.yaml")
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.ReplaceAll(err.Error(), "testdata/many.yaml:", "") + "\n"
	if *update {
		if err := os.WriteFile("testdata/many.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, "testdata/many.txt"), got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestProblemsAreSortedOnceEach(t *testing.T) {
	at := func(line, column int, what string) Problem {
		return Problem{File: "f.yaml", Line: line, Column: column, What: what, Remedy: "mend it"}
	}
	got := Problems{at(3, 1, "c"), at(1, 9, "b"), at(1, 2, "a"), at(3, 1, "c"), at(3, 1, "d")}.sorted()
	want := Problems{at(1, 2, "a"), at(1, 9, "b"), at(3, 1, "c"), at(3, 1, "d")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if first, _, _ := strings.Cut(got.Error(), "\n"); first != "f.yaml:1:2: a; mend it" {
		t.Errorf("first line is %q", first)
	}
}

// Every key of the format is in the reference. What a mapping may hold is what
// its complaint about an unknown key lists.
func TestReferenceNamesEveryKey(t *testing.T) {
	_, err := Parse("fleet.yaml", []byte(`
zzz: 1
frontEnds: [{zzz: 1}]
pools: [{zzz: 1, tls: {zzz: 1}, metrics: {zzz: 1, names: {zzz: 1}}, profile: {zzz: 1, reference: {zzz: 1}}}]
classes: [{zzz: 1, match: [{zzz: 1}], requires: {zzz: 1}, tokens: {zzz: 1}, weights: {zzz: 1}}]
network: {zzz: 1}
options: {zzz: 1}
`))
	var problems Problems
	errors.As(err, &problems)
	reference, seen := read(t, "../docs/FLEET.md"), 0
	for _, p := range problems {
		list, ok := strings.CutPrefix(p.Remedy, "use one of ")
		if !ok {
			continue
		}
		seen++
		for _, key := range strings.Split(list, ", ") {
			if !strings.Contains(reference, "`"+key+"`") {
				t.Errorf("docs/FLEET.md says nothing of %s (%s)", key, p.What)
			}
		}
	}
	if seen != 15 {
		t.Errorf("saw the keys of %d mappings, want 15: %v", seen, err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
