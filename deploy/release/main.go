// Command release makes the release archive: all that is needed to run Weir where there is
// no Go, no compiler and no CLP, with the licences and the bill of what is linked in.
// The same commit, built by the same Go against the same C libraries, gives the same
// bytes, so that anybody can see that an archive is of the source it claims: nothing in
// it tells when, where or by whom it was made.
//
//	go run ./deploy/release [-out DIRECTORY]
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
)

func main() {
	out := flag.String("out", "out/dist", "`directory` to write the archive, its bill of materials and their sums to")
	root := flag.String("root", ".", "the repository's root `directory`")
	flag.Parse()
	name, err := dist(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}

// dist writes the archive, its bill of materials and their sums, and returns the
// archive's path.
func dist(root, out string) (string, error) {
	work, err := os.MkdirTemp("", "weir-dist-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	p, err := build(root, work)
	if err != nil {
		return "", err
	}
	parts, licences, err := thirdParties(root, p)
	if err != nil {
		return "", err
	}
	bill, err := json.MarshalIndent(newBill(p, parts), "", "  ")
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

// deliver writes files and, as the last, SHA256SUMS of them. What an earlier version left
// in the directory goes, since nothing would tell it from this one.
func deliver(out string, files []entry) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
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
		if err := os.WriteFile(filepath.Join(out, f.name), f.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
