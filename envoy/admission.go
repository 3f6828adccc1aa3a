package envoy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

// AdmissionName names the RTDS layer that tells the weir-extprocs of one front-end how
// much may enter there. No Envoy gets it.
const AdmissionName = "weir-admission"

// Keys of this layer.
const (
	nodesKey      = "nodes"       // the part of each, by name
	classesKey    = "classes"     // by ID
	ceilingKey    = "ceiling_rps" // absent: not known
	retryAfterKey = "retry_after" // seconds
	limitedKey    = "limited"     // absent: false
	shortKey      = "short"       // absent: false
)

// EncodeAdmissions writes what each front-end may let in as an RTDS layer.
func EncodeAdmissions(of map[fleet.FrontEndID]*fleet.Admission) (map[fleet.FrontEndID]*runtimev3.Runtime, error) {
	out := make(map[fleet.FrontEndID]*runtimev3.Runtime, len(of))
	for id, a := range of {
		r, err := encodeAdmission(a)
		if err != nil {
			return nil, fmt.Errorf("front-end %q: %w", id, err)
		}
		out[id] = r
	}
	return out, nil
}

func encodeAdmission(a *fleet.Admission) (*runtimev3.Runtime, error) {
	nodes, classes := map[string]*structpb.Value{}, map[string]*structpb.Value{}
	for _, n := range a.Nodes {
		nodes[n.Node] = structpb.NewNumberValue(n.Share)
	}
	for _, c := range a.Classes {
		fields := map[string]*structpb.Value{retryAfterKey: structpb.NewNumberValue(c.RetryAfterSeconds)}
		if c.CeilingRps.Known {
			fields[ceilingKey] = structpb.NewNumberValue(c.CeilingRps.Value)
		}
		if c.Limited {
			fields[limitedKey] = structpb.NewBoolValue(true)
		}
		if c.Short {
			fields[shortKey] = structpb.NewBoolValue(true)
		}
		classes[string(c.Class)] = structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	r := layer(AdmissionName, map[string]*structpb.Value{
		nodesKey:   structpb.NewStructValue(&structpb.Struct{Fields: nodes}),
		classesKey: structpb.NewStructValue(&structpb.Struct{Fields: classes}),
	})
	if err := r.ValidateAll(); err != nil {
		return nil, fmt.Errorf("layer %q: %w", AdmissionName, err)
	}
	return r, nil
}

// DecodeAdmission reads it from the layers that a client was served; nil where it is not
// there or says what cannot be.
func DecodeAdmission(layers []*runtimev3.Runtime) *fleet.Admission {
	i := slices.IndexFunc(layers, func(r *runtimev3.Runtime) bool { return r.GetName() == AdmissionName })
	if i < 0 {
		return nil
	}
	a := &fleet.Admission{}
	fields := layers[i].GetLayer().GetFields()
	for name, v := range fields[nodesKey].GetStructValue().GetFields() {
		if !amount(v.GetNumberValue()) || v.GetNumberValue() > 1 {
			return nil
		}
		a.Nodes = append(a.Nodes, fleet.NodeShare{Node: name, Share: v.GetNumberValue()})
	}
	for id, v := range fields[classesKey].GetStructValue().GetFields() {
		c := fleet.ClassAdmission{Class: fleet.ClassID(id)}
		of := v.GetStructValue().GetFields()
		c.RetryAfterSeconds, c.Short = of[retryAfterKey].GetNumberValue(), of[shortKey].GetBoolValue()
		c.Limited = of[limitedKey].GetBoolValue()
		if ceiling, known := of[ceilingKey]; known {
			c.CeilingRps = fleet.Known(ceiling.GetNumberValue())
		}
		if !amount(c.RetryAfterSeconds) || !amount(c.CeilingRps.Value) {
			return nil
		}
		a.Classes = append(a.Classes, c)
	}
	slices.SortFunc(a.Nodes, func(x, y fleet.NodeShare) int { return cmp.Compare(x.Node, y.Node) })
	slices.SortFunc(a.Classes, func(x, y fleet.ClassAdmission) int { return cmp.Compare(x.Class, y.Class) })
	return a
}

// amount says whether a number can be one.
func amount(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
