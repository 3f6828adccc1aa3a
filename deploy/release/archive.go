package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is one file.
type entry struct {
	name    string // with slashes, from the archive's own folder
	content []byte
	program bool
}

// carried are what of the repository is in the archive beside the programs: what runs
// them, and the pages, with all that these send a reader to.
var carried = strings.Fields("LICENSE README.md CONTRIBUTING.md docs deploy/compose deploy/examples deploy/grafana deploy/kubernetes deploy/prometheus deploy/systemd")

// contents are the programs, and what tells how to run them.
func contents(root string, p product) ([]entry, error) {
	var all []entry
	for _, b := range p.binaries {
		all = append(all, entry{"bin/" + b.name, b.content, true})
	}
	// What git does not know may be somebody's own, and is of no commit.
	list := exec.Command("git", append([]string{"-C", root, "ls-files", "-z", "--"}, carried...)...)
	tracked, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.FieldsFuncSeq(string(tracked), func(r rune) bool { return r == 0 }) {
		if strings.HasSuffix(name, ".go") {
			continue
		}
		e, err := carry(root, filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// carry reads one file of the repository.
func carry(root, path string) (entry, error) {
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return entry{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return entry{}, err
	}
	content, err := os.ReadFile(path)
	return entry{filepath.ToSlash(relative), content, info.Mode()&0o100 != 0}, err
}

// pack writes entries below one folder, in the order of their names, all as old as the
// commit and nobody's in particular.
func pack(folder string, entries []entry, made time.Time) ([]byte, error) {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for i, e := range entries {
		if i > 0 && entries[i-1].name == e.name {
			return nil, fmt.Errorf("%s would be in the archive twice", e.name)
		}
		mode := int64(0o644)
		if e.program {
			mode = 0o755
		}
		head := &tar.Header{Name: folder + "/" + e.name, Mode: mode, Size: int64(len(e.content)), ModTime: made, Format: tar.FormatPAX}
		if err := t.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := t.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
