package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenOnASocket(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	path := filepath.Join(t.TempDir(), "extproc.sock")
	for _, when := range []string{"where nothing stands", "after a dead predecessor"} {
		l, err := listen("unix://" + path)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%s: %v, %v, want mode 0660", when, info.Mode(), err)
		}
		if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "another process serves it") {
			t.Errorf("%s, served: %v", when, err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
}

func TestListenRemovesNothingElse(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink(filepath.Join(dir, "nowhere"), path) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}

func TestParseReady(t *testing.T) {
	if o, err := parse([]string{"--ready", "--admin", "127.0.0.1:18002"}); err != nil || !o.ready {
		t.Errorf("ready %v, %v", o.ready, err)
	}
	if _, err := parse([]string{"--ready"}); err == nil || !strings.Contains(err.Error(), "needs --admin") {
		t.Errorf("without an address: %v", err)
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ xds, listen, want string }{
		"addresses":       {"10.0.0.1:18000", "127.0.0.1:9000", ""},
		"a name":          {"weir.example.org:18000", "[::1]:9000", ""},
		"a socket":        {"10.0.0.1:18000", "/run/weir/extproc.sock", ""},
		"a socket's URL":  {"10.0.0.1:18000", "unix:///run/weir/extproc.sock", ""},
		"no port":         {"nohost", "127.0.0.1:9000", `--xds: address "nohost": want host:port`},
		"no host":         {":18000", "127.0.0.1:9000", `--xds: address ":18000": want host:port`},
		"port 0":          {"weir:0", "127.0.0.1:9000", "--xds"},
		"a relative path": {"10.0.0.1:18000", "extproc.sock", `--listen: address "extproc.sock": want ip:port or the absolute path of a Unix socket`},
	} {
		_, err := parse([]string{"--front-end", "eu", "--node-id", "eu-1", "--xds", c.xds, "--listen", c.listen})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}
