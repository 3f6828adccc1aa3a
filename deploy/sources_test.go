package deploy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/fleet"
)

// nameServer tells the SRV records of one name, whose targets all are this machine.
type nameServer struct {
	address string

	mu    sync.Mutex // guards ports
	ports []uint16
}

const (
	srvName    = "_http._tcp.engines.test."
	targetName = "engines.test."
)

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	check(t, err)
	s := &nameServer{address: c.LocalAddr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(s.answer(b[:n]), from)
		}
	})
	t.Cleanup(func() { _ = c.Close(); running.Wait() })
	return s
}

// tell has the server name these engines from now on.
func (s *nameServer) tell(engines []fleet.EngineID) {
	ports := make([]uint16, len(engines))
	for i, e := range engines {
		ports[i] = netip.MustParseAddrPort(string(e)).Port()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = ports
}

func (s *nameServer) answer(query []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 30}
	switch {
	case q.Type == dnsmessage.TypeSRV && q.Name.String() == srvName:
		for _, port := range s.ports {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.SRVResource{Port: port, Target: dnsmessage.MustNewName(targetName)}})
		}
	case q.Type == dnsmessage.TypeA && q.Name.String() == targetName:
		m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	case q.Name.String() != srvName && q.Name.String() != targetName:
		m.RCode = dnsmessage.RCodeNameError
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// kubernetes is an API server that knows the pods of one Service, by a slice for each
// port that they listen on.
type kubernetes struct {
	address string

	mu      sync.Mutex // guards what follows
	version int
	pods    map[fleet.EngineID]discoveryv1.EndpointConditions
	changed chan struct{} // closed with the next change
}

func startKubernetes(t *testing.T) *kubernetes {
	t.Helper()
	k := &kubernetes{version: 1, pods: map[fleet.EngineID]discoveryv1.EndpointConditions{}, changed: make(chan struct{})}
	s := httptest.NewServer(k)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	k.address = s.URL
	return k
}

// kubeconfig writes a file that leads there.
func (k *kubernetes) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check(t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: %q}}]
contexts: [{name: here, context: {cluster: here}}]
current-context: here
`, k.address), 0o600))
	return path
}

// tell has pods be as the conditions say, all at once.
func (k *kubernetes) tell(conditions discoveryv1.EndpointConditions, pods ...fleet.EngineID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range pods {
		k.pods[pod] = conditions
	}
	k.version++
	close(k.changed)
	k.changed = make(chan struct{})
}

// What Kubernetes says of pods.
var (
	podReady    = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
	podUnready  = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
	podDraining = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
)

// slices are those that there are, each of one pod.
func (k *kubernetes) slices() (list discoveryv1.EndpointSliceList, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	version := strconv.Itoa(k.version)
	list.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}
	list.ResourceVersion = version
	for pod, conditions := range k.pods {
		at := netip.MustParseAddrPort(string(pod))
		list.Items = append(list.Items, discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "llama-" + strconv.Itoa(int(at.Port())), Namespace: "inference", ResourceVersion: version,
				Labels: map[string]string{discoveryv1.LabelServiceName: "llama"},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}, Conditions: conditions}},
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(at.Port()))}},
		})
	}
	return list, k.changed
}

func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if !strings.HasSuffix(r.URL.Path, "/namespaces/inference/endpointslices") || q.Get("labelSelector") != discoveryv1.LabelServiceName+"=llama" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") == "" {
		list, _ := k.slices()
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	for since := q.Get("resourceVersion"); ; {
		list, changed := k.slices()
		for i := range list.Items {
			if since != list.ResourceVersion { // pods are never forgotten here
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": list.Items[i]})
			}
		}
		since = list.ResourceVersion
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
