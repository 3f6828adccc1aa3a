package extproc

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/fleet"
)

// keys of the statistical tests, always the same.
const keys = 200_000

func eachKey(do func(key uint64)) {
	r := rand.New(rand.NewPCG(1, 2))
	for range keys {
		do(r.Uint64())
	}
}

// zScore says how many standard deviations a count is from its expectation.
func zScore(count, n int, share float64) float64 {
	return (float64(count) - float64(n)*share) / math.Sqrt(float64(n)*share*(1-share))
}

func checkShare(t *testing.T, what string, count, n int, share float64) {
	t.Helper()
	if z := zScore(count, n, share); math.Abs(z) >= 4 {
		t.Errorf("%s: %d of %d, want a share of %.4f: z = %.1f", what, count, n, share, z)
	}
}

// choose is where a key goes as long as no engine is full.
func (c *class) choose(key uint64) choice {
	s := c.rank(key)
	if s.home == nil {
		return choice{}
	}
	return s.choice(s.own, false)
}

// classWith is the class of a view with these pools.
func classWith(pools ...fleet.ViewPool) *class {
	v := twoPools()
	v.Classes[0].Pools = pools
	return NewTable(v).routes[0].class
}

func talk() []fleet.ViewPool {
	return []fleet.ViewPool{
		viewPool("amber", 100_000, 3),
		viewPool("blue", 6_400_000, 20),
		viewPool("coral", 2_500_000, 7),
		viewPool("dusk", 0, 4),
		viewPool("ebony", 1_000_000, 1),
	}
}

func TestSharesMatchWeights(t *testing.T) {
	t.Parallel()
	pools := talk()
	c := classWith(pools...)
	got := map[fleet.EngineID]int{}
	eachKey(func(key uint64) { choice := c.choose(key); got[choice.first().id]++ })
	for _, p := range pools {
		share := float64(p.Weight) / fleet.WeightScale
		inPool := 0
		for _, e := range p.Engines {
			inPool += got[e.ID]
			if share == 0 {
				continue
			}
			checkShare(t, "engine "+string(e.ID), got[e.ID], keys, share/float64(len(p.Engines)))
		}
		if share == 0 && inPool > 0 {
			t.Errorf("pool %s has no share and got %d", p.ID, inPool)
		} else if share > 0 {
			checkShare(t, "pool "+string(p.ID), inPool, keys, share)
		}
	}
}

// Names as clients write them spread as well as random numbers do.
func TestSharesOfLikeNames(t *testing.T) {
	t.Parallel()
	c := classWith(viewPool("a", 1, 8))
	got := map[fleet.EngineID]int{}
	for i := range keys {
		name := []byte{'s', '-', byte('0' + i/100_000), byte('0' + i/10_000%10), byte('0' + i/1000%10), byte('0' + i/100%10), byte('0' + i/10%10), byte('0' + i%10)}
		choice := c.choose(hashOfName(name))
		got[choice.first().id]++
	}
	if len(got) != 8 {
		t.Errorf("%d engines got keys, want 8", len(got))
	}
	for e, n := range got {
		checkShare(t, string(e), n, keys, 1.0/8)
	}
}

// Whom a retry goes to is spread by the weights of the pools that are left.
func TestAlternativesAreSpread(t *testing.T) {
	t.Parallel()
	c := classWith(viewPool("a", 5_000_000, 2), viewPool("b", 4_000_000, 2), viewPool("c", 1_000_000, 2))
	second := map[string]int{}
	n := 0
	eachKey(func(key uint64) {
		choice := c.choose(key)
		if poolOf(choice.first().id) == "a" {
			n++
			second[poolOf(choice.engines[1].id)]++
		}
	})
	checkShare(t, "b after a", second["b"], n, 0.8)
	checkShare(t, "c after a", second["c"], n, 0.2)
}

// Shedding takes from all engines alike.
func TestAdmissionIsIndependentOfTheChoice(t *testing.T) {
	t.Parallel()
	c := classWith(viewPool("a", 3_000_000, 2), viewPool("b", 7_000_000, 2))
	got := map[string]int{}
	n := 0
	eachKey(func(key uint64) {
		if c.draw(key) < 0.3 {
			n++
			choice := c.choose(key)
			got[poolOf(choice.first().id)]++
		}
	})
	checkShare(t, "admitted", n, keys, 0.3)
	checkShare(t, "a", got["a"], n, 0.3)
	checkShare(t, "b", got["b"], n, 0.7)
}

