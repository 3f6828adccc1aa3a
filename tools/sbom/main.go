// Sbom writes a software bill of materials for a Go program: CycloneDX 1.5 as JSON,
// of what the program itself says it was built from. It stands in the tools' module
// and needs nothing but the standard library.
//
//	sbom PROGRAM [PACKAGE=VERSION …]
//
// Packages are Debian's that were linked in, of which the program does not know.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// bom is the part of CycloneDX that is used.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM [PACKAGE=VERSION …]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program string, packages []string, out io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	sum, err := sha256Of(program)
	if err != nil {
		return err
	}
	b, err := newBOM(filepath.Base(program), sum, info, packages)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}

func newBOM(name, sum string, info *debug.BuildInfo, packages []string) (*bom, error) {
	main := component{
		Type: "application", Ref: name, Name: name, Version: info.Main.Version,
		Hashes: []hash{{"SHA-256", sum}}, Properties: []property{{"go:path", info.Path}},
	}
	for _, s := range info.Settings {
		main.Properties = append(main.Properties, property{"go:build:" + s.Key, s.Value})
	}
	b := &bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{main}}
	b.add("golang", "std", strings.TrimPrefix(info.GoVersion, "go"), "")
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		b.add("golang", d.Path, d.Version, d.Sum)
	}
	for _, p := range packages {
		name, version, ok := strings.Cut(p, "=")
		if !ok || name == "" || version == "" {
			return nil, fmt.Errorf("package %q: want PACKAGE=VERSION", p)
		}
		b.add("deb/debian", name, version, "")
	}
	return b, nil
}

// add names a library. A module's sum is over its tree, and so none of CycloneDX's
// hashes.
func (b *bom) add(kind, name, version, sum string) {
	c := component{Type: "library", Name: name, Version: version, PURL: "pkg:" + kind + "/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")}
	c.Ref = c.PURL
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	b.Components = append(b.Components, c)
}

func sha256Of(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
