// Package weir_test holds the architecture: which room may import what, and the
// rules of the house that a reader would otherwise have to remember. It reads the
// source files, so that a break shows even where nothing else compiles.
package weir_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "weir"
	maxLines = 600 // of one Go file
)

// room is what the code of one folder may import beside the standard library.
type room struct {
	ours    string // folders of this module, separated by spaces
	modules string // prefixes of other modules' packages
	tests   string // folders that only its tests may import; "*": all of them
}

// Prefixes of other modules.
const (
	protos  = "github.com/envoyproxy/go-control-plane/envoy github.com/cncf/xds/go google.golang.org/protobuf"
	servers = protos + " github.com/envoyproxy/go-control-plane/pkg google.golang.org/grpc google.golang.org/genproto/googleapis/rpc" +
		" go.uber.org/zap golang.org/x/sync " + metrics
	metrics = "github.com/prometheus/client_golang"
	// The client of all kinds of object (client-go/kubernetes) is left out for its size.
	kubernetes = "k8s.io/api/core/v1 k8s.io/api/discovery/v1 k8s.io/apimachinery/pkg k8s.io/client-go/rest k8s.io/client-go/tools k8s.io/klog/v2"
	command    = metrics + " github.com/spf13/cobra github.com/goccy/go-yaml google.golang.org/grpc go.uber.org/zap golang.org/x/sync"

	// testTools are what any test may import.
	testTools = "github.com/google/go-cmp pgregory.net/rapid github.com/rogpeppe/go-internal go.uber.org/zap"
)

// rooms are all folders with Go code. A new one is a decision: see docs/adr.
var rooms = map[string]room{
	".":                 {},
	"fleet":             {},
	"config":            {ours: "fleet", modules: "github.com/goccy/go-yaml"},
	"signals":           {ours: "fleet signals/dialect signals/scrape", modules: "go.uber.org/zap golang.org/x/sync " + metrics, tests: "config"},
	"signals/dialect":   {tests: "*"},
	"signals/discover":  {ours: "fleet", modules: "go.uber.org/zap golang.org/x/net/dns/dnsmessage golang.org/x/sync " + kubernetes + " " + metrics, tests: "*"},
	"signals/scrape":    {ours: "fleet signals/dialect", modules: "go.uber.org/zap " + metrics, tests: "signals deploy/figures"},
	"solver":            {ours: "fleet solver/lp", tests: "config solver/clp"},
	"solver/lp":         {tests: "solver/clp"},
	"solver/clp":        {ours: "solver/lp", modules: "github.com/lanl/clp"},
	"control":           {ours: "fleet", modules: "go.uber.org/zap golang.org/x/sync " + metrics, tests: "config solver solver/lp solver/clp"},
	"admin":             {ours: "fleet", modules: metrics},
	"envoy":             {ours: "fleet", modules: protos + " github.com/cespare/xxhash/v2", tests: "config"},
	"xds":               {ours: "fleet envoy", modules: servers, tests: "config"},
	"extproc":           {ours: "fleet envoy extproc/gate extproc/penalty extproc/wire", modules: servers + " github.com/cespare/xxhash/v2 github.com/go-json-experiment/json github.com/klauspost/compress/zstd", tests: "config"},
	"extproc/gate":      {ours: "fleet"},
	"extproc/outcome":   {ours: "fleet envoy extproc/wire extproc/penalty", modules: servers},
	"extproc/penalty":   {ours: "fleet"},
	"extproc/roundtrip": {ours: "fleet", modules: metrics},
	"extproc/wire":      {modules: servers},
	"simulate":          {ours: "fleet extproc/gate signals signals/dialect signals/scrape", modules: "github.com/cespare/xxhash/v2", tests: "*"},
	"fit":               {ours: "fleet", tests: "config"},
	"fit/watch":         {ours: "fleet fit", modules: "go.uber.org/zap " + metrics},
	"deploy":            {tests: "*"},
	"deploy/bench":      {tests: "*"},
	"deploy/figures":    {},
	"deploy/stage":      {ours: "fleet config", modules: "golang.org/x/sync", tests: "*"},
	"deploy/kubernetes": {tests: "*"},
	"deploy/release":    {tests: "*"},
	"deploy/systemd":    {tests: "*"},
	"deploy/demo":       {ours: "fleet config envoy xds deploy/stage", modules: "go.uber.org/zap golang.org/x/sync", tests: "*"},
	"deploy/compose":    {tests: "*"},
	"cmd/mock-engine":   {},
	"cmd/mock-clients":  {ours: "deploy/stage"},
	"cmd/weir-extproc":  {ours: "fleet envoy xds extproc extproc/outcome extproc/roundtrip admin", modules: command},
	"cmd/weir": {
		ours:    "fleet config fit fit/watch signals signals/dialect signals/discover signals/scrape solver solver/lp solver/clp control envoy xds admin simulate deploy/demo deploy/stage",
		modules: command,
		tests:   "*",
	},
}

