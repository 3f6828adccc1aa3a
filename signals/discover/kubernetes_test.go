package discover

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/fleet"
)

// ofService is a Service whose endpoints are engines as the other tests number them.
func ofService(name string) fleet.Discovery {
	return fleet.Discovery{Kind: fleet.DiscoverKubernetes, Where: "inference/" + name, PortName: "http", Every: time.Hour}
}

// sliceOf is one slice of a Service, with an endpoint for each address that serves.
func sliceOf(service, name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: "inference", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0." + a}})
	}
	return s
}

// terminating has an endpoint of a slice end, and serve until then or not.
func terminating(s *discoveryv1.EndpointSlice, i int, serving bool) *discoveryv1.EndpointSlice {
	s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: &serving, Terminating: new(true)}
	return s
}

// findService runs a Finder for a Service, and ends it with the test.
func findService(t *testing.T, d fleet.Discovery, kubeconfig string) heard {
	t.Helper()
	answers := make(heard, 16)
	ctx, stop := context.WithCancel(t.Context())
	n := NewFinder(zap.NewNop(), &fleet.Fleet{Pools: []fleet.Pool{{ID: "a", Discovery: &d}}}, func(a Answer) bool {
		select {
		case answers <- a:
			return true
		case <-ctx.Done():
			return false
		}
	})
	n.Kubeconfig = kubeconfig
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			check(t, err)
		case <-time.After(10 * time.Second):
			t.Error("the Finder does not end")
		}
	})
	return answers
}

// says waits for an answer of engines that serve, leave and are unready.
func (h heard) says(t *testing.T, serve, leave, unready string) {
	t.Helper()
	h.until(t, serve+"; leaving "+leave+"; unready "+unready, func(a *Answer) bool {
		return a.Err == nil && cmp.Equal(a.Engines, engines(serve)) && cmp.Equal(a.Leaving, engines(leave)) && cmp.Equal(a.Unready, engines(unready))
	})
}

func TestAServiceIsFollowed(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	s.put(sliceOf("vllm", "vllm-a", "1", "2"))
	s.put(sliceOf("other", "other-a", "9"))
	h := findService(t, ofService("vllm"), s.kubeconfig(apiToken))
	h.says(t, "1 2", "", "")
	changed := time.Now()
	s.put(sliceOf("vllm", "vllm-b", "2", "3"))
	h.says(t, "1 2 3", "", "")
	t.Logf("told %v after a change", time.Since(changed).Round(time.Millisecond))
	s.put(terminating(sliceOf("vllm", "vllm-a", "1"), 0, true))
	h.says(t, "2 3", "1", "")
	s.put(terminating(sliceOf("vllm", "vllm-a", "1"), 0, false))
	h.says(t, "2 3", "", "1")
	s.remove("vllm-a")
	h.says(t, "2 3", "", "")
	s.remove("vllm-b")
	h.says(t, "", "", "")
	if lists, watches := s.asked(); lists != 1 || watches != 1 {
		t.Errorf("%d lists and %d watches, want one each", lists, watches)
	}
}

// What the API server has recorded is read as it is.
func TestARecordedService(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	for _, slice := range readSlices(t, "rollout") {
		s.put(slice)
	}
	d := ofService("vllm-llama")
	h := findService(t, d, s.kubeconfig(apiToken))
	want, err := endpoints(&d, readSlices(t, "rollout"))
	check(t, err)
	h.until(t, "the rollout", func(a *Answer) bool {
		return cmp.Equal(named{a.Engines, a.Leaving, a.Unready}, want, cmp.AllowUnexported(named{}))
	})
}

// Where watches fail, what is listed counts, and the source says that it may be late.
func TestAWatchFails(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	s.forbidden = "watch"
	s.put(sliceOf("vllm", "vllm-a", "1"))
	d := ofService("vllm")
	d.Every = 10 * time.Millisecond
	h := findService(t, d, s.kubeconfig(apiToken))
	h.says(t, "1", "", "")
	h.fails(t, `cannot watch resource "endpointslices"; allow it to get, list and watch endpointslices`)
	s.put(sliceOf("vllm", "vllm-a", "1", "2"))
	h.says(t, "1 2", "", "")
}

// The API server goes and comes back, with or without its memory of what changed since.
func TestAnAPIServerComesBack(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	s.put(sliceOf("vllm", "vllm-a", "1", "2"))
	s.put(sliceOf("other", "other-a", "9"))
	h := findService(t, ofService("vllm"), s.kubeconfig(apiToken))
	h.says(t, "1 2", "", "")
	s.put(terminating(sliceOf("vllm", "vllm-a", "1", "2"), 0, true))
	h.says(t, "2", "1", "")

	s.stop()
	h.fails(t, "the API server "+s.address+": ")
	s.start() // and remembers
	h.says(t, "2", "1", "")
	s.put(sliceOf("vllm", "vllm-b", "3"))
	h.says(t, "2 3", "1", "")

	s.stop()
	h.fails(t, "the API server "+s.address+": ")
	s.remove("vllm-a") // while nobody listens
	s.set(func() { s.forgotten = s.version })
	before, _ := s.asked()
	s.start()
	h.says(t, "3", "", "")
	if lists, _ := s.asked(); lists != before+1 {
		t.Errorf("listed %d times to catch up, want once", lists-before)
	}
	s.remove("vllm-b")
	h.says(t, "", "", "")
}

