package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/deploy/stage"
)

// A page is run as its reader would: its ```sh blocks one after the other in one
// shell, each command of which must succeed. A ```text block shows what the block
// before it prints: its lines in their order, "…" standing for anything. Blocks
// without a language are not run.
type guide struct {
	t     *testing.T
	name  string // from the repository's root
	dir   string // stands for the repository, and for /tmp
	ports stage.Stage
	where map[string]string // an address of the page → the one in its place
}

// The README's walk-through, and its 60 seconds.
func TestReadmeRuns(t *testing.T) {
	t.Parallel()
	newGuide(t, "README.md").run("")
}

// The reader's own engines in two regions; llama.cpp's stand in for them.
func TestQuickstartRuns(t *testing.T) {
	t.Parallel()
	llamaEngines(t) // skips where there are none
	newGuide(t, "docs/QUICKSTART.md").run("")
}

// The operators' commands, at a fleet with the names that the page uses.
func TestOperationsRun(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: "testdata/operations.yaml"})
	p := newGuide(t, "docs/OPERATIONS.md")
	p.where["127.0.0.1:18001"] = s.AdminAddress("weir")
	p.where["127.0.0.1:18000"] = s.XDS
	p.where["10.0.0.1:18001"] = s.AdminAddress("weir")
	p.where["10.0.0.7:8000"] = string(s.Fleet.Pool("eu-h100").Engines[0])
	fleet, err := os.ReadFile(s.FleetFile)
	check(t, err)
	p.write("fleet.yaml", string(fleet), 0o644)
	p.write("day.csv", day(), 0o644)
	// A status of 3 says that something needs attention, and while brakes are on
	// something does.
	p.run(`weir() { command weir "$@" || [ $? = 3 ]; }` + "\nPATH=$PWD/bin:$PATH\n")
}

// day is a trace of three minutes.
func day() string {
	var b strings.Builder
	b.WriteString("seconds,prompt_tokens,output_tokens\n")
	for i := range 1800 {
		fmt.Fprintf(&b, "%.1f,900,150\n", float64(i)/10)
	}
	return b.String()
}

// newGuide prepares a folder that looks like the repository to whoever runs commands
// in it.
func newGuide(t *testing.T, name string) *guide {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-page-") // short: it holds Unix sockets
	check(t, err)
	p := &guide{t: t, name: name, dir: dir, where: map[string]string{}}
	t.Cleanup(func() {
		check(t, p.ports.Close())
		if !t.Failed() {
			check(t, os.RemoveAll(dir))
		}
	})
	for _, folder := range []string{"tools", "docs"} {
		check(t, os.Symlink(absolute(t, "../"+folder), filepath.Join(dir, folder)))
	}
	return p
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	check(t, err)
	return abs
}

func (p *guide) write(name, text string, mode os.FileMode) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	check(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(p.t, os.WriteFile(path, []byte(text), mode))
}

// address gives an address of the page a free port.
func (p *guide) address(old string) string {
	if p.where[old] == "" {
		free, err := p.ports.Address()
		check(p.t, err)
		p.where[old] = free
	}
	return p.where[old]
}

var anAddress = regexp.MustCompile(`\b(127\.0\.0\.1|10\.0\.0\.\d+):\d+\b`)

// here puts this test's addresses and folder in place of the page's.
func (p *guide) here(text string) string {
	text = anAddress.ReplaceAllStringFunc(text, func(old string) string {
		if p.where[old] == "" && !strings.HasPrefix(old, "127.") {
			return old
		}
		return p.address(old)
	})
	return strings.ReplaceAll(text, "/tmp/", p.dir+"/")
}