// A raised weight moves the share that it must, and only towards what it raises;
// inside the pools nothing moves.
func TestRaisedWeight(t *testing.T) {
	t.Parallel()
	before := classWith(viewPool("a", 4_000_000, 3), viewPool("b", 4_000_000, 3), viewPool("c", 2_000_000, 3))
	after := classWith(viewPool("a", 4_000_000, 3), viewPool("b", 4_000_000, 3), viewPool("c", 3_000_000, 3))
	moved := 0
	eachKey(func(key uint64) {
		was, is := before.choose(key), after.choose(key)
		if was.first().id == is.first().id {
			return
		}
		moved++
		if poolOf(is.first().id) != "c" || poolOf(was.first().id) == "c" {
			t.Fatalf("key %d moved from %s to %s", key, was.first().id, is.first().id)
		}
	})
	checkShare(t, "moved", moved, keys, 3.0/11-2.0/10)
}

// One of twenty engines that weighs a tenth more: keys move only towards it, and as
// many as must.
func TestRaisedWeightOfAnEngine(t *testing.T) {
	t.Parallel()
	c := classWith(viewPool("a", 1, 20))
	p := c.pools[0].pool
	before := make([]int32, 0, keys)
	shares := make([]int, 20)
	eachKey(func(key uint64) {
		before = append(before, int32(p.first(key)))
		shares[p.first(key)]++
	})
	for i, n := range shares {
		checkShare(t, string(p.engines[i].id), n, keys, 1.0/20)
	}
	weights := slices.Repeat([]float64{1 / 1.1}, 20)
	weights[7] = 1
	p.state.Store(&poolState{weights: weights, sum: 1 + 19/1.1, inFlight: noLevel})
	moved, i := 0, 0
	eachKey(func(key uint64) {
		if now := p.first(key); now != int(before[i]) {
			if moved++; now != 7 {
				t.Fatalf("key %d moved to engine %d", key, now)
			}
		}
		i++
	})
	checkShare(t, "moved", moved, keys, 1.1/20.1-1.0/20)
}

// The first of a pool is that of its whole ranking.
func TestFirstIsTheFirst(t *testing.T) {
	t.Parallel()
	p := classWith(viewPool("a", 1, 50)).pools[0].pool
	weights := slices.Repeat([]float64{1}, 50)
	for i := range weights {
		weights[i] = float64(1+i) / 50
	}
	for name, state := range map[string]*poolState{"alike": {sum: 50}, "unlike": {weights: weights, sum: 25.5}} {
		p.state.Store(state)
		eachKey(func(key uint64) {
			if key%10 != 0 {
				return
			}
			if r := p.rank(key); int(r.best[0]) != p.first(key) {
				t.Fatalf("%s, key %d: %d and %d", name, key, p.first(key), r.best[0])
			}
		})
	}
}

// What leaves moves only its own keys, to where a retry would have gone inside
// the pool.
func TestUnreadyEngine(t *testing.T) {
	t.Parallel()
	pools := talk()
	before := classWith(pools...)
	gone := pools[1].Engines[4].ID
	pools[1].Engines[4].Readiness = fleet.Unready
	after := classWith(pools...)
	moved := 0
	eachKey(func(key uint64) {
		was, is := before.choose(key), after.choose(key)
		if was.first().id == is.first().id {
			return
		}
		moved++
		if was.first().id != gone || poolOf(is.first().id) != "b" {
			t.Fatalf("key %d moved from %s to %s", key, was.first().id, is.first().id)
		}
	})
	checkShare(t, "moved", moved, keys, 0.64/20)
}

func TestChoose(t *testing.T) {
	t.Parallel()
	unready := func(p fleet.ViewPool) fleet.ViewPool {
		for i := range p.Engines {
			p.Engines[i].Readiness = fleet.Unready
		}
		return p
	}
	unknown := viewPool("u", 5, 1)
	unknown.Engines[0].Readiness = fleet.Unknown
	tests := []struct {
		name  string
		pools []fleet.ViewPool
		want  []string // pools of the choice, in order
	}{
		{"none", nil, nil},
		{"none ready", []fleet.ViewPool{unready(viewPool("a", 5, 3))}, nil},
		{"one engine", []fleet.ViewPool{viewPool("a", 5, 1)}, []string{"a"}},
		{"one pool", []fleet.ViewPool{viewPool("a", 5, 9)}, []string{"a", "a", "a", "a"}},
		{"unknown is not unready", []fleet.ViewPool{unknown}, []string{"u"}},
		{"the share is sick", []fleet.ViewPool{unready(viewPool("a", 5, 3)), viewPool("b", 0, 2)}, []string{"b", "b"}},
		{"another pool with a share first", []fleet.ViewPool{viewPool("a", 1e9, 2), viewPool("b", 1, 2), viewPool("c", 0, 2)}, []string{"a", "b", "a", "c"}},
		{"a pool without a share last", []fleet.ViewPool{viewPool("a", 1, 2), unready(viewPool("b", 5, 1)), viewPool("c", 0, 2)}, []string{"a", "a", "c"}},
		{"share before none", []fleet.ViewPool{viewPool("a", 1, 1), viewPool("b", 0, 1), viewPool("c", 0, 1), viewPool("d", 0, 1), viewPool("e", 0, 1)}, []string{"a", "*", "*", "*"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := classWith(tt.pools...)
			for key := range uint64(100) {
				choice := c.choose(mix(key))
				if choice.n != len(tt.want) {
					t.Fatalf("%d engines, want %d", choice.n, len(tt.want))
				}
				for i, want := range tt.want {
					if got := poolOf(choice.engines[i].id); got != want && (want != "*" || got == "a") {
						t.Errorf("engine %d is of pool %s, want %s", i, got, want)
					}
				}
			}
		})
	}
}

