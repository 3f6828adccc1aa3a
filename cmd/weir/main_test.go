package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": main})
}

// Each script in testdata is a verb as its user sees it, its errors included.
func TestVerbs(t *testing.T) {
	fleets, err := filepath.Abs("../../testdata/fleets")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FLEETS", fleets)
			return os.Symlink(filepath.Join(fleets, "talk.yaml"), filepath.Join(e.WorkDir, "talk.yaml"))
		},
	})
}
