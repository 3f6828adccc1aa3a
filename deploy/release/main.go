// Command release makes the release archive: all that is needed to run Weir where there is
// no Go, no compiler and no CLP, with the licences and the bill of what is linked in.
// The same commit, built by the same Go against the same C libraries, gives the same
// bytes, so that anybody can see that an archive is of the source it claims: nothing in
// it tells when, where or by whom it was made.
//
//	go run ./deploy/release [-out DIRECTORY]
//
// The images of deploy/compose get theirs from it too, one program each, by -unpacked.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	out := flag.String("out", "out/dist", "`directory` to write the archive, its bill of materials and their sums to")
	unpacked := flag.String("unpacked", "", "write no archive, but into this `directory`, for each program NAME, NAME, NAME.cdx.json and the folder NAME.licences")
	programs := flag.String("programs", "weir,weir-extproc", "`names` of programs, with commas between")
	var r recipe
	flag.StringVar(&r.root, "root", ".", "the repository's root `directory`")
	flag.StringVar(&r.revision, "revision", "", "the `commit` that weir version says, where git does not tell")
	flag.Parse()
	r.programs = strings.Split(*programs, ",")
	name, err := run(r, *out, *unpacked)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}

// run builds in a folder that is gone after it, and returns the path of what is there now.
func run(r recipe, out, unpacked string) (string, error) {
	work, err := os.MkdirTemp("", "weir-dist-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	p, err := build(r, work)
	if err != nil {
		return "", err
	}
	if unpacked != "" {
		return unpacked, lay(r.root, unpacked, p)
	}
	return dist(r.root, out, p)
}

// dist writes the archive, its bill of materials and their sums, and returns the
// archive's path.
func dist(root, out string, p product) (string, error) {
	bill, licences, err := billed(root, p)
	if err != nil {
		return "", err
	}
	entries, err := contents(root, p)
	if err != nil {
		return "", err
	}
	entries = append(append(entries, licences...), entry{name: "sbom.cdx.json", content: bill})
	name := fmt.Sprintf("weir-%s-%s-%s", p.version, runtime.GOOS, runtime.GOARCH)
	packed, err := pack(name, entries, p.made)
	if err != nil {
		return "", err
	}
	return filepath.Join(out, name+".tar.gz"), deliver(out, []entry{
		{name: name + ".cdx.json", content: bill}, {name: name + ".tar.gz", content: packed},
	})
}

// billed are a product's bill of materials, and the licences of what is in it.
func billed(root string, p product) ([]byte, []entry, error) {
	parts, licences, err := thirdParties(root, p)
	if err != nil {
		return nil, nil, err
	}
	bill, err := json.MarshalIndent(newBill(p, parts), "", "  ")
	return bill, licences, err
}

// lay writes each program with a bill and licences of its own, Weir's among them.
func lay(root, dir string, p product) error {
	own, err := carry(root, filepath.Join(root, "LICENSE"))
	if err != nil {
		return err
	}
	for _, b := range p.binaries {
		alone := p
		alone.binaries = []binary{b}
		bill, licences, err := billed(root, alone)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		all := []entry{{name: b.name, content: b.content, program: true}, {name: b.name + ".cdx.json", content: bill}}
		for _, e := range append(licences, own) {
			e.name = b.name + ".licences/" + strings.TrimPrefix(e.name, folder)
			all = append(all, e)
		}
		for _, e := range all {
			if err := write(dir, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// write makes a file, and its folders.
func write(dir string, e entry) error {
	at, mode := filepath.Join(dir, filepath.FromSlash(e.name)), os.FileMode(0o644)
	if e.program {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, e.content, mode)
}

// deliver writes files and, as the last, SHA256SUMS of them. What an earlier version left
// in the directory goes, since nothing would tell it from this one.
func deliver(out string, files []entry) error {
	var old []string
	for _, kind := range []string{".tar.gz", ".cdx.json"} {
		found, err := filepath.Glob(filepath.Join(out, "weir-v*"+kind))
		if err != nil {
			return err
		}
		old = append(old, found...)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	var sums []byte
	for _, f := range files {
		sums = fmt.Appendf(sums, "%x  %s\n", sha256.Sum256(f.content), f.name)
	}
	for _, f := range append(slices.Clone(files), entry{name: "SHA256SUMS", content: sums}) {
		if err := write(out, f); err != nil {
			return err
		}
	}
	return nil
}
