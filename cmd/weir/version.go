package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"weir/solver/clp"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  args(),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "weir", version())
			return err
		},
	}
}

// version tells one build from another: the module's version, the commit it was
// built from, and what it was built with.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown build"
	}
	parts := []string{info.Main.Version, revision(info.Settings), info.GoVersion, "CLP " + clp.Version()}
	return strings.Join(parts, ", ")
}

// builtFrom is the commit, by the linker's word: for builds outside a checkout, as of
// images.
var builtFrom string

func revision(settings []debug.BuildSetting) string {
	said := map[string]string{}
	for _, s := range settings {
		said[s.Key] = s.Value
	}
	switch {
	case said["vcs.revision"] == "" && builtFrom != "":
		return "revision " + builtFrom
	case said["vcs.revision"] == "":
		return "unknown revision"
	case said["vcs.modified"] == "true":
		return "revision " + said["vcs.revision"] + " with changes"
	}
	return "revision " + said["vcs.revision"]
}
