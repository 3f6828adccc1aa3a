package simulate

// fifo is a queue in a ring: it keeps nothing of what has left it, and is as long as
// what was in it at most.
type fifo[T any] struct {
	ring []T
	head int
	n    int
}

func (q *fifo[T]) len() int { return q.n }

func (q *fifo[T]) push(x T) {
	if q.n == len(q.ring) {
		grown := make([]T, max(8, 2*q.n))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)%q.n]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = x
	q.n++
}

func (q *fifo[T]) pop() T {
	var zero T
	x := q.ring[q.head]
	q.ring[q.head] = zero
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return x
}