// The ranking is the one that sorting all scores gives.
func TestRankingIsASort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type candidate struct{ weight, draw float64 }
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) candidate {
			weight := rapid.SampledFrom([]float64{noShare, 0.3, 1, 7e6}).Draw(t, "weight")
			return candidate{weight, unit(rapid.Uint64().Draw(t, "hash"))}
		}), 0, 40).Draw(t, "candidates")
		var got ranking
		for i := range all {
			got.add(i, all[i].weight, all[i].draw)
		}
		want := slices.Clone(all)
		slices.SortStableFunc(want, func(a, b candidate) int {
			return cmp.Compare(score(b.weight, b.draw), score(a.weight, a.draw))
		})
		if got.n != min(attempts, len(all)) {
			t.Fatalf("%d ranked of %d", got.n, len(all))
		}
		for i, place := range got.best[:got.n] {
			if all[place] != want[i] {
				t.Fatalf("place %d: got %v, want %v", i, all[place], want[i])
			}
		}
	})
}

// drawPools are up to six pools with ready and unready engines.
func drawPools(t *rapid.T) []fleet.ViewPool {
	var pools []fleet.ViewPool
	for i := range rapid.IntRange(0, 6).Draw(t, "pools") {
		weight := rapid.SampledFrom([]uint32{0, 1, 1000, 5_000_000, fleet.WeightScale}).Draw(t, "weight")
		p := viewPool(string(rune('a'+i)), weight, rapid.IntRange(1, 6).Draw(t, "engines"))
		for j := range p.Engines {
			p.Engines[j].Readiness = fleet.Readiness(rapid.IntRange(0, 3).Draw(t, "readiness"))
		}
		pools = append(pools, p)
	}
	return pools
}

func TestChoiceLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		choice := classWith(pools...).choose(rapid.Uint64().Draw(t, "key"))
		ready, share := map[fleet.EngineID]bool{}, map[string]uint32{}
		for _, p := range pools {
			for _, e := range p.Engines {
				ready[e.ID] = e.Readiness.Serves()
			}
			if p.ReadyEngines() > 0 {
				share[string(p.ID)] = p.Weight
			}
		}
		checkChoice(t, choice, ready, share)
	})
}

func checkChoice(t *rapid.T, choice choice, ready map[fleet.EngineID]bool, share map[string]uint32) {
	count := 0
	for _, ok := range ready {
		if ok {
			count++
		}
	}
	if count > 0 && choice.n == 0 || choice.n > count {
		t.Fatalf("%d engines chosen of %d", choice.n, count)
	}
	seen, pools := map[fleet.EngineID]bool{}, map[string]bool{}
	for _, e := range choice.engines[:choice.n] {
		pool := poolOf(e.id)
		if !ready[e.id] || seen[e.id] {
			t.Fatalf("engine %s is unready, or chosen twice", e.id)
		}
		for other, w := range share {
			if w > 0 && !pools[other] && pool != other && (pools[pool] || share[pool] == 0) {
				t.Fatalf("pool %s comes again, or without a share, before %s that has one", pool, other)
			}
		}
		seen[e.id], pools[pool] = true, true
	}
}

// Replicas that read their pools and engines in another order choose alike.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		key := rapid.Uint64().Draw(t, "key")
		want := classWith(pools...).choose(key)
		other := rapid.Permutation(pools).Draw(t, "pools")
		for i := range other {
			other[i].Engines = slices.Clone(other[i].Engines)
			slices.Reverse(other[i].Engines)
		}
		got := classWith(other...).choose(key)
		if got.n != want.n {
			t.Fatalf("%d and %d engines", got.n, want.n)
		}
		for i := range want.n {
			if got.engines[i].id != want.engines[i].id {
				t.Fatalf("engine %d: %s and %s", i, got.engines[i].id, want.engines[i].id)
			}
		}
	})
}

// Known values: a change of the hash would move every conversation at an upgrade.
func TestChoiceIsStable(t *testing.T) {
	t.Parallel()
	c := classWith(talk()...)
	for name, want := range map[string]fleet.EngineID{
		"alpha":   "10.98.0.10:8000",
		"beta":    "10.98.0.1:8000",
		"delta":   "10.99.0.1:8000",
		"s-1":     "10.99.0.6:8000",
		"user-42": "10.98.0.3:8000",
	} {
		choice := c.choose(hashOfName([]byte(name)))
		if got := choice.first().id; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
