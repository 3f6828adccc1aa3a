package discover

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"weir/fleet"
)

// readSlices reads a list of EndpointSlices as the API server answers it.
func readSlices(t *testing.T, name string) []*discoveryv1.EndpointSlice {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "slices", name+".json"))
	check(t, err)
	var list discoveryv1.EndpointSliceList
	check(t, json.Unmarshal(text, &list))
	out := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

func TestEndpoints(t *testing.T) {
	rollout := func(port string) named {
		at := func(addresses ...string) (out []fleet.EngineID) {
			for _, a := range addresses {
				out = append(out, fleet.EngineID(a+":"+port))
			}
			return out
		}
		return named{
			engines: at("10.42.3.11", "10.42.7.41"),
			leaving: at("10.42.3.12", "10.42.5.20"),
			unready: at("10.42.5.21", "10.42.7.40"),
		}
	}
	tests := map[string]struct {
		file string
		of   fleet.Discovery
		want named
		err  string
	}{
		"a rollout":            {file: "rollout", of: fleet.Discovery{PortName: "http"}, want: rollout("8000")},
		"a port by number":     {file: "rollout", of: fleet.Discovery{Port: 9400}, want: rollout("9400")},
		"no port of that name": {file: "rollout", of: fleet.Discovery{PortName: "web"}, err: "have the ports http 8000, metrics 9400: set port to one of these"},
		"no port of that number": {
			file: "rollout", of: fleet.Discovery{Port: 80}, err: "have the ports http 8000, metrics 9400: set port to one of these",
		},
		"several ports and no word": {file: "rollout", err: "have the ports http 8000, metrics 9400: set port to one of these"},
		"two families": {
			file: "dual-stack", want: named{engines: []fleet.EngineID{"10.42.3.11:8000"}, unready: []fleet.EngineID{"10.42.3.12:8000"}},
		},
		"the other family": {
			file: "dual-stack", of: fleet.Discovery{Family: fleet.IPv6},
			want: named{engines: []fleet.EngineID{"[2001:db8:42::3:11]:8000"}, unready: []fleet.EngineID{"[2001:db8:42::3:12]:8000"}},
		},
		"a family that it has not": {file: "rollout", of: fleet.Discovery{PortName: "http", Family: fleet.IPv6}, err: "has no IPv6 addresses"},
		"pods that call different numbers the same": {
			file: "named-target-port", of: fleet.Discovery{PortName: "http"}, want: named{engines: []fleet.EngineID{"10.42.3.11:8000", "10.42.7.41:8080"}},
		},
		"an empty slice": {file: "empty", of: fleet.Discovery{PortName: "http"}},
		"host names":     {file: "host-names", of: fleet.Discovery{PortName: "http"}, err: "has host names and no addresses: name it by dns"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all := readSlices(t, test.file)
			for range 2 { // in whatever order
				got, err := endpoints(&test.of, all)
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(named{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("error is %v, want %q", err, test.err)
				}
				slices.Reverse(all)
			}
		})
	}
	t.Run("no slice", func(t *testing.T) {
		if got, err := endpoints(&fleet.Discovery{Port: 1, Family: fleet.IPv6}, nil); err != nil || len(got.engines) > 0 {
			t.Errorf("got %v, %v; want nothing", got, err)
		}
	})
	t.Run("only IPv6", func(t *testing.T) {
		got, err := endpoints(&fleet.Discovery{}, readSlices(t, "dual-stack")[:1])
		if err != nil || len(got.engines) != 1 {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("two names of one port", func(t *testing.T) {
		all := readSlices(t, "rollout")
		for _, s := range all {
			for i := range s.Ports {
				s.Ports[i].Port = new(int32(8000))
			}
		}
		for _, d := range []fleet.Discovery{{}, {Port: 8000}, {PortName: "http"}} {
			if got, err := endpoints(&d, all); err != nil || !cmp.Equal(got.engines, rollout("8000").engines) {
				t.Errorf("%+v: got %v, %v", d, got.engines, err)
			}
		}
	})
	t.Run("an address that none is", func(t *testing.T) {
		all := readSlices(t, "dual-stack")
		all[1].Endpoints[0].Addresses[0] = "0.0.0.0"
		if _, err := endpoints(&fleet.Discovery{}, all); err == nil || !strings.Contains(err.Error(), "slice vllm-llama-v4-tt: 0.0.0.0:8000 cannot be connected to") {
			t.Errorf("got %v", err)
		}
	})
}

// What conditions leave out means that all is well; a pod that is told to end gets
// nothing new, even if its Service publishes pods that are not ready.
func TestStanding(t *testing.T) {
	yes, no := new(true), new(false)
	for _, test := range []struct {
		ready, serving, terminating *bool
		want                        standing
	}{
		{nil, nil, nil, serves},
		{yes, yes, no, serves},
		{yes, no, no, serves},
		{yes, nil, nil, serves},
		{no, no, no, unready},
		{no, yes, no, unready},
		{no, nil, nil, unready},
		{no, yes, yes, leaves},
		{yes, yes, yes, leaves},
		{nil, nil, yes, leaves},
		{no, no, yes, unready},
		{yes, no, yes, unready},
	} {
		c := discoveryv1.EndpointConditions{Ready: test.ready, Serving: test.serving, Terminating: test.terminating}
		if got := standingOf(&c); got != test.want {
			t.Errorf("%v: %v, want %v", &c, got, test.want)
		}
	}
}
