package dialect

// page puts together what was read.
func (r *Reader) page(likely string) Page {
	p := Page{Notes: r.notes, Dropped: r.dropped, Cut: r.isCut}
	d := r.recognise(likely)
	if d < 0 {
		return p
	}
	p.Dialect = r.table.dialects[d].Name
	for f := range fields {
		p.without[f] = len(r.table.dialects[d].Fields[f]) == 0
	}
	for i := range r.found {
		if s := &r.table.slots[i]; s.dialect == d {
			r.assemble(&p, i, s)
		}
	}
	return p
}

// recognise returns the dialect that knows most of the page; of several the
// likely one, then the first. It returns -1 if the page is of none.
func (r *Reader) recognise(likely string) int {
	best, most := -1, 0
	for d := range r.table.dialects {
		if !r.seen[d] {
			continue
		}
		known := 2 * r.knownFields(d)
		if r.table.dialects[d].Name == likely {
			known++
		}
		if best < 0 || known > most {
			best, most = d, known
		}
	}
	return best
}

func (r *Reader) knownFields(dialect int) int {
	var known [fields]bool
	n := 0
	for i := range r.found {
		s := &r.table.slots[i]
		if s.dialect == dialect && !known[s.field] && r.found[i].usable() {
			known[s.field] = true
			n++
		}
	}
	return n
}

// assemble gives a field its value, unless a better name has done so.
func (r *Reader) assemble(p *Page, i int, s *slot) {
	f := &r.found[i]
	switch {
	case p.Names[s.field] != "":
		return
	case !f.usable():
		if f.declared && p.declared[s.field] == "" {
			p.declared[s.field] = s.text
		}
		return
	}
	p.Names[s.field] = s.text
	switch s.field {
	case Running:
		p.Values.Running = f.value(i, false)
	case Waiting:
		p.Values.Waiting = f.value(i, false)
	case KVUsage:
		p.Values.KVUsage = f.value(i, true)
		p.Values.KVUsage.X = min(1, p.Values.KVUsage.X)
	case TTFT:
		p.Values.TTFT = f.histogram(i)
	case TBT:
		p.Values.TBT = f.histogram(i)
	case PromptTokens:
		p.Values.PromptTokens = f.value(i, false)
	case GeneratedTokens:
		p.Values.GeneratedTokens = f.value(i, false)
	}
}
