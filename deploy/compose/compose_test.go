package compose

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/admin"
	"weir/config"
	"weir/deploy/figures"
	"weir/fleet"
)

// projectName keeps the test's containers from those of a demo.
const projectName = "weir-test"

// adminAddress is where the control plane's admin API is published.
const adminAddress = "127.0.0.1:18001"

var engineServices = []string{"engines-a", "engines-b", "engines-c"}

// TestCompose measures the demo on a real Docker daemon: test.sh starts one, builds the
// images and runs this.
func TestCompose(t *testing.T) {
	compose := os.Getenv("WEIR_COMPOSE")
	if compose == "" {
		t.Skip("SKIP: no Docker daemon of its own: the demo in containers is not tried here; run make test-compose")
	}
	p := &project{t: t, compose: compose, fleet: t.TempDir(), env: []string{
		"COMPOSE_PROJECT_NAME=" + projectName, "WEIR_TAG=test",
		"ENVOY_IMAGE=weir-test/envoy:0", "PROMETHEUS_IMAGE=weir-test/prometheus:0", "WEIR_JOURNAL=/dev/stdout",
	}}
	p.env = append(p.env, "WEIR_FLEET="+p.fleet)
	if err := os.Chmod(p.fleet, 0o755); err != nil { // not of the user in the container
		t.Fatal(err)
	}
	p.put(declared(read(t, "fleet/fleet.yaml")))
	f := &figures.Report{Target: "test-compose"}
	before := p.things()
	stood := witness()
	defer func() { // also of what was measured before the end, if it did not get there
		f.AtMost("longest that this machine stood still: requests fail by that alone", stood().Seconds(), "s", 5)
		f.AtMost("things that went wrong on the way", float64(wrong(t)), "", 0)
		if path := os.Getenv(figures.Variable); path != "" {
			if err := figures.Write(path, f); err != nil {
				t.Error(err)
			}
		}
		fmt.Print(f)
	}()
	p.measure(f, before)
}

func wrong(t *testing.T) int {
	if t.Failed() {
		return 1
	}
	return 0
}

// measure brings the demo up, tries it, and takes it down whatever happens.
func (p *project) measure(f *figures.Report, before map[string]bool) {
	downed := false
	down := func() {
		if !downed {
			downed = true
			p.down(f, before)
		}
	}
	defer down()
	p.images(f)
	began := time.Now()
	p.up("--scale", "clients=0")
	eventually(p.t, "all containers are healthy", 2*time.Minute, func() bool { return len(p.unwell()) == 0 })
	f.AtMost("from compose up to all healthy", time.Since(began).Seconds(), "s", 60)
	p.rights(f)
	p.command(f)
	p.talk(f)
	p.engineDies(f)
	p.scale(f)
	p.planeDies(f)
	p.prometheus(f)
	p.stop(f)
	down()
}

