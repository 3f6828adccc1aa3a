package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/fleet"
)

// AnyName stands in a mapping for every name that has no line of its own.
const AnyName = "*"

// Mapping says to which front-end and class of a fleet the rows of a trace belong.
//
// A name in a row means what Names make of it, else the fleet's front-end or class of
// that name. A row without one is drawn, all of a conversation alike: by the weights
// of Spread, else as the fleet declares its demand.
type Mapping struct {
	FrontEnds, Classes Words
}

// Words are a mapping's for front-ends, or for classes.
type Words struct {
	Names  map[string]string  // of the trace → of the fleet
	Spread map[string]float64 // name in the fleet → weight of rows without a name; empty: the declared demand
}

// streams resolves a mapping for a fleet.
type streams struct {
	fleet              *fleet.Fleet
	frontEnds, classes []float64 // weights by index; nil: as demand is declared
}

// Mix is where rows without names come from, and Marked where those with names do, as
// [Replay] wants them. Errors name the line and what to do.
func (m *Mapping) Mix(f *fleet.Fleet, t *Trace) (all Mix, marked map[Marks]Mix, err error) {
	frontEnds, classes := frontEndNames(f), classNames(f)
	s := streams{fleet: f}
	var errs [4]error
	s.frontEnds, errs[0] = m.FrontEnds.weights("front-end", frontEnds)
	s.classes, errs[1] = m.Classes.weights("class", classes)
	frontEndOf, err := m.FrontEnds.resolve("front-end", t.FrontEnds, frontEnds)
	errs[2] = err
	classOf, err := m.Classes.resolve("class", t.Classes, classes)
	errs[3] = err
	if err := errors.Join(errs[:]...); err != nil {
		return all, nil, err
	}
	marked = map[Marks]Mix{}
	for i := range t.Rows {
		marks := t.Rows[i].Marks
		if _, done := marked[marks]; done {
			continue
		}
		from := s.of(frontEndOf[marks.FrontEnd], classOf[marks.Class])
		if len(from.Sources) == 0 {
			return all, nil, fmt.Errorf("row %d does not say all of where it belongs, and the fleet declares no demand to go by; declare it, or say --front-end and --class", i+1)
		}
		marked[marks] = from
	}
	return s.all(marked), marked, nil
}

// all adds up where rows come from. Only its proportions mean anything, and they are
// right where rows have no names.
func (s *streams) all(marked map[Marks]Mix) Mix {
	if plain, ok := marked[Marks{}]; ok {
		return plain
	}
	var out Mix
	for _, marks := range slices.SortedFunc(maps.Keys(marked), compareMarks) {
		out.Sources = append(out.Sources, marked[marks].Sources...)
	}
	return out
}

func compareMarks(a, b Marks) int {
	return cmp.Or(cmp.Compare(a.FrontEnd, b.FrontEnd), cmp.Compare(a.Class, b.Class))
}

// of is where rows come from that name a front-end, a class, both or none (none: −1).
func (s *streams) of(frontEnd, class int) Mix {
	var out Mix
	for i := range s.fleet.FrontEnds {
		for k := range s.fleet.Classes {
			if frontEnd != none && frontEnd != i || class != none && class != k {
				continue
			}
			if w := s.weight(i, k, frontEnd, class); w > 0 {
				out.Sources = append(out.Sources, Source{FrontEnd: i, Class: k, Rps: w})
			}
		}
	}
	return out
}

// weight is that of one stream among rows that name so much.
func (s *streams) weight(i, k, frontEnd, class int) float64 {
	w := 1.0
	if frontEnd == none && s.frontEnds != nil {
		w *= s.frontEnds[i]
	}
	if class == none && s.classes != nil {
		w *= s.classes[k]
	}
	// What is neither named nor given is as declared, if there is a choice.
	byDemand := func(choices int, named int, given []float64) bool {
		return choices > 1 && named == none && given == nil
	}
	openFrontEnd := byDemand(len(s.fleet.FrontEnds), frontEnd, s.frontEnds)
	openClass := byDemand(len(s.fleet.Classes), class, s.classes)
	switch {
	case openFrontEnd && openClass:
		return w * s.demand(i, k)
	case openFrontEnd && class != none:
		return w * s.demand(i, k)
	case openFrontEnd:
		return w * s.frontEndDemand(i)
	case openClass && s.frontEndDemand(i) > 0:
		return w * s.demand(i, k) / s.frontEndDemand(i)
	case openClass:
		return w * s.classDemand(k)
	}
	return w
}

func (s *streams) demand(i, k int) float64 {
	return s.fleet.FrontEnds[i].Demand[s.fleet.Classes[k].ID]
}

func (s *streams) frontEndDemand(i int) (sum float64) {
	for k := range s.fleet.Classes {
		sum += s.demand(i, k)
	}
	return sum
}

// classDemand is a class's part of all that is declared.
func (s *streams) classDemand(k int) float64 {
	of, all := 0.0, 0.0
	for i := range s.fleet.FrontEnds {
		of += s.demand(i, k)
		all += s.frontEndDemand(i)
	}
	if all == 0 {
		return 0
	}
	return of / all
}

// weights turns a spread into weights by index.
func (w *Words) weights(what string, names []string) ([]float64, error) {
	if len(w.Spread) == 0 {
		return nil, nil
	}
	out, sum := make([]float64, len(names)), 0.0
	for name, weight := range w.Spread {
		i := slices.Index(names, name)
		if i < 0 || !(weight >= 0 && weight <= 1e9) {
			return nil, fmt.Errorf("%s %.80q with the weight %v; name one of %s, and a weight from 0 up", what, name, weight, listed(names))
		}
		out[i] = weight
		sum += weight
	}
	if sum == 0 {
		return nil, fmt.Errorf("no %s has a weight above 0; give one to one of %s", what, listed(names))
	}
	return out, nil
}

// resolve returns the index in the fleet for each mark of a trace.
func (w *Words) resolve(what string, marks []Name, names []string) ([]int, error) {
	for from, to := range w.Names {
		if !slices.Contains(names, to) {
			return nil, fmt.Errorf("%s %.80q is mapped to %.80q, which the fleet does not have; name one of %s", what, from, to, listed(names))
		}
	}
	out := []int{none}
	for _, m := range marks {
		to, ok := w.Names[m.Text]
		if !ok && !slices.Contains(names, m.Text) {
			to = w.Names[AnyName]
		}
		i := slices.Index(names, cmp.Or(to, m.Text))
		if i < 0 {
			return nil, fmt.Errorf("line %d: the fleet has no %s %.80q; correct it, or map it to one of %s with --map-%s %s=NAME", m.Line, what, m.Text, listed(names), what, m.Text)
		}
		out = append(out, i)
	}
	return out, nil
}

// listed writes names, not too many.
func listed(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

func frontEndNames(f *fleet.Fleet) (names []string) {
	for i := range f.FrontEnds {
		names = append(names, string(f.FrontEnds[i].ID))
	}
	return names
}

func classNames(f *fleet.Fleet) (names []string) {
	for i := range f.Classes {
		names = append(names, string(f.Classes[i].ID))
	}
	return names
}
