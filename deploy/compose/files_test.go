// Package compose holds the demo in containers to what its documents say: files, and, on
// a real Docker daemon, what becomes of requests.
package compose

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"

	"weir/config"
	"weir/fleet"
	"weir/solver"
	"weir/solver/clp"
	"weir/solver/lp"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.UnmarshalWithOptions([]byte(read(t, path)), into, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// service is the part of a compose service that is held to rules.
type service struct {
	Image string `yaml:"image"`
	Pull  string `yaml:"pull_policy"`
	Build *struct {
		Target string `yaml:"target"`
	} `yaml:"build"`
	Ports      []string `yaml:"ports"`
	ReadOnly   bool     `yaml:"read_only"`
	CapDrop    []string `yaml:"cap_drop"`
	Security   []string `yaml:"security_opt"`
	Privileged bool     `yaml:"privileged"`
	Network    string   `yaml:"network_mode"`
	PID        string   `yaml:"pid"`
	Command    []string `yaml:"command"`
	Configs    []given  `yaml:"configs"`
	Health     struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
}

// given is a file that a service is given.
type given struct {
	Source string `yaml:"source"`
	Target string `yaml:"target"`
}

type composeFile struct {
	Services map[string]service `yaml:"services"`
	Configs  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"configs"`
}

var pinned = regexp.MustCompile(`^[\w./-]+:[\w.-]*\d[\w.-]*$`)

// defaulted takes the default of ${NAME:-DEFAULT}.
func defaulted(s string) string {
	return regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(s, "$1")
}

// What is published is published on this machine alone, and no container has more
// rights than it needs.
func TestNothingIsOpen(t *testing.T) {
	var file composeFile
	decode(t, "compose.yaml", &file)
	published := 0
	for name, s := range file.Services {
		for _, p := range s.Ports {
			published++
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s: want it on 127.0.0.1", name, p)
			}
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.Security, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: read-only %v, drops %v, %v", name, s.ReadOnly, s.CapDrop, s.Security)
		}
		if s.Privileged || s.Network == "host" || s.PID != "" {
			t.Errorf("%s shares the host's namespaces, or may all", name)
		}
		if image := defaulted(s.Image); !strings.HasPrefix(image, "weir/") && !pinned.MatchString(image) {
			t.Errorf("%s is of %s: pin its version", name, image)
		}
	}
	if len(file.Services) < 15 || published < 5 {
		t.Errorf("%d services that publish %d ports: is this the whole file?", len(file.Services), published)
	}
}

// Weir's images are all built here, and none is asked of a registry, where their names
// are somebody else's.
func TestOwnImagesAreBuilt(t *testing.T) {
	var file composeFile
	decode(t, "compose.yaml", &file)
	built, used := map[string]bool{}, map[string]bool{}
	for name, s := range file.Services {
		image, own := strings.CutPrefix(defaulted(s.Image), "weir/")
		if own != (s.Pull == "never") {
			t.Errorf("%s is of %s, with pull_policy %q", name, s.Image, s.Pull)
		}
		if own {
			used[image] = true
		}
		if s.Build != nil {
			built[image] = true
			if target, _, _ := strings.Cut(image, ":"); target != s.Build.Target {
				t.Errorf("%s: %s is built as %s", name, s.Image, s.Build.Target)
			}
		}
	}
	if !maps.Equal(built, used) || len(used) != 4 {
		t.Errorf("built are %v, used %v: want the same four", built, used)
	}
}

// those are the services whose names begin so, one for each of the three front-ends.
func (c *composeFile) those(t *testing.T, prefix string) map[string]service {
	t.Helper()
	found := maps.Clone(c.Services)
	maps.DeleteFunc(found, func(name string, _ service) bool { return !strings.HasPrefix(name, prefix) })
	if len(found) != 3 {
		t.Errorf("%d services %s…, want 3", len(found), prefix)
	}
	return found
}

// An Envoy is healthy when it serves a plan: clients start after that.
func TestEnvoysAreHealthyWhenReady(t *testing.T) {
	var file composeFile
	decode(t, "compose.yaml", &file)
	for name, s := range file.those(t, "envoy-") {
		if len(s.Configs) != 1 {
			t.Errorf("%s is given %v, want its health check alone", name, s.Configs)
			continue
		}
		script := s.Configs[0]
		if want := []string{"CMD", "bash", script.Target, "ready"}; !slices.Equal(s.Health.Test, want) {
			t.Errorf("%s is healthy by %q, want %q", name, s.Health.Test, want)
		}
		if text := read(t, file.Configs[script.Source].File); !strings.Contains(text, "\nready() {") {
			t.Errorf("%s: %s cannot tell what is ready", name, file.Configs[script.Source].File)
		}
	}
}

// The health of a weir-extproc is asked where its command has the admin API, which is off
// without: an image alone cannot know.
func TestExtprocsAreAskedWhereTheyAnswer(t *testing.T) {
	var file composeFile
	decode(t, "compose.yaml", &file)
	for name, s := range file.those(t, "extproc-") {
		at := slices.Index(s.Command, "--admin") + 1
		if at == 0 || at == len(s.Command) {
			t.Errorf("%s has no admin API: %q", name, s.Command)
			continue
		}
		_, port, _ := strings.Cut(s.Command[at], ":")
		if want := []string{"CMD", "/weir-extproc", "--ready", "--admin", "127.0.0.1:" + port}; !slices.Equal(s.Health.Test, want) {
			t.Errorf("%s is healthy by %q, want %q", name, s.Health.Test, want)
		}
	}
	if regexp.MustCompile(`HEALTHCHECK.*weir-extproc`).MatchString(read(t, "Dockerfile")) {
		t.Error("the image asks an admin API that is off unless it is told otherwise")
	}
}

// The container file ends in images that are nothing but a program.
func TestImagesAreBare(t *testing.T) {
	stages := 0
	for stage := range strings.SplitSeq(read(t, "Dockerfile"), "\nFROM ") {
		base, rest, _ := strings.Cut(stage, " AS ")
		program, _, _ := strings.Cut(rest, "\n")
		switch {
		case base == "scratch":
			stages++
			if !strings.Contains(rest, "\nUSER 65532:65532\n") || strings.Contains(rest, "\nRUN ") {
				t.Errorf("image %s runs as root, or is not bare", program)
			}
			for from, to := range map[string]string{program: "/" + program, program + ".cdx.json": "/sbom.cdx.json", program + ".licences": "/licences"} {
				if !strings.Contains(rest, "\nCOPY --from=build /out/"+from+" "+to+"\n") {
					t.Errorf("image %s has no %s", program, to)
				}
			}
		case strings.HasPrefix(base, "${"), strings.HasPrefix(base, "#"):
		default:
			t.Errorf("a stage is of %q", base)
		}
	}
	if stages != 4 {
		t.Errorf("%d images, want 4", stages)
	}
	if m := regexp.MustCompile(`ARG GO_IMAGE=(\S+)`).FindStringSubmatch(read(t, "Dockerfile")); m == nil || !pinned.MatchString(m[1]) {
		t.Errorf("the base for building is not pinned: %v", m)
	}
}

// listed gives pools the engines that Docker's name server would.
func listed(text string) string {
	n := 0
	return regexp.MustCompile(`engines: \{dns: [^}]*\}`).ReplaceAllStringFunc(text, func(string) string {
		n += 2
		return "engines: [\"10.0.0." + string(rune('0'+n)) + ":8000\", \"10.0.1." + string(rune('0'+n)) + ":8000\"]"
	})
}

// The fleet is the talk's: the same shares, two fifths of the rates.
func TestTheFleetIsTheTalks(t *testing.T) {
	own := shares(t, listed(read(t, "fleet/fleet.yaml")))
	talk := shares(t, read(t, "../../testdata/fleets/talk.yaml"))
	if len(own) != 4 {
		t.Errorf("%d links have a share, want 4: %v", len(own), own)
	}
	for link, share := range talk {
		if math.Abs(own[link]-share) > 1e-6 {
			t.Errorf("%s → %s: %v of the talk's, %v here", link.FrontEnd, link.Pool, share, own[link])
		}
	}
}

func shares(t *testing.T, text string) map[fleet.Link]float64 {
	t.Helper()
	f, err := config.Parse("fleet.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sharesOf(t, f)
}

// The engines are as fast, as many and as far as the fleet file says.
func TestEnginesAreAsTheFleetSays(t *testing.T) {
	f, err := config.Parse("fleet.yaml", []byte(read(t, "fleet/fleet.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var file composeFile
	decode(t, "compose.yaml", &file)
	for i := range f.Pools {
		p := &f.Pools[i]
		command := defaulted(strings.Join(file.Services["engines-"+strings.ToLower(string(p.ID))].Command, " "))
		want := []string{
			"--models=" + p.Models[0], "--ttft=" + seconds(p.Profile.TTFT.At(0)), "--ttft-full=" + seconds(p.Profile.TTFT.At(1)),
			"--capacity=" + number(p.Profile.CapacityRps), "--reference-prompt=1000",
		}
		var delays []string
		for n, fe := range f.FrontEnds {
			delays = append(delays, "10.77."+number(float64(n+1))+".0/24="+seconds(f.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe.ID, Pool: p.ID}]))
		}
		for _, flag := range append(want, "--delay="+strings.Join(delays, ",")) {
			if !strings.Contains(command+" ", flag+" ") {
				t.Errorf("engines of pool %s: no %s in %s", p.ID, flag, command)
			}
		}
		if p.Discovery == nil || p.Discovery.Where != "engines-"+strings.ToLower(string(p.ID))+"." {
			t.Errorf("pool %s is found by %v", p.ID, p.Discovery)
		}
	}
	for _, fe := range f.FrontEnds {
		want := "--to=" + string(fe.ID) + "=http://envoy-" + strings.ToLower(string(fe.ID)) + ":10000=" + number(fe.Demand["chat"])
		if !slices.Contains(file.Services["clients"].Command, want) {
			t.Errorf("the clients have no %s", want)
		}
	}
}

var weirMetric = regexp.MustCompile(`weir_\w+`)

// documented are the labels of the series that docs/OPERATIONS.md describes.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `(weir_\\w+)` \\| (\\w+) \\|(.*?)\\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "../../docs/OPERATIONS.md"), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
		if m[2] != "histogram" {
			found[m[1]] = labels
			continue
		}
		found[m[1]+"_sum"], found[m[1]+"_count"] = labels, labels
		found[m[1]+"_bucket"] = append(labels, "le")
	}
	if len(found) < 100 {
		t.Fatalf("found %d metrics in docs/OPERATIONS.md only", len(found))
	}
	return found
}

var (
	grouped = regexp.MustCompile(`by \(([^)]*)\)`)
	matched = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)"`)
	named   = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z]\w*) ?\}\}`)
)

// mistakes are the metrics that an expression asks for and that there are not, and the
// labels that none of those has which it asks for.
func mistakes(metrics map[string][]string, expr, text string) (asked int, found []string) {
	labels := []string{"job", "instance"} // Prometheus's own
	for _, name := range weirMetric.FindAllString(expr, -1) {
		asked++
		if _, there := metrics[name]; !there {
			found = append(found, "no metric "+name)
		}
		labels = append(labels, metrics[name]...)
	}
	var used []string
	for _, m := range grouped.FindAllStringSubmatch(expr, -1) {
		used = append(used, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, m := range append(matched.FindAllStringSubmatch(expr, -1), named.FindAllStringSubmatch(text, -1)...) {
		used = append(used, m[1])
	}
	for _, label := range used {
		if !slices.Contains(labels, label) {
			found = append(found, "no label "+label)
		}
	}
	return asked, found
}

func TestMistakes(t *testing.T) {
	metrics := map[string][]string{"weir_a_total": {"pool"}, "weir_b_seconds_bucket": {"class", "le"}}
	for want, c := range map[string]struct{ expr, text string }{
		"":                         {`sum by (pool, job) (rate(weir_a_total{instance=~"x"}[5m])) > 0`, "{{pool}} {{ $labels.pool }} {{ $value }}"},
		"no metric weir_c":         {`weir_c > weir_a_total`, ""},
		"no label le":              {`sum by (le) (weir_a_total)`, ""},
		"no label front_end":       {`weir_a_total{front_end="A"}`, ""},
		"no label class":           {`weir_a_total`, "{{class}}"},
		"no metric weir_b_seconds": {`weir_b_seconds`, ""},
	} {
		if _, got := mistakes(metrics, c.expr, c.text); strings.Join(got, "; ") != want {
			t.Errorf("%s: %v, want %q", c.expr, got, want)
		}
	}
}

// rules is the part of a file of alert rules that is held to.
type rules struct {
	Groups []struct {
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// Alerts speak of metrics that there are; each says how bad it is, has a runbook and is
// tried by the rules' own tests.
func TestAlerts(t *testing.T) {
	metrics := documented(t)
	var file rules
	decode(t, "../prometheus/rules.yaml", &file)
	tests := read(t, "../prometheus/rules_test.yaml")
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if _, wrong := mistakes(metrics, r.Expr, r.Annotations["summary"]); len(wrong) > 0 {
				t.Errorf("%s: %v", r.Alert, wrong)
			}
			if s := r.Labels["severity"]; s != "page" && s != "ticket" || r.Annotations["summary"] == "" {
				t.Errorf("%s: severity %q, summary %q", r.Alert, s, r.Annotations["summary"])
			}
			if want := "docs/OPERATIONS.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
				t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
			}
			if !strings.Contains(tests, "alertname: "+r.Alert+"\n        eval_time:") || seen[r.Alert] {
				t.Errorf("%s fires in no test of the rules, or is there twice", r.Alert)
			}
			seen[r.Alert] = true
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d alerts only", len(seen))
	}
}

// Each alert's runbook is a section of its name.
func TestRunbooks(t *testing.T) {
	text := read(t, "../../docs/OPERATIONS.md")
	if !strings.Contains(text, "\n## Alerts\n") {
		t.Skip("SKIP: docs/OPERATIONS.md has no section Alerts yet")
	}
	var file rules
	decode(t, "../prometheus/rules.yaml", &file)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if !regexp.MustCompile(`(?m)^#+ ` + r.Alert + `$`).MatchString(text) {
				t.Errorf("docs/OPERATIONS.md has no heading %s", r.Alert)
			}
		}
	}
}

