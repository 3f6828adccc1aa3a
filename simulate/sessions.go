package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sessions describe made-up conversations: they begin as a Poisson process, have a
// geometric number of turns, and a client thinks between an answer and its next turn.
// Each turn repeats all that was said before.
type Sessions struct {
	Mix           Mix     // requests, not conversations
	Turns         float64 // of a conversation, in the mean; at least 1
	ThinkSeconds  float64 // in the mean, exponential
	AnswerSeconds float64 // that an answer takes, roughly: so many conversations are under way at the start
	System        int     // tokens at the start of every conversation, the same in all of a class
	Prompt        Sizes   // new tokens of a turn
	Output        Sizes
	Longest       int // tokens of a context; a conversation that has reached them ends
	BlockTokens   int
}

// Sizes are log-normal numbers of tokens.
type Sizes struct {
	Mean  float64
	Sigma float64 // of the logarithm
}

func (s Sizes) draw(r *rand.Rand) int {
	x := s.Mean * math.Exp(s.Sigma*r.NormFloat64()-s.Sigma*s.Sigma/2)
	return max(1, int(math.Round(x)))
}

// MaxTalks bounds the conversations that are under way at once: each keeps what it has
// said, a kilobyte or so. A run begins with all of them.
const MaxTalks = 1_000_000

// UnderWay is how many conversations are, about.
func (s *Sessions) UnderWay() float64 { return s.Mix.Rps() * (s.AnswerSeconds + s.ThinkSeconds) }

// check returns what is wrong with a description.
func (s *Sessions) check() error {
	if err := s.Mix.check(); err != nil {
		return err
	}
	size := func(tokens float64) bool { return tokens > 0 && tokens <= maxTokens }
	switch {
	case !(s.Turns >= 1) || !(s.ThinkSeconds > 0) || !(s.AnswerSeconds >= 0) || s.BlockTokens < 1 || s.Longest < 1:
		return fmt.Errorf("sessions %+v: want at least one turn, a block and a longest context", *s)
	case s.System < 0 || s.System > maxTokens || !size(s.Prompt.Mean) || !size(s.Output.Mean):
		return fmt.Errorf("sessions %+v: want sizes of up to %d tokens", *s, maxTokens)
	case !(s.UnderWay() <= MaxTalks):
		return fmt.Errorf("%.3g conversations under way at once: want at most %d", s.UnderWay(), MaxTalks)
	}
	return nil
}

// talks is the workload that sessions describe.
type talks struct {
	Sessions
	luck    *rand.Rand
	seed    uint64
	number  uint64    // of conversations so far
	perSec  float64   // conversations that begin at the busiest time
	next    float64   // when one might begin
	waiting []Request // of conversations that had begun before the start, the earliest last
	said    []Request // their turns before
	all     []talk
	free    []int32
}

// talk is a conversation.
type talk struct {
	luck    *rand.Rand
	context []uint64
	tokens  int
}

// New returns a workload of such conversations. The same seed makes the same.
func (s Sessions) New(seed uint64) (Workload, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	t := &talks{Sessions: s, seed: mix(seed), luck: rand.New(rand.NewPCG(seed, 1))}
	t.perSec = s.Mix.busiest() / s.Turns
	t.next = t.luck.ExpFloat64() / t.perSec
	t.underWay()
	return t, nil
}

// Past implements [Workload]: it is what the conversations under way have said.
func (t *talks) Past() []Request { return t.said }

// underWay makes the conversations that are between two turns at the start: their next
// turns come as often as later ones do, as long as the turns before them can have been
// before the start. As turns are geometric, what is left of each is like a whole one.
func (t *talks) underWay() {
	followUps := t.Mix.Rps() * (1 - 1/t.Turns)
	end := t.AnswerSeconds + 12*t.ThinkSeconds // later there are fewer than one in 100,000
	for at := t.luck.ExpFloat64() / followUps; at < end; at += t.luck.ExpFloat64() / followUps {
		if began := math.Exp(-(at - t.AnswerSeconds) / t.ThinkSeconds); t.luck.Float64() >= began {
			continue
		}
		r := t.begin(at)
		before := r
		for r.Turn == 0 || t.all[r.talk].goesOn(t) {
			before = r
			r.Turn++
			t.all[r.talk].turn(t, &r)
		}
		t.waiting, t.said = append(t.waiting, r), append(t.said, before)
	}
	slices.Reverse(t.waiting)
}

// Next implements [Workload].
func (t *talks) Next() (Request, bool) {
	for {
		if n := len(t.waiting); n > 0 && t.waiting[n-1].At <= t.next {
			r := t.waiting[n-1]
			t.waiting = t.waiting[:n-1]
			return r, true
		}
		at := t.next
		t.next += t.luck.ExpFloat64() / t.perSec
		if t.luck.Float64()*t.Mix.busiest() < t.Mix.rateAt(at) {
			return t.begin(at), true
		}
	}
}

// begin makes the first turn of a conversation.
func (t *talks) begin(at float64) Request {
	src := t.Mix.pick(at, t.luck.Float64())
	t.number++
	key := mix(t.seed + t.number)
	id := int32(len(t.all))
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.all = append(t.all, talk{})
	}
	t.all[id] = talk{luck: rand.New(rand.NewPCG(key, 2)), tokens: t.System}
	r := Request{At: at, FrontEnd: src.FrontEnd, Class: src.Class, Key: key, talk: id}
	t.all[id].turn(t, &r)
	return r
}

// turn fills in what a turn asks for, and grows the conversation by it.
func (c *talk) turn(t *talks, r *Request) {
	r.Prompt = c.tokens + t.Prompt.draw(c.luck)
	r.Output = t.Output.draw(c.luck)
	c.tokens = r.Prompt + r.Output
	// A fresh slice for each turn would do, but a grown one only adds behind what
	// earlier turns see.
	for i := len(c.context); i < c.tokens/t.BlockTokens; i++ {
		name := r.Key
		if (i+1)*t.BlockTokens <= t.System {
			name = uint64(r.Class)
		}
		c.context = append(c.context, mix(mix(name)^uint64(i)))
	}
	r.Context = c.context
}

// goesOn says whether there will be another turn.
func (c *talk) goesOn(t *talks) bool {
	return c.tokens < t.Longest && c.luck.Float64() >= 1/t.Turns
}

// After implements [Workload].
func (t *talks) After(r *Request, end float64) (Request, bool) {
	c := &t.all[r.talk]
	if !c.goesOn(t) {
		*c = talk{}
		t.free = append(t.free, r.talk)
		return Request{}, false
	}
	next := *r
	next.At, next.Turn = end+t.ThinkSeconds*c.luck.ExpFloat64(), r.Turn+1
	c.turn(t, &next)
	return next, true
}
