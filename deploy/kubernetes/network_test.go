package kubernetes

import (
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// peer is who talks or is talked to.
type peer struct {
	namespace string
	spaces    map[string]string // labels of its namespace
	labels    map[string]string
	address   string // of what is no pod of this cluster: only blocks of addresses name it
}

func pod(namespace string, labels map[string]string, spaces ...string) peer {
	p := peer{namespace: namespace, labels: labels, spaces: map[string]string{"kubernetes.io/metadata.name": namespace}}
	for _, s := range spaces {
		p.spaces[s] = "true"
	}
	return p
}

// Who may talk to whom, and nobody else.
func TestNetworkPolicies(t *testing.T) {
	name := func(s string) map[string]string { return map[string]string{"app.kubernetes.io/name": s} }
	plane, front := pod("weir", name("weir")), pod("weir", map[string]string{"app.kubernetes.io/name": "front-end", "weir/front-end": "main"})
	engine := pod("inference", map[string]string{"app": "vllm", "sku": "h100"})
	gateway, stranger := pod("gateway", name("gateway"), "weir/clients"), pod("other", name("front-end"))
	prometheus, dns := pod("monitoring", name("prometheus")), pod("kube-system", map[string]string{"k8s-app": "kube-dns"})
	server, elsewhere := peer{address: "192.0.2.10"}, pod("other", nil)
	edges := []struct {
		what     string
		from, to peer
		port     int32
		name     string // of the port
		protocol string
		want     bool
	}{
		{"Envoy's and weir-extproc's xDS", front, plane, 18000, "xds", "TCP", true},
		{"requests and round trips", front, engine, 8000, "", "TCP", true},
		{"health and metrics of engines", plane, engine, 8000, "", "TCP", true},
		{"EndpointSlices", plane, server, 6443, "", "TCP", true},
		{"names, for the control plane", plane, dns, 53, "", "UDP", true},
		{"names, for front-ends", front, dns, 53, "", "UDP", true},
		{"long names", front, dns, 53, "", "TCP", true},
		{"clients", gateway, front, 10000, "http", "TCP", true},
		{"the control plane's metrics", prometheus, plane, 18001, "admin", "TCP", true},
		{"weir-extproc's metrics", prometheus, front, 18002, "metrics", "TCP", true},

		{"strangers to clients' port", stranger, front, 10000, "http", "TCP", false},
		{"clients to xDS", gateway, plane, 18000, "xds", "TCP", false},
		{"front-ends of another namespace", stranger, plane, 18000, "xds", "TCP", false},
		{"front-ends to the admin API", front, plane, 18001, "admin", "TCP", false},
		{"clients to the admin API", gateway, plane, 18001, "admin", "TCP", false},
		{"Prometheus to xDS", prometheus, plane, 18000, "xds", "TCP", false},
		{"Envoy's admin interface", prometheus, front, 9901, "", "TCP", false},
		{"front-ends to the API server", front, server, 6443, "", "TCP", false},
		{"front-ends to anywhere", front, elsewhere, 443, "", "TCP", false},
		{"the control plane to clients", plane, front, 10000, "http", "TCP", false},
		{"engines to the control plane", engine, plane, 18000, "xds", "TCP", false},
		{"engines' other ports", front, engine, 22, "", "TCP", false},
	}
	forAll(t, func(t *testing.T, r *rendered) {
		for _, e := range edges {
			out := allows(t, r.policies, networkingv1.PolicyTypeEgress, e.from, e.to, e.port, e.name, e.protocol)
			in := allows(t, r.policies, networkingv1.PolicyTypeIngress, e.to, e.from, e.port, e.name, e.protocol)
			if (out && in) != e.want {
				t.Errorf("%s: may leave %v, may enter %v, want %v", e.what, out, in, e.want)
			}
		}
	})
}

// allows says what a namespace's policies say of one direction: one that no policy
// chooses may do all, else some rule must name the other and the port.
func allows(t *testing.T, policies []networkingv1.NetworkPolicy, direction networkingv1.PolicyType, of, other peer, port int32, name, protocol string) bool {
	t.Helper()
	chosen, allowed := false, false
	for _, p := range policies {
		if p.Namespace != of.namespace || !slices.Contains(p.Spec.PolicyTypes, direction) || !matches(t, &p.Spec.PodSelector, of.labels) {
			continue
		}
		chosen = true
		for _, r := range rulesOf(p, direction) {
			allowed = allowed || named(t, p.Namespace, r.peers, other) && onPort(r.ports, port, name, protocol)
		}
	}
	return allowed || !chosen
}

// rule is one of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func rulesOf(p networkingv1.NetworkPolicy, direction networkingv1.PolicyType) (all []rule) {
	if direction == networkingv1.PolicyTypeIngress {
		for _, r := range p.Spec.Ingress {
			all = append(all, rule{r.From, r.Ports})
		}
		return all
	}
	for _, r := range p.Spec.Egress {
		all = append(all, rule{r.To, r.Ports})
	}
	return all
}

