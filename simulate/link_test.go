package simulate

import (
	"math"
	"testing"

	"weir/fleet"
)

// What went over each link is, together, what was measured: as many requests, as long in
// the mean; and what a front-end sends is all of it sent somewhere. So it is when some
// are under way at the end.
func TestLinksAddUp(t *testing.T) {
	for name, drain := range map[string]float64{"all answered": 600, "some under way": 0} {
		t.Run(name, func(t *testing.T) {
			c := brief(t, 4)
			c.Policy, c.DrainSeconds = even, drain
			r, err := Run(c)
			if err != nil {
				t.Fatal(err)
			}
			if under := r.UnderWay > 0; under != (drain == 0) {
				t.Fatalf("%d requests are under way", r.UnderWay)
			}
			requests, ttft, endToEnd := 0, 0.0, 0.0
			shares := map[fleet.FrontEndID]float64{}
			for at, l := range r.Links {
				requests += l.Requests
				ttft += float64(l.Requests) * l.TTFTSeconds
				endToEnd += float64(l.Requests) * l.EndToEndSeconds
				shares[at.FrontEnd] += l.Share
			}
			if want := r.Measured - int(math.Round(r.ShedShare*float64(r.Measured))); requests != want {
				t.Errorf("%d requests went over links, want %d", requests, want)
			}
			n := float64(requests)
			if math.Abs(ttft/n-r.TTFT.Mean) > 1e-9 || math.Abs(endToEnd/n-r.EndToEnd.Mean) > 1e-9 {
				t.Errorf("TTFT %v and %v s from end to end over links, %v and %v in all", ttft/n, endToEnd/n, r.TTFT.Mean, r.EndToEnd.Mean)
			}
			for f, sum := range shares {
				if math.Abs(sum-1) > 1e-9 {
					t.Errorf("of what %s let in, %v went somewhere", f, sum)
				}
			}
			if len(shares) != 3 || len(r.Links) != 9 {
				t.Errorf("%d front-ends and %d links of an even policy", len(shares), len(r.Links))
			}
		})
	}
}
