package signals

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/fleet"
)

// What is not known of a pool has no sample; a zero that was told has one.
func TestFiguresOfBeliefs(t *testing.T) {
	var round fleet.Round
	r := prometheus.NewPedanticRegistry()
	if err := RegisterBeliefs(r, func() fleet.Round { return round }); err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	expect("") // before the first round
	now := time.Now()
	round.State = &fleet.State{Pools: map[fleet.PoolID]fleet.PoolState{
		"silent": {},
		"idle": {CapacityFactor: 1, Signals: fleet.PoolSignals{
			Engines: map[fleet.EngineID]fleet.EngineSignals{"a": {}}, Load: fleet.Reading{At: now},
		}},
		"sick": {CapacityFactor: 0.5, Signals: fleet.PoolSignals{
			Engines: map[fleet.EngineID]fleet.EngineSignals{"a": {Why: "no page in time"}, "b": {Dialect: "vllm", Why: "frozen"}, "c": {}},
			Load:    fleet.Reading{Value: 0.75, At: now},
		}},
	}}
	expect(`
# HELP weir_signals_capacity_factor What the evidence makes of a pool's profile; absent: there is none.
# TYPE weir_signals_capacity_factor gauge
weir_signals_capacity_factor{pool="idle"} 1
weir_signals_capacity_factor{pool="sick"} 0.5
# HELP weir_signals_engines_stale Engines of a pool whose metrics are asked for and not believed; absent: none were asked for.
# TYPE weir_signals_engines_stale gauge
weir_signals_engines_stale{pool="idle"} 0
weir_signals_engines_stale{pool="sick"} 2
# HELP weir_signals_load Work that each ready engine of a pool is sent, 1 being what its profile promises; absent: none was reported.
# TYPE weir_signals_load gauge
weir_signals_load{pool="idle"} 0
weir_signals_load{pool="sick"} 0.75
`)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
