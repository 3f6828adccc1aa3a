// Package kubernetes holds the manifests to what they promise. There is no cluster here:
// they are rendered, decoded as the API server decodes them, and asked.
package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// rendered are the objects of one kustomization.
type rendered struct {
	services   []corev1.Service
	configs    []corev1.ConfigMap
	accounts   []corev1.ServiceAccount
	namespaces []corev1.Namespace
	policies   []networkingv1.NetworkPolicy
	budgets    []policyv1.PodDisruptionBudget
	roles      []rbacv1.Role
	bindings   []rbacv1.RoleBinding
	front      appsv1.Deployment
	plane      appsv1.StatefulSet
}

// variants are what is a whole, second what is added to one.
var variants = []string{"base", "overlays/example"}

const second = "overlays/second-front-end"

// forAll runs a test on each.
func forAll(t *testing.T, test func(*testing.T, *rendered)) {
	t.Helper()
	for _, v := range variants {
		t.Run(v, func(t *testing.T) { test(t, render(t, v)) })
	}
}

// built are the outputs of kustomize, made once each.
var built = map[string]func() ([]byte, error){
	variants[0]: sync.OnceValues(func() ([]byte, error) { return kustomize(variants[0]) }),
	variants[1]: sync.OnceValues(func() ([]byte, error) { return kustomize(variants[1]) }),
	second:      sync.OnceValues(func() ([]byte, error) { return kustomize(second) }),
}

// kustomize builds a kustomization; a warning is an error.
func kustomize(dir string) ([]byte, error) {
	c := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "kustomize", "build", dir)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil || complaint.Len() > 0 {
		return nil, fmt.Errorf("kustomize: %w: %s", err, complaint.String())
	}
	return out, nil
}

// render decodes what a kustomization makes, each object strictly: a field that the API
// does not have, or that stands there twice, is an error.
func render(t *testing.T, dir string) *rendered {
	t.Helper()
	out, err := built[dir]()
	if err != nil {
		t.Fatal(err)
	}
	from, err := decoder()
	if err != nil {
		t.Fatal(err)
	}
	r := &rendered{}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(out))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.add(from, document); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
	}
}

// decoder reads as the API server does: names of fields count in their case too.
func decoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), networkingv1.AddToScheme(scheme),
		policyv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme))
	return serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Yaml: true, Strict: true}), err
}

func (r *rendered) add(from runtime.Decoder, document []byte) error {
	object, kind, err := from.Decode(document, nil, nil)
	if err != nil {
		return err
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		r.namespaces = append(r.namespaces, *o)
	case *corev1.Service:
		r.services = append(r.services, *o)
	case *corev1.ConfigMap:
		r.configs = append(r.configs, *o)
	case *corev1.ServiceAccount:
		r.accounts = append(r.accounts, *o)
	case *networkingv1.NetworkPolicy:
		r.policies = append(r.policies, *o)
	case *policyv1.PodDisruptionBudget:
		r.budgets = append(r.budgets, *o)
	case *rbacv1.Role:
		r.roles = append(r.roles, *o)
	case *rbacv1.RoleBinding:
		r.bindings = append(r.bindings, *o)
	case *appsv1.Deployment:
		r.front = *o
	case *appsv1.StatefulSet:
		r.plane = *o
	default:
		return fmt.Errorf("nobody expects a %s", kind)
	}
	return nil
}

// workload is what runs: pods of one kind.
type workload struct {
	name     string
	labels   map[string]string
	selector *metav1.LabelSelector
	pod      corev1.PodSpec
}

func (r *rendered) workloads() []workload {
	return []workload{
		{r.plane.Name, r.plane.Spec.Template.Labels, r.plane.Spec.Selector, r.plane.Spec.Template.Spec},
		{r.front.Name, r.front.Spec.Template.Labels, r.front.Spec.Selector, r.front.Spec.Template.Spec},
	}
}

// containers are all of a pod's, the initial ones too.
func containers(p corev1.PodSpec) []corev1.Container {
	return append(slices.Clone(p.InitContainers), p.Containers...)
}

func container(t *testing.T, p corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	for _, c := range containers(p) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no container %s", name)
	return corev1.Container{}
}

// port is the number of a pod's port, by name or number; 0: there is none.
func port(p corev1.PodSpec, name string) int32 {
	for _, c := range containers(p) {
		for _, has := range c.Ports {
			if has.Name == name || strconv.Itoa(int(has.ContainerPort)) == name {
				return has.ContainerPort
			}
		}
	}
	return 0
}

// matches says whether a selector chooses labels.
func matches(t *testing.T, s *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(set))
}

// Workloads choose their own pods and no others, Services and budgets somebody's, by
// ports that these have.
func TestSelectorsAndPorts(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		for _, w := range r.workloads() {
			for _, other := range r.workloads() {
				if matches(t, w.selector, other.labels) != (w.name == other.name) {
					t.Errorf("%s chooses pods of %s: %v", w.name, other.name, w.name != other.name)
				}
			}
		}
		for _, s := range r.services {
			if s.Namespace == "weir" {
				checkService(t, r, s)
			}
		}
		if len(r.budgets) != 1 || !matches(t, r.budgets[0].Spec.Selector, r.front.Spec.Template.Labels) {
			t.Errorf("budgets %+v, want one of front-ends", r.budgets)
		}
		if r.front.Spec.Replicas == nil || *r.front.Spec.Replicas < 2 {
			t.Errorf("%v front-ends: want two, so that one may go", r.front.Spec.Replicas)
		}
	})
}

