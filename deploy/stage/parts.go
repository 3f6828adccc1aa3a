package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"weir/fleet"
)

func (s *Stage) startControlPlane(ctx context.Context) error {
	admin, err := s.adminOf("weir")
	if err != nil {
		return err
	}
	args := []string{"serve", s.FleetFile, "--xds", s.XDS, "--state", s.State(), "--admin", admin}
	process, err := s.Launch("weir", s.bin("weir"), append(args, s.options.ServeFlags...)...)
	if err != nil {
		return err
	}
	return s.await(ctx, process, connects(s.XDS))
}

// State is the control plane's state directory.
func (s *Stage) State() string { return filepath.Join(s.dir, "state") }

// node is one Envoy of a front-end with its weir-extproc.
type node struct {
	frontEnd fleet.FrontEndID
	name     string // of the front-end; a second one of it has "-2" behind
	admin    string // address of Envoy's admin interface
}

// startFrontEnd starts the first Envoy of a front-end.
func (s *Stage) startFrontEnd(ctx context.Context, id fleet.FrontEndID) error {
	return s.startNode(ctx, id, string(id))
}

// StartSecond starts a second Envoy of a front-end, on the same address, and
// waits until it answers.
func (s *Stage) StartSecond(ctx context.Context, id fleet.FrontEndID) error {
	name := string(id) + "-2"
	if err := s.startNode(ctx, id, name); err != nil {
		return err
	}
	return s.Await(ctx, name, true)
}

// startNode starts weir-extproc and Envoy; both find the control plane by
// themselves.
func (s *Stage) startNode(ctx context.Context, id fleet.FrontEndID, name string) error {
	admin, err := s.Address()
	if err != nil {
		return err
	}
	extProcAdmin, err := s.adminOf("extproc-" + name)
	if err != nil {
		return err
	}
	n := node{id, name, admin}
	s.nodes[name] = n
	flags := []string{"--front-end", string(id), "--node-id", name, "--xds", s.XDS, "--listen", s.Socket(name), "--admin", extProcAdmin}
	_, err = s.Launch("extproc-"+name, s.bin("weir-extproc"), append(flags, s.options.ExtProcFlags...)...)
	if err != nil {
		return err
	}
	if err := s.WriteBootstrap(ctx, name); err != nil {
		return err
	}
	_, err = s.Launch("envoy-"+name, s.options.Envoy, "-c", s.bootstrap(name),
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "--drain-time-s", "3")
	return err
}

func (s *Stage) bootstrap(name string) string { return filepath.Join(s.dir, "envoy-"+name+".json") }

// WriteBootstrap writes the file with which an Envoy is started, as an operator
// would; more flags are passed on.
func (s *Stage) WriteBootstrap(ctx context.Context, name string, more ...string) error {
	n := s.nodes[name]
	args := append([]string{
		"bootstrap", "--front-end", string(n.frontEnd), "--node-id", name,
		"--xds", s.XDS, "--extproc", s.Socket(name), "--admin", n.admin,
	}, append(more, s.options.BootstrapFlags...)...)
	text, err := exec.CommandContext(ctx, s.bin("weir"), args...).Output()
	if err != nil {
		return fmt.Errorf("weir %s: %w", strings.Join(args, " "), err)
	}
	if s.options.Distances {
		if text, err = bindTo(text, s.source(n.frontEnd)); err != nil {
			return err
		}
	}
	return os.WriteFile(s.bootstrap(name), text, 0o644)
}

// Socket is where a weir-extproc serves its Envoy.
func (s *Stage) Socket(name string) string {
	return filepath.Join(s.dir, "extproc-"+name+".sock")
}

// Await waits until an Envoy serves, and trusts its weir-extproc or has given it
// up.
func (s *Stage) Await(ctx context.Context, name string, extproc bool) error {
	healthy := 0
	if extproc {
		healthy = 1
	}
	envoy := s.Process("envoy-" + name)
	if err := s.await(ctx, envoy, answers("http://"+s.nodes[name].admin+"/ready")); err != nil {
		return err
	}
	if err := s.await(ctx, envoy, answers(s.URL(s.nodes[name].frontEnd)+"/v1/models")); err != nil {
		return err
	}
	return s.await(ctx, envoy, func() bool {
		n, err := s.Stat(ctx, name, "cluster.weir_ext_proc.membership_healthy")
		return err == nil && n == healthy
	})
}

// Stat reads one counter or gauge of an Envoy. One that Envoy has not made yet is
// an error, not 0.
func (s *Stage) Stat(ctx context.Context, envoy, name string) (int, error) {
	all, err := s.Stats(ctx, envoy, regexp.QuoteMeta(name))
	if err != nil {
		return 0, err
	}
	value, ok := all[name]
	if !ok {
		return 0, fmt.Errorf("envoy %q has no statistic %q", envoy, name)
	}
	return value, nil
}

// Stats reads the counters and gauges of an Envoy whose whole name matches a
// regular expression.
func (s *Stage) Stats(ctx context.Context, envoy, pattern string) (map[string]int, error) {
	query := url.Values{"filter": {"^(" + pattern + ")$"}}
	text, err := get(ctx, "http://"+s.nodes[envoy].admin+"/stats?"+query.Encode())
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.Atoi(value); err == nil {
			all[name] = n
		}
	}
	return all, nil
}

// Admin asks an Envoy's admin interface to do something.
func (s *Stage) Admin(ctx context.Context, envoy, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.nodes[envoy].admin+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return nil
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
