package main

import (
	"testing"

	"weir/config"
	"weir/fleet"
	"weir/solver"
)

// Beside what would be stands what is: a held plan, however old, and not the one that
// would be made in its place.
func TestWhatIfBesideAHeldPlan(t *testing.T) {
	f, err := config.Load("../../testdata/fleets/talk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := fleet.Declared(f)
	plan, err := makePlan(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.FrontEnds { // much less is asked for since
		st := fleet.Stream{FrontEnd: f.FrontEnds[i].ID, Class: "chat"}
		s.Demand[st] = fleet.Demand{Rps: 1}
	}
	for _, status := range []fleet.Status{plan.Status, fleet.Held} {
		inForce := *plan
		inForce.Status = status
		got, err := imagineRound(fleet.Round{State: s, Plan: &inForce}, solver.WhatIf{Replicas: []string{"B=+1"}})
		if err != nil {
			t.Fatal(err)
		}
		if held := status == fleet.Held; (got.Before == &inForce) != held || (got.Note != "") != held {
			t.Errorf("%s: NOW is %s with %v RPS at B, note %q", status, got.Before.Status, got.Before.Pool("B").Rps, got.Note)
		}
		if rps := got.After.Pool("B").Rps; rps > 3 {
			t.Errorf("%s: THEN B has %v RPS, 3 are asked for in all", status, rps)
		}
	}
}