// folders are the top-level folders; those that git ignores are left out.
var folders = strings.Fields("admin cmd config control deploy docs envoy extproc fit fleet signals simulate solver testdata tools xds")

// ignored are top-level folders that a build leaves behind.
var ignored = strings.Fields("bin out")

// source is one Go file.
type source struct {
	path   string // from the repository's root, with slashes
	lines  int
	syntax *ast.File
}

func parse(name string, content []byte) (source, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ParseComments|parser.SkipObjectResolution)
	return source{name, bytes.Count(content, []byte("\n")), syntax}, err
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) isTest() bool   { return strings.HasSuffix(s.path, "_test.go") }

// violations are the rules that one file breaks.
func violations(s source) []string {
	var found []string
	r, known := rooms[s.folder()]
	if !known {
		found = append(found, "the folder is not a room of the design: a new one needs an ADR and a line here")
	}
	if s.lines > maxLines {
		found = append(found, fmt.Sprintf("%d lines, at most %d", s.lines, maxLines))
	}
	for _, imported := range s.syntax.Imports {
		name, err := strconv.Unquote(imported.Path.Value)
		if err != nil || !mayImport(s, r, name) {
			found = append(found, "may not import "+imported.Path.Value)
		}
	}
	return append(found, forbiddenCode(s)...)
}

func mayImport(s source, r room, name string) bool {
	ours, isOurs := strings.CutPrefix(name, module+"/")
	first, _, _ := strings.Cut(name, "/")
	switch {
	case name == "C":
		return s.folder() == "solver/clp"
	case isOurs && s.isTest():
		return ours == s.folder() || r.tests == "*" || slices.Contains(strings.Fields(r.ours+" "+r.tests), ours)
	case isOurs:
		return slices.Contains(strings.Fields(r.ours), ours)
	case !strings.Contains(first, "."): // the standard library
		return true
	case s.isTest():
		return r.tests == "*" || hasPrefix(r.modules+" "+testTools, name)
	}
	return hasPrefix(r.modules, name)
}

// hasPrefix says whether a package is one of the listed paths or below it.
func hasPrefix(list, name string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(prefix string) bool {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	})
}

// forbiddenCode finds init functions, and sleeps in tests.
func forbiddenCode(s source) []string {
	var found []string
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				found = append(found, "has an init function: wire it in cmd")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && s.isTest() && x.Name == "time" && n.Sel.Name == "Sleep" {
				found = append(found, "a test sleeps: wait on the condition, with a deadline")
			}
		}
		return true
	})
	return found
}

// sources parses every Go file of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(filepath.ToSlash(name), d.Name())
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(name), content)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func skip(name, base string) error {
	if base == "testdata" || slices.Contains(ignored, name) || strings.HasPrefix(base, ".") && base != "." {
		return fs.SkipDir
	}
	return nil
}

func TestArchitecture(t *testing.T) {
	all := sources(t)
	if len(all) < len(rooms) {
		t.Fatalf("found %d Go files only: is this the repository's root?", len(all))
	}
	for _, s := range all {
		for _, v := range violations(s) {
			t.Errorf("%s: %s", s.path, v)
		}
	}
	for _, folder := range undocumented(all) {
		t.Errorf("%s: no file has a package comment", folder)
	}
}

