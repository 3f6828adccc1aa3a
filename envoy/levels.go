package envoy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

// LoadName names the RTDS layers that tell weir-extproc how full engines are. The layer
// of that name tells the round; one more for each pool, its name behind a dot, has a
// list of numbers for each kind of level, by the engines' places in the pool. So a pool
// whose levels are as before is not sent again, and of 2,000 engines there are 11 bytes
// a number to send at most.
const LoadName = "weir-load"

const loadPrefix = LoadName + "."

// Keys of these layers.
const (
	roundKey  = "round"
	tickKey   = "tick" // seconds
	printKey  = "engines"
	queuedKey = "queued"
	openKey   = "in_flight"
	healthKey = "health"
	ageKey    = "age" // seconds
)

// unknownLevel stands for an amount that is not known.
const unknownLevel = -1

// maxListed bounds the engines of one pool that are believed.
const maxListed = 100_000

// EncodeLevels writes levels as RTDS layers.
func EncodeLevels(l *fleet.Levels) ([]*runtimev3.Runtime, error) {
	layers := []*runtimev3.Runtime{layer(LoadName, map[string]*structpb.Value{
		roundKey: structpb.NewNumberValue(float64(l.Round)),
		tickKey:  structpb.NewNumberValue(l.Tick.Seconds()),
	})}
	for i := range l.Pools {
		layers = append(layers, encodePoolLevels(&l.Pools[i]))
	}
	for _, r := range layers {
		if err := r.ValidateAll(); err != nil {
			return nil, fmt.Errorf("layer %q: %w", r.GetName(), err)
		}
	}
	return layers, nil
}

func layer(name string, fields map[string]*structpb.Value) *runtimev3.Runtime {
	return &runtimev3.Runtime{Name: name, Layer: &structpb.Struct{Fields: fields}}
}

func encodePoolLevels(p *fleet.PoolLevels) *runtimev3.Runtime {
	fields := map[string]*structpb.Value{printKey: structpb.NewNumberValue(float64(p.Print))}
	for key, of := range levelKinds {
		if list := encodeAmounts(p.Engines, of); list != nil {
			fields[key] = list
		}
	}
	return layer(loadPrefix+string(p.ID), fields)
}

// levelKinds are the lists of a pool.
var levelKinds = map[string]func(*fleet.EngineLevels) *fleet.Amount{
	queuedKey: func(e *fleet.EngineLevels) *fleet.Amount { return &e.Queued },
	openKey:   func(e *fleet.EngineLevels) *fleet.Amount { return &e.InFlight },
	healthKey: func(e *fleet.EngineLevels) *fleet.Amount { return &e.Health },
	ageKey:    func(e *fleet.EngineLevels) *fleet.Amount { return &e.AgeSeconds },
}

// encodeAmounts lists one kind of all engines; nil where none is known.
func encodeAmounts(engines []fleet.EngineLevels, of func(*fleet.EngineLevels) *fleet.Amount) *structpb.Value {
	list := make([]*structpb.Value, len(engines))
	known := false
	for i := range engines {
		n := structpb.NewNumberValue(unknownLevel)
		if a := of(&engines[i]); a.Known {
			known = true
			n = structpb.NewNumberValue(a.Value)
		}
		list[i] = n
	}
	if !known {
		return nil
	}
	return structpb.NewListValue(&structpb.ListValue{Values: list})
}

// DecodeLevels reads levels from the layers that a client was served; nil where there
// are none. Layers that cannot be read are left out and counted: to refuse them would
// keep other layers from taking effect, which matter more.
func DecodeLevels(layers []*runtimev3.Runtime) (l *fleet.Levels, unread int) {
	for _, r := range layers {
		pool, isPool := strings.CutPrefix(r.GetName(), loadPrefix)
		fields := r.GetLayer().GetFields()
		switch {
		case r.GetName() == LoadName:
			if l == nil {
				l = &fleet.Levels{}
			}
			l.Round = int64(fields[roundKey].GetNumberValue())
			l.Tick = time.Duration(fields[tickKey].GetNumberValue() * float64(time.Second))
		case isPool:
			if l == nil {
				l = &fleet.Levels{}
			}
			p, ok := decodePoolLevels(fleet.PoolID(pool), fields)
			if ok {
				l.Pools = append(l.Pools, p)
			} else {
				unread++
			}
		}
	}
	if l == nil || l.Round == 0 {
		return nil, unread
	}
	slices.SortFunc(l.Pools, func(a, b fleet.PoolLevels) int { return cmp.Compare(a.ID, b.ID) })
	return l, unread
}

func decodePoolLevels(id fleet.PoolID, fields map[string]*structpb.Value) (p fleet.PoolLevels, ok bool) {
	p = fleet.PoolLevels{ID: id, Print: uint64(fields[printKey].GetNumberValue())}
	for key, of := range levelKinds {
		if list := fields[key].GetListValue().GetValues(); list != nil && !decodeAmounts(&p, list, of) {
			return p, false
		}
	}
	return p, len(p.Engines) > 0
}

// decodeAmounts reads a list. All of one pool are equally long.
func decodeAmounts(p *fleet.PoolLevels, list []*structpb.Value, of func(*fleet.EngineLevels) *fleet.Amount) bool {
	if p.Engines == nil && len(list) <= maxListed {
		p.Engines = make([]fleet.EngineLevels, len(list))
	}
	if len(p.Engines) != len(list) {
		return false
	}
	for i, v := range list {
		n, isNumber := v.GetKind().(*structpb.Value_NumberValue)
		switch {
		case !isNumber || !(n.NumberValue >= 0 || n.NumberValue == unknownLevel) || math.IsInf(n.NumberValue, 0):
			return false
		case n.NumberValue >= 0:
			*of(&p.Engines[i]) = fleet.Known(n.NumberValue)
		}
	}
	return true
}

// WithoutLevels are the same resources without the layers that are for weir-extproc
// alone and change each round: levels, and how much may enter.
func (r *Resources) WithoutLevels() *Resources {
	rest := *r
	rest.Runtimes = slices.DeleteFunc(slices.Clone(r.Runtimes), func(l *runtimev3.Runtime) bool {
		return l.GetName() == LoadName || l.GetName() == AdmissionName || strings.HasPrefix(l.GetName(), loadPrefix)
	})
	return &rest
}

// Same says whether the resources are the very messages that others are, which are
// never changed: what was not sent again is. Equal ones may not be the same.
func (r *Resources) Same(other *Resources) bool {
	return slices.Equal(r.Listeners, other.Listeners) && slices.Equal(r.Routes, other.Routes) &&
		slices.Equal(r.Clusters, other.Clusters) && slices.Equal(r.Endpoints, other.Endpoints) &&
		slices.Equal(r.Runtimes, other.Runtimes)
}
