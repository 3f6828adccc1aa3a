package discover

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"weir/fleet"
)

func TestParseList(t *testing.T) {
	tests := map[string]struct {
		text string
		want []fleet.EngineID
		err  string
	}{
		"nothing":            {"", nil, ""},
		"comments":           {"# ours\n\n \t\n", nil, ""},
		"two":                {"10.0.0.2:80\n10.0.0.1:80 # the old one\n", []fleet.EngineID{"10.0.0.2:80", "10.0.0.1:80"}, ""},
		"Windows":            {"10.0.0.1:80\r\n", []fleet.EngineID{"10.0.0.1:80"}, ""},
		"IPv6":               {"[2001:db8:0::1]:80\n[::ffff:10.0.0.1]:80\n", []fleet.EngineID{"[2001:db8::1]:80", "10.0.0.1:80"}, ""},
		"cut":                {"10.0.0.1:8000\n10.0.0.2:80", nil, "2: the last line does not end in a line break"},
		"twice":              {"10.0.0.1:80\n\n[::ffff:10.0.0.1]:80\n", nil, "3: engine 10.0.0.1:80 stands in line 1 already"},
		"a host":             {"engine-1:80\n", nil, `1: "engine-1:80" is not ip:port`},
		"no port":            {"10.0.0.1\n", nil, `1: "10.0.0.1" is not ip:port`},
		"port 0":             {"10.0.0.1:0\n", nil, "1: 10.0.0.1:0 has port 0"},
		"anywhere":           {"0.0.0.0:80\n", nil, "1: 0.0.0.0:80 cannot be connected to"},
		"many":               {"224.0.0.1:80\n", nil, "1: 224.0.0.1:80 is not the address of a machine"},
		"a zone":             {"[fe80::1%eth0]:80\n", nil, "is not the address of a machine"},
		"two in a line":      {"10.0.0.1:80 10.0.0.2:80\n", nil, `1: "10.0.0.1:80 10.0.0.2:80" is not ip:port`},
		"one bad spoils all": {"10.0.0.1:80\nx\n", nil, `2: "x" is not ip:port`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseList(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("engines (-want +got):\n%s", diff)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
		})
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("10.0.0.1:80\n")
	f.Add("# x\n[::1]:80\n10.0.0.1")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseList(text)
		for _, e := range got {
			if again, bad := fleet.ParseEngine(string(e)); err != nil || bad != nil || again != e {
				t.Errorf("%q reads as %q: %v, %v", text, e, err, bad)
			}
		}
	})
}

// heard are answers as they come from a Finder.
type heard chan Answer

// find runs a Finder for a source, and ends it with the test.
func find(t *testing.T, d fleet.Discovery) heard {
	t.Helper()
	answers := make(heard, 1)
	ctx, stop := context.WithCancel(t.Context())
	n := NewFinder(zap.NewNop(), &fleet.Fleet{Pools: []fleet.Pool{{ID: "a", Discovery: &d}}}, func(a Answer) bool {
		select {
		case answers <- a:
			return true
		default:
			return false
		}
	})
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return answers
}

// until waits for an answer that is as wanted.
func (h heard) until(t *testing.T, what string, is func(*Answer) bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	var last Answer
	for {
		select {
		case last = <-h:
			if is(&last) {
				return
			}
		case <-deadline:
			t.Fatalf("%s: not within ten seconds; the last answer is %+v", what, last)
		}
	}
}

func (h heard) engines(t *testing.T, numbers string) {
	t.Helper()
	h.until(t, "engines "+numbers, func(a *Answer) bool { return a.Err == nil && cmp.Equal(a.Engines, engines(numbers)) })
}

func (h heard) fails(t *testing.T, why string) {
	t.Helper()
	h.until(t, why, func(a *Answer) bool { return a.Err != nil && strings.Contains(a.Err.Error(), why) })
}

