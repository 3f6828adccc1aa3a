package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// command is a call of a program by a unit or a manifest, with nothing expanded.
type command struct {
	where   string
	program string // its base name
	args    []string
}

var (
	execLine  = regexp.MustCompile(`(?m)^Exec\w+=-?(/\S+)(?: (.*))?$`)
	setLine   = regexp.MustCompile(`(?m)^(?:Environment=)?([A-Z_]+=\S+(?: [A-Z_]+=\S+)*)$`)
	reference = regexp.MustCompile(`\$\{(\w+)\}|\$\((\w+)\)|%([a-z])`)
)

// unitCommands are those of all units, and the variables that these set.
func unitCommands(t *testing.T, dir string) ([]command, map[string]string) {
	t.Helper()
	var all []command
	variables := map[string]string{}
	for _, name := range glob(t, filepath.Join(dir, "deploy/systemd/*")) {
		text := string(read(t, name))
		for _, m := range execLine.FindAllStringSubmatch(text, -1) {
			all = append(all, command{filepath.Base(name), filepath.Base(m[1]), strings.Fields(m[2])})
		}
		for _, m := range setLine.FindAllStringSubmatch(text, -1) {
			for _, set := range strings.Fields(m[1]) {
				key, value, _ := strings.Cut(set, "=")
				variables[key] = value
			}
		}
	}
	return all, variables
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	return names
}

// manifestContainer is the part of a container that is a command.
type manifestContainer struct {
	Image   string
	Command []string
	Args    []string
	Env     []struct{ Name, Value string }
}

// manifestCommands are those of all containers of the base.
func manifestCommands(t *testing.T, dir string) ([]command, map[string]string) {
	t.Helper()
	var all []command
	variables := map[string]string{"NODE_ID": "pod-1"}
	for _, name := range glob(t, filepath.Join(dir, "deploy/kubernetes/base/*/*.yaml")) {
		for _, c := range containersIn(t, name) {
			program := strings.TrimPrefix(c.Image, "weir/")
			if len(c.Command) > 0 {
				program = c.Command[0]
			}
			all = append(all, command{filepath.Base(name), program, c.Args})
			for _, e := range c.Env {
				if e.Value != "" {
					variables[e.Name] = e.Value
				}
			}
		}
	}
	return all, variables
}

func containersIn(t *testing.T, name string) (all []manifestContainer) {
	t.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(read(t, name))); ; {
		var of struct {
			Spec struct {
				Template struct {
					Spec struct {
						InitContainers []manifestContainer `yaml:"initContainers"`
						Containers     []manifestContainer
					}
				}
			}
		}
		err := d.Decode(&of)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil && strings.Contains(name, "front-end") || err != nil && strings.Contains(name, "control-plane") {
			t.Fatalf("%s: %v", name, err)
		}
		if err != nil {
			return all // of another form: no workload
		}
		all = append(append(all, of.Spec.Template.Spec.InitContainers...), of.Spec.Template.Spec.Containers...)
	}
}

// expand puts values for variables, and another folder for those of a real machine. A
// variable that nobody sets is a mistake.
func expand(t *testing.T, c command, variables map[string]string, run string) []string {
	t.Helper()
	args := make([]string, len(c.args))
	for i, a := range c.args {
		a = strings.NewReplacer("/run/weir", run, "/etc/weir", "/nonexistent/etc", "/var/lib/weir", "/nonexistent/state").Replace(a)
		args[i] = reference.ReplaceAllStringFunc(a, func(s string) string {
			value, set := variables[strings.Trim(s, "${()}%")]
			if !set {
				t.Errorf("%s: nobody sets %s", c.where, s)
			}
			return value
		})
	}
	return args
}

// Every command of units and manifests is understood by the program that it calls: it
// writes its file, or goes on until a folder is missing.
func tryCommands(t *testing.T, dir string) {
	units, variables := unitCommands(t, dir)
	run := t.TempDir()
	maps.Copy(variables, map[string]string{"i": "here-1", "t": run, "RUNTIME_DIRECTORY": run, "STATE_DIRECTORY": "/nonexistent/state", "MAINPID": "1"})
	tried := tryAll(t, dir, units, variables, run)
	manifests, variables := manifestCommands(t, dir)
	for name, n := range tryAll(t, dir, manifests, variables, t.TempDir()) {
		tried[name] += n
	}
	for _, name := range []string{"weir serve", "weir bootstrap", "weir-extproc"} {
		if tried[name] != 2 {
			t.Errorf("%d commands %s, want one of a unit and one of a manifest", tried[name], name)
		}
	}
}

func tryAll(t *testing.T, dir string, all []command, variables map[string]string, run string) map[string]int {
	t.Helper()
	tried := map[string]int{}
	for _, c := range all {
		args := expand(t, c, variables, run)
		switch {
		case c.program == "weir" && args[0] == "bootstrap":
			execute(t, dir, "bin/weir", args...)
			tried["weir bootstrap"]++
		case c.program == "weir":
			wantMissing(t, dir, "bin/weir", args)
			tried["weir "+args[0]]++
		case c.program == "weir-extproc":
			for i, a := range args { // Envoy's bootstrap needs the folder, this must not have it
				args[i] = strings.ReplaceAll(a, run, "/nonexistent/run")
			}
			wantMissing(t, dir, "bin/weir-extproc", args)
			tried["weir-extproc"]++
		case c.program == "envoy":
			validate(t, c, args)
		}
	}
	return tried
}

// wantMissing runs a command that must fail for a folder that is not there, and not for
// how it is called.
func wantMissing(t *testing.T, dir, name string, args []string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), filepath.Join(dir, name), args...)
	out, err := c.CombinedOutput()
	if code := c.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "/nonexistent/") || !strings.Contains(string(out), "no such file or directory") {
		t.Errorf("%s: %v: %s", c, err, out)
	}
}

// validate has a real Envoy read the bootstrap that was written, with its flags.
func validate(t *testing.T, c command, args []string) {
	t.Helper()
	envoy := os.Getenv("WEIR_ENVOY")
	if envoy == "" {
		envoy = "../../.venv/bin/envoy"
	}
	if _, err := os.Stat(envoy); err != nil {
		t.Logf("%s: its Envoy is not tried: %v", c.where, err)
		return
	}
	if out, err := exec.CommandContext(t.Context(), envoy, append(args, "--mode", "validate")...).CombinedOutput(); err != nil || !strings.Contains(string(out), "OK") {
		t.Errorf("%s: envoy %q: %v: %s", c.where, args, err, out)
	}
}
