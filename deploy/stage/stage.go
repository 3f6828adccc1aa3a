// Package stage runs a whole fleet on this machine, each part its own process:
// engines (mock or llama.cpp), the control plane, and for each front-end a real
// Envoy with its weir-extproc. The demo shows it to people; the end-to-end tests
// prove it.
//
// A fleet file is staged by giving every 127.0.0.1 address in it a free port, so
// that stages run side by side.
package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/config"
	"weir/fleet"
)

// Options say what to stage. Bin, Envoy and FleetFile are needed.
type Options struct {
	Bin       string // folder of weir, weir-extproc and mock-engine
	Envoy     string // the envoy binary
	FleetFile string
	Edit      func(string) string // changes the staged fleet file's text; nil: nothing
	// EngineFlags adds flags to the engines of a pool; nil: none.
	EngineFlags func(fleet.PoolID) []string
	// External says which pools' engines are the caller's own, beside those behind
	// TLS; nil: none.
	External func(fleet.PoolID) bool
	// Found are the engines, to be started, of pools whose source is not a file; it is
	// read after Edit.
	Found map[fleet.PoolID][]fleet.EngineID
	// ServeFlags are more flags of "weir serve".
	ServeFlags []string
	// ExtProcFlags are more flags for every weir-extproc.
	ExtProcFlags []string
	// BootstrapFlags are more flags of "weir bootstrap" for every Envoy.
	BootstrapFlags []string
	Llama          *Llama // runs the pools of type llamacpp; nil: mock engines do
	// Distances makes the network of the fleet file real: each front-end's Envoys
	// speak from an address of their own, and engines answer it after its round trip.
	Distances bool
	// Dir keeps logs, journals and sockets; empty: a folder that Close removes.
	Dir string
}

// Stage is a running fleet.
type Stage struct {
	Fleet     *fleet.Fleet
	FleetFile string // the staged one
	XDS       string // address of the control plane

	options   Options
	dir       string
	ownDir    bool
	ports     []*port
	nodes     map[string]node
	admins    map[string]string // addresses of Weir's own admin APIs, by process
	processes map[string]*Process
	order     []*Process
}

// Start stages a fleet and returns once every front-end answers. What was started
// is stopped again on an error.
func Start(ctx context.Context, o Options) (*Stage, error) {
	s := &Stage{options: o, dir: o.Dir, nodes: map[string]node{}, admins: map[string]string{}, processes: map[string]*Process{}}
	err := s.start(ctx)
	if err != nil {
		err = errors.Join(err, s.Close())
		return nil, err
	}
	return s, nil
}

func (s *Stage) start(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.startEngines(ctx); err != nil {
		return err
	}
	if err := s.startControlPlane(ctx); err != nil {
		return err
	}
	for _, fe := range s.Fleet.FrontEnds {
		if err := s.startFrontEnd(ctx, fe.ID); err != nil {
			return err
		}
	}
	for _, fe := range s.Fleet.FrontEnds {
		if err := s.Await(ctx, string(fe.ID), true); err != nil {
			return err
		}
	}
	return nil
}

var loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// prepare writes the staged fleet file.
func (s *Stage) prepare() error {
	if err := s.makeDir(); err != nil {
		return err
	}
	text, err := os.ReadFile(s.options.FleetFile)
	if err != nil {
		return err
	}
	staged, err := s.replacePorts(string(text))
	if err != nil {
		return err
	}
	if s.options.Edit != nil {
		staged = s.options.Edit(staged)
	}
	s.FleetFile = filepath.Join(s.dir, "fleet.yaml")
	if err := os.WriteFile(s.FleetFile, []byte(staged), 0o644); err != nil {
		return err
	}
	s.XDS, err = s.Address()
	if err != nil {
		return err
	}
	s.Fleet, err = config.Load(s.FleetFile)
	if err != nil {
		return err
	}
	return s.find()
}

// find fills in the engines that pools take from a source, so that they are started.
func (s *Stage) find() error {
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if p.Discovery == nil {
			continue
		}
		if p.Discovery.Kind != fleet.DiscoverFile {
			p.Engines = slices.Clone(s.options.Found[p.ID])
			continue
		}
		text, err := os.ReadFile(p.Discovery.Where)
		if err != nil {
			return err
		}
		for _, line := range strings.Fields(string(text)) {
			p.Engines = append(p.Engines, fleet.EngineID(line))
		}
	}
	return nil
}

func (s *Stage) makeDir() (err error) {
	if s.dir == "" {
		s.ownDir = true
		s.dir, err = os.MkdirTemp("", "weir-")
		return err
	}
	return os.MkdirAll(s.dir, 0o755)
}

func (s *Stage) replacePorts(text string) (string, error) {
	replaced := map[string]string{}
	var firstErr error
	text = loopback.ReplaceAllStringFunc(text, func(old string) string {
		if _, ok := replaced[old]; !ok {
			address, err := s.Address()
			firstErr = errors.Join(firstErr, err)
			replaced[old] = address
		}
		return replaced[old]
	})
	return text, firstErr
}

// Close stops every process, all at once, and frees the ports.
func (s *Stage) Close() error {
	errs := make([]error, len(s.order))
	var ends sync.WaitGroup
	for i, p := range s.order {
		ends.Go(func() { errs[i] = p.Stop() })
	}
	ends.Wait()
	for _, p := range s.ports {
		errs = append(errs, p.free())
	}
	if s.ownDir {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Process returns a process by its name: "weir", "extproc-FRONTEND",
// "envoy-FRONTEND", "engine-ADDRESS"; those of a front-end's second Envoy are
// "extproc-FRONTEND-2" and "envoy-FRONTEND-2".
func (s *Stage) Process(name string) *Process { return s.processes[name] }

// URL is where clients of a front-end send their requests.
func (s *Stage) URL(id fleet.FrontEndID) string { return "http://" + s.Fleet.FrontEnd(id).Listen }

// AdminAddress is where "weir" or an "extproc-FRONTEND" can be asked.
func (s *Stage) AdminAddress(process string) string { return s.admins[process] }

// EnvoyAdmin is the address of an Envoy's admin interface.
func (s *Stage) EnvoyAdmin(envoy string) string { return s.nodes[envoy].admin }

// adminOf reserves the address of a process's admin API.
func (s *Stage) adminOf(process string) (string, error) {
	address, err := s.Address()
	s.admins[process] = address
	return address, err
}

// Journal is the file in which an engine notes who asked it for what.
func (s *Stage) Journal(e fleet.EngineID) string {
	return filepath.Join(s.dir, "engine-"+string(e)+".jsonl")
}

// Launch starts a process under a name; its output goes to NAME.log, and Close stops
// it with the rest.
func (s *Stage) Launch(name, program string, args ...string) (*Process, error) {
	p := &Process{Name: name, program: program, args: args, log: filepath.Join(s.dir, name+".log")}
	if err := p.Start(); err != nil {
		return nil, err
	}
	s.processes[name] = p
	s.order = append(s.order, p)
	return p, nil
}

// await polls until ready holds, its process has died, or the time is up.
func (s *Stage) await(ctx context.Context, p *Process, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-p.Exited():
			return fmt.Errorf("%s ended at its start:\n%s", p.Name, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.Name, context.Cause(ctx), p.Tail())
		case <-tick.C:
		}
	}
	return nil
}
