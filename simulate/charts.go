package simulate

import (
	"math"

	"weir/fleet"
)

// Charts draw the course of a comparison's runs under its first seed: TTFT, time from
// end to end, refusals, and for each policy how busy its pools are. They are named by
// what they show. The first seconds are those that figures leave out.
func Charts(c *Comparison, pools []string, warmUpSeconds float64) map[string]*Chart {
	out := map[string]*Chart{
		"ttft":       {Title: "time to first token, 95 of 100 requests within", Unit: "seconds"},
		"end-to-end": {Title: "time from end to end, mean", Unit: "seconds"},
		"shed":       {Title: "refused", Unit: "% of requests"},
	}
	for i, policy := range c.Policies {
		parts := c.Results[i][0].Parts
		add := func(name, line string, of func(*Part) float64) {
			d := Drawn{Name: line}
			for k := range parts {
				d.Seconds, d.Value = append(d.Seconds, middle(parts, k)), append(d.Value, of(&parts[k]))
			}
			out[name].Traces = append(out[name].Traces, d)
		}
		add("ttft", policy, func(p *Part) float64 { return quantileIn(&p.TTFT, 0.95) })
		add("end-to-end", policy, func(p *Part) float64 { return p.EndToEnd.Mean() })
		add("shed", policy, func(p *Part) float64 { return 100 * float64(p.Refused) / float64(p.Arrived) })
		busy := "utilisation-" + policy
		out[busy] = &Chart{Title: "utilisation of pools under " + policy, Unit: "% of what their engines can do", Level: 100}
		for k, pool := range pools {
			add(busy, pool, func(p *Part) float64 { return 100 * p.Utilisations[k] })
		}
	}
	for _, chart := range out {
		chart.WarmUpSeconds = warmUpSeconds
	}
	return out
}

// middle is the middle of a part. All are equally long.
func middle(parts []Part, k int) float64 {
	if len(parts) < 2 {
		return 0
	}
	return parts[k].At + parts[1].At/2
}

// quantileIn is what the fraction q of all do not pass, where within a bin all are
// taken to be evenly spread: a line in steps of a bin says less than it looks like.
func quantileIn(b *fleet.Buckets, q float64) float64 {
	rank := max(1, math.Ceil(q*float64(b.Count())))
	for _, bin := range b.Bins {
		if n := float64(bin.Count); rank > n {
			rank -= n
		} else {
			return fleet.BinBound(bin.Index) * math.Exp2(((rank-0.5)/n-1)/fleet.BinsPerDoubling)
		}
	}
	return math.NaN()
}
