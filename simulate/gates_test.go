package simulate

import (
	"testing"

	"weir/fleet"
)

// A front-end that sends a pool more than it can do refuses what is too much, as its gate
// would: queues stay short, and no more is refused than that. Conversations that are
// under way are refused less than new ones.
func TestGatesRefuseWhatIsTooMuch(t *testing.T) {
	s, err := theTalk(sessions, 180)
	if err != nil {
		t.Fatal(err)
	}
	r := ran(t, s.with(t, 1, nearest)).result()
	// B is asked for 120 of its 100: a sixth of that is too much, 8 % of what all ask for,
	// and what drains its queue.
	if r.ShedShare < 0.06 || r.ShedShare > 0.16 {
		t.Errorf("%.1f %% are refused, want some 8 to 12", 100*r.ShedShare)
	}
	if b := r.Links[fleet.Link{FrontEnd: "B", Pool: "B"}]; !(b.TTFTSeconds < 2) {
		t.Errorf("first tokens of B take %.2f s", b.TTFTSeconds)
	}
	// Gates count requests. Those of conversations that are under way come first, and are
	// longer than the mean.
	if u := r.Utilisations["B"]; u < 0.9 || u > 1.25 {
		t.Errorf("B is %.0f %% busy, want about all of it", 100*u)
	}
}

// Where the demand of the file rules, nobody knows what comes, and gates are open.
func TestGatesAreOpenWhereDemandIsDeclared(t *testing.T) {
	s, err := theTalk(sessions, 60)
	if err != nil {
		t.Fatal(err)
	}
	s.fleet.Options.DeclaredOnly = true
	if r := ran(t, s.with(t, 1, nearest)).result(); r.Shed != 0 {
		t.Errorf("%d requests are refused", r.Shed)
	}
}
