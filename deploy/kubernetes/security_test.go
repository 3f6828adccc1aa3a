package kubernetes

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"weir/config"
	"weir/fleet"
)

// Pods have no right that they do not need, by Kubernetes' own "restricted" standard
// and beyond it.
func TestLeastPrivilege(t *testing.T) {
	yes, no := true, false
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	forAll(t, func(t *testing.T, r *rendered) {
		for _, w := range r.workloads() {
			s := w.pod.SecurityContext
			if s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || *s.FSGroup != *s.RunAsGroup || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %+v", w.name, s)
			}
			if w.pod.HostNetwork || w.pod.HostPID || w.pod.HostIPC {
				t.Errorf("%s shares the node's namespaces", w.name)
			}
			for _, c := range containers(w.pod) {
				if diff := cmp.Diff(wantContainer, c.SecurityContext); diff != "" {
					t.Errorf("%s: %s", c.Name, diff)
				}
				checkResources(t, c)
			}
			for _, v := range w.pod.Volumes {
				if v.ConfigMap == nil && v.EmptyDir == nil {
					t.Errorf("%s mounts %s, which is neither made for it nor a ConfigMap", w.name, v.Name)
				}
			}
		}
		if len(r.namespaces) != 1 || r.namespaces[0].Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("namespaces %+v", r.namespaces)
		}
	})
}

func checkResources(t *testing.T, c corev1.Container) {
	t.Helper()
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().Cmp(*c.Resources.Requests.Memory()) < 0 {
		t.Errorf("%s asks for %v", c.Name, c.Resources)
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Errorf("%s has a limit of CPU: throttled, it answers late though the node is idle", c.Name)
	}
}

// The control plane may look at EndpointSlices in one namespace, front-ends have nobody's
// word for who they are.
func TestAccess(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		want := []rbacv1.PolicyRule{{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}}}
		if len(r.roles) != 1 || r.roles[0].Namespace != "inference" {
			t.Fatalf("roles %+v", r.roles)
		}
		if diff := cmp.Diff(want, r.roles[0].Rules); diff != "" {
			t.Error(diff)
		}
		b := r.bindings[0]
		if len(r.bindings) != 1 || b.Namespace != "inference" || b.RoleRef.Kind != "Role" || b.RoleRef.Name != r.roles[0].Name {
			t.Errorf("bindings %+v", r.bindings)
		}
		if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "weir", Namespace: "weir"}}, b.Subjects); diff != "" {
			t.Error(diff)
		}
		token := map[string]bool{}
		for _, w := range r.workloads() {
			token[w.pod.ServiceAccountName] = *w.pod.AutomountServiceAccountToken
		}
		if diff := cmp.Diff(map[string]bool{"weir": true, "front-end": false}, token); diff != "" {
			t.Errorf("who has a token: %s", diff)
		}
		for _, a := range r.accounts {
			if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
				t.Errorf("every pod of %s has its token", a.Name)
			}
		}
	})
}

// The fleet file is right, and front-ends are those that it names, on its port.
func TestFleet(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		f := fleetOf(t, r)
		pod := r.front.Spec.Template.Spec
		for _, name := range []string{"bootstrap", "weir-extproc"} {
			var frontEnd string
			for _, e := range container(t, pod, name).Env {
				if e.Name == "FRONT_END" {
					frontEnd = e.Value
				}
			}
			found := f.FrontEnd(fleet.FrontEndID(frontEnd))
			if found == nil {
				t.Errorf("%s is of front-end %q, which the fleet file does not name", name, frontEnd)
				continue
			}
			if want := "0.0.0.0:" + strconv.Itoa(int(port(pod, "http"))); found.Listen != want {
				t.Errorf("Envoy listens on %s, its pod on %s", found.Listen, want)
			}
		}
		for i := range f.Pools {
			if d := f.Pools[i].Discovery; d == nil || d.Port != 8000 {
				t.Errorf("pool %s: policies let through port 8000 alone: %+v", f.Pools[i].ID, d)
			}
		}
		checkHeap(t, pod)
	})
}

func fleetOf(t *testing.T, r *rendered) *fleet.Fleet {
	t.Helper()
	for _, c := range r.configs {
		if c.Name != "weir-fleet" {
			continue
		}
		f, err := config.Parse("fleet.yaml", []byte(c.Data["fleet.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	t.Fatal("no fleet file")
	return nil
}

// checkHeap compares what Envoy thinks it may use with what it may.
func checkHeap(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	for _, a := range container(t, pod, "bootstrap").Args {
		if text, ok := strings.CutPrefix(a, "--max-heap="); ok {
			mib, err := strconv.ParseInt(text, 10, 64)
			limits := container(t, pod, "envoy").Resources.Limits
			if limit := limits.Memory().Value(); err != nil || mib<<20 > limit*8/10 {
				t.Errorf("Envoy sheds at %s MiB and is killed at %d", text, limit>>20)
			}
			return
		}
	}
	t.Error("Envoy's heap has no bound")
}
