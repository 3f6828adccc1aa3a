// Package systemd holds the units to what they promise: by systemd's own word where it
// is there, and by what is written in them.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unit is a unit file: what each directive is set to, in order.
type unit map[string][]string

func parse(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	u, section := unit{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, set := strings.Cut(line, "=")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !set || section == "":
			t.Errorf("%s: %q is no directive", name, line)
		default:
			u[section+key] = append(u[section+key], value)
		}
	}
	return u
}

// one is the value of a directive of [Service] that must be set once.
func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	values := u["[Service]"+key]
	if len(values) != 1 {
		t.Fatalf("%s is set %d times: %q", key, len(values), values)
	}
	return values[0]
}

var units = []string{"weir.service", "weir-extproc@.service", "envoy@.service"}

// No service has a right that it does not need, and each comes back whatever ends it.
func TestHardening(t *testing.T) {
	for _, name := range units {
		u := parse(t, name)
		for key, want := range map[string]string{
			"CapabilityBoundingSet": "", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateDevices": "yes",
			"PrivateUsers": "yes", "ProtectKernelModules": "yes", "ProtectKernelTunables": "yes", "ProtectKernelLogs": "yes",
			"ProtectControlGroups": "yes", "ProtectProc": "invisible", "RestrictNamespaces": "yes", "RestrictSUIDSGID": "yes",
			"SystemCallArchitectures": "native", "UMask": "0077", "Restart": "always", "RestartSec": "1",
		} {
			if got := u.one(t, key); got != want {
				t.Errorf("%s: %s=%s, want %s", name, key, got, want)
			}
		}
		allowed := "@system-service"
		if strings.HasPrefix(name, "envoy") {
			allowed += " mincore"
		}
		if got := u["[Service]SystemCallFilter"]; !slices.Equal(got, []string{allowed, "~@privileged"}) {
			t.Errorf("%s: SystemCallFilter %q", name, got)
		}
		if !slices.Equal(u["[Unit]StartLimitIntervalSec"], []string{"0"}) {
			t.Errorf("%s: systemd gives it up after some restarts", name)
		}
		if u["[Service]User"] == nil && u["[Service]DynamicUser"] == nil {
			t.Errorf("%s runs as root", name)
		}
	}
}

// Envoy and weir-extproc meet at one socket, as one user, and neither needs the other.
func TestSocket(t *testing.T) {
	extproc, envoy := parse(t, "weir-extproc@.service"), parse(t, "envoy@.service")
	socket := "%t/" + extproc.one(t, "RuntimeDirectory") + "/extproc.sock"
	if !strings.Contains(extproc.one(t, "ExecStart"), "--listen ${RUNTIME_DIRECTORY}/extproc.sock ") || !strings.Contains(envoy.one(t, "ExecStartPre"), "--extproc "+socket+" ") {
		t.Errorf("weir-extproc serves %s, Envoy asks elsewhere: %s", socket, envoy.one(t, "ExecStartPre"))
	}
	if a, b := extproc.one(t, "User"), envoy.one(t, "User"); a != b {
		t.Errorf("the socket is %s's, Envoy is %s", a, b)
	}
	if extproc.one(t, "RuntimeDirectoryPreserve") != "restart" {
		t.Error("a restart takes the socket's directory from under Envoy")
	}
	if !strings.Contains(envoy["[Unit]After"][0], "weir-extproc@%i.service") || !strings.Contains(envoy["[Unit]Wants"][0], "weir-extproc@%i.service") {
		t.Error("Envoy starts before its weir-extproc, or without it")
	}
	for _, key := range []string{"Requires", "BindsTo", "PartOf", "Requisite"} {
		for _, name := range units {
			if got := parse(t, name)["[Unit]"+key]; got != nil {
				t.Errorf("%s=%q of %s: what it names takes it along", key, got, name)
			}
		}
	}
}

// Who asks engines reads the keys for it, nobody else does, and the groups and users that
// units name are made.
func TestGroups(t *testing.T) {
	text, err := os.ReadFile("weir.sysusers")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "u" || f[0] == "g") {
			made[f[1]] = true
		}
	}
	keys := map[string]bool{"weir.service": true, "envoy@.service": true}
	for _, name := range units {
		u := parse(t, name)
		if got := slices.Contains(u["[Service]SupplementaryGroups"], "weir-tls"); got != keys[name] {
			t.Errorf("%s may read keys: %v, want %v", name, got, keys[name])
		}
		for _, key := range []string{"User", "Group", "SupplementaryGroups"} {
			for _, of := range u["[Service]"+key] {
				if !made[of] {
					t.Errorf("%s: %s=%s, which weir.sysusers does not make", name, key, of)
				}
			}
		}
	}
}

// systemd reads the units as they are meant, and thinks them safe: 2.0 of 10 is the
// exposure that it may find.
func TestSystemdVerifies(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze: only systemd can say whether it takes the units")
	}
	dir := t.TempDir()
	for _, name := range units {
		stage(t, dir, name)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", "weir.service", "weir-extproc@here-1.service", "envoy@here-1.service"},
		{"security", "--offline=true", "--threshold=20", "weir.service", "weir-extproc@.service", "envoy@.service"},
	} {
		c := exec.CommandContext(t.Context(), "systemd-analyze", args...)
		c.Dir, c.Env = dir, append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, err := c.CombinedOutput()
		if err != nil || args[0] == "verify" && strings.Contains(string(out), dir) {
			t.Errorf("systemd-analyze %q: %v\n%s", args, err, out)
		}
	}
}

// stage copies a unit whose programs are not installed here.
func stage(t *testing.T, dir, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	stub := filepath.Join(dir, "stub")
	if err := os.WriteFile(stub, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if key, command, set := strings.Cut(line, "="); set && strings.HasPrefix(key, "Exec") {
			_, args, _ := strings.Cut(command, " ")
			line = key + "=" + stub + " " + args
		}
		out.WriteString(line)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