func TestAnAPIServerRefuses(t *testing.T) {
	t.Parallel()
	t.Run("the token", func(t *testing.T) {
		t.Parallel()
		s := startAPIServer(t)
		h := findService(t, ofService("vllm"), s.kubeconfig("wrong"))
		h.fails(t, "Unauthorized; allow it to get, list and watch endpointslices")
	})
	t.Run("to list", func(t *testing.T) {
		t.Parallel()
		s := startAPIServer(t)
		s.forbidden = "list"
		s.put(sliceOf("vllm", "vllm-a", "1"))
		h := findService(t, ofService("vllm"), s.kubeconfig(apiToken))
		h.fails(t, `cannot list resource "endpointslices"; allow it to get, list and watch endpointslices`)
		s.set(func() { s.forbidden = "" })
		h.says(t, "1", "", "")
	})
	t.Run("to say anything", func(t *testing.T) {
		t.Parallel()
		s := startAPIServer(t)
		s.hangs = true
		h := findService(t, ofService("vllm"), s.kubeconfig(apiToken))
		h.fails(t, "has not answered within 5s")
	})
}

// A file that is not there yet, or says nothing, is tried again.
func TestNoCluster(t *testing.T) {
	for name, test := range map[string]struct{ file, environment, want string }{
		"no such file":   {"/nowhere/config", "", "kubeconfig: stat /nowhere/config: no such file or directory"},
		"nothing at all": {"", "/nowhere/config", "no Kubernetes cluster is known: run the control plane in a pod, or say --kubeconfig FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.environment)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			if err := CheckKubeconfig(test.file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			h := findService(t, ofService("vllm"), test.file)
			h.fails(t, test.want)
		})
	}
	t.Run("by the environment", func(t *testing.T) {
		s := startAPIServer(t)
		s.put(sliceOf("vllm", "vllm-a", "1"))
		t.Setenv("KUBECONFIG", s.kubeconfig(apiToken))
		findService(t, ofService("vllm"), "").says(t, "1", "", "")
	})
}

// Pools come and go with the fleet file: what followed their Services ends with them.
func TestServicesComeAndGo(t *testing.T) {
	s := startAPIServer(t)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		s.put(sliceOf(name, name+"-1", "1"))
	}
	answers := make(heard, 64)
	n := NewFinder(zap.NewNop(), &fleet.Fleet{}, func(a Answer) bool {
		answers <- a
		return true
	})
	n.Kubeconfig = s.kubeconfig(apiToken)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	turn := func(times int) {
		for range times {
			f := &fleet.Fleet{}
			for _, name := range names {
				d := ofService(name)
				f.Pools = append(f.Pools, fleet.Pool{ID: fleet.PoolID(name), Discovery: &d})
			}
			n.SetFleet(f)
			for range names {
				answers.engines(t, "1")
			}
			n.SetFleet(&fleet.Fleet{})
		}
	}
	turn(3) // what all share is there then
	settled := func() int {
		least, since := runtime.NumGoroutine(), time.Now()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; time.Since(since) < 500*time.Millisecond; <-tick.C {
			if now := runtime.NumGoroutine(); now < least {
				least, since = now, time.Now()
			}
		}
		return least
	}
	before := settled()
	turn(100)
	if after := settled(); after > before+2 {
		t.Errorf("%d goroutines after 400 Services, %d before", after, before)
	}
	stop()
	check(t, <-done)
}

// Ten thousand generations of a Service's pods leave nothing behind, and its last word is
// the one that counts.
func TestAServiceChurns(t *testing.T) {
	s := startAPIServer(t)
	s.put(sliceOf("vllm", "vllm-a", "1"))
	h := findService(t, ofService("vllm"), s.kubeconfig(apiToken))
	h.says(t, "1", "", "")
	generation := func(g int) (numbers string) {
		for i := range 4 { // each pod lives for four generations
			numbers += fmt.Sprintf("%d ", (g+i)%250+1)
		}
		return numbers
	}
	turn := func(from, n int) amounts {
		for g := from; g < from+n; g++ {
			s.put(sliceOf("vllm", "vllm-a", strings.Fields(generation(g))...))
			if g%500 == 0 { // so that the watch keeps up
				last := engines(generation(g))
				slices.Sort(last)
				h.until(t, "generation "+fmt.Sprint(g), func(a *Answer) bool { return slices.Equal(a.Engines, last) })
				s.set(func() { s.events = nil })
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return amounts{runtime.NumGoroutine(), m.HeapAlloc}
	}
	before := turn(0, 501)
	after := turn(501, 10_000)
	const connections, heap = 4, 4 << 20
	if after.goroutines > before.goroutines+connections || after.heap > before.heap+heap {
		t.Errorf("%+v after ten thousand generations, %+v before", after, before)
	}
	if lists, _ := s.asked(); lists != 1 {
		t.Errorf("%d lists, want one", lists)
	}
}

type amounts struct {
	goroutines int
	heap       uint64
}