// images measures the images, and looks at their bills of materials and licences.
func (p *project) images(f *figures.Report) {
	most := map[string]float64{"weir": 60, "weir-extproc": 35, "mock-engine": 15, "mock-clients": 15} // MB
	for _, image := range slices.Sorted(maps.Keys(most)) {
		var size int64
		if _, err := fmt.Sscan(p.docker("image", "inspect", "-f", "{{.Size}}", "weir/"+image+":test"), &size); err != nil {
			p.t.Fatal(err)
		}
		f.AtMost("image of "+image, float64(size)/1e6, "MB", most[image])
		container := strings.TrimSpace(p.docker("create", "weir/"+image+":test"))
		bill, licences := filepath.Join(p.t.TempDir(), image), filepath.Join(p.t.TempDir(), "licences")
		p.docker("cp", container+":/sbom.cdx.json", bill)
		p.docker("cp", container+":/licences", licences)
		p.docker("rm", container)
		var b struct {
			BomFormat  string
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal([]byte(read(p.t, bill)), &b); err != nil || b.BomFormat != "CycloneDX" {
			p.t.Errorf("the bill of %s: %v", image, err)
		}
		f.Tell("components in the bill of materials of "+image, float64(len(b.Components)), "")
		if image == "weir" && !slices.ContainsFunc(b.Components, func(c struct{ Name, Version string }) bool { return c.Name == "coinor-libclp-dev" }) {
			p.t.Errorf("the bill of weir knows of no CLP: %v", b.Components)
		}
		want := []string{"LICENSE", "README.txt"}
		if image == "weir" {
			want = append(want, "c/coinor-libclp-dev/copyright")
		}
		for _, name := range want {
			if _, err := os.Stat(filepath.Join(licences, name)); err != nil {
				p.t.Errorf("the licences of %s: %v", image, err)
			}
		}
	}
}

// rights counts what runs as root, and what is published beyond this machine.
func (p *project) rights(f *figures.Report) {
	root := 0
	for _, s := range p.inspect() {
		if u := s.Config.User; u == "" || strings.HasPrefix(u, "0") || strings.HasPrefix(u, "root") {
			p.t.Errorf("%s runs as root", s.Name)
			root++
		}
	}
	f.AtMost("containers that run as root", float64(root), "", 0)
	open := 0
	ports := p.docker("ps", "--format", "{{.Ports}}")
	for port := range strings.FieldsFuncSeq(ports, func(r rune) bool { return r == ',' || r == '\n' }) {
		if at, _, published := strings.Cut(strings.TrimSpace(port), "->"); published && !strings.HasPrefix(at, "127.0.0.1:") {
			p.t.Errorf("published on %s", at)
			open++
		}
	}
	if strings.Count(ports, "127.0.0.1:") < 5 {
		p.t.Errorf("too few ports are published to judge by: %s", ports)
	}
	f.AtMost("ports published beyond 127.0.0.1", float64(open), "", 0)
}

// command gives the control plane orders where it runs, and asks it from outside.
func (p *project) command(f *figures.Report) {
	weir := func(args ...string) (string, error) {
		return p.try(time.Minute, p.compose, append([]string{"exec", "-T", "weir", "/weir"}, args...)...)
	}
	for _, args := range [][]string{{"status"}, {"drain", "C", "--for", "1m"}, {"undrain", "C"}} {
		if out, err := weir(args...); err != nil && args[0] != "status" {
			p.t.Errorf("weir %v in its container: %v\n%s", args, err, out)
		}
	}
	eventually(p.t, "the plan is optimal", 20*time.Second, func() bool { return p.status().Plan.Status == fleet.Optimal })
	refused, err := http.Post("http://"+adminAddress+"/brakes", "application/json", strings.NewReader(`{"kind":"freeze","seconds":60,"owner":"a","note":"b"}`))
	if err != nil {
		p.t.Fatal(err)
	}
	refused.Body.Close()
	taken := 0
	if refused.StatusCode != http.StatusForbidden {
		taken++
	}
	f.AtMost("orders taken through the published port", float64(taken), "of 1", 0)
}

// put replaces the fleet file in one step.
func (p *project) put(text string) {
	p.t.Helper()
	path := filepath.Join(p.fleet, "fleet.yaml")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// declared makes the file's demand rule, so that the plan stands still.
func declared(text string) string {
	return strings.Replace(text, "\noptions:\n", "\noptions:\n  demand: declared\n", 1)
}

// ask gets JSON.
func (p *project) ask(url string, into any) {
	p.t.Helper()
	response, err := http.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, into)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s, %v: %.300s", url, response.Status, err, text)
	}
}

// talk sends new conversations and compares where they began, by the engines' journals,
// with the talk's shares.
func (p *project) talk(f *figures.Report) {
	want := map[fleet.Link]float64{
		{FrontEnd: "A", Pool: "A"}: 1, {FrontEnd: "B", Pool: "B"}: 100.0 / 120, {FrontEnd: "B", Pool: "C"}: 20.0 / 120, {FrontEnd: "C", Pool: "C"}: 1,
	}
	eventually(p.t, "the plan is the talk's", 30*time.Second, func() bool {
		plan := p.plan()
		for link, share := range want {
			if math.Abs(plan[link]-share) > 1e-6 {
				return false
			}
		}
		return true
	})
	since := time.Now()
	clients := p.begin("talk", "--for=25s", "--turns=1").wait()
	f.AtMost("requests that failed while all was well", float64(clients.Failed), "of "+number(float64(clients.Sent)), 0)
	f.AtMost("requests refused while all was well", float64(clients.Shed), "", 0)
	got, sent := map[fleet.Link]int{}, map[fleet.FrontEndID]int{}
	for mark, service := range p.arrivals(engineServices, since) {
		name := strings.Split(mark, "-") // talk-FRONTEND-N/TURN
		if len(name) != 3 || name[0] != clients.Name {
			continue
		}
		from := fleet.FrontEndID(name[1])
		sent[from]++
		got[fleet.Link{FrontEnd: from, Pool: fleet.PoolID(strings.ToUpper(strings.TrimPrefix(service, "engines-")))}]++
	}
	f.AtLeast("conversations whose beginning an engine noted", float64(sent["A"]+sent["B"]+sent["C"]), "", 2000)
	for _, link := range []fleet.Link{{FrontEnd: "A", Pool: "A"}, {FrontEnd: "B", Pool: "B"}, {FrontEnd: "B", Pool: "C"}, {FrontEnd: "C", Pool: "C"}} {
		n := float64(sent[link.FrontEnd])
		f.Tell(fmt.Sprintf("%s → %s, planned %.4g %%", link.FrontEnd, link.Pool, 100*want[link]), 100*float64(got[link])/n, "%")
		f.AtMost(fmt.Sprintf("%s → %s, |z|", link.FrontEnd, link.Pool), math.Abs(zScore(float64(got[link]), n, want[link])), "", 4)
	}
}

