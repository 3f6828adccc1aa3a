package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weir/fleet"
)

// startEngines starts the engines of all pools but those behind TLS, which are the
// caller's own.
func (s *Stage) startEngines(ctx context.Context) error {
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		if p.TLS != nil {
			continue
		}
		for _, e := range p.Engines {
			process, err := s.launch("engine-"+string(e), s.bin("mock-engine"), s.engineArgs(p, e)...)
			if err != nil {
				return err
			}
			if err := s.await(ctx, process, answers("http://"+string(e)+"/health")); err != nil {
				return err
			}
		}
	}
	return nil
}

// engineArgs gives an engine its pool's profile, so that what the plan expects is
// what the engine does.
func (s *Stage) engineArgs(p *fleet.Pool, e fleet.EngineID) []string {
	args := []string{
		"--listen", string(e),
		"--name", string(p.ID) + "/" + string(e),
		"--models", strings.Join(p.Models, ","),
		"--log", s.Journal(e),
		"--capacity", number(p.Profile.CapacityRps),
		"--ttft", duration(p.Profile.TTFT.At(0)),
		"--ttft-full", duration(p.Profile.TTFT.At(1)),
	}
	if s.options.EngineFlags != nil {
		args = append(args, s.options.EngineFlags(p.ID)...)
	}
	return args
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).String()
}

func (s *Stage) startControlPlane(ctx context.Context) error {
	process, err := s.launch("weir", s.bin("weir"), "serve", s.FleetFile, "--xds", s.XDS)
	if err != nil {
		return err
	}
	return s.await(ctx, process, connects(s.XDS))
}

// startFrontEnd starts weir-extproc and Envoy; both find the control plane by
// themselves.
func (s *Stage) startFrontEnd(ctx context.Context, id fleet.FrontEndID) error {
	node := string(id) + "-1"
	socket := s.Socket(id)
	_, err := s.launch("extproc-"+string(id), s.bin("weir-extproc"),
		"--front-end", string(id), "--node-id", node, "--xds", s.XDS, "--listen", socket)
	if err != nil {
		return err
	}
	bootstrap, err := s.writeBootstrap(ctx, id, node, socket)
	if err != nil {
		return err
	}
	_, err = s.launch("envoy-"+string(id), s.options.Envoy, "-c", bootstrap,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	return err
}

func (s *Stage) writeBootstrap(ctx context.Context, id fleet.FrontEndID, node, socket string) (string, error) {
	admin, err := s.address()
	if err != nil {
		return "", err
	}
	p, err := s.launch("bootstrap-"+string(id), s.bin("weir"), "bootstrap",
		"--front-end", string(id), "--node-id", node, "--xds", s.XDS, "--extproc", socket, "--admin", admin)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	path := filepath.Join(s.dir, "envoy-"+string(id)+".json")
	if err := os.Rename(p.log, path); err != nil {
		return "", err
	}
	return path, os.WriteFile(filepath.Join(s.dir, "envoy-"+string(id)+".admin"), []byte(admin), 0o644)
}

// Socket is where the weir-extproc of a front-end serves its Envoy.
func (s *Stage) Socket(id fleet.FrontEndID) string {
	return filepath.Join(s.dir, "extproc-"+string(id)+".sock")
}

// Admin is the address of the admin interface of a front-end's Envoy.
func (s *Stage) Admin(id fleet.FrontEndID) (string, error) {
	address, err := os.ReadFile(filepath.Join(s.dir, "envoy-"+string(id)+".admin"))
	return string(address), err
}

// awaitFrontEnd waits until Envoy has its resources and trusts its weir-extproc.
func (s *Stage) awaitFrontEnd(ctx context.Context, id fleet.FrontEndID) error {
	envoy := s.Process("envoy-" + string(id))
	if err := s.await(ctx, envoy, answers(s.URL(id)+"/v1/models")); err != nil {
		return err
	}
	return s.await(ctx, envoy, func() bool {
		n, err := s.Stat(ctx, id, "cluster.weir_ext_proc.membership_healthy")
		return err == nil && n == 1
	})
}

// Stat reads one counter or gauge of a front-end's Envoy. One that Envoy has not
// made yet is an error, not 0.
func (s *Stage) Stat(ctx context.Context, id fleet.FrontEndID, name string) (int, error) {
	admin, err := s.Admin(id)
	if err != nil {
		return 0, err
	}
	text, err := get(ctx, "http://"+admin+"/stats?filter=^"+name+"$")
	if err != nil {
		return 0, err
	}
	_, value, ok := strings.Cut(strings.TrimSpace(text), ": ")
	if !ok {
		return 0, fmt.Errorf("envoy of %q has no statistic %q", id, name)
	}
	return strconv.Atoi(value)
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(text), err
}

func answers(url string) func() bool {
	return func() bool {
		_, err := get(context.Background(), url)
		return err == nil
	}
}

func (s *Stage) bin(name string) string { return filepath.Join(s.options.Bin, name) }
