package fit

import (
	"bytes"
	"fmt"

	"weir/fleet"
)

// YAML is the profile as it stands in a fleet file, with what it rests on in
// comments.
func (r *Result) YAML() []byte {
	var b bytes.Buffer
	p := &r.Profile
	used := 0
	for _, q := range r.Points {
		if q.Fate == Used {
			used++
		}
	}
	fmt.Fprintf(&b, "# Fitted to %d of %d runs at %d loads; intervals hold with 90 %% confidence.\n", used, len(r.Points), len(r.levels))
	fmt.Fprintf(&b, "# TTFT target: %s; without load it is %s. The runs lie %s beside the curve (root mean square)",
		seconds(r.TargetSeconds), seconds(r.UnloadedSeconds), percent(r.TTFTResidual))
	if len(p.TBT) > 0 {
		fmt.Fprintf(&b, ", of TBT %s", percent(r.TBTResidual))
	}
	b.WriteString(".\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "# Note: %s.\n", n)
	}
	fmt.Fprintf(&b, "profile:\n  capacity: %s rps # %s to %s; %s\n", digits(p.CapacityRps, 4), number(r.CapacityRps.Low), number(r.CapacityRps.High), r.boundText())
	b.WriteString(referenceLine(p))
	fmt.Fprintf(&b, "  outputTokenCost: %s\n", digits(p.OutputTokenCost, 4))
	writeCurve(&b, "ttft", r.TTFT)
	writeCurve(&b, "tbt", r.TBT)
	return b.Bytes()
}

// referenceLine says what was cached if that is known; who measured may know it.
func referenceLine(p *fleet.Profile) string {
	if p.CacheStated {
		return fmt.Sprintf("  reference: {promptTokens: %.0f, outputTokens: %.0f, cachedTokens: %.0f}\n", p.Reference.Prompt, p.Reference.Output, p.Reference.Cached)
	}
	return fmt.Sprintf("  reference: {promptTokens: %.0f, outputTokens: %.0f} # if no prompt had been sent before: and cachedTokens: 0, as --uncached writes\n", p.Reference.Prompt, p.Reference.Output)
}

func (r *Result) boundText() string {
	switch r.Bound {
	case BySaturation:
		return "where throughput rises no more"
	case ByExtrapolation:
		return "where TTFT would break its target, beyond the highest load"
	}
	return "where TTFT breaks its target"
}

// writeCurve rounds so that what rises still rises.
func writeCurve(b *bytes.Buffer, name string, points []Fitted) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(b, "  %s:\n", name)
	for _, p := range points {
		fmt.Fprintf(b, "    %s%%: %s # %s to %s\n", digits(100*p.Utilisation, 4), seconds(p.Seconds), seconds(p.Seconds90.Low), seconds(p.Seconds90.High))
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
