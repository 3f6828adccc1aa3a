package admin

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

// heard is what a control plane was heard to work by: "-" is what was not named.
type heard struct{ policy, shadow string }

func some(s string) *string { return &s }

// plane serves a control plane that notes what it is heard, and returns its address.
func plane(t *testing.T, fails error) (address string, orders *[]heard) {
	t.Helper()
	orders = &[]heard{}
	from := testSources()
	from.Choose = func(policy, shadow *string) (fleet.Choice, error) {
		o := heard{"-", "-"}
		if policy != nil {
			o.policy = *policy
		}
		if shadow != nil {
			o.shadow = *shadow
		}
		*orders = append(*orders, o)
		return fleet.Choice{Policy: fleet.Chosen{Name: o.policy, File: fleet.PolicyOptimal}}, fails
	}
	server := httptest.NewServer(Handler(ControlPlane(from)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), orders
}

func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		order PolicyOrder
		want  []heard
		err   string
	}{
		"a policy":            {PolicyOrder{Policy: some("nearest")}, []heard{{"nearest", "-"}}, ""},
		"a shadow":            {PolicyOrder{Shadow: some("even")}, []heard{{"-", "even"}}, ""},
		"no shadow":           {PolicyOrder{Shadow: some("none")}, []heard{{"-", ""}}, ""},
		"both":                {PolicyOrder{Policy: some("optimal"), Shadow: some("nearest")}, []heard{{"optimal", "nearest"}}, ""},
		"nothing":             {PolicyOrder{}, nil, "name a policy, a shadow or both"},
		"an unknown policy":   {PolicyOrder{Policy: some("fastest")}, nil, `there is no policy "fastest": name one of optimal, waterfall,`},
		"no policy":           {PolicyOrder{Policy: some("none")}, nil, `there is no policy "none"`},
		"an empty policy":     {PolicyOrder{Policy: some("")}, nil, `there is no policy ""`},
		"an unknown shadow":   {PolicyOrder{Shadow: some("fastest")}, nil, `shadow: there is no policy "fastest"`},
		"one of two is known": {PolicyOrder{Policy: some("even"), Shadow: some("fastest")}, nil, "shadow: there is no policy"},
	} {
		t.Run(name, func(t *testing.T) {
			address, orders := plane(t, nil)
			_, err := Choose(t.Context(), address, c.order)
			if diff := cmp.Diff(c.want, append([]heard(nil), *orders...), cmp.AllowUnexported(heard{})); diff != "" {
				t.Errorf("orders (-want +got):\n%s", diff)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestChooseAnswers(t *testing.T) {
	address, _ := plane(t, nil)
	got, err := Choose(t.Context(), address, PolicyOrder{Policy: some("nearest")})
	if want := (fleet.Choice{Policy: fleet.Chosen{Name: "nearest", File: "optimal"}}); err != nil || *got != want {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	address, _ = plane(t, errors.New("the loop is too busy"))
	if _, err := Choose(t.Context(), address, PolicyOrder{Policy: some("nearest")}); err == nil || !strings.Contains(err.Error(), "the loop is too busy") {
		t.Errorf("error %v, want a busy loop", err)
	}
}

func TestOrdersAreStrict(t *testing.T) {
	for body, want := range map[string]string{
		``:                     "send {",
		`nearest`:              "send {",
		`{"polcy": "nearest"}`: `unknown key "polcy": write any of policy, shadow`,
		`{"policy": 3}`:        "send {",
		`[]`:                   "send {",
		`{"policy": "even"}{}`: "more behind the order",
	} {
		if _, err := readOrder([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

func TestFetchChoice(t *testing.T) {
	want := fleet.Choice{Policy: fleet.Chosen{Name: "even", File: "optimal"}, Shadow: fleet.Chosen{Name: "optimal", File: "optimal"}}
	from := testSources()
	from.Latest = func() fleet.Round {
		r := testRound()
		r.Choice = want
		return r
	}
	server := httptest.NewServer(Handler(ControlPlane(from)))
	defer server.Close()
	got, err := FetchChoice(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil || *got != want {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
}

func TestStatusOfPolicies(t *testing.T) {
	r := testRound()
	r.Plan.Policy = fleet.PolicyNearest
	r.Choice = fleet.Choice{Policy: fleet.Chosen{Name: "nearest", File: "nearest"}, Shadow: fleet.Chosen{Name: "optimal", File: "optimal"}}
	r.Shadow = &fleet.Shadow{Policy: "optimal", At: noon.Add(-3 * time.Second), Difference: &fleet.Difference{MeanSeconds: 0.001, MovedShare: 0.08, ShedRps: 2, MaxUtilisation: 1}}
	s := newStatus(noon, r, testClients(), "", "")
	if s.Plan.Policy != "nearest" || s.Policies != r.Choice {
		t.Errorf("plan by %q, policies %+v", s.Plan.Policy, s.Policies)
	}
	if diff := cmp.Diff(&Shadow{Policy: "optimal", AgeSeconds: 3, Difference: r.Shadow.Difference}, s.Shadow); diff != "" {
		t.Errorf("shadow (-want +got):\n%s", diff)
	}
	if len(s.Attention) > 0 {
		t.Errorf("what the fleet file says raises an alarm: %q", s.Attention)
	}
}
