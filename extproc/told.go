package extproc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// told is what a client is told of the decision about its request: a dictionary of
// structured fields (RFC 9651). None of its texts has a quote or a backslash.
func (t *Table) told(d *decision, s *selection) string {
	e := d.choice.first()
	out := fmt.Sprintf("class=%q, key=%q, engine=%q, plan=%q", d.class.id, t.sources[d.key.source], e.id, t.plan)
	if rank := s.rankOf(e); rank > 0 {
		out += fmt.Sprintf(", rank=%d", rank)
	}
	if d.hold == held {
		out += ", held"
	}
	return out + ", penalty=" + decimal(e.penalty())
}

// decimal writes a number up to 1 as a structured field does: three digits behind the
// point at most, one at least.
func decimal(x float64) string {
	text := strconv.FormatFloat(math.Round(1000*x)/1000, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// rankOf is the place that a key gives an engine in the pool that it belongs to: 1 is
// its own. 0: it is of another pool, or not among the best.
func (s *selection) rankOf(e *engine) int {
	if e == s.own {
		return 1
	}
	for place := range s.best().n {
		if s.engine(place) == e {
			return place + 1
		}
	}
	return 0
}

// toldOfRefusal is the same of a request that is refused, as far as it was decided:
// there is no engine to name.
func (t *Table) toldOfRefusal(d *decision) string {
	var out strings.Builder
	if d.class != nil {
		fmt.Fprintf(&out, "class=%q, ", d.class.id)
	}
	if d.keyed {
		fmt.Fprintf(&out, "key=%q, ", t.sources[d.key.source])
	}
	fmt.Fprintf(&out, "plan=%q, reason=%q", t.plan, d.refusal.word())
	return out.String()
}
