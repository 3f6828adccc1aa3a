package fit

import (
	"bytes"
	"fmt"
	"math"
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
	fmt.Fprintf(&b, "  reference: {promptTokens: %.0f, outputTokens: %.0f}\n", p.Reference.Prompt, p.Reference.Output)
	fmt.Fprintf(&b, "  outputTokenCost: %s\n", digits(p.OutputTokenCost, 4))
	writeCurve(&b, "ttft", r.TTFT)
	writeCurve(&b, "tbt", r.TBT)
	return b.Bytes()
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

// Picture of the fit, in pixels.
const (
	plotWidth, plotHeight = 720, 420
	plotLeft, plotTop     = 70, 40
	plotRight, plotBottom = 20, 50
)

// SVG draws the runs, TTFT's curve with its confidence, the target and the
// capacity.
func (r *Result) SVG() []byte {
	p := plotOf(r)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="14">TTFT of one engine against load; capacity %s rps (%s to %s)</text>`+"\n",
		plotLeft, number(r.Profile.CapacityRps), number(r.CapacityRps.Low), number(r.CapacityRps.High))
	p.axes(&b)
	p.band(&b, r)
	p.line(&b, "green", "6 3", p.x(r.Profile.CapacityRps), p.y(0), p.x(r.Profile.CapacityRps), p.y(p.top))
	p.line(&b, "gray", "6 3", p.x(0), p.y(r.TargetSeconds), p.x(p.right), p.y(r.TargetSeconds))
	p.curve(&b, r)
	p.runs(&b, r)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// plot is the scale of a picture: loads in RPS up to right, seconds up to top.
type plot struct{ right, top float64 }

// plotOf shows all of the curve, and of the runs those that are not far above it.
func plotOf(r *Result) plot {
	p := plot{right: r.Profile.CapacityRps, top: r.TargetSeconds}
	for _, q := range r.Points {
		p.right = max(p.right, q.LoadRps)
	}
	for _, q := range r.TTFT {
		p.top = max(p.top, q.Seconds)
	}
	p.right, p.top = p.right*1.05, p.top*1.15
	return p
}

func (p plot) x(rps float64) float64 {
	return plotLeft + rps/p.right*(plotWidth-plotLeft-plotRight)
}

func (p plot) y(s float64) float64 {
	return plotHeight - plotBottom - min(s/p.top, 1)*(plotHeight-plotTop-plotBottom)
}

func (p plot) line(b *bytes.Buffer, colour, dashes string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="%s"/>`+"\n", x1, y1, x2, y2, colour, dashes)
}

func (p plot) axes(b *bytes.Buffer) {
	p.line(b, "black", "none", p.x(0), p.y(0), p.x(p.right), p.y(0))
	p.line(b, "black", "none", p.x(0), p.y(0), p.x(0), p.y(p.top))
	for _, v := range ticks(p.right) {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", p.x(v), plotHeight-plotBottom+18, digits(v, 3))
	}
	for _, v := range ticks(p.top) {
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-6, p.y(v)+4, seconds(v))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">load, reference requests per second (dashed: capacity, TTFT target)</text>`+"\n", plotWidth/2, plotHeight-10)
}

// ticks are a handful of round values up to a limit.
func ticks(limit float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(limit/4)))
	for _, m := range []float64{5, 2.5, 2} {
		if limit/(m*step) >= 4 {
			step *= m
			break
		}
	}
	var all []float64
	for k := 0; float64(k)*step <= limit && k < 20; k++ {
		all = append(all, float64(k)*step)
	}
	return all
}

func (p plot) curve(b *bytes.Buffer, r *Result) {
	b.WriteString(`<polyline fill="none" stroke="steelblue" stroke-width="2" points="`)
	for _, q := range r.TTFT {
		fmt.Fprintf(b, "%.1f,%.1f ", p.x(q.Utilisation*r.Profile.CapacityRps), p.y(q.Seconds))
	}
	b.WriteString("\"/>\n")
}

func (p plot) band(b *bytes.Buffer, r *Result) {
	b.WriteString(`<polygon fill="steelblue" fill-opacity="0.2" points="`)
	for i := range r.TTFT {
		fmt.Fprintf(b, "%.1f,%.1f ", p.x(r.TTFT[i].Utilisation*r.Profile.CapacityRps), p.y(r.TTFT[i].Seconds90.High))
	}
	for i := len(r.TTFT) - 1; i >= 0; i-- {
		fmt.Fprintf(b, "%.1f,%.1f ", p.x(r.TTFT[i].Utilisation*r.Profile.CapacityRps), p.y(r.TTFT[i].Seconds90.Low))
	}
	b.WriteString("\"/>\n")
}

// runs are dots, hollow where they were not fitted.
func (p plot) runs(b *bytes.Buffer, r *Result) {
	for _, q := range r.Points {
		fill := "black"
		if q.Fate != Used {
			fill = "none"
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s" stroke="black"/>`+"\n", p.x(q.LoadRps), p.y(q.TTFTSeconds), fill)
	}
}