// The dashboard asks for metrics that there are, of the source that whoever looks chooses.
func TestDashboard(t *testing.T) {
	metrics := documented(t)
	var board struct {
		Panels []struct {
			Title      string
			Datasource struct{ UID string }
			Targets    []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../grafana/weir.json")), &board); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, p := range board.Panels {
		if len(p.Targets) > 0 && p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q asks %q, which other places do not have", p.Title, p.Datasource.UID)
		}
		for _, target := range p.Targets {
			n, wrong := mistakes(metrics, target.Expr, target.LegendFormat)
			if asked += n; n == 0 || len(wrong) > 0 {
				t.Errorf("panel %q: %s: %v", p.Title, target.Expr, wrong)
			}
		}
	}
	if asked < 20 {
		t.Errorf("%d metrics asked for only: is this the whole dashboard?", asked)
	}
}

// The rules do what their tests say, by Prometheus's own tool.
func TestRulesInPrometheus(t *testing.T) {
	promtool, err := findPromtool()
	if err != nil {
		t.Skip("SKIP: no promtool, so the alert rules are not tried: make setup brings it on Debian")
	}
	for _, args := range [][]string{
		{"check", "rules", "../prometheus/rules.yaml"},
		{"test", "rules", "../prometheus/rules_test.yaml"},
		{"check", "config", "--syntax-only", "prometheus.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

func findPromtool() (string, error) {
	const own = "../../.tools/promtool"
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	return exec.LookPath("promtool")
}

func seconds(s float64) string { return time.Duration(s * float64(time.Second)).String() }

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// sharesOf is what the plan for the declared demand gives each pool.
func sharesOf(t *testing.T, f *fleet.Fleet) map[fleet.Link]float64 {
	t.Helper()
	solve := func(p *lp.Program) (*lp.Solution, error) { return clp.Solve(p, 10*time.Second) }
	plan, err := solver.Policies(solve)[fleet.PolicyOptimal](fleet.Declared(f))
	if err != nil {
		t.Fatal(err)
	}
	shares := map[fleet.Link]float64{}
	for _, r := range plan.Routes {
		for _, s := range r.Shares {
			shares[fleet.Link{FrontEnd: r.FrontEnd, Pool: s.Pool}] = s.Share
		}
	}
	return shares
}

// All that the programs are made of gets into the images' build, and what builds them.
func TestContextIsWhole(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/weir", "./cmd/weir-extproc", "./cmd/mock-engine", "./cmd/mock-clients", "./deploy/release")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := strings.Fields(read(t, "../../.dockerignore"))
	for _, file := range []string{"!go.mod", "!go.sum", "!LICENSE"} {
		if !slices.Contains(allowed, file) {
			t.Errorf(".dockerignore keeps %s out", file[1:])
		}
	}
	packages := 0
	for name := range strings.FieldsSeq(string(out)) {
		folder, ours := strings.CutPrefix(name, "weir/")
		if !ours {
			continue
		}
		packages++
		if !slices.ContainsFunc(allowed, func(a string) bool {
			return strings.HasPrefix(folder+"/", strings.TrimPrefix(a, "!")+"/") && a[0] == '!'
		}) {
			t.Errorf(".dockerignore keeps %s out", folder)
		}
	}
	if packages < 20 {
		t.Errorf("%d packages of ours only", packages)
	}
}
