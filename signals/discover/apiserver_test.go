package discover

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// apiServer answers lists and watches of EndpointSlices as Kubernetes does, over HTTPS,
// to whoever has its token. It can be gone and come back, with or without its memory of
// what changed.
type apiServer struct {
	t       *testing.T
	address string
	server  *httptest.Server // nil: it is gone
	lists   int
	watches int

	mu        sync.Mutex // guards what follows, and what is above but t and address
	version   int
	forgotten int                                   // changes up to here are not known any more
	slices    map[string]*discoveryv1.EndpointSlice // by name
	events    []event
	changed   chan struct{} // closed with the next event
	forbidden string        // verb that nobody may
	hangs     bool          // takes requests and answers none
}

type event struct {
	version int
	kind    string
	slice   *discoveryv1.EndpointSlice
}

const apiToken = "sesame"

func startAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, address: "127.0.0.1:0", slices: map[string]*discoveryv1.EndpointSlice{}, changed: make(chan struct{}), version: 100}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *apiServer) start() {
	s.t.Helper()
	l, err := net.Listen("tcp4", s.address)
	check(s.t, err)
	s.address = l.Addr().String()
	s.server = httptest.NewUnstartedServer(s)
	_ = s.server.Listener.Close()
	s.server.Listener = l
	s.server.EnableHTTP2 = true
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that are cut are the test
	s.server.StartTLS()
}

func (s *apiServer) stop() {
	if s.server != nil {
		s.server.CloseClientConnections()
		s.server.Close()
		s.server = nil
	}
}

// kubeconfig writes a file that leads to the server.
func (s *apiServer) kubeconfig(token string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	check(s.t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	path := filepath.Join(dir, "config")
	check(s.t, os.WriteFile(path, []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
  - {name: here, cluster: {server: "https://%s", certificate-authority: ca.pem}}
users:
  - {name: weir, user: {token: %s}}
contexts:
  - {name: here, context: {cluster: here, user: weir}}
current-context: here
`, s.address, token)), 0o600))
	return path
}

// put changes a slice, or adds it.
func (s *apiServer) put(slice *discoveryv1.EndpointSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slice = slice.DeepCopy()
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	kind := "MODIFIED"
	if s.slices[slice.Name] == nil {
		kind = "ADDED"
	}
	s.slices[slice.Name] = slice
	s.tell(kind, slice)
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slice := s.slices[name].DeepCopy()
	delete(s.slices, name)
	s.tell("DELETED", slice)
}

func (s *apiServer) tell(kind string, slice *discoveryv1.EndpointSlice) {
	s.version++
	slice.ResourceVersion = strconv.Itoa(s.version)
	s.events = append(s.events, event{s.version, kind, slice})
	s.stir()
}

// stir has all watches look again.
func (s *apiServer) stir() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked are the lists and watches so far.
func (s *apiServer) asked() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	verb := "list"
	if q.Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	hangs, forbidden := s.hangs, s.forbidden
	if verb == "list" {
		s.lists++
	} else {
		s.watches++
	}
	s.mu.Unlock()
	selector, err := labels.Parse(q.Get("labelSelector"))
	switch {
	case hangs:
		<-r.Context().Done()
	case err != nil || r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices" || selector.Empty():
		s.fail(w, http.StatusNotFound, "NotFound", "there is nothing else: "+r.URL.String())
	case r.Header.Get("Authorization") != "Bearer "+apiToken:
		s.fail(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case forbidden == verb:
		s.fail(w, http.StatusForbidden, "Forbidden", fmt.Sprintf(
			`endpointslices.discovery.k8s.io is forbidden: User "system:serviceaccount:weir:weir" cannot %s resource "endpointslices"`, verb))
	case verb == "list":
		s.list(w, selector)
	default:
		s.watch(w, r, selector, q.Get("resourceVersion"))
	}
}

func (s *apiServer) fail(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, reason, message))
}

func failure(code int, reason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   "Failure", Code: int32(code), Reason: metav1.StatusReason(reason), Message: message,
	}
}

func (s *apiServer) list(w http.ResponseWriter, selector labels.Selector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := discoveryv1.EndpointSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)},
	}
	for _, slice := range s.slices {
		if selector.Matches(labels.Set(slice.Labels)) {
			list.Items = append(list.Items, *slice)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// watch streams the changes since a version, and says if it has forgotten them.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, selector labels.Selector, since string) {
	seen, err := strconv.Atoi(since)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "BadRequest", "no version: "+since)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	for {
		s.mu.Lock()
		events, forgotten, changed := s.events, s.forgotten, s.changed
		s.mu.Unlock()
		if seen < forgotten {
			send("ERROR", failure(http.StatusGone, "Expired", "too old resource version"))
			return
		}
		for _, e := range events {
			if e.version > seen && selector.Matches(labels.Set(e.slice.Labels)) {
				send(e.kind, e.slice)
			}
			seen = max(seen, e.version)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
