package solver

import (
	"slices"

	"weir/fleet"
)

// The proportional policy is the loop that balancers of engines had before there was
// a model of them: every tick each pool's weight goes up if its latency is below the
// average of its class, and down if it is above. It is here to compare with. Its
// signals tell of the past, and it does not know what its own last step will do:
// a pool that traffic leaves cools down, looks free, and gets it all back.
const (
	// gain is by which part of itself a weight changes where the latency is off by
	// as much as the average.
	gain = 0.5
	// maxStep bounds the change in one tick, as a part of the weight.
	maxStep = 0.25
	// trickle is the least weight, in parts of an even one: without requests a pool
	// could never show that it is well again.
	trickle = 0.02
)

// proportional corrects the shares of the previous plan, or even ones where there are
// none.
func proportional(m *model) rule {
	f := &feedback{m, m.plannedWork()}
	corrections := map[*class][]float64{}
	for _, c := range m.classes {
		if c.ready() {
			corrections[c] = f.corrections(c)
		}
	}
	return func(st *stream) []float64 {
		start := normalised(even(m, st.options))
		parts := before(st)
		if parts == nil {
			parts = slices.Clone(start)
		}
		for j, factor := range corrections[st.class] {
			parts[j] = max(parts[j]*factor, trickle*start[j])
		}
		return parts
	}
}

// feedback is what is known of how pools do.
type feedback struct {
	*model
	planned []float64 // by pool: work that the previous plan gave it
}

// plannedWork is the work of the previous plan by pool, engine-seconds per second.
func (m *model) plannedWork() []float64 {
	work := make([]float64, len(m.pools))
	for _, st := range m.streams {
		if st.previous == nil {
			continue
		}
		for _, o := range st.options {
			admitted := st.previous.DemandRps - st.previous.ShedRps
			work[o.pool.index] += o.work * admitted * st.previous.ShareOf(o.pool.ID)
		}
	}
	return work
}

// before are the shares that the previous plan gave to options that are ready; nil:
// none.
func before(st *stream) []float64 {
	if st.previous == nil {
		return nil
	}
	parts := make([]float64, len(st.options))
	for j, o := range st.options {
		if o.ready() {
			parts[j] = st.previous.ShareOf(o.pool.ID)
		}
	}
	return normalised(parts)
}

// corrections are by what the weight of each option is multiplied. The average is over
// the engines that may serve the class: those of another model say nothing about it.
func (f *feedback) corrections(c *class) []float64 {
	scores, engines := f.scores(c), normalised(even(f.model, c.options))
	mean := 0.0
	for j, score := range scores {
		mean += engines[j] * score
	}
	factors := make([]float64, len(scores))
	for j, score := range scores {
		factors[j] = 1
		if mean > 0 {
			factors[j] += min(max(gain*(mean-score)/mean, -maxStep), maxStep)
		}
	}
	return factors
}

// scores are the seconds that a request of the class spends at each of its options as
// far as is known, TTFT and decoding as the class weighs them; 0 where no engine is
// ready. Less is better. What decoding takes at a pool that does not tell is taken for
// what it takes at the fastest.
func (f *feedback) scores(c *class) []float64 {
	scores, tbts := make([]float64, len(c.options)), make([]float64, len(c.options))
	fastest, known := 0.0, false
	for j, o := range c.options {
		if tbt, ok := f.tbt(o.pool); ok && o.ready() {
			tbts[j] = tbt
			if !known || tbt < fastest {
				fastest, known = tbt, true
			}
		}
	}
	for j, o := range c.options {
		if !o.ready() {
			continue
		}
		tbt := max(tbts[j], fastest)
		scores[j] = c.Weights.TTFT*f.ttft(o.pool) + c.Weights.TBT*f.output(c, o.pool)*tbt
	}
	return scores
}

// output is how many tokens a mean answer has.
func (f *feedback) output(c *class, p *pool) float64 {
	if size := f.state.TokensOf(c.Class); size != (fleet.Tokens{}) {
		return size.Output
	}
	return p.Profile.Reference.Output
}

// ttft is a pool's time to first token as front-ends see it, or what the profile says
// of its load.
func (f *feedback) ttft(p *pool) float64 {
	if seen := f.signals(p).TTFTSeconds; seen.Fresh() {
		return seen.Value
	}
	return p.Profile.TTFT.At(f.loadOf(p))
}

// tbt is a pool's time between tokens as front-ends see it, else as its engines tell,
// else what the profile says of its load; false: none does.
func (f *feedback) tbt(p *pool) (float64, bool) {
	signals := f.signals(p)
	if signals.TBTSeconds.Fresh() {
		return signals.TBTSeconds.Value, true
	}
	sum, n := 0.0, 0.0
	for _, id := range p.Engines { // in order, so that the sum is the same each time
		if tbt := signals.Engines[id].TBTSeconds; tbt.Fresh() {
			sum += tbt.Value
			n++
		}
	}
	if n > 0 {
		return sum / n, true
	}
	return p.Profile.TBT.At(f.loadOf(p)), len(p.Profile.TBT) > 0
}

// loadOf is a replica's utilisation as it is measured, or as the previous plan meant
// it to be.
func (f *feedback) loadOf(p *pool) float64 {
	if p.replicas == 0 {
		return 0
	}
	if load := f.signals(p).Load; load.Fresh() {
		return load.Value * float64(f.state.ReadyEngines(p.Pool)) / p.replicas
	}
	return f.planned[p.index] / p.replicas
}

// signals are what is measured of a pool; nothing where the fleet file rules.
func (f *feedback) signals(p *pool) fleet.PoolSignals {
	if f.state.Fleet.Options.DeclaredOnly {
		return fleet.PoolSignals{}
	}
	return f.state.Pools[p.ID].Signals
}
