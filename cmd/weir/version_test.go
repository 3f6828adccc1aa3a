package main

import (
	"runtime/debug"
	"testing"
)

func TestRevision(t *testing.T) {
	for name, c := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"a commit":            {[]debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "4f1c"}, {Key: "vcs.modified", Value: "false"}}, "revision 4f1c"},
		"a commit with edits": {[]debug.BuildSetting{{Key: "vcs.revision", Value: "4f1c"}, {Key: "vcs.modified", Value: "true"}}, "revision 4f1c with changes"},
		"outside a checkout":  {nil, "unknown revision"},
	} {
		if got := revision(c.settings); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	builtFrom = "77aa"
	defer func() { builtFrom = "" }()
	if got := revision(nil); got != "revision 77aa" {
		t.Errorf("by the linker's word: %q", got)
	}
}