// programs puts where a page's commands find them what they name.
func (p *guide) programs() {
	p.t.Helper()
	for _, name := range []string{"weir-extproc", "mock-engine"} {
		p.write("bin/"+name, fmt.Sprintf("#!/bin/sh\nexec %s/%s \"$@\"\n", bin, name), 0o755)
	}
	p.write("bin/weir", p.weirWithPorts(), 0o755)
	realMake, err := exec.LookPath("make")
	check(p.t, err)
	// The targets are there, and are not made once more.
	p.write("stubs/make", fmt.Sprintf("#!/bin/sh\nexec %s -n -C %s \"$@\"\n", realMake, absolute(p.t, "..")), 0o755)
	p.write(".venv/bin/envoy", fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", absolute(p.t, envoy)), 0o755)
	for _, name := range []string{"python", "python3"} {
		p.write(".venv/bin/"+name, fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", absolute(p.t, llamaPython())), 0o755)
	}
	fleets, err := filepath.Glob("../testdata/fleets/*.yaml")
	check(p.t, err)
	for _, file := range fleets {
		text, err := os.ReadFile(file)
		check(p.t, err)
		p.write("testdata/fleets/"+filepath.Base(file), p.here(string(text)), 0o644)
	}
}

// weirWithPorts is a weir whose default addresses are this test's own.
func (p *guide) weirWithPorts() string {
	admin, xds, envoyAdmin := p.address("127.0.0.1:18001"), p.address("127.0.0.1:18000"), p.address("127.0.0.1:9901")
	return fmt.Sprintf(`#!/bin/sh
verb=$1
case "$verb" in
serve) shift; exec %[1]s/weir serve --admin=%[2]s --xds=%[3]s "$@" ;;
snapshot) shift; exec %[1]s/weir snapshot --xds=%[3]s "$@" ;;
bootstrap) shift; exec %[1]s/weir bootstrap --admin=%[4]s "$@" ;;
explain) shift 2; exec %[1]s/weir explain plan --admin=%[2]s "$@" ;;
status|whatif|brakes|drain|undrain|freeze|unfreeze|pin|unpin|limit|unlimit|policy)
	shift; exec %[1]s/weir "$verb" --admin=%[2]s "$@" ;;
esac
exec %[1]s/weir "$@"
`, bin, admin, xds, envoyAdmin)
}

// run runs the page, first some commands of the test's own.
func (p *guide) run(first string) {
	p.t.Helper()
	markdown, err := os.ReadFile("../" + p.name)
	check(p.t, err)
	blocks := blocksOf(string(markdown))
	if len(blocks) == 0 {
		p.t.Fatalf("%s has no ```sh block", p.name)
	}
	p.programs()
	p.write("page.sh", script(p.here(first), blocks, p.here), 0o644)
	last, err := p.shell()
	for i, b := range blocks[:last] {
		if missing := b.missing(p.output(i)); missing != "" {
			p.t.Errorf("%s:%d does not print %q in this place:\n%s", p.name, b.line, missing, p.output(i))
		}
	}
	if err != nil || last != len(blocks) {
		p.t.Errorf("%s:%d fails: %v\n%s", p.name, blocks[max(0, last-1)].line, err, p.output(max(0, last-1)))
	}
}

func (p *guide) output(i int) string {
	text, err := os.ReadFile(filepath.Join(p.dir, fmt.Sprintf("out-%d", i)))
	check(p.t, err)
	return string(text)
}

// script is one for all blocks, which count themselves in the file "reached" and
// write each to a file of its own.
func script(first string, blocks []block, here func(string) string) string {
	var b strings.Builder
	b.WriteString("set -Eeuo pipefail\npage=$PWD\nPATH=$page/stubs:$PATH\n" + first)
	for i, block := range blocks {
		fmt.Fprintf(&b, "echo %d > $page/reached\nexec > $page/out-%d 2>&1 < /dev/null\n%s\n", i+1, i, here(block.commands))
	}
	return b.String()
}

// shell returns how many blocks were begun. All that they started ends with it.
func (p *guide) shell() (int, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "page.sh")
	c.Dir = p.dir
	c.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	c.WaitDelay = time.Second
	check(p.t, c.Start())
	defer func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }() // none left: as it should be
	err := c.Wait()
	if stderr.Len() > 0 {
		p.t.Errorf("%s", stderr.String())
	}
	reached := 0
	text, readErr := os.ReadFile(filepath.Join(p.dir, "reached"))
	check(p.t, readErr)
	_, scanErr := fmt.Sscan(string(text), &reached)
	check(p.t, scanErr)
	return reached, err
}

// block is commands of a page and what it says that they print.
type block struct {
	line     int
	commands string
	shown    []string
}

// blocksOf finds the ```sh blocks, each with the ```text block behind it.
func blocksOf(markdown string) []block {
	var blocks []block
	language := "" // of the fence that is open
	for i, line := range strings.Split(markdown, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		last := len(blocks) - 1
		switch {
		case isFence && fence == "sh":
			blocks = append(blocks, block{line: i + 1})
			language = fence
		case isFence:
			language = fence
		case language == "sh":
			blocks[last].commands += line + "\n"
		case language == "text" && last >= 0:
			blocks[last].shown = append(blocks[last].shown, line)
		}
	}
	return blocks
}

// missing is the first line of what is shown that the output does not have behind
// those before it.
func (b block) missing(output string) string {
	lines := strings.Split(output, "\n")
	for _, want := range b.shown {
		if strings.TrimSpace(want) == "" {
			continue
		}
		at := slices.IndexFunc(lines, func(got string) bool { return looksLike(got, want) })
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

// looksLike compares but for spaces and what "…" stands for.
func looksLike(got, want string) bool {
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(words(want)), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(words(got))
}

func TestBlocksOf(t *testing.T) {
	t.Parallel()
	got := blocksOf("a\n```\nnot run\n```\n```sh\none\ntwo\n```\nb\n```text\nshown\n```\n```yaml\nx: y\n```\n```sh\nthree\n```\n")
	want := []block{{5, "one\ntwo\n", []string{"shown"}}, {16, "three\n", nil}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("blocks = %v, want %v", got, want)
	}
	for _, tt := range []struct{ output, missing string }{
		{"a\nshown\nb", ""},
		{"  shown  ", ""},
		{"shown not", "shown"},
	} {
		if got := want[0].missing(tt.output); got != tt.missing {
			t.Errorf("missing from %q is %q, want %q", tt.output, got, tt.missing)
		}
	}
	if !looksLike("took 3 ms (more)", "took … ms …") || looksLike("took 3 s", "took … ms") {
		t.Error("… does not stand for anything, or for too much")
	}
}
