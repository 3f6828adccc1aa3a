package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The archive of a commit is made twice, in two places, and must be the same; then it is
// unpacked and tried where there is nothing else.
func TestRelease(t *testing.T) {
	if !linkable("libgfortran.a") {
		t.Skip("no libgfortran.a: make setup installs it")
	}
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("not a git checkout: there is no commit to make an archive of")
	}
	one, two := releaseIn(t, "one"), releaseIn(t, "another/place/of/the/same")
	if !bytes.Equal(one.packed, two.packed) {
		t.Errorf("two archives of one commit differ: %s", difference(t, one.packed, two.packed))
	}
	if one.sums != two.sums {
		t.Errorf("sums differ:\n%s\n%s", one.sums, two.sums)
	}
	dir := unpack(t, one.packed)
	if got := execute(t, dir, "bin/weir", "version"); !strings.HasPrefix(got, "weir "+one.version+", revision "+head(t)+", go") {
		t.Errorf("weir version = %q, want version %s and revision %s", got, one.version, head(t))
	}
	if got := execute(t, dir, "bin/weir", "check", "deploy/kubernetes/base/control-plane/fleet.yaml"); !strings.Contains(got, "is right") {
		t.Errorf("weir check = %q", got)
	}
	if got := execute(t, dir, "bin/weir-extproc", "--help"); !strings.Contains(got, "-front-end") {
		t.Errorf("weir-extproc --help = %q", got)
	}
	t.Run("links", func(t *testing.T) { tryLinks(t, dir) })
	t.Run("commands", func(t *testing.T) { tryCommands(t, dir) })
	for _, name := range []string{"LICENSE", "README.md", "sbom.cdx.json", "docs/OPERATIONS.md", "deploy/systemd/weir.service", folder + "c/coinor-libclp-dev/copyright"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "deploy/kubernetes/base/front-end/envoy-admin")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("envoy-admin cannot be run (%v)", err)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "bin/weir")); err != nil || bytes.Contains(raw, []byte(dir)) || bytes.Contains(raw, []byte(filepath.Dir(one.root))) {
		t.Errorf("the program tells where it was built (%v)", err)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s#]+)[^)\s]*\)`)

// Pages send a reader to nothing that is not in the archive.
func tryLinks(t *testing.T, dir string) {
	links := 0
	err := filepath.WalkDir(dir, func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		for _, m := range link.FindAllSubmatch(read(t, page), -1) {
			to := string(m[1])
			if strings.Contains(to, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), to)); err != nil {
				t.Errorf("a link in the archive leads nowhere: %v", err)
			}
		}
		return nil
	})
	if err != nil || links < 80 {
		t.Errorf("found %d links only (%v)", links, err)
	}
}

// Programs for images are made where there is no git, each with a bill and licences of its
// own.
func TestUnpacked(t *testing.T) {
	if !linkable("libgfortran.a") {
		t.Skip("no libgfortran.a: make setup installs it")
	}
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("not a git checkout: there is no commit to build")
	}
	root, out := clone(t, "source"), t.TempDir()
	if err := os.RemoveAll(filepath.Join(root, ".git")); err != nil {
		t.Fatal(err)
	}
	makeRelease(t, "-root", root, "-unpacked", out, "-programs", "weir,mock-clients", "-revision", "77aa")
	if got := execute(t, out, "weir", "version"); !strings.Contains(got, ", revision 77aa, ") {
		t.Errorf("weir version = %q, want revision 77aa", got)
	}
	execute(t, out, "mock-clients", "--help")
	for program, want := range map[string]map[string]bool{
		"weir":         {"coinor-libclp-dev": true, "std": true, "go.uber.org/zap": true},
		"mock-clients": {"coinor-libclp-dev": false, "std": true, "go.uber.org/zap": false, "github.com/goccy/go-yaml": true},
	} {
		var b bill
		if err := json.Unmarshal(read(t, filepath.Join(out, program+".cdx.json")), &b); err != nil || b.Metadata.Timestamp != "" {
			t.Errorf("the bill of %s is of %q (%v)", program, b.Metadata.Timestamp, err)
		}
		for name, in := range want {
			if got := slices.ContainsFunc(b.Components, func(c component) bool { return c.Name == name }); got != in {
				t.Errorf("%s in the bill of %s: %v, want %v", name, program, got, in)
			}
		}
		for name, in := range map[string]bool{"LICENSE": true, "README.txt": true, "c/coinor-libclp-dev/copyright": want["coinor-libclp-dev"]} {
			if _, err := os.Stat(filepath.Join(out, program+".licences", name)); (err == nil) != in {
				t.Errorf("licences of %s: %s: %v", program, name, err)
			}
		}
	}
}

type release struct {
	root, version, sums string
	packed              []byte
}

// releaseIn makes the archive of the last commit in a clone of its own.
func releaseIn(t *testing.T, name string) release {
	t.Helper()
	root, out := clone(t, name), t.TempDir()
	// What is somebody's own is in no archive.
	for file, text := range map[string]string{".git/info/exclude": "docs/own.md\n", "docs/own.md": root} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive := makeRelease(t, "-root", root, "-out", out)
	r := release{root: root, packed: read(t, archive), sums: string(read(t, filepath.Join(out, "SHA256SUMS")))}
	if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(r.packed), filepath.Base(archive)); !strings.Contains(r.sums, want) {
		t.Errorf("SHA256SUMS = %q, want %q in it", r.sums, want)
	}
	r.version, _, _ = strings.Cut(strings.TrimPrefix(filepath.Base(archive), "weir-"), "-linux-")
	return r
}

// clone has the last commit in a folder of its own.
func clone(t *testing.T, name string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), name)
	if said, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "../..", root).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, said)
	}
	return root
}

// makeRelease runs this program, without the race detector: packing takes long.
func makeRelease(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", append([]string{"run", "."}, args...)...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	said, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	return strings.TrimSpace(string(said))
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func head(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// execute runs a program with nothing in its environment.
func execute(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), filepath.Join(dir, name), args...)
	c.Dir, c.Env = dir, []string{}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", c, err, out)
	}
	return string(out)
}

// files reads an archive, and checks what must be alike for all entries.
func files(t *testing.T, packed []byte) map[string]entry {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]entry{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname+h.Gname != "" || path.IsAbs(h.Name) || strings.Contains(h.Name, "..") {
			t.Errorf("entry %+v tells who made it, or leaves the folder", h)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		all[name] = entry{name, content, h.Mode == 0o755}
	}
}

func unpack(t *testing.T, packed []byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, e := range files(t, packed) {
		e.name = name
		if err := write(dir, e); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// difference names the entries that two archives do not have alike.
func difference(t *testing.T, a, b []byte) string {
	var names []string
	two := files(t, b)
	for name, e := range files(t, a) {
		if !bytes.Equal(two[name].content, e.content) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Neither the order in which entries come nor the clock matters.
func TestPack(t *testing.T) {
	a, b := entry{name: "a", content: []byte("1")}, entry{name: "bin/b", content: []byte("2"), program: true}
	one, err := pack("weir", []entry{a, b}, long)
	if err != nil {
		t.Fatal(err)
	}
	two, err := pack("weir", []entry{b, a}, long.In(time.FixedZone("far", 3600)))
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the order or the time zone changes the archive (%v)", err)
	}
	if got := files(t, one); len(got) != 2 || got["a"].program || !got["bin/b"].program {
		t.Errorf("files = %v", got)
	}
	if _, err := pack("weir", []entry{a, a}, long); err == nil {
		t.Error("a file is in the archive twice")
	}
}
