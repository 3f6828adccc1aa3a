package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Replay describes the requests of a trace as they would come to a fleet: as often as
// the mix says, from its sources, from a place of the trace that the seed chooses, and
// from its start again at its end. Each time round the conversations are others.
type Replay struct {
	Rows        []Row
	Mix         Mix
	BlockTokens int     // of the rows' blocks; 0: they have none
	Keep        float64 // part of the conversations that are kept, 0–1; 0: all. The mix's rates are before it
	// Speed above 0 plays the trace from its first row on, so many times as fast as it
	// was recorded; of the mix's rates their proportions count alone.
	Speed float64
	// Marked are where rows with these marks come from; others come from Mix.
	Marked map[Marks]Mix
}

// sameTalk is how many blocks of a prompt tell its conversation: all conversations
// may begin with the same one.
const sameTalk = 2

// replay is the workload that a replay describes.
type replay struct {
	Replay
	seed  uint64
	entry int     // the row where the trace was entered
	next  int     // row, counted on from round to round
	lasts float64 // seconds of a round
	speed float64 // of the trace's time
}

// New returns a workload of such requests. The same seed makes the same.
func (p Replay) New(seed uint64) (Workload, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	n := len(p.Rows)
	r := &replay{Replay: p, seed: mix(seed), speed: p.Speed, lasts: Lasts(p.Rows)}
	r.entry = n // a round was before it
	if p.Speed == 0 {
		r.entry += rand.New(rand.NewPCG(seed, 3)).IntN(n)
		r.speed = p.Mix.Rps() / (float64(n) / r.lasts)
	}
	r.next = r.entry
	return r, nil
}

// Lasts is how long a trace takes, in seconds: its last row has its pause, too.
func Lasts(rows []Row) float64 {
	n := len(rows)
	if n < 2 {
		return 0
	}
	return rows[n-1].At * float64(n) / float64(n-1)
}

func (p *Replay) check() error {
	if err := p.Mix.check(); err != nil {
		return err
	}
	switch n := len(p.Rows); {
	case n < 2 || p.Rows[n-1].At <= 0:
		return errors.New("the trace has no two rows apart; record more requests")
	case !(p.Speed >= 0) || math.IsInf(p.Speed, 0):
		return fmt.Errorf("speed %v: want none below 0", p.Speed)
	case p.BlockTokens < 0 || !(p.Keep >= 0 && p.Keep <= 1):
		return errors.New("want no negative block, and to keep 0 to 1")
	}
	return nil
}

// Past implements [Workload]: it is the trace once round, up to where it is entered.
// Nothing is before its first row.
func (r *replay) Past() []Request {
	if r.Speed > 0 {
		return nil
	}
	var past []Request
	for number := r.entry - len(r.Rows); number < r.entry; number++ {
		if q, kept := r.request(number); kept && len(q.Context) > 0 {
			past = append(past, q)
		}
	}
	return past
}

// Next implements [Workload].
func (r *replay) Next() (Request, bool) {
	for {
		q, kept := r.request(r.next)
		r.next++
		if kept {
			return q, true
		}
	}
}

// After implements [Workload]: a trace says when turns came.
func (r *replay) After(*Request, float64) (Request, bool) { return Request{}, false }

// at is when a row comes.
func (r *replay) at(number int) float64 {
	n := len(r.Rows)
	since := func(k int) float64 { return float64(k/n)*r.lasts + r.Rows[k%n].At }
	return (since(number) - since(r.entry)) / r.speed
}

// request makes the request of a row, if it is kept.
func (r *replay) request(number int) (out Request, kept bool) {
	row := &r.Rows[number%len(r.Rows)]
	round := mix(r.seed + uint64(number/len(r.Rows)))
	key := row.key(round, number)
	if unit(mix(key+1)) >= cmp.Or(r.Keep, 1) {
		return out, false
	}
	at := r.at(number)
	from := &r.Mix
	if marked, ok := r.Marked[row.Marks]; ok {
		from = &marked
	}
	src := from.pick(at, unit(mix(key+2)))
	out = Request{
		At: at, FrontEnd: src.FrontEnd, Class: src.Class, Key: key,
		Turn:   number, // not the true one, but one of its own
		Prompt: max(1, row.Prompt), Output: max(1, row.Output),
	}
	switch {
	case r.BlockTokens > 0 && row.Talk != 0:
		out.Context = repeated(key, (row.Prompt+row.Output)/r.BlockTokens)
	case r.BlockTokens > 0:
		out.Context = row.context(round, min(len(row.Blocks), row.Prompt/r.BlockTokens))
	}
	return out, true
}

// repeated is the context of a conversation each of whose turns repeats all that was
// said before.
func repeated(key uint64, blocks int) []uint64 {
	out := make([]uint64, blocks)
	for i := range out {
		out[i] = mix(mix(key) ^ uint64(i))
	}
	return out
}

// key names the conversation of a row: as the row does, or by how its prompt begins,
// else it is one of its own.
func (row *Row) key(round uint64, number int) uint64 {
	if row.Talk != 0 {
		return mix(round ^ row.Talk)
	}
	if len(row.Blocks) < sameTalk {
		return mix(round + uint64(number))
	}
	key := round
	for _, b := range row.Blocks[:sameTalk] {
		key = mix(key ^ mix(b))
	}
	return key
}

// context is made of the row's whole blocks, of this round alone but for the first,
// which all have.
func (row *Row) context(round uint64, whole int) []uint64 {
	out := make([]uint64, whole)
	for i, b := range row.Blocks[:whole] {
		out[i] = mix(b)
		if i > 0 {
			out[i] = mix(round ^ out[i])
		}
	}
	return out
}