// named says whether a rule speaks of somebody; one without anybody speaks of all.
func named(t *testing.T, namespace string, peers []networkingv1.NetworkPolicyPeer, who peer) bool {
	t.Helper()
	if len(peers) == 0 {
		return true
	}
	return slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return who.address != "" && netip.MustParsePrefix(p.IPBlock.CIDR).Contains(netip.MustParseAddr(who.address))
		}
		here := p.NamespaceSelector == nil && who.namespace == namespace || p.NamespaceSelector != nil && matches(t, p.NamespaceSelector, who.spaces)
		selector := p.PodSelector
		if selector == nil {
			selector = &metav1.LabelSelector{}
		}
		return who.address == "" && here && matches(t, selector, who.labels)
	})
}

func onPort(ports []networkingv1.NetworkPolicyPort, port int32, name, protocol string) bool {
	return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		same := p.Port.Type == intstr.Int && p.Port.IntVal == port || p.Port.Type == intstr.String && p.Port.StrVal == name
		return same && string(*p.Protocol) == protocol
	})
}

// Front-ends in other clusters reach xDS from where the overlay says, and nothing else.
func TestXDSFromOtherClusters(t *testing.T) {
	plane := pod("weir", map[string]string{"app.kubernetes.io/name": "weir"})
	for _, c := range []struct {
		variant, address string
		port             int32
		want             bool
	}{
		{"base", "198.51.100.7", 18000, false},
		{"overlays/example", "198.51.100.7", 18000, true},
		{"overlays/example", "198.51.100.7", 18001, false},
		{"overlays/example", "203.0.113.7", 18000, false},
	} {
		r := render(t, c.variant)
		if got := allows(t, r.policies, networkingv1.PolicyTypeIngress, plane, peer{address: c.address}, c.port, "", "TCP"); got != c.want {
			t.Errorf("%s: %s may enter port %d: %v", c.variant, c.address, c.port, got)
		}
	}
}

// Policies call ports by number, since network plugins did not find the names of a
// sidecar's for long, and let in only where somebody listens.
func TestPolicyPorts(t *testing.T) {
	forAll(t, func(t *testing.T, r *rendered) {
		for _, p := range r.policies {
			for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
				for _, rule := range rulesOf(p, direction) {
					for _, on := range rule.ports {
						if on.Port.Type == intstr.String {
							t.Errorf("%s names the port %s", p.Name, on.Port.StrVal)
						}
						if p.Namespace == "weir" && direction == networkingv1.PolicyTypeIngress && !chosenHas(t, r, p, on.Port.String()) {
							t.Errorf("%s: no pod has a port %s", p.Name, on.Port)
						}
					}
				}
			}
		}
		deny := r.policies[slices.IndexFunc(r.policies, func(p networkingv1.NetworkPolicy) bool { return p.Name == "default-deny" })]
		if len(deny.Spec.PolicyTypes) != 2 || len(deny.Spec.Ingress)+len(deny.Spec.Egress) > 0 || !matches(t, &deny.Spec.PodSelector, nil) {
			t.Errorf("default-deny allows something: %+v", deny.Spec)
		}
	})
}

// chosenHas says whether a pod that the policy chooses has a port.
func chosenHas(t *testing.T, r *rendered, p networkingv1.NetworkPolicy, number string) bool {
	t.Helper()
	return slices.ContainsFunc(r.workloads(), func(w workload) bool {
		return matches(t, &p.Spec.PodSelector, w.labels) && port(w.pod, number) != 0
	})
}
