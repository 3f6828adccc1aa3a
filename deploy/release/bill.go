package main

import (
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// bill is a CycloneDX bill of materials, as far as it is used here. It has no serial
// number: that would differ each time.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp,omitempty"` // of the commit, if that is known
	Component component `json:"component"`
}

type component struct {
	Ref      string    `json:"bom-ref"`
	Type     string    `json:"type"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []licence `json:"licenses,omitempty"`
	PURL     string    `json:"purl,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licence struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// newBill lists the programs, with their sums, and which parts are in which.
func newBill(p product, parts []part) bill {
	whole := component{
		Ref: "pkg:golang/weir@" + p.version, Type: "application", Name: "weir", Version: p.version,
		Licenses: []licence{{"Apache-2.0"}},
	}
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: whole}}
	if !p.made.Equal(long) {
		b.Metadata.Timestamp = p.made.UTC().Format(time.RFC3339)
	}
	contains := dependency{Ref: whole.Ref}
	for i := range p.binaries {
		program := p.binaries[i]
		c := component{
			Ref: "bin/" + program.name, Type: "application", Name: program.name, Version: p.version, Licenses: whole.Licenses,
			Hashes: []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(program.content))}},
		}
		b.Components = append(b.Components, c)
		b.Dependencies = append(b.Dependencies, dependency{c.Ref, partsOf(program, parts)})
		contains.DependsOn = append(contains.DependsOn, c.Ref)
	}
	b.Dependencies = append(b.Dependencies, contains)
	for _, of := range parts {
		b.Components = append(b.Components, component{
			Ref: of.purl, Type: "library", Name: of.name, Version: of.version, PURL: of.purl, Licenses: []licence{{of.licence}},
		})
	}
	return b
}

// partsOf names the parts of one program: all C libraries where there is any, since only
// one program has them.
func partsOf(program binary, parts []part) []string {
	var refs []string
	for _, of := range parts {
		isModule := slices.ContainsFunc(program.info.Deps, func(m *debug.Module) bool { return m.Path == of.name })
		if of.name == "std" || isModule || of.source != "" && len(program.archives) > 0 {
			refs = append(refs, of.purl)
		}
	}
	return refs
}