func checkService(t *testing.T, r *rendered, s corev1.Service) {
	t.Helper()
	chosen := 0
	for _, w := range r.workloads() {
		if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.labels)) {
			continue
		}
		chosen++
		for _, p := range s.Spec.Ports {
			if port(w.pod, p.TargetPort.String()) == 0 {
				t.Errorf("service %s leads to port %s, which pods of %s have not", s.Name, &p.TargetPort, w.name)
			}
		}
	}
	if chosen != 1 {
		t.Errorf("service %s chooses %d workloads, want 1", s.Name, chosen)
	}
}

// Probes ask for what is there.
func TestProbes(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		probes := 0
		for _, w := range r.workloads() {
			for _, c := range containers(w.pod) {
				for kind, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
					if p == nil {
						continue
					}
					probes++
					if get := p.HTTPGet; get != nil && (port(w.pod, get.Port.String()) == 0 || !slices.Contains([]string{"/healthz", "/readyz"}, get.Path)) {
						t.Errorf("%s: %s probe asks for %s on %s", c.Name, kind, get.Path, &get.Port)
					}
					if p.HTTPGet == nil && p.Exec == nil {
						t.Errorf("%s: %s probe asks for nothing", c.Name, kind)
					}
					if kind == "liveness" && p.HTTPGet != nil && p.HTTPGet.Path != "/healthz" {
						t.Errorf("%s is killed for what others fail in: %s", c.Name, p.HTTPGet.Path)
					}
				}
			}
		}
		if probes < 7 {
			t.Errorf("%d probes, want 7 at least", probes)
		}
		extproc := container(t, r.front.Spec.Template.Spec, "weir-extproc")
		if extproc.ReadinessProbe != nil {
			t.Error("a weir-extproc that waits for the control plane takes its Envoy out")
		}
		if extproc.RestartPolicy == nil || *extproc.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Error("weir-extproc is no sidecar: it ends before Envoy, or never starts it")
		}
		checkDrain(t, r)
	})
}

// checkDrain compares the times that requests under way have.
func checkDrain(t *testing.T, r *rendered) {
	t.Helper()
	pod := r.front.Spec.Template.Spec
	hook := container(t, pod, "envoy").Lifecycle.PreStop.Exec.Command
	seconds, err := strconv.ParseInt(hook[len(hook)-1], 10, 64)
	if err != nil || !slices.Contains(hook, "drain") {
		t.Fatalf("preStop is %q", hook)
	}
	if *pod.TerminationGracePeriodSeconds < seconds+20 {
		t.Errorf("the pod has %d s to end, its requests %d s", *pod.TerminationGracePeriodSeconds, seconds)
	}
}

// What is mounted is there, and what is there is needed.
func TestVolumes(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		configs := map[string]bool{}
		for _, c := range r.configs {
			configs[c.Name] = false
		}
		for _, w := range r.workloads() {
			names := []string{}
			for _, v := range w.pod.Volumes {
				names = append(names, v.Name)
				if v.ConfigMap == nil {
					continue
				}
				if _, there := configs[v.ConfigMap.Name]; !there {
					t.Errorf("%s mounts the ConfigMap %s, which is not rendered", w.name, v.ConfigMap.Name)
				}
				configs[v.ConfigMap.Name] = true
			}
			for _, claim := range r.plane.Spec.VolumeClaimTemplates {
				names = append(names, claim.Name)
			}
			for _, c := range containers(w.pod) {
				for _, m := range c.VolumeMounts {
					if !slices.Contains(names, m.Name) {
						t.Errorf("%s mounts %s, which is no volume of its pod", c.Name, m.Name)
					}
					if m.SubPath != "" {
						t.Errorf("%s mounts %s by a subPath: changes would not come", c.Name, m.Name)
					}
				}
			}
		}
		for name, used := range configs {
			if !used {
				t.Errorf("nobody mounts the ConfigMap %s", name)
			}
		}
	})
}

// State has one writer.
func TestOneControlPlane(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		claims := r.plane.Spec.VolumeClaimTemplates
		if *r.plane.Spec.Replicas != 1 || len(claims) != 1 || !slices.Equal(claims[0].Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
			t.Errorf("%d control planes on %+v", *r.plane.Spec.Replicas, claims)
		}
		c := container(t, r.plane.Spec.Template.Spec, "weir")
		for _, m := range c.VolumeMounts {
			if m.Name == claims[0].Name && slices.Contains(c.Args, "--state="+m.MountPath) {
				return
			}
		}
		t.Error("the state directory is not on the volume")
	})
}

var composeImage = regexp.MustCompile(`(?m)^\s+image: (?:\$\{\w+:-)?((?:weir|envoyproxy)/[\w-]+(?::v[\d.]+)?)`)

// Images have the names that the demo in containers has, and ours none that strangers
// could push to: until an overlay says where they are, nobody answers.
func TestImages(t *testing.T) {
	text, err := os.ReadFile("../compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range composeImage.FindAllStringSubmatch(string(text), -1) {
		known = append(known, m[1])
	}
	forAll(t, func(t *testing.T, r *rendered) {
		registry := "registry.invalid/"
		if strings.HasSuffix(t.Name(), "/example") {
			registry = "registry.example.com/"
		}
		for _, w := range r.workloads() {
			for _, c := range containers(w.pod) {
				image, ours := strings.CutPrefix(c.Image, registry)
				name, tag, _ := strings.Cut(image, ":")
				if ours == strings.HasPrefix(name, "envoyproxy/") || tag == "" || !slices.Contains(known, name) && !slices.Contains(known, name+":"+tag) {
					t.Errorf("%s is of image %s, want a tag, and one of %q", c.Name, c.Image, known)
				}
			}
		}
	})
}
