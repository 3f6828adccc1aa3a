package solver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func TestSummarise(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		change func(*fleet.State)
		want   Summary
	}{
		// 20 of 250 RPS go from B to C.
		"optimal": {fleet.PolicyOptimal, func(*fleet.State) {}, Summary{MeanSeconds: 0.25184, MaxUtilisation: 1, AwayShare: 0.08}},
		"nearest": {fleet.PolicyNearest, func(*fleet.State) {}, Summary{
			MeanSeconds: (90*0.247 + 120*0.262 + 40*0.227) / 250, MaxUtilisation: 1.2,
			Why: "planned above capacity, requests wait ever longer: B (120 %)",
		}},
		// Of the pools that are ready, C is B's nearest.
		"the nearest is down": {fleet.PolicyNearest, func(s *fleet.State) {
			ready(s, "B", fleet.Unready)
			ask(s, "A", "chat", 0)
			ask(s, "C", "chat", 0)
			ask(s, "B", "chat", 40)
		}, Summary{MeanSeconds: 0.06 + 0.225, MaxUtilisation: 0.5}},
		"shedding": {fleet.PolicyWaterfall, func(s *fleet.State) { ask(s, "B", "chat", 170) }, Summary{
			// A's and C's are at home, B's hundred too; 40 go to C and 10 to A.
			MeanSeconds: 0.25 + (230*0.002+40*0.06+10*0.08)/280, MaxUtilisation: 1, ShedRps: 20, AwayShare: 50. / 280,
			Why: "capacity is short: refusing 20 RPS of chat (B 20); full pools: A, B, C",
		}},
		"nobody asks": {fleet.PolicyEven, func(s *fleet.State) { clear(s.Demand) }, Summary{
			MeanSeconds: 0.2 + (0.202+0.142+0.182)/9,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := talk()
			c.change(s)
			c.want.Policy = c.policy
			if diff := cmp.Diff(c.want, Summarise(s, planBy(t, c.policy, s)), near(1e-9)); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}
