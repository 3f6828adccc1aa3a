package fleet_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/fleet"
)

func TestWeightsSumToTheScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Float64Range(1e-12, 1), 1, 50).Draw(t, "raw")
		total := 0.0
		for _, x := range raw {
			total += x
		}
		shares := make([]fleet.Share, len(raw))
		for i, x := range raw {
			shares[i].Share = x / total
		}
		sum := 0
		for i, w := range fleet.Weights(shares) {
			if w == 0 {
				t.Fatalf("share %v weighs nothing", shares[i].Share)
			}
			if want := shares[i].Share * fleet.WeightScale; want > 100 && math.Abs(float64(w)-want) > float64(len(raw)) {
				t.Fatalf("share %v weighs %d, want about %.1f", shares[i].Share, w, want)
			}
			sum += int(w)
		}
		if sum != fleet.WeightScale {
			t.Fatalf("weights sum to %d, want %d", sum, fleet.WeightScale)
		}
	})
}

func TestWeightsOfTiesGoToTheLowerID(t *testing.T) {
	third := fleet.Share{Share: 1.0 / 3}
	got := fleet.Weights([]fleet.Share{third, third, third})
	if diff := cmp.Diff(got, []uint32{3_333_334, 3_333_333, 3_333_333}); diff != "" {
		t.Errorf("Weights (-got +want):\n%s", diff)
	}
	if got := fleet.Weights(nil); len(got) != 0 {
		t.Errorf("Weights(nil) = %v, want none", got)
	}
}

func TestCurve(t *testing.T) {
	c := fleet.Curve{{Utilisation: 0.2, Seconds: 1}, {Utilisation: 0.6, Seconds: 2}, {Utilisation: 1, Seconds: 4}}
	for at, want := range map[float64]float64{0: 1, 0.2: 1, 0.4: 1.5, 0.6: 2, 0.8: 3, 1: 4, 1.2: 5} {
		if got := c.At(at); math.Abs(got-want) > 1e-12 {
			t.Errorf("At(%v) = %v, want %v", at, got, want)
		}
	}
	if got := (fleet.Curve{{Utilisation: 0, Seconds: 3}}).At(9); got != 3 {
		t.Errorf("a curve of one point is %v, want 3 everywhere", got)
	}
	if got := fleet.Curve(nil).At(1); got != 0 {
		t.Errorf("an empty curve is %v, want 0", got)
	}
}

func TestWork(t *testing.T) {
	p := fleet.Profile{CapacityRps: 4, Reference: fleet.Tokens{Prompt: 800, Output: 50}, OutputTokenCost: 4}
	for name, c := range map[string]struct {
		tokens fleet.Tokens
		want   float64
	}{
		"the reference request":     {p.Reference, 0.25},
		"unknown size":              {fleet.Tokens{}, 0.25},
		"twice the reference":       {fleet.Tokens{Prompt: 1600, Output: 100}, 0.5},
		"output costs four prompts": {fleet.Tokens{Prompt: 0, Output: 250}, 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.Work(c.tokens); math.Abs(got-c.want) > 1e-12 {
				t.Errorf("Work = %v engine-seconds, want %v", got, c.want)
			}
		})
	}
}

// What is cached costs nothing where the profile says how warm its reference was, and a
// prompt costs a token at least; else whole prompts are compared.
func TestWorkOfCachedPrompts(t *testing.T) {
	cold := fleet.Profile{CapacityRps: 4, Reference: fleet.Tokens{Prompt: 800, Output: 50}, OutputTokenCost: 4, CacheStated: true}
	warm, silent := cold, cold
	warm.Reference.Cached, silent.CacheStated = 600, false
	asked := fleet.Tokens{Prompt: 1600, Output: 50, Cached: 1200} // 400 are computed
	for name, c := range map[string]struct {
		profile fleet.Profile
		tokens  fleet.Tokens
		want    float64
	}{
		"of a reference that was computed": {cold, asked, 0.25 * 600 / 1000},
		"of a warm reference":              {warm, asked, 0.25 * 600 / 400},
		"of one of which nobody knows":     {silent, asked, 0.25 * 1800 / 1000},
		"all of it":                        {cold, fleet.Tokens{Prompt: 800, Cached: 900}, 0.25 * 1 / 1000},
		"the reference":                    {warm, warm.Reference, 0.25},
		"unknown size":                     {warm, fleet.Tokens{}, 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.profile.Work(c.tokens); math.Abs(got-c.want) > 1e-12 {
				t.Errorf("Work = %v engine-seconds, want %v", got, c.want)
			}
		})
	}
}

