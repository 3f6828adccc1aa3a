package gate

import "sync/atomic"

// purse is an amount that any goroutine may add to and take from; one at a time sets,
// scales and fills it. The zero purse is empty.
type purse struct {
	fixed atomic.Int64 // in parts of 1/one: it holds 2^31, and owes as much
}

// one is what an amount of 1 is in it.
const one = 1 << 32

func (p *purse) amount() float64 { return float64(p.fixed.Load()) / one }

func (p *purse) set(amount float64) { p.fixed.Store(int64(amount * one)) }

func (p *purse) add(amount float64) { p.fixed.Add(int64(amount * one)) }

// scale multiplies what is in it; what it owes stays.
func (p *purse) scale(factor float64) {
	if amount := p.amount(); factor != 1 && amount > 0 {
		p.add(amount * (factor - 1))
	}
}

// fill adds an amount, and takes away what is more than it can hold.
func (p *purse) fill(amount, most float64) { p.add(min(amount, most-p.amount())) }

// spend takes 1 away if it has that.
func (p *purse) spend() bool {
	if p.fixed.Add(-one) >= 0 {
		return true
	}
	p.fixed.Add(one)
	return false
}
