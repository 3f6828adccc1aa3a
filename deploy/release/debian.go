package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// cLicences are the licences of what may be linked in, by source package without the
// numbers behind its name. Debian's copyright files, which go into the archive, tell
// more: of files that are no part of the library too.
var cLicences = map[string]string{
	"clp":       "EPL-1.0",
	"coinutils": "EPL-1.0",
	"lapack":    "BSD-3-Clause",
	"bzip2":     "bzip2-1.0.6",
	"zlib":      "Zlib",
	"glibc":     "LGPL-2.1-or-later",
	// libquadmath is under the LGPL, all else under the GPL with its exception.
	"gcc": "(GPL-3.0-or-later WITH GCC-exception-3.1) AND LGPL-2.1-or-later",
}

// cParts are the Debian packages whose libraries are linked in.
func cParts(p product) ([]part, []entry, error) {
	parts, files := map[string]part{}, map[string]entry{}
	for _, b := range p.binaries {
		for _, archive := range b.archives {
			d, err := packageOf(archive)
			if err != nil {
				return nil, nil, err
			}
			if _, known := parts[d.name]; known {
				continue
			}
			made, err := d.part()
			if err != nil {
				return nil, nil, err
			}
			parts[d.name] = made
			if err := d.texts(files); err != nil {
				return nil, nil, err
			}
		}
	}
	return values(parts), values(files), nil
}

// debian is one installed package.
type debian struct{ name, version, source, sourceVersion, arch string }

// packageOf is the package that a file belongs to.
func packageOf(path string) (d debian, err error) {
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return d, err
	}
	out, err := exec.Command("dpkg-query", "-S", path).Output()
	if err != nil {
		return d, fmt.Errorf("dpkg knows no package with %s, and so no licence of it: make releases on Debian or Ubuntu, with their CLP: %w", path, err)
	}
	name, _, _ := strings.Cut(string(out), ": ")
	out, err = exec.Command("dpkg-query", "-W", "-f", "${Package} ${Version} ${source:Package} ${source:Version} ${Architecture}", name).Output()
	if err != nil {
		return d, err
	}
	_, err = fmt.Sscan(string(out), &d.name, &d.version, &d.source, &d.sourceVersion, &d.arch)
	return d, err
}

var digits = regexp.MustCompile(`-[0-9.]+$`)

func (d debian) part() (part, error) {
	licence := cLicences[digits.ReplaceAllString(d.source, "")]
	if licence == "" {
		return part{}, fmt.Errorf("%s is linked in, and its licence is not known here: look at it, and add its source package %s", d.name, d.source)
	}
	return part{
		name: d.name, version: d.version, licence: licence, source: d.source + "=" + d.sourceVersion,
		purl: "pkg:deb/" + distribution() + "/" + d.name + "@" + strings.NewReplacer("+", "%2B", ":", "%3A").Replace(d.version) + "?arch=" + d.arch,
	}, nil
}

var id = regexp.MustCompile(`(?m)^ID="?(\w+)"?$`)

// distribution is the name of this one.
func distribution() string {
	said, _ := os.ReadFile("/etc/os-release") // it need not be there
	found := id.FindSubmatch(said)
	if found == nil {
		return "debian"
	}
	return cmp.Or(string(found[1]), "debian")
}

var common = regexp.MustCompile(`/usr/share/common-licenses/([A-Za-z]+-[0-9.]*[0-9])`)

// texts adds what a package says of its licences, and the common ones that this names.
func (d debian) texts(files map[string]entry) error {
	content, err := os.ReadFile(filepath.Join("/usr/share/doc", d.name, "copyright"))
	if err != nil {
		return err
	}
	name := folder + "c/" + d.name + "/copyright"
	files[name] = entry{name: name, content: content}
	for _, found := range common.FindAllStringSubmatch(string(content), -1) {
		text, err := os.ReadFile(found[0])
		if err != nil {
			return err
		}
		name := folder + "c/common-licenses/" + found[1]
		files[name] = entry{name: name, content: text}
	}
	return nil
}
