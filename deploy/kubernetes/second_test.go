package kubernetes

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// choice is an object that chooses pods.
type choice struct {
	what     string
	selector *metav1.LabelSelector
}

// frontEndChoices are those that are for the pods of one front-end.
func (r *rendered) frontEndChoices(t *testing.T) []choice {
	t.Helper()
	all := []choice{{"deployment " + r.front.Name, r.front.Spec.Selector}}
	for _, s := range r.front.Spec.Template.Spec.TopologySpreadConstraints {
		all = append(all, choice{"spread over " + s.TopologyKey, s.LabelSelector})
	}
	for _, b := range r.budgets {
		all = append(all, choice{"budget " + b.Name, b.Spec.Selector})
	}
	for _, s := range r.services {
		all = append(all, choice{"service " + s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}})
	}
	for _, p := range r.policies {
		if len(p.Spec.PodSelector.MatchLabels) > 0 {
			all = append(all, choice{"policy " + p.Name, &p.Spec.PodSelector})
		}
	}
	return slices.DeleteFunc(all, func(c choice) bool {
		return matches(t, c.selector, map[string]string{"app.kubernetes.io/name": "weir"}) ||
			!matches(t, c.selector, r.front.Spec.Template.Labels) // the control plane's, the engines'
	})
}

// Two front-ends in one namespace share nothing: what chooses pods of one chooses none of
// the other, and no name stands for both.
func TestTwoFrontEnds(t *testing.T) {
	one, two := render(t, variants[1]), render(t, second)
	for _, pair := range [][2]*rendered{{one, two}, {two, one}} {
		choices := pair[0].frontEndChoices(t)
		if len(choices) != 6 {
			t.Errorf("%d choices of %s, want its own, two spreads, a budget, a Service and a policy: %v", len(choices), pair[0].front.Name, choices)
		}
		for _, c := range choices {
			if matches(t, c.selector, pair[1].front.Spec.Template.Labels) {
				t.Errorf("%s chooses pods of %s", c.what, pair[1].front.Name)
			}
		}
	}
	for _, name := range two.names() {
		if slices.Contains(one.names(), name) {
			t.Errorf("both have %s", name)
		}
	}
	if two.plane.Name != "" || len(two.namespaces) > 0 {
		t.Error("a second front-end brings a control plane, or the namespace once more")
	}
	account := two.front.Spec.Template.Spec.ServiceAccountName
	if !slices.Contains(two.names(), "account "+account) {
		t.Errorf("pods run as %s, which is not there", account)
	}
}

// names are those of all objects that a front-end may have.
func (r *rendered) names() []string {
	all := []string{"deployment " + r.front.Name}
	for _, s := range r.services {
		all = append(all, "service "+s.Name)
	}
	for _, b := range r.budgets {
		all = append(all, "budget "+b.Name)
	}
	for _, p := range r.policies {
		all = append(all, "policy "+p.Name)
	}
	for _, a := range r.accounts {
		all = append(all, "account "+a.Name)
	}
	for _, c := range r.configs {
		all = append(all, "config "+c.Name)
	}
	return all
}

// The second front-end's pods get through as the first one's: names, the control plane,
// engines, clients and Prometheus.
func TestSecondFrontEndTalks(t *testing.T) {
	one, two := render(t, variants[1]), render(t, second)
	policies := append(slices.Clone(one.policies), two.policies...)
	front := pod("weir", two.front.Spec.Template.Labels)
	plane := pod("weir", map[string]string{"app.kubernetes.io/name": "weir"})
	for _, e := range []struct {
		from, to peer
		port     int32
		protocol string
	}{
		{front, plane, 18000, "TCP"},
		{front, pod("inference", map[string]string{"app": "vllm"}), 8000, "TCP"},
		{front, pod("kube-system", map[string]string{"k8s-app": "kube-dns"}), 53, "UDP"},
		{pod("gateway", nil, "weir/clients"), front, 10000, "TCP"},
		{pod("monitoring", nil), front, 18002, "TCP"},
	} {
		out := allows(t, policies, networkingv1.PolicyTypeEgress, e.from, e.to, e.port, "", e.protocol)
		in := allows(t, policies, networkingv1.PolicyTypeIngress, e.to, e.from, e.port, "", e.protocol)
		if !out || !in {
			t.Errorf("%v to %v, port %d: may leave %v, may enter %v", e.from.labels, e.to.labels, e.port, out, in)
		}
	}
}

// All that is the control plane's can be applied first, by one label, and nothing of the
// front-ends with it.
func TestControlPlaneFirst(t *testing.T) {
	const component = "app.kubernetes.io/component"
	forAll(t, func(t *testing.T, r *rendered) {
		of := map[string]string{
			"StatefulSet": r.plane.Labels[component], "Deployment": r.front.Labels[component],
			"budget": r.budgets[0].Labels[component], "Role": r.roles[0].Labels[component], "binding": r.bindings[0].Labels[component],
		}
		for _, s := range r.services {
			of["service "+s.Name] = s.Labels[component]
		}
		for _, c := range r.configs {
			of["config "+strings.SplitN(c.Name, "-", 3)[1]] = c.Labels[component]
		}
		for what, want := range map[string]string{
			"StatefulSet": "control-plane", "Role": "control-plane", "binding": "control-plane", "service weir": "control-plane", "config fleet": "control-plane",
			"Deployment": "front-end", "budget": "front-end", "service front-end": "front-end", "config admin": "front-end",
		} {
			if of[what] != want {
				t.Errorf("%s has the component %q, want %q", what, of[what], want)
			}
		}
	})
}
