package main

import (
	"strings"
	"testing"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"weir/admin"
	"weir/fleet"
)

// someBeliefs have in them all that the table can show.
func someBeliefs() *admin.Beliefs {
	return &admin.Beliefs{
		Demand: []admin.DemandBelief{
			{FrontEnd: "frankfurt", Class: "chat", Rps: 31, DoubtRps: 0.5, Source: fleet.SourceArrivals, StdErrRps: some(1.76), AgeSeconds: some(0.4)},
			{FrontEnd: "frankfurt", Class: "idle", Rps: 2, Source: fleet.SourceDeclared},
		},
		Classes: []admin.ClassBelief{
			{Class: "chat", PromptTokens: 900, OutputTokens: 80, Requests: 50, Estimated: 5, PromptStdErrTokens: some(31.4), AgeSeconds: some(0.4)},
			{Class: "batch", PromptTokens: 4000, OutputTokens: 300},
			{Class: "idle"},
		},
		Pools: []admin.PoolBelief{
			{
				Pool: "h100-east", CapacityFactor: 0.8, FactorReason: "TTFT is 812 ms where the profile says 300 ms at a load of 120 %, and so on", Load: some(0.75),
				TTFTSeconds: some(0.2514), TTFTStdErrSeconds: some(0.0131), TBTSeconds: some(0.02), AgeSeconds: some(0.4),
				Engines: []admin.EngineBelief{
					{
						Engine: "10.20.30.101:8000", Readiness: "ready", Dialect: "vllm", Running: &admin.Told{AgeSeconds: 0.4},
						Waiting: &admin.Told{Value: 5, AgeSeconds: 20, Stale: true}, KVUsage: &admin.Told{Value: 0.5}, TTFTSeconds: &admin.Told{Value: 0.25},
						SeenTTFTSeconds: &admin.Told{Value: 1.234, StdErr: some(0.0456), AgeSeconds: 1}, SeenTBTSeconds: &admin.Told{Value: 0.0213, StdErr: some(0.000031), Stale: true},
						Deviations: []admin.DeviationBelief{
							{Signal: fleet.SignalTTFT, Value: 1.234, Median: 0.3856, Ratio: some(3.2), Z: 8.04, Outlier: true},
							{Signal: fleet.SignalRunning, Value: 0, Median: 1, Ratio: some(0), Z: -0.5},
							{Signal: fleet.SignalWaiting, Value: 5, Z: 5, Outlier: true},
						},
					},
					{Engine: "10.20.30.102:8000", Readiness: "unready", Why: "connection refused"},
					{Engine: "10.20.30.103:8000", Readiness: "ready", Deviations: []admin.DeviationBelief{{Signal: fleet.SignalTBT, Value: 1, Median: 1, Ratio: some(1), Z: 0.2}}},
				},
			},
			{Pool: "l40s", CapacityFactor: 1},
		},
		Network: []admin.LinkBelief{
			{FrontEnd: "frankfurt", Pool: "h100-east", RoundTripSeconds: 0.004, Measured: true, StdErrSeconds: some(0.00012), AgeSeconds: some(3)},
			{FrontEnd: "frankfurt", Pool: "l40s", RoundTripSeconds: 0.08},
		},
	}
}

// What is not known is a dash, what is stale stands in brackets, an idle engine's zero
// is a zero, and no line of usual names is wider than a hundred columns.
func TestBeliefsTable(t *testing.T) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	beliefsTable(w, someBeliefs())
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `FRONT-END  CLASS  DEMAND       DOUBT  AGE   SOURCE
frankfurt  chat   31.00 ±1.76  0.50   0.4s  arrivals
frankfurt  idle   2.00         0.00   -     declared

CLASS  PROMPT   OUTPUT  AGE   MEASURED ON
chat   900 ±31  80      0.4s  50 requests, 10 % of them estimated
batch  4000     300     -     nothing: declared
idle   -        -       -     nothing: as each pool's reference

FRONT-END  POOL       ROUND TRIP      AGE   SOURCE
frankfurt  h100-east  4.00ms ±0.12ms  3.0s  measured
frankfurt  l40s       80.0ms          -     declared

as front-ends see them:
POOL       LOAD  FACTOR  TTFT         TBT     AGE
h100-east  0.75  0.80    251ms ±13ms  20.0ms  0.4s
l40s       -     1.00    -            -       -

POOL       ENGINE             TTFT         TBT                AGE   VERSUS POOL
h100-east  10.20.30.101:8000  1.23s ±46ms  (21.3ms ±0.031ms)  1.0s  ttft 3.2×, z 8.0
h100-east  10.20.30.102:8000  -            -                  -     -
h100-east  10.20.30.103:8000  -            -                  -     usual

by their own word:
POOL       ENGINE             READY    SPEAKS  RUNNING  WAITING  KV   TTFT   TBT  AGE
h100-east  10.20.30.101:8000  ready    vllm    0        (5)      50%  250ms  -    0.4s
h100-east  10.20.30.102:8000  unready  -       -        -        -    -      -    -
h100-east  10.20.30.103:8000  ready    -       -        -        -    -      -    -

notes:
- pool h100-east: factor 0.80: TTFT is 812 ms where the profile says 300 ms at a load of 120 %, and
  so on
- pool h100-east, engine 10.20.30.101:8000: TTFT is 1.23s, 3.2× the pool's median, z = 8.0
- pool h100-east, engine 10.20.30.101:8000: 5 requests are waiting, where the pool's median is 0, z
  = 5.0
- pool h100-east, engine 10.20.30.102:8000: connection refused

` + beliefsLegend + "\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for _, line := range strings.Split(text.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
