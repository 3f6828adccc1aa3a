package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// part is something of others that is linked into a program.
type part struct {
	name, version string
	licence       string // an SPDX expression
	purl          string // its name among all packages of the world
	source        string // where its source is, if its licence wants that said
}

// folder is where licences of others are in the archive.
const folder = "THIRD-PARTY-LICENSES/"

// thirdParties are the parts of others in a product, by name, and the files with their
// licences. A part whose licence cannot be told is an error: somebody must look at it.
func thirdParties(root string, p product) ([]part, []entry, error) {
	parts, files, err := goParts(root, p)
	if err != nil {
		return nil, nil, err
	}
	library, err := standardLibrary()
	if err != nil {
		return nil, nil, err
	}
	parts, files = append(parts, library.part), append(files, library.file)
	c, texts, err := cParts(p)
	if err != nil {
		return nil, nil, err
	}
	parts, files = append(parts, c...), append(files, texts...)
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.purl, b.purl) })
	return parts, append(files, entry{name: folder + "README.txt", content: tell(parts)}), nil
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath, Dir string
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// goParts are the modules of which a program has packages. The licences of a module are
// those between its root and each such package: some packages have one of their own.
func goParts(root string, p product) ([]part, []entry, error) {
	packages, err := listed(root, p)
	if err != nil {
		return nil, nil, err
	}
	found := map[string]entry{}
	for _, g := range packages {
		if g.Module == nil || g.Module.Main {
			continue
		}
		if err := collect(found, g.Dir, g.Module.Dir, folder+"go/"+g.Module.Path+"@"+g.Module.Version); err != nil {
			return nil, nil, err
		}
	}
	parts := map[string]part{}
	var errs []error
	for _, b := range p.binaries {
		for _, m := range b.info.Deps {
			licence := licenceIn(found, folder+"go/"+m.Path+"@"+m.Version+"/")
			if licence == "" {
				errs = append(errs, fmt.Errorf("%s %s: no licence that is known here", m.Path, m.Version))
			}
			parts[m.Path] = part{name: m.Path, version: m.Version, licence: licence, purl: "pkg:golang/" + m.Path + "@" + m.Version}
		}
	}
	return values(parts), values(found), errors.Join(errs...)
}

func values[V any](m map[string]V) []V {
	all := make([]V, 0, len(m))
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// listed are the packages of all programs.
func listed(root string, p product) ([]goPackage, error) {
	var all []goPackage
	for _, b := range p.binaries {
		env := "CGO_ENABLED=0"
		if usesC(b.name) {
			env = "CGO_ENABLED=1"
		}
		c := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Module", "-tags", tags, "./cmd/"+b.name)
		c.Dir, c.Env, c.Stderr = root, append(os.Environ(), env), os.Stderr
		out, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var g goPackage
			if err := d.Decode(&g); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			all = append(all, g)
		}
	}
	return all, nil
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// collect finds the licences from a package's folder up to its module's.
func collect(found map[string]entry, dir, top, under string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !licenceName.MatchString(e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			relative, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name := under + "/" + filepath.ToSlash(relative)
			found[name] = entry{name: name, content: content}
		}
		if dir == top || dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// licenceIn tells the licences of the files directly below a name.
func licenceIn(found map[string]entry, under string) string {
	var all []string
	for name, e := range found {
		base, below := strings.CutPrefix(name, under)
		if below && !strings.Contains(base, "/") {
			all = append(all, spdx(string(e.content)))
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " AND ")
}

var space = regexp.MustCompile(`\s+`)

// spdx names a licence by its words; empty: none that is known here.
func spdx(text string) string {
	text = space.ReplaceAllString(strings.ToLower(text), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	var all []string
	if has("apache license") && has("version 2.0") || has("licensed under the apache license, version 2.0") {
		all = append(all, "Apache-2.0")
	}
	if has("permission is hereby granted, free of charge") {
		all = append(all, "MIT")
	}
	if has("permission to use, copy, modify, and distribute this software for any purpose") || has("permission to use, copy, modify, and/or distribute this software for any purpose") {
		all = append(all, "ISC")
	}
	if has("redistribution and use in source and binary forms") {
		if has("neither the name") || has("may not be used to endorse") {
			all = append(all, "BSD-3-Clause")
		} else {
			all = append(all, "BSD-2-Clause")
		}
	}
	if has("mozilla public license") && has("2.0") {
		all = append(all, "MPL-2.0")
	}
	return strings.Join(all, " AND ")
}

// standardLibrary is Go's own.
func standardLibrary() (found struct {
	part part
	file entry
}, err error,
) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return found, err
	}
	version := strings.TrimPrefix(runtime.Version(), "go")
	found.file.name = folder + "go/std@" + version + "/LICENSE"
	found.file.content, err = os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "LICENSE"))
	found.part = part{name: "std", version: version, licence: spdx(string(found.file.content)), purl: "pkg:golang/std@" + version}
	return found, err
}

// tell says for people what the parts are.
func tell(parts []part) []byte {
	var out bytes.Buffer
	out.WriteString(`Weir's programs hold parts of others, under their licences, whose texts are in this folder:
in go/ those of Go's modules, in c/ those of C libraries, if there are any, as Debian states
them.

The sources of C libraries are those of the Debian packages named below, which everybody
may fetch (apt-get source NAME=VERSION). The programs' own source, with which they can be
linked anew against other versions of them, is Weir's.

`)
	for _, p := range parts {
		fmt.Fprintf(&out, "%s %s: %s", p.name, p.version, p.licence)
		if p.source != "" {
			fmt.Fprintf(&out, " (source %s)", p.source)
		}
		fmt.Fprintln(&out)
	}
	return out.Bytes()
}
