package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// project is the demo on a Docker daemon.
type project struct {
	t       *testing.T
	compose string   // program
	env     []string // of compose
	fleet   string   // folder of the fleet file
}

// run runs a command to its end and returns what it printed.
func (p *project) run(within time.Duration, name string, args ...string) string {
	p.t.Helper()
	out, err := p.try(within, name, args...)
	if err != nil {
		p.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (p *project) try(within time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), within)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), p.env...)
	var problem bytes.Buffer
	c.Stderr = &problem
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problem.String())
	}
	return string(out), err
}

func (p *project) docker(args ...string) string {
	p.t.Helper()
	return p.run(time.Minute, "docker", args...)
}

func (p *project) up(args ...string) {
	p.t.Helper()
	p.run(3*time.Minute, p.compose, append([]string{"up", "-d", "--no-build", "--quiet-pull", "--pull", "never"}, args...)...)
}

// containers are the names of those of a service; of all, if it is empty.
func (p *project) containers(service string) []string {
	p.t.Helper()
	args := []string{"ps", "-a", "--format", "{{.Names}}", "--filter", "label=com.docker.compose.project=" + projectName}
	if service != "" {
		args = append(args, "--filter", "label=com.docker.compose.service="+service)
	}
	names := strings.Fields(p.docker(args...))
	slices.Sort(names)
	return names
}

// state is what Docker knows of a container.
type state struct {
	Name   string
	Config struct{ User string }
	State  struct {
		Status   string
		ExitCode int
		Health   *struct{ Status string }
	}
}

func (p *project) inspect() []state {
	p.t.Helper()
	var all []state
	if names := p.containers(""); len(names) > 0 {
		if err := json.Unmarshal([]byte(p.docker(append([]string{"inspect"}, names...)...)), &all); err != nil {
			p.t.Fatal(err)
		}
	}
	return all
}

// unwell names the containers that are not running and healthy, or have not done what
// they were to do.
func (p *project) unwell() []string {
	p.t.Helper()
	var names []string
	for _, s := range p.inspect() {
		switch {
		case strings.Contains(s.Name, "bootstrap") && s.State.Status == "exited" && s.State.ExitCode == 0:
		case s.State.Status != "running", s.State.Health != nil && s.State.Health.Status != "healthy":
			names = append(names, s.Name)
		}
	}
	return names
}

// things are all that Docker has, by kind, so that what is left behind shows.
func (p *project) things() map[string]bool {
	p.t.Helper()
	found := map[string]bool{}
	for kind, args := range map[string][]string{
		"container": {"ps", "-aq", "--no-trunc"},
		"network":   {"network", "ls", "-q", "--no-trunc"},
		"volume":    {"volume", "ls", "-q"},
	} {
		for id := range strings.FieldsSeq(p.docker(args...)) {
			found[kind+" "+id] = true
		}
	}
	return found
}

// processes are those that containers run: they have parents that Docker started.
func processes() int {
	out, _ := exec.Command("pgrep", "-f", "containerd-shim").Output() // none: exit code 1
	return len(strings.Fields(string(out)))
}

// arrivals counts the conversations that began at each engine, by the engines' own
// journals, since a moment. A conversation counts where it was first.
func (p *project) arrivals(services []string, since time.Time) map[string]string {
	p.t.Helper()
	type first struct {
		at      time.Time
		service string
	}
	firsts := map[string]first{}
	for _, service := range services {
		for _, container := range p.containers(service) {
			log := p.run(time.Minute, "docker", "logs", "--since", since.UTC().Format(time.RFC3339Nano), container)
			for line := range strings.Lines(log) {
				var a struct {
					Event   string
					Time    time.Time
					Headers map[string]string
				}
				if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &a) != nil || a.Event != "arrival" {
					continue
				}
				mark := a.Headers["x-test-id"]
				if f, seen := firsts[mark]; mark != "" && (!seen || a.Time.Before(f.at)) {
					firsts[mark] = first{a.Time, service}
				}
			}
		}
	}
	where := map[string]string{}
	for mark, f := range firsts {
		where[mark] = f.service
	}
	return where
}

// tally is the last word of mock-clients.
type tally struct {
	Name                      string
	Sent, Whole, Shed, Failed int
	FirstFailure              string
}

// load is clients under way.
type load struct {
	p      *project
	name   string
	done   chan struct{}
	output string
	err    error
}

// begin starts clients in a container of their own.
func (p *project) begin(name string, flags ...string) *load {
	l := &load{p: p, name: name, done: make(chan struct{})}
	args := append([]string{
		"run", "--rm", "-T", "--no-deps", "--name", projectName + "-" + name, "clients",
		"--model=llama-3.3-70b", "--every=5s", "--name=" + name,
		"--to=A=http://envoy-a:10000=36", "--to=B=http://envoy-b:10000=48", "--to=C=http://envoy-c:10000=16",
	}, flags...)
	go func() {
		defer close(l.done)
		l.output, l.err = p.try(5*time.Minute, p.compose, args...)
	}()
	return l
}

// wait waits for the end and returns what became of requests.
func (l *load) wait() tally {
	l.p.t.Helper()
	<-l.done
	var got tally
	lines := strings.Split(strings.TrimSpace(l.output), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		l.p.t.Fatalf("clients: %v, %v\n%s", l.err, err, l.output)
	}
	l.p.t.Logf("clients %s: %s", l.name, lines[len(lines)-1])
	return got
}

// left names what is there and was not before.
func left(before, after map[string]bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !before[name] {
			names = append(names, name)
		}
	}
	return names
}

// witness watches the clock and returns what says how long this machine stood still at
// most, as virtual machines do: clients' patience ends meanwhile.
func witness() (longest func() time.Duration) {
	over, told := make(chan struct{}), make(chan time.Duration)
	go func() {
		const beat = 100 * time.Millisecond
		tick := time.NewTicker(beat)
		defer tick.Stop()
		var most time.Duration
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-tick.C:
				most = max(most, time.Since(last)-beat)
			case <-over:
				told <- most
				return
			}
		}
	}()
	return func() time.Duration { close(over); return <-told }
}

// eventually waits for a condition and returns how long that took.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Since(began) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		<-tick.C
	}
	return time.Since(began)
}
