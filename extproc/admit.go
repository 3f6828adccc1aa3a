package extproc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/envoy"
	"weir/extproc/gate"
	"weir/fleet"
)

const (
	// gateStep is how often gates are brought up to date.
	gateStep = 100 * time.Millisecond
	// talkIdle is how long a conversation counts as under way that has no turns: by then
	// engines have given up its cache, and to refuse it costs no more than another.
	talkIdle = 600 // seconds
	// usualRetryAfter is when who is refused may come back, where the plan does not say:
	// after a few plans.
	usualRetryAfter = 5 // seconds
	// late is how long after its time a client that was refused is expected back, and
	// early how long before.
	late, early = 3, 1 // seconds
)

// enters says whether a request may enter, and words the refusal if not. Which
// conversations may is mostly their draws' doing, and as the fraction rises more of the
// same do; one that alone asks for more than its part enters a part of the time.
func (t *Table) enters(h *head, d *decision) bool {
	c := d.class
	ok, cause := c.tally.gate.Admit(t.tenantOf(h), t.kindOf(d, h), c.draw(d.key.hash), c.admitted)
	if ok {
		return true
	}
	why := envoy.ShedByPlan
	switch cause {
	case gate.Burst:
		why = envoy.ShedInBurst
	case gate.Limited:
		why = envoy.ShedByLimit
	}
	d.refusal = shed(d.key.hash, c.tally.retryAfterSeconds(), why)
	return false
}

// recall looks up what is remembered of the request's conversation.
func (t *Table) recall(d *decision) {
	if d.key.source != 0 {
		d.name = d.key.hash ^ d.class.salt // classes have conversations of their own
		d.due = t.refused.left(d.name, t.clock.Load())
	}
}

// kindOf says how far a request comes before others.
func (t *Table) kindOf(d *decision, h *head) gate.Kind {
	switch {
	case d.name != 0 && t.talks.has(d.name, t.clock.Load()):
		return gate.Ongoing
	case d.due > 0 || h.clientRetry():
		return gate.Back
	default:
		return gate.Fresh
	}
}

// draw is a conversation's own number of 0–1, independent of the choice of an engine.
func (c *class) draw(key uint64) float64 { return unit(mix(key ^ c.salt)) }

// tenantOf is a hash of who asks.
func (t *Table) tenantOf(h *head) uint64 {
	if t.tenant == "" {
		return 0
	}
	name, _ := h.value(t.tenant)
	return hashOfText(name)
}

func (t *tally) retryAfterSeconds() int {
	if after := t.retryAfter.Load(); after > 0 {
		return int(after)
	}
	return usualRetryAfter
}

// cameBack says whether the conversation was refused and comes again when it was told to:
// that is no new demand. Sooner it may be another request of the same name, as some name
// their user.
func (d *decision) cameBack() bool { return d.due > 0 && d.due <= late+early }

// remember notes which conversations are under way, and which were asked to come again.
func (t *Table) remember(d *decision) {
	now := t.clock.Load()
	switch {
	case d.name == 0:
	case d.refusal == nil:
		t.talks.keep(d.name, now+talkIdle, now)
		if d.due > 0 {
			t.refused.drop(d.name)
		}
	case d.refusal.reason == reasonShed:
		t.refused.keep(d.name, now+int64(d.refusal.retryAfterSeconds)+late, now)
	}
}

// SwapAdmission takes how much may enter at the front-end, and which part of it is this
// process's.
func (s *Server) SwapAdmission(a *fleet.Admission, share float64) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.admission, s.ledger.share = a, share
}

// CountUnread counts a word of what may enter that could not be read: the last one counts on.
func (s *Server) CountUnread() { s.ledger.unread.Add(1) }

// stepAt brings the gates up to date.
func (s *Server) stepAt(now time.Time) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if t := s.table.Load(); t != nil {
		s.ledger.step(t, now)
	}
}

func (l *ledger) step(t *Table, now time.Time) {
	passed := now.Sub(l.stepped)
	if l.stepped.IsZero() {
		passed = gateStep
	}
	l.stepped = now
	for _, c := range t.classes {
		c.tally.retryAfter.Store(0) // as usual
		if told := l.admissionOf(c.id); told != nil {
			c.tally.retryAfter.Store(int64(told.RetryAfterSeconds))
		}
		c.tally.gate.Step(passed, gate.NewLimit(l.told(), c.id, c.admitted, l.share, l.use))
	}
}

// told is what may enter; nil where nothing was said, or too long ago.
func (l *ledger) told() *fleet.Admission {
	if !l.levels.known {
		return nil
	}
	return l.admission
}

// admissionOf is what was said of a class; nil as above.
func (l *ledger) admissionOf(id fleet.ClassID) *fleet.ClassAdmission {
	if told := l.told(); told != nil {
		return told.Class(id)
	}
	return nil
}

// use is what this process has of a class.
func (l *ledger) use(id fleet.ClassID) gate.Use {
	t := l.classes[id]
	if t == nil {
		return gate.Use{}
	}
	return gate.Use{EnteredRps: t.gate.EnteredRps(), Open: float64(t.open.Load())}
}

// gates shows what the gates do.
type gates struct{ server *Server }

var (
	gateRefusedDesc = prometheus.NewDesc("weir_extproc_gate_refused", "The largest part that anybody is refused, 0-1; 0: the gate is open.", []string{"class"}, nil)
	gateAheadDesc   = prometheus.NewDesc("weir_extproc_gate_ahead_rps", "What classes of higher priority take of the ceiling beside what is planned for them.", []string{"class"}, nil)
	gateBacklogDesc = prometheus.NewDesc("weir_extproc_gate_backlog", "Requests that were let in beside what can be served.", []string{"class"}, nil)
)

// Describe implements [prometheus.Collector].
func (gates) Describe(out chan<- *prometheus.Desc) {
	out <- gateRefusedDesc
	out <- gateBacklogDesc
	out <- gateAheadDesc
}

// Collect implements [prometheus.Collector].
func (g gates) Collect(out chan<- prometheus.Metric) {
	l := &g.server.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.classes {
		out <- prometheus.MustNewConstMetric(gateRefusedDesc, prometheus.GaugeValue, t.gate.Refused(), string(id))
		out <- prometheus.MustNewConstMetric(gateBacklogDesc, prometheus.GaugeValue, t.gate.Backlog(), string(id))
		out <- prometheus.MustNewConstMetric(gateAheadDesc, prometheus.GaugeValue, t.gate.AheadRps(), string(id))
	}
}