func TestQueueingCountsBothRises(t *testing.T) {
	p := fleet.Profile{
		Reference: fleet.Tokens{Prompt: 1, Output: 100},
		TTFT:      fleet.Curve{{Utilisation: 0, Seconds: 0.2}, {Utilisation: 1, Seconds: 0.5}},
		TBT:       fleet.Curve{{Utilisation: 0, Seconds: 0.01}, {Utilisation: 1, Seconds: 0.03}},
	}
	if got, want := p.Queueing(0.5), 0.15+100*0.01; math.Abs(got-want) > 1e-12 {
		t.Errorf("Queueing(0.5) = %v s, want %v s", got, want)
	}
}

func TestNamesOfModels(t *testing.T) {
	c := fleet.Class{Match: []fleet.Rule{{Model: "gpt", As: "m"}, {Model: "m"}}, Requires: fleet.Requirements{Models: []string{"m", "n"}}}
	if got := c.Models(); !slices.Equal(got, []string{"m", "n"}) {
		t.Errorf("Models = %q, want what engines serve", got)
	}
	if got := c.Names(); !slices.Equal(got, []string{"gpt", "m", "n"}) {
		t.Errorf("Names = %q, want what clients may ask for", got)
	}
}

func TestEligible(t *testing.T) {
	pool := fleet.Pool{
		Models: []string{"m", "m-lora"}, Region: "eu-1",
		Capabilities: []string{"tools", "vision"}, Labels: map[string]string{"sku": "h100"},
	}
	for name, c := range map[string]struct {
		class fleet.Class
		want  bool
	}{
		"model":             {fleet.Class{Match: []fleet.Rule{{Model: "m"}}}, true},
		"adapter as well":   {fleet.Class{Match: []fleet.Rule{{Model: "m"}, {Model: "m-lora"}}}, true},
		"alias":             {fleet.Class{Match: []fleet.Rule{{Model: "gpt", As: "m"}}}, true},
		"alias of another":  {fleet.Class{Match: []fleet.Rule{{Model: "m", As: "other"}}}, false},
		"another model":     {fleet.Class{Match: []fleet.Rule{{Model: "other"}}}, false},
		"required model":    {fleet.Class{Requires: fleet.Requirements{Models: []string{"other"}}}, false},
		"capability":        {fleet.Class{Requires: fleet.Requirements{Capabilities: []string{"tools"}}}, true},
		"lacks capability":  {fleet.Class{Requires: fleet.Requirements{Capabilities: []string{"audio"}}}, false},
		"label":             {fleet.Class{Requires: fleet.Requirements{Labels: map[string]string{"sku": "h100"}}}, true},
		"another label":     {fleet.Class{Requires: fleet.Requirements{Labels: map[string]string{"sku": "a100"}}}, false},
		"absent label":      {fleet.Class{Requires: fleet.Requirements{Labels: map[string]string{"tier": ""}}}, false},
		"one of the places": {fleet.Class{Requires: fleet.Requirements{Regions: []string{"us-1", "eu-1"}}}, true},
		"another place":     {fleet.Class{Requires: fleet.Requirements{Regions: []string{"us-1"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.class.Eligible(&pool); got != c.want {
				t.Errorf("Eligible = %v, want %v", got, c.want)
			}
		})
	}
}
