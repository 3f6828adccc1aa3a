package stage

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"weir/fleet"
)

// Llama says how to run llama.cpp engines. They answer nonsense, but have the real
// server's slots, metrics and KV cache.
type Llama struct {
	Python string   // has the packages of tools/requirements.txt
	Script string   // tools/llama-engine
	Flags  []string // more flags, for every engine
}

// Check returns why llama.cpp engines cannot run here, nil if they can.
func (l *Llama) Check(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, l.Python, l.Script, "--help").CombinedOutput()
	if err != nil {
		return fmt.Errorf("llama.cpp engines: %w\n%s", err, out)
	}
	return nil
}

// isLlama says whether a pool's engines are llama.cpp's.
func (s *Stage) isLlama(p *fleet.Pool) bool {
	return s.options.Llama != nil && p.EngineType == "llamacpp"
}

// isExternal says whether a pool's engines are the caller's own.
func (s *Stage) isExternal(p *fleet.Pool) bool {
	return p.TLS != nil || s.options.External != nil && s.options.External(p.ID)
}

// startEngines starts the engines of all pools but the caller's own, and waits until
// they serve.
func (s *Stage) startEngines(ctx context.Context) error {
	for i := range s.Fleet.Pools {
		if p := &s.Fleet.Pools[i]; !s.isExternal(p) {
			if err := s.launchEngines(p); err != nil {
				return err
			}
		}
	}
	for i := range s.Fleet.Pools {
		if p := &s.Fleet.Pools[i]; !s.isExternal(p) {
			if err := s.awaitEngines(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Stage) launchEngines(p *fleet.Pool) error {
	program, args := s.bin("mock-engine"), s.mockArgs
	if s.isLlama(p) {
		program, args = s.options.Llama.Python, s.llamaArgs
	}
	for _, e := range p.Engines {
		flags := args(p, e)
		if s.options.EngineFlags != nil {
			flags = append(flags, s.options.EngineFlags(p.ID)...)
		}
		if _, err := s.Launch(engineName(e), program, flags...); err != nil {
			return err
		}
	}
	return nil
}

// awaitEngines waits until a pool's engines have loaded: both kinds answer their
// health checks with an error before.
func (s *Stage) awaitEngines(ctx context.Context, p *fleet.Pool) error {
	for _, e := range p.Engines {
		if err := s.await(ctx, s.Process(engineName(e)), answers("http://"+string(e)+"/health")); err != nil {
			return err
		}
	}
	return nil
}

func engineName(e fleet.EngineID) string { return "engine-" + string(e) }

// mockArgs gives an engine its pool's profile, so that what the plan expects is
// what the engine does.
func (s *Stage) mockArgs(p *fleet.Pool, e fleet.EngineID) []string {
	args := []string{
		"--listen", string(e),
		"--name", string(p.ID) + "/" + string(e),
		"--models", strings.Join(p.Models, ","),
		"--log", s.Journal(e),
		"--capacity", number(p.Profile.CapacityRps),
		"--ttft", duration(p.Profile.TTFT.At(0)),
		"--ttft-full", duration(p.Profile.TTFT.At(1)),
	}
	if s.options.Distances {
		args = append(args, "--delay", s.delays(p.ID))
	}
	return args
}

func (s *Stage) llamaArgs(p *fleet.Pool, e fleet.EngineID) []string {
	l := s.options.Llama
	return append([]string{l.Script, "--listen", string(e), "--model-name", strings.Join(p.Models, ",")}, l.Flags...)
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).String()
}
