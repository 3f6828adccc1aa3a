package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// recipe is what to build.
type recipe struct {
	root     string   // of the repository
	programs []string // folders of cmd
	revision string   // the commit, for where git does not tell it; may be empty
}

// product is what was built of one checkout.
type product struct {
	version  string    // of the module, by its tags and commits; else the recipe's revision
	made     time.Time // when it was committed; 1980 where that is not known
	binaries []binary
}

// binary is one program.
type binary struct {
	name     string // and of its package in cmd
	content  []byte
	info     *debug.BuildInfo
	archives []string // C libraries of which something was linked in, absolute
}

// long ago, but not before the time that every file system and archive can tell.
var long = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// tags keep the name service and the users' directory of the C library out: linked
// statically, it would load parts of itself at run time, of whatever version it finds.
const tags = "netgo,osusergo"

// build makes static programs that hold no path of this machine.
func build(r recipe, work string) (product, error) {
	p := product{version: cmp.Or(r.revision, "devel"), made: long}
	for _, name := range r.programs {
		b, err := buildOne(r, work, name)
		if err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
		p.binaries = append(p.binaries, b)
	}
	slices.SortFunc(p.binaries, func(a, b binary) int { return strings.Compare(a.name, b.name) })
	info := p.binaries[0].info
	if v := info.Main.Version; v != "" && v != "(devel)" {
		p.version = v
	}
	for _, s := range info.Settings {
		if s.Key != "vcs.time" {
			continue
		}
		made, err := time.Parse(time.RFC3339, s.Value)
		if err != nil {
			return p, err
		}
		p.made = made
	}
	return p, nil
}

// usesC says whether a program is built with cgo: the one that has CLP.
func usesC(name string) bool { return name == "weir" }

func buildOne(r recipe, work, name string) (binary, error) {
	b := binary{name: name}
	path, table := filepath.Join(work, name), filepath.Join(work, name+".map")
	flags, env := "-s -w -buildid=", "CGO_ENABLED=0"
	if r.revision != "" {
		flags += " -X main.builtFrom=" + r.revision
	}
	if usesC(name) {
		libraries, err := fortran()
		if err != nil {
			return b, err
		}
		flags += fmt.Sprintf(` -linkmode external -extldflags "-static -Wl,-Map=%s %s"`, table, libraries)
		env = "CGO_ENABLED=1"
	}
	c := exec.Command("go", "build", "-buildvcs=auto", "-trimpath", "-tags", tags, "-ldflags", flags, "-o", path, "./cmd/"+name)
	c.Dir, c.Env, c.Stderr = r.root, append(os.Environ(), env), os.Stderr
	if err := c.Run(); err != nil {
		return b, fmt.Errorf("%s: %w", c, err)
	}
	var err error
	if b.content, err = os.ReadFile(path); err != nil {
		return b, err
	}
	if usesC(name) {
		said, err := os.ReadFile(table)
		if err != nil {
			return b, err
		}
		b.archives = linkedArchives(string(said))
	}
	if b.info, err = buildinfo.Read(bytes.NewReader(b.content)); err != nil {
		return b, err
	}
	return b, checkStatic(b.content)
}

// fortran are the libraries that LAPACK's one error message wants, in a static link.
func fortran() (string, error) {
	switch {
	case !linkable("libgfortran.a"):
		return "", errors.New("no libgfortran.a: run make setup, or install what Debian calls libgfortran-VERSION-dev, for this g++'s version")
	case !linkable("libquadmath.a"): // where long doubles are quadruples already
		return "-lgfortran -lm", nil
	}
	return "-lgfortran -lquadmath -lm", nil
}

// linkable says whether g++ finds a library.
func linkable(name string) bool {
	out, err := exec.Command("g++", "-print-file-name="+name).Output()
	return err == nil && filepath.IsAbs(strings.TrimSpace(string(out)))
}

var member = regexp.MustCompile(`(?m)^(/\S+\.a)\(\S+\)$`)

// linkedArchives reads the linker's map: the archives of which it took members.
func linkedArchives(table string) []string {
	var all []string
	for _, m := range member.FindAllStringSubmatch(table, -1) {
		all = append(all, filepath.Clean(m[1]))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkStatic refuses a program that wants something of the machine it runs on.
func checkStatic(content []byte) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("not static: it wants a loader and %q", libraries)
		}
	}
	return nil
}