// plan is the shares in force, by the control plane's word.
func (p *project) plan() map[fleet.Link]float64 {
	p.t.Helper()
	var plan fleet.Plan
	p.ask("http://"+adminAddress+"/plan", &plan)
	shares := map[fleet.Link]float64{}
	for _, r := range plan.Routes {
		for _, s := range r.Shares {
			shares[fleet.Link{FrontEnd: r.FrontEnd, Pool: s.Pool}] = s.Share
		}
	}
	return shares
}

// zScore of a count of successes in n trials. Where nothing is left to chance, any
// difference is infinite.
func zScore(got, n, share float64) float64 {
	difference := got - n*share
	if deviation := math.Sqrt(n * share * (1 - share)); deviation > 1e-9 {
		return difference / deviation
	}
	if math.Abs(difference) < 1e-6 && n > 0 {
		return 0
	}
	return math.Inf(1)
}

// engineDies kills an engine's container under load, by the file that is shipped: demand
// is measured. Answers come in one piece, so that nothing has been begun that cannot be
// begun again.
func (p *project) engineDies(f *figures.Report) {
	p.put(read(p.t, "fleet/fleet.yaml"))
	victim := p.containers("engines-b")[0]
	clients := p.begin("kill", "--for=40s", "--stream=false")
	eventually(p.t, "the engine serves", 30*time.Second, func() bool { return p.noted("kill", victim) > 30 })
	killed := time.Now()
	p.docker("kill", victim)
	noted := p.noted("kill", victim)
	f.Tell("requests that the engine had had when its container was killed", float64(noted), "")
	eventually(p.t, "Weir knows that it is gone", 30*time.Second, func() bool { return p.ready("B") == 1 })
	f.AtMost("until Weir knew that it is gone", time.Since(killed).Seconds(), "s", 15)
	started := time.Now()
	p.docker("start", victim)
	eventually(p.t, "the engine gets requests again", 30*time.Second, func() bool { return p.noted("kill", victim) > noted })
	f.AtMost("from its start until it gets requests again", time.Since(started).Seconds(), "s", 20)
	told := clients.wait()
	f.AtMost("requests that failed while an engine's container was killed", float64(told.Failed), "of "+number(float64(told.Sent)), 0)
	f.Tell("requests refused meanwhile, pool B being short of an engine", float64(told.Shed), "")
	if told.Failed > 0 {
		p.t.Logf("the first that failed: %s", told.FirstFailure)
	}
	f.AtLeast("requests in all", float64(told.Sent), "", 2000)
}

// noted counts the requests of one run of clients in an engine's journal.
func (p *project) noted(run, container string) int {
	return strings.Count(p.docker("logs", container), `"x-test-id":"`+run+"-")
}

// ready counts a pool's ready engines, by the control plane's word.
func (p *project) ready(pool fleet.PoolID) int {
	p.t.Helper()
	for _, x := range p.status().Pools {
		if x.Pool == pool {
			return x.Ready
		}
	}
	p.t.Fatalf("no pool %q in the status", pool)
	return 0
}

