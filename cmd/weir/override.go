package main

import (
	"weir/fleet"
	"weir/signals/dialect"
)

// override is what the fleet file knows better of a pool's metrics pages. Its fields
// were checked when the file was read; one that nobody knows is not read.
func override(p *fleet.Pool) dialect.Override {
	o := dialect.Override{Dialect: p.Metrics.Dialect, Paths: p.Metrics.Paths, Fields: map[dialect.Field]dialect.Names{}}
	for name, series := range p.Metrics.Names {
		f, err := dialect.ParseField(name)
		if err != nil {
			continue
		}
		for _, s := range series {
			o.Fields[f] = append(o.Fields[f], dialect.Series{Name: s})
		}
	}
	return o
}
