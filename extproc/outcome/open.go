package outcome

import "time"

const (
	maxOpen = 100_000          // attempts that last, at once
	silence = 10 * time.Second // an attempt of which nothing is heard for so long is over
)

// open are the requests whose attempts last long enough for an entry while they do.
type open map[key]*attempt

// attempt is the last one of a request.
type attempt struct {
	began  time.Time
	heard  time.Time
	judged bool // its time to first token was counted
	slow   bool // and was too long, which is its outcome
	over   ends

	watch watch
}

// ends says which entries have told that it is over: they come in either order.
type ends int

const (
	byAttempt ends = 1 << iota
	byRequest
)

// at returns the attempt that an entry tells of, nil where there is no room.
func (o open) at(e *entry, now time.Time) *attempt {
	a := o[e.key]
	if a == nil && len(o) >= maxOpen {
		return nil
	}
	if a == nil || !a.began.Equal(e.began) {
		a = &attempt{began: e.began}
		o[e.key] = a
	}
	a.heard = now
	return a
}

// end returns what is known of an attempt that is over, and forgets it when its
// request is over, too.
func (o open) end(e *entry, by ends) attempt {
	a := o[e.key]
	if a == nil || by == byAttempt && !a.began.Equal(e.began) {
		return attempt{}
	}
	if a.over |= by; a.over == byAttempt|byRequest {
		delete(o, e.key)
	}
	return *a
}

// forget drops attempts whose end was lost, and counts them.
func (o open) forget(now time.Time) (n uint64) {
	for k, a := range o {
		if now.Sub(a.heard) > silence {
			delete(o, k)
			if a.over == 0 {
				n++
			}
		}
	}
	return n
}