func (p *project) status() *admin.Status {
	p.t.Helper()
	s, err := admin.FetchStatus(p.t.Context(), adminAddress)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// scale adds an engine and takes it away again, under load.
func (p *project) scale(f *figures.Report) {
	had := p.containers("engines-a")
	clients := p.begin("scale", "--for=40s", "--stream=false")
	p.up("--no-deps", "--no-recreate", "--scale", "engines-a=3", "engines-a")
	fresh := slices.DeleteFunc(p.containers("engines-a"), func(c string) bool { return slices.Contains(had, c) })
	if len(fresh) != 1 {
		p.t.Fatalf("new containers: %v", fresh)
	}
	took := eventually(p.t, "the new engine gets requests", 30*time.Second, func() bool { return p.noted("scale", fresh[0]) > 0 })
	f.AtMost("from an engine's container to its first request", took.Seconds(), "s", 15)
	p.up("--no-deps", "--no-recreate", "--scale", "engines-a=2", "engines-a")
	eventually(p.t, "it is gone", 30*time.Second, func() bool { return p.ready("A") == 2 })
	told := clients.wait()
	f.AtMost("requests that failed while engines were added and removed", float64(told.Failed), "of "+number(float64(told.Sent)), 0)
	f.Tell("requests refused meanwhile", float64(told.Shed), "")
	if told.Failed > 0 {
		p.t.Logf("the first that failed: %s", told.FirstFailure)
	}
}

// planeDies takes the control plane's container away, lets another have its address, and
// makes it anew; then a weir-extproc is restarted. Nobody's requests depend on either.
func (p *project) planeDies(f *figures.Report) {
	address := p.address("weir")
	p.docker("rm", "--force", p.containers("weir")[0])
	clients := p.begin("plane", "--for=40s", "--stream=false")
	eventually(p.t, "clients are there", 30*time.Second, func() bool { return p.noted("plane", p.containers("engines-a")[0]) > 0 })
	made := time.Now()
	p.up("--no-deps", "weir")
	eventually(p.t, "everybody is back", time.Minute, p.connected)
	f.AtMost("from a new control plane to all its clients", time.Since(made).Seconds(), "s", 30)
	moved := 0
	if p.address("weir") != address {
		moved++
	}
	f.AtLeast("changes of its address meanwhile", float64(moved), "", 1)
	p.docker("restart", p.containers("extproc-b")[0])
	told := clients.wait()
	f.AtMost("requests that failed without a control plane and while a weir-extproc restarted", float64(told.Failed), "of "+number(float64(told.Sent)), 0)
	if told.Failed > 0 {
		p.t.Logf("the first that failed: %s", told.FirstFailure)
	}
	eventually(p.t, "everybody is back", time.Minute, p.connected)
}

// address is that of a service's first container in the fleet's network.
func (p *project) address(service string) string {
	p.t.Helper()
	return strings.TrimSpace(p.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", p.containers(service)[0]))
}

// connected says whether each front-end has its Envoy and its weir-extproc, by the word of
// a control plane that has a plan.
func (p *project) connected() bool {
	s, err := admin.FetchStatus(p.t.Context(), adminAddress)
	if err != nil || len(s.FrontEnds) != 3 || s.Plan.Status == "" {
		return false
	}
	return !slices.ContainsFunc(s.FrontEnds, func(fe admin.FrontEnd) bool { return fe.Envoys != 1 || fe.ExtProcs != 1 })
}

// prometheus asks whether everybody is scraped and the rules are in force.
func (p *project) prometheus(f *figures.Report) {
	query := func(q string) float64 {
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		p.ask("http://127.0.0.1:9090/api/v1/query?query="+url.QueryEscape(q), &answer)
		if len(answer.Data.Result) == 0 {
			return 0
		}
		var x float64
		_, _ = fmt.Sscan(fmt.Sprint(answer.Data.Result[0].Value[1]), &x)
		return x
	}
	eventually(p.t, "Prometheus scrapes all", 30*time.Second, func() bool { return query("sum(up)") >= 10 && query("count(up == 0)") == 0 })
	f.AtLeast("targets that Prometheus scrapes", query("sum(up)"), "", 10)
	var loaded struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health string }
			}
		}
	}
	p.ask("http://127.0.0.1:9090/api/v1/rules", &loaded)
	healthy := 0
	for _, g := range loaded.Data.Groups {
		for _, r := range g.Rules {
			if r.Health == "ok" {
				healthy++
			}
		}
	}
	f.AtLeast("alert rules that it evaluates", float64(healthy), "", 20)
	f.Tell("alerts that fire at the end", query(`count(ALERTS{alertstate="firing"})`), "")
}

// stop asks everybody to stop, as process 1 of a container hears it.
func (p *project) stop(f *figures.Report) {
	began := time.Now()
	p.run(2*time.Minute, p.compose, "stop", "--timeout", "10")
	f.AtMost("all are stopped after", time.Since(began).Seconds(), "s", 30)
	bad := 0
	for _, s := range p.inspect() {
		if s.State.ExitCode != 0 {
			p.t.Logf("%s stopped with exit code %d", s.Name, s.State.ExitCode)
			bad++
		}
	}
	f.AtMost("containers that did not stop when asked to, or with an error", float64(bad), "", 0)
}

// down takes all away and looks for what is left.
func (p *project) down(f *figures.Report, before map[string]bool) {
	if p.t.Failed() {
		out, _ := p.try(time.Minute, p.compose, "logs", "--tail", "15", "--no-color", "weir", "extproc-b", "envoy-b", "prometheus")
		p.t.Logf("the last words:\n%s", out)
	}
	if out, err := p.try(2*time.Minute, p.compose, "--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "10"); err != nil {
		p.t.Errorf("compose down: %v\n%s", err, out)
	}
	behind := left(before, p.things())
	for _, name := range behind {
		p.t.Errorf("left behind: %s", name)
	}
	f.AtMost("containers, networks and volumes left behind", float64(len(behind)), "", 0)
	f.AtMost("processes left behind", float64(processes()), "", 0)
}

// The fleet that is tried is the one that is shipped but for its demand.
func TestDeclared(t *testing.T) {
	f, err := config.Parse("fleet.yaml", []byte(declared(read(t, "fleet/fleet.yaml"))))
	if err != nil {
		t.Fatal(err)
	}
	if !f.Options.DeclaredOnly {
		t.Error("the demand is measured")
	}
}
