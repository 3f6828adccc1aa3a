package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSPDX(t *testing.T) {
	bsd := "Redistribution and use in source\nand binary  forms, with or without"
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":     "Apache-2.0",
		"Permission is hereby granted, free of charge, to": "MIT",
		bsd + " Neither the name of":                       "BSD-3-Clause",
		bsd:                                                "BSD-2-Clause",
		"Permission to use, copy, modify, and/or distribute this software\nfor any purpose": "ISC",
		"Mozilla Public License Version 2.0":                                                "MPL-2.0",
		bsd + "neither the name\n permission is hereby granted, free of charge":             "MIT AND BSD-3-Clause",
		"GNU AFFERO GENERAL PUBLIC LICENSE":                                                 "",
		"all rights reserved":                                                               "",
	} {
		if got := spdx(text); got != want {
			t.Errorf("spdx(%.40q) = %q, want %q", text, got, want)
		}
	}
}

// A module has the licences between its root and the packages that are linked, and no
// others of its folders.
func TestCollect(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"LICENSE", "NOTICE.txt", "a/b/license.md", "a/b/x.go", "c/LICENSE", "a/licenses.go"} {
		at := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("permission is hereby granted, free of charge"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]entry{}
	if err := collect(found, filepath.Join(top, "a/b"), top, "m"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for name := range found {
		got = append(got, name)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"m/LICENSE", "m/NOTICE.txt", "m/a/b/license.md"}, got); diff != "" {
		t.Error(diff)
	}
	if got := licenceIn(found, "m/"); got != "MIT" {
		t.Errorf("licenceIn = %q", got)
	}
	if got := licenceIn(found, "other/"); got != "" {
		t.Errorf("a module without a licence has %q", got)
	}
}

// What says nothing of its licence, or something that is not known here, is an error.
func TestUnknownLicence(t *testing.T) {
	if _, err := (debian{name: "libx-dev", source: "x", version: "1"}).part(); err == nil || !strings.Contains(err.Error(), "libx-dev") {
		t.Errorf("error %v", err)
	}
	got, err := (debian{name: "libgcc-13-dev", version: "1:13.2+b1", source: "gcc-13", sourceVersion: "13.2", arch: "amd64"}).part()
	if err != nil || !strings.HasSuffix(got.purl, "/libgcc-13-dev@1%3A13.2%2Bb1?arch=amd64") {
		t.Errorf("part = %+v, %v", got, err)
	}
}

func TestLinkedArchives(t *testing.T) {
	table := `Archive member included to satisfy reference by file (symbol)

/usr/lib/gcc/x/12/../../../x/libClp.a(ClpModel.o)
                              /tmp/000022.o (ClpModel::setPrimalTolerance(double))
/usr/lib/gcc/x/12/../../../x/libClp.a(ClpObjective.o)
/usr/lib/x/libm-2.36.a(e_exp.o)
LOAD /usr/lib/x/libunused.a
`
	if diff := cmp.Diff([]string{"/usr/lib/x/libClp.a", "/usr/lib/x/libm-2.36.a"}, linkedArchives(table)); diff != "" {
		t.Error(diff)
	}
}

func TestCheckStatic(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skip(err)
	}
	if err := checkStatic(shell); err == nil || !strings.Contains(err.Error(), "libc") {
		t.Errorf("a shell that wants the C library passes as static: %v", err)
	}
}

// A program's bill has its own modules, and the C libraries only where they are.
func TestBill(t *testing.T) {
	parts := []part{{name: "m", purl: "pkg:m"}, {name: "n", purl: "pkg:n"}, {name: "std", purl: "pkg:std"}, {name: "libx", purl: "pkg:x", source: "x=1"}}
	deps := func(names ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{}
		for _, n := range names {
			info.Deps = append(info.Deps, &debug.Module{Path: n})
		}
		return info
	}
	b := newBill(product{version: "v1", made: long, binaries: []binary{
		{name: "a", info: deps("m", "n"), archives: []string{"/libx.a"}}, {name: "b", info: deps("n")},
	}}, parts)
	want := []dependency{
		{"bin/a", []string{"pkg:m", "pkg:n", "pkg:std", "pkg:x"}},
		{"bin/b", []string{"pkg:n", "pkg:std"}},
		{"pkg:golang/weir@v1", []string{"bin/a", "bin/b"}},
	}
	if diff := cmp.Diff(want, b.Dependencies); diff != "" {
		t.Error(diff)
	}
	refs := map[string]bool{b.Metadata.Component.Ref: true}
	for _, c := range b.Components {
		if refs[c.Ref] {
			t.Errorf("two components are %s", c.Ref)
		}
		refs[c.Ref] = true
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("no component is %s", ref)
			}
		}
	}
}
