package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"weir/admin"
	"weir/config"
	"weir/fleet"
)

func some(x float64) *float64 { return &x }

// aStatus has everything in it that a table can show.
func aStatus() *admin.Status {
	return &admin.Status{
		Attention: []string{"look\x1b[31m here"},
		Plan:      admin.PlanStatus{Status: fleet.Shedding, Why: "class \"chat\" is short", MeanSeconds: some(0.2), AgeSeconds: some(1.25), RoundAgeSeconds: some(1.25)},
		FrontEnds: []admin.FrontEnd{{
			FrontEnd: "eu", Envoys: 2, ExtProcs: 1, Behind: 1, LagSeconds: 3, Nacks: []admin.Nack{{Node: "eu-1"}},
			Streams: []admin.Stream{
				{Class: "batch", DemandRps: 1, Source: fleet.SourceDeclared, Retries: admin.Retries{Percent: 4.6, Floor: 24, Why: "room for 8.0 rps"}},
				{Class: "chat", DemandRps: 30, Source: fleet.SourceArrivals, ShedRps: 10, Retries: admin.Retries{Floor: 8, Why: "the plan\tsheds"}},
			},
		}},
		Pools: []admin.Pool{
			{Pool: "a", Engines: 3, Ready: 2, Unready: 1, Plan: &fleet.PoolPlan{Pool: "a", CapacityRps: 20, Rps: 20, Utilisation: 1}, Source: &admin.Source{
				From: "file /a", HeardSeconds: some(2), Found: 2, Leaving: 1, Refused: 3, Problem: "is on\nfire",
			}},
			{Pool: "b"},
		},
		Profiles: []admin.Profile{{
			ProfileNews: fleet.ProfileNews{Pool: "a", CapacityRps: 9, FileRps: 10, Adopted: true, Fitted: &fleet.FitSummary{CapacityRps: 8, LowRps: 7.5, HighRps: 8.25}, Adopting: "wait"},
			Words:       []string{"TTFT is longer"}, Command: "weir fit --from here --pool a",
		}, {
			ProfileNews: fleet.ProfileNews{Pool: "c", CapacityRps: 10, FileRps: 10, Why: "prompts are long"},
		}, {
			ProfileNews: fleet.ProfileNews{Pool: "b", CapacityRps: 10, FileRps: 10, Unfitted: "too few"}, Words: []string{"TBT is longer"}, Command: "weir fit --from here --pool b",
		}},
		Penalties: []admin.Penalty{{
			Pool: "a", Engine: "10.0.0.1:80", Penalty: 0.05, Fault: fleet.FaultFirstTokens, For: "first tokens come late", By: 2, AgeSeconds: 12, ClearsSeconds: 14,
		}},
		UnknownFrontEnds: []admin.Unknown{{FrontEnd: "atlan\ntis", Clients: 1}},
	}
}

func TestStatusTable(t *testing.T) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	statusTable(w, aStatus())
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `Shedding: mean latency 200ms, made 1.2s ago (class "chat" is short)

FRONT-END  ENVOYS  EXT_PROCS  IN SYNC  LAG   NACKS  CLASS  DEMAND  SOURCE    SHED   RETRIES   FOR
eu         2       1          2/3      3.0s  1      batch  1.00    declared  0.00   4.6%, 24  room for 8.0 rps
                                                    chat   30.00   arrivals  10.00  0%, 8     the plan sheds

POOL  READY  CAPACITY  RPS    UTILISATION
a     2/3    20.00     20.00  100.0%
b     0/0    -         -      -

ENGINES OF  FROM     FOUND  LEAVING  REFUSED  HEARD     PROBLEM
a           file /a  2      1        3        2.0s ago  is on fire

PROFILE OF  CAPACITY  IN THE FILE  BY TRAFFIC           IN FULL BY
a           9 rps     10 rps       8 rps (7.5 to 8.25)  weir fit --from here --pool a
b           10 rps    10 rps       -                    weir fit --from here --pool b
- a: TTFT is longer
- a: a profile that was fitted to traffic is in use, as the fleet file allows
- a: no further step: wait
- b: TBT is longer
- b: not fitted: too few

PENALISED    POOL  GETS  FOR                     SINCE  BY  CLEARS
10.0.0.1:80  a     5%    first tokens come late  12.0s  2   by good answers, else in 14.0s

UNKNOWN FRONT-END  CLIENTS
atlan tis          1

needs attention:
- look [31m here
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestStatusTableWithoutAPlan(t *testing.T) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	statusTable(w, &admin.Status{Plan: admin.PlanStatus{Why: "no plan yet: patience"}})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "no plan yet: patience\n") || !strings.HasSuffix(got, "\nall is well\n") {
		t.Errorf("table:\n%s", got)
	}
}

// The exit code tells "look" from "well", in every format.
func TestStatusExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		attention []string
		want      int
	}{"well": {nil, 0}, "look": {[]string{"look"}, exitAttention}} {
		t.Run(name, func(t *testing.T) {
			s := aStatus()
			s.Attention = c.attention
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := json.NewEncoder(w).Encode(s); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			for _, format := range []string{"table", "json", "yaml"} {
				if got := run([]string{"status", "--admin", strings.TrimPrefix(server.URL, "http://"), "-o", format}); got != c.want {
					t.Errorf("-o %s: exit code %d, want %d", format, got, c.want)
				}
			}
		})
	}
}

// A fleet file that was refused shows until it is taken again.
func TestFleetProblem(t *testing.T) {
	p := testPlane(t)
	if got := p.fleetProblem(); got != "" {
		t.Errorf("at first: %q", got)
	}
	p.reload([]byte("nonsense: true\n"))
	if got := p.fleetProblem(); !strings.Contains(got, "nonsense") || p.counters.fleetRefused.Load() != 1 {
		t.Errorf("after a bad file: %q, counted %d", got, p.counters.fleetRefused.Load())
	}
	p.reload([]byte(p.fleetText))
	if got := p.fleetProblem(); got != "" {
		t.Errorf("after a good file: %q", got)
	}
}

func testPlane(t *testing.T) *plane {
	t.Helper()
	const file = "../../testdata/fleets/talk.yaml"
	text, err := config.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := config.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	return newPlane(file, beginning{f, string(text), nil}, "", zap.NewNop())
}
