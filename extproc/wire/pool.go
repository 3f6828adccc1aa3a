package wire

import (
	"math/bits"
	"sync"
)

// Sizes of the buffers that are kept for the next message, as powers of two: from
// what one HTTP/2 frame brings to what few bodies exceed.
const (
	leastShift = 14
	mostShift  = 22
)

// buffers is a pool of buffers whose content is whatever it was. gRPC's own clears
// them, each to its whole size, and has none between 32 KiB and 1 MiB.
type buffers [mostShift - leastShift + 1]sync.Pool

// at returns the place of buffers that hold so many bytes, nil if there is none.
func (p *buffers) at(length int) *sync.Pool {
	shift := max(leastShift, bits.Len(uint(length-1)))
	if length <= 0 || shift > mostShift {
		return nil
	}
	return &p[shift-leastShift]
}

// Get implements [mem.BufferPool].
func (p *buffers) Get(length int) *[]byte {
	place := p.at(length)
	if place == nil {
		b := make([]byte, length)
		return &b
	}
	if b, ok := place.Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<max(leastShift, bits.Len(uint(length-1))))
	return &b
}

// Put implements [mem.BufferPool].
func (p *buffers) Put(b *[]byte) {
	if place := p.at(cap(*b)); place != nil {
		place.Put(b)
	}
}
