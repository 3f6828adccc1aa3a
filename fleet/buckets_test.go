package fleet_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"weir/fleet"
)

func times() *rapid.Generator[[]float64] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 {
		return math.Exp2(rapid.Float64Range(-16, 11.9).Draw(t, "log2"))
	}), 1, 200)
}

func bucketsOf(seconds []float64) (b fleet.Buckets) {
	for _, s := range seconds {
		b.Observe(s)
	}
	return b
}

func TestQuantilesAreWithinABin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := times().Draw(t, "times")
		b := bucketsOf(all)
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		if got, want := b.Count(), uint64(len(all)); got != want {
			t.Fatalf("count %d, want %d", got, want)
		}
		slices.Sort(all)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
		got := b.Quantile(q)
		if want < fleet.BinBound(0) {
			want = got // all short times are one
		}
		if ratio := got / want; ratio > math.Exp2(0.1)+1e-9 || ratio < math.Exp2(-0.1)-1e-9 {
			t.Errorf("quantile %v: %v s, the truth is %v s", q, got, want)
		}
	})
}

func TestBucketsMergeByAddition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := times().Draw(t, "times")
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		got, more := bucketsOf(all[cut:]), bucketsOf(all[:cut])
		got.Add(more)
		want := bucketsOf(all)
		if diff := cmp.Diff(got, want, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("merged (-got +want):\n%s", diff)
		}
	})
}

func TestBoundsBelongToTheirBin(t *testing.T) {
	for i := range fleet.Bins {
		var b fleet.Buckets
		b.Observe(fleet.BinBound(i))
		if got := b.Bins[0].Index; got != i {
			t.Errorf("the bound of bin %d is in bin %d", i, got)
		}
		if err := b.Check(); err != nil {
			t.Errorf("bin %d: %v", i, err)
		}
	}
}

func TestOddTimes(t *testing.T) {
	var b fleet.Buckets
	for _, s := range []float64{-1, 0, math.Inf(-1), math.Inf(1), math.NaN(), 1e300} {
		b.Observe(s)
	}
	want := fleet.Buckets{Sum: 2 * 4096, Bins: []fleet.Bin{{Index: 0, Count: 3}, {Index: fleet.Bins - 1, Count: 2}}}
	if diff := cmp.Diff(b, want); diff != "" {
		t.Errorf("odd times (-got +want):\n%s", diff)
	}
	var none fleet.Buckets
	if q, m := none.Quantile(0.5), none.Mean(); !math.IsNaN(q) || !math.IsNaN(m) {
		t.Errorf("of nothing: quantile %v, mean %v; want NaN", q, m)
	}
}

func TestNobodyCountedThis(t *testing.T) {
	tests := map[string]fleet.Buckets{
		"a bin that does not exist": {Sum: 5000, Bins: []fleet.Bin{{Index: fleet.Bins, Count: 1}}},
		"a bin below the first":     {Bins: []fleet.Bin{{Index: -1, Count: 1}}},
		"twice the same bin":        {Sum: 0, Bins: []fleet.Bin{{Index: 0, Count: 1}, {Index: 0, Count: 1}}},
		"an empty bin":              {Sum: 0, Bins: []fleet.Bin{{Index: 0}}},
		"too many":                  {Sum: 1, Bins: []fleet.Bin{{Index: 70, Count: math.MaxUint64}}},
		"a sum too large":           {Sum: 2, Bins: []fleet.Bin{{Index: 70, Count: 1}}},
		"a sum too small":           {Sum: 0.1, Bins: []fleet.Bin{{Index: 70, Count: 1}}},
		"a sum of nothing":          {Sum: 1},
		"no number":                 {Sum: math.NaN(), Bins: []fleet.Bin{{Index: 70, Count: 1}}},
		"infinity":                  {Sum: math.Inf(1), Bins: []fleet.Bin{{Index: 70, Count: 1}}},
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			if err := b.Check(); err == nil {
				t.Errorf("%+v is believed", b)
			}
		})
	}
}

func TestTokensOfAMeanRequest(t *testing.T) {
	if got, want := (fleet.TokenLoad{Requests: 4, Prompt: 400, Output: 20}).Mean(), (fleet.Tokens{Prompt: 100, Output: 5}); got != want {
		t.Errorf("mean %v, want %v", got, want)
	}
	if got := (fleet.TokenLoad{}).Mean(); got != (fleet.Tokens{}) {
		t.Errorf("mean of nothing is %v, want zero: the prior", got)
	}
}
