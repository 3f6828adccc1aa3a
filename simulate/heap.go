package simulate

import "math"

// timer is something due. Of two at the same time the one set first comes first.
type timer struct {
	at   float64
	seq  uint64
	what int32
	kind eventKind
}

func (t *timer) before(u *timer) bool { return t.at < u.at || t.at == u.at && t.seq < u.seq }

// timers is a heap of timers. The zero value is empty.
type timers struct {
	heap []timer
	seq  uint64
}

// next is when the first is due; +Inf without any.
func (h *timers) next() float64 {
	if len(h.heap) == 0 {
		return math.Inf(1)
	}
	return h.heap[0].at
}

func (h *timers) push(at float64, kind eventKind, what int32) {
	h.seq++
	h.heap = append(h.heap, timer{at, h.seq, what, kind})
	i := len(h.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.heap[i].before(&h.heap[up]) {
			break
		}
		h.heap[i], h.heap[up] = h.heap[up], h.heap[i]
		i = up
	}
}

// pop takes the first.
func (h *timers) pop() timer {
	first := h.heap[0]
	last := len(h.heap) - 1
	h.heap[0] = h.heap[last]
	h.heap = h.heap[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return first
		}
		if right := down + 1; right < last && h.heap[right].before(&h.heap[down]) {
			down = right
		}
		if !h.heap[down].before(&h.heap[i]) {
			return first
		}
		h.heap[i], h.heap[down] = h.heap[down], h.heap[i]
		i = down
	}
}

// agenda is a heap of numbered things that are each due at some time, +Inf for never,
// and may change it. Of two at the same time the lower number comes first.
type agenda struct {
	at    []float64 // by number
	heap  []int32
	place []int32 // in the heap, by number
}

func newAgenda(n int) *agenda {
	a := &agenda{at: make([]float64, n), heap: make([]int32, n), place: make([]int32, n)}
	for i := range n {
		a.at[i], a.heap[i], a.place[i] = math.Inf(1), int32(i), int32(i)
	}
	return a
}

func (a *agenda) next() float64 {
	if len(a.heap) == 0 {
		return math.Inf(1)
	}
	return a.at[a.heap[0]]
}

func (a *agenda) first() int32 { return a.heap[0] }

func (a *agenda) set(number int32, at float64) {
	was := a.at[number]
	a.at[number] = at
	if at < was {
		a.up(a.place[number])
	} else if at > was {
		a.down(a.place[number])
	}
}

func (a *agenda) before(i, j int32) bool {
	x, y := a.heap[i], a.heap[j]
	return a.at[x] < a.at[y] || a.at[x] == a.at[y] && x < y
}

func (a *agenda) swap(i, j int32) {
	a.heap[i], a.heap[j] = a.heap[j], a.heap[i]
	a.place[a.heap[i]], a.place[a.heap[j]] = i, j
}

func (a *agenda) up(i int32) {
	for i > 0 && a.before(i, (i-1)/2) {
		a.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (a *agenda) down(i int32) {
	n := int32(len(a.heap))
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if a.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		a.swap(i, least)
		i = least
	}
}
