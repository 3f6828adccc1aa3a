package kubernetes

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	corev1 "k8s.io/api/core/v1"
)

// scrapes is what the README has Prometheus do.
type scrapes struct {
	Jobs []struct {
		Name    string `yaml:"job_name"`
		Relabel []struct {
			Regex  string
			Action string
		} `yaml:"relabel_configs"`
	} `yaml:"scrape_configs"`
}

// Each job of the README keeps one port of one kind of pod: where its metrics are.
func TestScrapes(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var asked scrapes
	block := regexp.MustCompile("(?s)```yaml\n(scrape_configs:.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("README.md has no scrape_configs")
	}
	if err := yaml.Unmarshal(block[1], &asked); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"weir": "weir:18001", "weir-extproc": "weir-extproc:18002"}
	forAll(t, func(t *testing.T, r *rendered) {
		got := map[string]string{}
		for _, job := range asked.Jobs {
			for _, rule := range job.Relabel {
				if rule.Action == "keep" {
					got[job.Name] += kept(r, regexp.MustCompile("^(?:"+rule.Regex+")$"))
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("jobs keep %v, want %v", got, want)
		}
	})
}

// kept are the container ports whose pod's name and number match.
func kept(r *rendered, rule *regexp.Regexp) (found string) {
	for _, w := range r.workloads() {
		for _, c := range containers(w.pod) {
			if i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool {
				return rule.MatchString(fmt.Sprintf("%s;%d", w.labels["app.kubernetes.io/name"], p.ContainerPort))
			}); i >= 0 {
				found += fmt.Sprintf("%s:%d", c.Name, c.Ports[i].ContainerPort)
			}
		}
	}
	return found
}