func write(t *testing.T, path, numbers string) {
	t.Helper()
	text := ""
	for _, e := range engines(numbers) {
		text += string(e) + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fileSource(path string) fleet.Discovery {
	return fleet.Discovery{Kind: fleet.DiscoverFile, Where: path, Every: 5 * time.Millisecond}
}

func TestAFileIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "list")
	h := find(t, fileSource(path))
	h.until(t, "no file", func(a *Answer) bool { return errors.Is(a.Err, fs.ErrNotExist) })
	write(t, path, "1")
	h.engines(t, "1")
	write(t, path+".new", "1 2")
	check(t, os.Rename(path+".new", path))
	h.engines(t, "1 2")
	write(t, path, "")
	h.engines(t, "")
	check(t, os.WriteFile(path, []byte("10.0.0.1:80\nnonsense\n"), 0o600))
	h.fails(t, path+`:2: "nonsense" is not ip:port`)
	check(t, os.Remove(path))
	check(t, os.Mkdir(path, 0o700))
	h.fails(t, "not a regular file")
	check(t, os.Remove(path))
	check(t, os.WriteFile(path, []byte(strings.Repeat("#", maxFileBytes+1)), 0o600))
	h.fails(t, "larger than")
}

// A reading that does not end holds up nobody, and there is never a second one of its
// file.
func TestAFileThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		var readings atomic.Int64
		n := &Finder{slots: make(chan struct{}, 1), files: files{read: func(path string) (string, error) {
			readings.Add(1)
			if path == "/mnt/list" {
				<-back
			}
			return "10.0.0.1:80\n", nil
		}}}
		hung, other := n.files.look(fileSource("/mnt/list")), n.files.look(fileSource("/list"))
		for range 3 {
			if says, _, err := n.ask(t.Context(), hung); !errors.Is(err, context.DeadlineExceeded) || len(says.engines) > 0 {
				t.Errorf("a hung file is %v, %v", says.engines, err)
			}
		}
		if n := readings.Load(); n != 1 {
			t.Errorf("%d readings of one file", n)
		}
		if says, _, err := n.ask(t.Context(), other); err != nil || len(says.engines) != 1 {
			t.Errorf("the file beside it is %v, %v", says.engines, err)
		}
		close(back)
		if says, _, err := n.ask(t.Context(), hung); err != nil || len(says.engines) != 1 {
			t.Errorf("when it is back it is %v, %v", says.engines, err)
		}
	})
}

// Kubernetes mounts a ConfigMap as links to links, and replaces one in the middle.
func TestAConfigMapIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, numbers string) {
		check(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "list"), numbers)
		check(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		check(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", "1 2")
	check(t, os.Symlink(filepath.Join("..data", "list"), filepath.Join(dir, "list")))
	h := find(t, fileSource(filepath.Join(dir, "list")))
	h.engines(t, "1 2")
	version("..2", "2 3")
	check(t, os.RemoveAll(filepath.Join(dir, "..1")))
	h.engines(t, "2 3")
}

// A change of the fleet file leaves sources alone that stay, and ends those that do not.
func TestSourcesOfAChangedFleet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := fileSource(filepath.Join(dir, "a")), fileSource(filepath.Join(dir, "b"))
	write(t, a.Where, "1")
	write(t, b.Where, "2")
	answers := make(heard)
	ctx, stop := context.WithCancel(t.Context())
	only := func(d *fleet.Discovery) *fleet.Fleet {
		return &fleet.Fleet{Pools: []fleet.Pool{{ID: "a", Discovery: d}, {ID: "listed", Engines: engines("7")}}}
	}
	n := NewFinder(zap.NewNop(), only(&a), func(a Answer) bool {
		select {
		case answers <- a:
		case <-ctx.Done():
		}
		return true
	})
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	answers.engines(t, "1")
	n.SetFleet(only(&b))
	answers.engines(t, "2")
	n.SetFleet(only(nil))
	quiet := 0
	for quiet < 5 { // at most what was on its way comes yet
		select {
		case <-answers:
			quiet = 0
		case <-time.After(2 * b.Every):
			quiet++
		}
	}
	stop()
	check(t, <-done)
}
