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
	spareKey      = "spare_rps"   // absent: 0
	plannedKey    = "planned_rps" // absent: not known
	aheadKey      = "ahead"       // the part of each class that is ahead, by ID; absent: none is
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
	for i := range a.Classes {
		classes[string(a.Classes[i].Class)] = structpb.NewStructValue(encodeClassAdmission(&a.Classes[i]))
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

func encodeClassAdmission(c *fleet.ClassAdmission) *structpb.Struct {
	fields := map[string]*structpb.Value{retryAfterKey: structpb.NewNumberValue(c.RetryAfterSeconds)}
	for key, of := range map[string]fleet.Amount{ceilingKey: c.CeilingRps, plannedKey: c.PlannedRps, spareKey: {Value: c.SpareRps, Known: c.SpareRps > 0}} {
		if of.Known {
			fields[key] = structpb.NewNumberValue(of.Value)
		}
	}
	for key, is := range map[string]bool{limitedKey: c.Limited, shortKey: c.Short} {
		if is {
			fields[key] = structpb.NewBoolValue(true)
		}
	}
	if len(c.Ahead) > 0 {
		ahead := map[string]*structpb.Value{}
		for _, p := range c.Ahead {
			ahead[string(p.Class)] = structpb.NewNumberValue(p.Part)
		}
		fields[aheadKey] = structpb.NewStructValue(&structpb.Struct{Fields: ahead})
	}
	return &structpb.Struct{Fields: fields}
}

// DecodeAdmission reads it from the layers that a client was served; nil where it is not
// there. It is not ok if it says what cannot be.
func DecodeAdmission(layers []*runtimev3.Runtime) (_ *fleet.Admission, ok bool) {
	i := slices.IndexFunc(layers, func(r *runtimev3.Runtime) bool { return r.GetName() == AdmissionName })
	if i < 0 {
		return nil, true
	}
	a := &fleet.Admission{}
	fields := layers[i].GetLayer().GetFields()
	for name, v := range fields[nodesKey].GetStructValue().GetFields() {
		if !amount(v.GetNumberValue()) || v.GetNumberValue() > 1 {
			return nil, false
		}
		a.Nodes = append(a.Nodes, fleet.NodeShare{Node: name, Share: v.GetNumberValue()})
	}
	for id, v := range fields[classesKey].GetStructValue().GetFields() {
		c, ok := decodeClassAdmission(fleet.ClassID(id), v.GetStructValue().GetFields())
		if !ok {
			return nil, false
		}
		a.Classes = append(a.Classes, c)
	}
	slices.SortFunc(a.Nodes, func(x, y fleet.NodeShare) int { return cmp.Compare(x.Node, y.Node) })
	slices.SortFunc(a.Classes, func(x, y fleet.ClassAdmission) int { return cmp.Compare(x.Class, y.Class) })
	return a, true
}

func decodeClassAdmission(id fleet.ClassID, of map[string]*structpb.Value) (c fleet.ClassAdmission, ok bool) {
	c = fleet.ClassAdmission{
		Class: id, CeilingRps: known(of, ceilingKey), PlannedRps: known(of, plannedKey),
		RetryAfterSeconds: of[retryAfterKey].GetNumberValue(), SpareRps: of[spareKey].GetNumberValue(),
		Limited: of[limitedKey].GetBoolValue(), Short: of[shortKey].GetBoolValue(),
	}
	ok = amount(c.RetryAfterSeconds) && amount(c.SpareRps) && amount(c.CeilingRps.Value) && amount(c.PlannedRps.Value)
	for ahead, v := range of[aheadKey].GetStructValue().GetFields() {
		c.Ahead = append(c.Ahead, fleet.Precedence{Class: fleet.ClassID(ahead), Part: v.GetNumberValue()})
		ok = ok && amount(v.GetNumberValue())
	}
	slices.SortFunc(c.Ahead, func(x, y fleet.Precedence) int { return cmp.Compare(x.Class, y.Class) })
	return c, ok
}

// known is an amount that may be absent.
func known(of map[string]*structpb.Value, key string) (out fleet.Amount) {
	if v, ok := of[key]; ok {
		out = fleet.Known(v.GetNumberValue())
	}
	return out
}

// amount says whether a number can be one.
func amount(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