// undocumented are the folders whose package has no comment.
func undocumented(all []source) []string {
	documented := map[string]bool{}
	for _, s := range all {
		if !s.isTest() {
			documented[s.folder()] = documented[s.folder()] || s.syntax.Doc != nil
		}
	}
	var found []string
	for folder, ok := range documented {
		if !ok {
			found = append(found, folder)
		}
	}
	slices.Sort(found)
	return found
}

func TestTopLevelFolders(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		hidden := strings.HasPrefix(e.Name(), ".")
		if e.IsDir() && !hidden && !slices.Contains(folders, e.Name()) && !slices.Contains(ignored, e.Name()) {
			t.Errorf("%s: a new top-level folder needs an ADR and a line here", e.Name())
		}
	}
}

func TestNoReplaceInGoMod(t *testing.T) {
	for _, name := range []string{"go.mod", "tools/go.mod"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if words := strings.Fields(line); len(words) > 0 && words[0] == "replace" {
				t.Errorf("%s: %s", name, strings.TrimSpace(line))
			}
		}
	}
}

// TestRulesBite feeds the rules files that break one of them each, and files
// that break none.
func TestRulesBite(t *testing.T) {
	tests := []struct {
		name, path, code string
		want             string // empty: no violation
	}{
		{"fleet is first", "fleet/x.go", `import "weir/config"`, `may not import "weir/config"`},
		{"fleet has no modules", "fleet/x.go", `import "go.uber.org/zap"`, `may not import "go.uber.org/zap"`},
		{"siblings", "signals/x.go", `import "weir/solver"`, `may not import "weir/solver"`},
		{"a room by prefix only", "solver/x.go", `import "weir/solver/clp"`, `may not import "weir/solver/clp"`},
		{"a mock that knows us", "cmd/mock-engine/x.go", `import "weir/fleet"`, `may not import "weir/fleet"`},
		{"solver on the data plane", "cmd/weir-extproc/x.go", `import "weir/solver"`, `may not import "weir/solver"`},
		{"cgo elsewhere", "solver/x.go", `import "C"`, `may not import "C"`},
		{"CLP elsewhere", "control/x.go", `import "github.com/lanl/clp"`, `may not import "github.com/lanl/clp"`},
		{"a name that starts alike", "config/x.go", `import "github.com/goccy/go-yaml-too"`, "may not import"},
		{"test tools in code", "solver/x.go", `import "pgregory.net/rapid"`, "may not import"},
		{"a test beyond its room", "envoy/x_test.go", `import "weir/xds"`, `may not import "weir/xds"`},
		{"another folder", "utils/x.go", ``, "not a room"},
		{"init", "xds/x.go", `func init() {}`, "init function"},
		{"sleep", "xds/x_test.go", `import "time"; func f() { time.Sleep(1) }`, "a test sleeps"},
		{"long", "xds/x.go", strings.Repeat("\n", maxLines), "601 lines, at most 600"},

		{"standard library", "fleet/x.go", `import ("time"; "encoding/json")`, ""},
		{"own room from its external test", "envoy/x_test.go", `import "weir/envoy"`, ""},
		{"test tools in a test", "fleet/x_test.go", `import "github.com/google/go-cmp/cmp"`, ""},
		{"a solver for a test", "solver/x_test.go", `import "weir/solver/clp"`, ""},
		{"end to end", "deploy/x_test.go", `import "weir/extproc"`, ""},
		{"cgo at home", "solver/clp/x.go", `import "C"`, ""},
		{"a method named init", "xds/x.go", `type t int; func (t) init() {}`, ""},
		{"sleep outside tests", "xds/x.go", `import "time"; func f() { time.Sleep(1) }`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse(tt.path, []byte("package x; "+tt.code+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(violations(s), "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("violations = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUndocumented(t *testing.T) {
	var all []source
	for name, code := range map[string]string{
		"a/a.go":      "package a",
		"a/a_test.go": "// Package a is described in a test only.\npackage a",
		"b/b.go":      "package b",
		"b/doc.go":    "// Package b is described once.\npackage b",
	} {
		s, err := parse(name, []byte(code))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if got := undocumented(all); !slices.Equal(got, []string{"a"}) {
		t.Errorf("undocumented = %v, want [a]", got)
	}
}
