package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"weir/fleet"
)

// profile reads what an engine can do, and whether a profile that is fitted to traffic
// may stand in for that.
func profile(n node) (p fleet.Profile, adopt bool) {
	m := n.mapping("capacity", "reference", "outputTokenCost", "ttft", "tbt", "adopt")
	p = fleet.Profile{
		CapacityRps:     m.must("capacity").rps(minCapacityRps, maxRps),
		Reference:       defaultReference,
		OutputTokenCost: m.at("outputTokenCost").number(defaultOutputTokenCost, 0, maxOutputTokenCost),
	}
	if reference := m.at("reference"); reference.present() {
		p.Reference, p.CacheStated = tokens(reference, "promptTokens", "outputTokens", "cachedTokens")
	}
	p.TTFT = curve(m.must("ttft"), p.CapacityRps) // without it a pool would look like the fastest
	p.TBT = curve(m.at("tbt"), p.CapacityRps)
	return p, m.at("adopt").oneOf("false", "false", "true") == "true"
}

// tokens reads the size of a request, and whether it says what was cached. A prompt has
// a token at least, and its last one is always computed.
func tokens(n node, prompt, output, cached string) (t fleet.Tokens, stated bool) {
	m := n.mapping(prompt, output, cached)
	t = fleet.Tokens{
		Prompt: m.must(prompt).number(0, 1, maxTokens),
		Output: m.must(output).number(0, 0, maxTokens),
	}
	t.Cached = m.at(cached).number(0, 0, max(0, t.Prompt-1))
	return t, m.at(cached).present()
}

// curve reads latency against load: a mapping of points, or one duration for a
// level curve.
func curve(n node, capacityRps float64) fleet.Curve {
	if _, single := n.literal(); single {
		return fleet.Curve{{Seconds: n.seconds(maxLatency)}}
	}
	var c fleet.Curve
	entries := n.entries(maxCurvePoints)
	for _, e := range entries {
		if isRate(e.name) && capacityRps == 0 {
			continue // the capacity is reported, and without it this says nothing
		}
		before := n.doc.faults()
		p := fleet.CurvePoint{Utilisation: utilisation(e.key, capacityRps), Seconds: e.value.seconds(maxLatency)}
		if n.doc.faults() > before || !e.value.present() {
			continue
		}
		if len(c) > 0 {
			rising(e, c[len(c)-1], p)
		}
		c = append(c, p)
	}
	if _, ok := n.tree.(ast.MapNode); ok && len(entries) == 0 {
		n.wrong("write it like {0%: 200ms, 100%: 400ms}", "the curve has no point")
	}
	return c
}

// utilisation reads a point's load, in percent of the capacity or as a rate.
func utilisation(key node, capacityRps float64) float64 {
	return scalar(key, 0, func(s string) (float64, *mistake) {
		percent := parsePercent
		if isRate(s) {
			percent = func(s string) (float64, *mistake) {
				rps, bad := parseRate(s)
				return 100 * rps / capacityRps, bad
			}
		}
		v, bad := within(percent, s, 0, maxUtilisationPercent, suffixed("%"))
		return v / 100, bad
	})
}

func isRate(s string) bool { return strings.HasSuffix(s, "rps") || strings.HasSuffix(s, "rpm") }

func rising(e entry, last, p fleet.CurvePoint) {
	switch {
	case p.Utilisation <= last.Utilisation:
		e.key.wrong("write the points by rising load", "%s is not above the load of the point before it", e.name)
	case p.Seconds < last.Seconds:
		e.value.wrong("correct the points; latency does not fall with load",
			"the latency is below that of the point before it")
	}
}
