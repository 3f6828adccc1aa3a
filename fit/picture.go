package fit

import (
	"bytes"
	"fmt"
	"math"
)

// Picture of the fit, in pixels.
const (
	plotWidth, plotHeight = 760, 440
	plotLeft, plotTop     = 70, 62
	plotRight, plotBottom = 30, 54
)

// Colours that most people tell apart (Okabe and Ito, "Color Universal Design", 2008).
const (
	ink, faint                       = "#222", "#ccc"
	curveHue, capacityHue, targetHue = "#0072b2", "#d55e00", "#555"
	solid, dashed                    = "none", "6 3"
	legendAt                         = 44.0
)

// SVG draws the runs, TTFT's curve with its confidence, the target and the
// capacity. Its ground is white, whatever page it stands on.
func (r *Result) SVG() []byte {
	p := plotOf(r)
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight, ink)
	fmt.Fprintf(p, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="14">time to first token of one engine, against its load</text>`+"\n", plotLeft)
	p.legend()
	p.axes()
	p.band(r)
	p.limits(r)
	p.curve(r)
	p.runs(r)
	p.WriteString("</svg>\n")
	return p.Bytes()
}

// plot is a picture that is being drawn: loads in RPS up to right, seconds up to top.
type plot struct {
	bytes.Buffer
	right, top float64
}

// plotOf shows all of the curve, and of the runs those that are not far above it.
func plotOf(r *Result) *plot {
	p := plot{right: r.Profile.CapacityRps, top: r.TargetSeconds}
	for _, q := range r.Points {
		p.right = max(p.right, q.LoadRps)
	}
	for _, q := range r.TTFT {
		p.top = max(p.top, q.Seconds)
	}
	p.right, p.top = p.right*1.05, p.top*1.15
	return &p
}

func (p *plot) x(rps float64) float64 {
	return plotLeft + rps/p.right*(plotWidth-plotLeft-plotRight)
}

func (p *plot) y(s float64) float64 {
	return plotHeight - plotBottom - min(s/p.top, 1)*(plotHeight-plotTop-plotBottom)
}

func (p *plot) line(hue, dashes string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="%s"/>`+"\n", x1, y1, x2, y2, hue, dashes)
}

func (p *plot) text(hue, anchor string, x, y float64, format string, args ...any) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" stroke="white" stroke-width="3" paint-order="stroke">%s</text>`+"\n", x, y, anchor, hue, fmt.Sprintf(format, args...))
}

// legend says what is what, in a row below the title.
func (p *plot) legend() {
	const y = legendAt - 4
	p.dot(plotLeft+5, y, ink)
	p.text(ink, "start", plotLeft+14, legendAt, "run")
	p.dot(plotLeft+61, y, "white")
	p.text(ink, "start", plotLeft+70, legendAt, "run that is left out")
	fmt.Fprintf(p, `<rect x="%d" y="%.1f" width="26" height="12" fill="%s" fill-opacity="0.2"/>`, plotLeft+206, y-6, curveHue)
	fmt.Fprintf(p, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="2"/>`+"\n", plotLeft+206, y, plotLeft+232, y, curveHue)
	p.text(ink, "start", plotLeft+238, legendAt, "the profile, and where it lies with 90 %% confidence")
}

func (p *plot) dot(x, y float64, fill string) {
	fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s" stroke="%s"/>`+"\n", x, y, fill, ink)
}

func (p *plot) axes() {
	for _, v := range ticks(p.right) {
		p.line(ink, solid, p.x(v), p.y(0), p.x(v), p.y(0)+4)
		p.text(ink, "middle", p.x(v), plotHeight-plotBottom+18, "%s", digits(v, 3))
	}
	for _, v := range ticks(p.top) {
		p.line(faint, solid, p.x(0), p.y(v), p.x(p.right), p.y(v))
		p.text(ink, "end", plotLeft-6, p.y(v)+4, "%s", seconds(v))
	}
	p.line(ink, solid, p.x(0), p.y(0), p.x(p.right), p.y(0))
	p.line(ink, solid, p.x(0), p.y(0), p.x(0), p.y(p.top))
	p.text(ink, "middle", (plotLeft+plotWidth-plotRight)/2, plotHeight-12, "load, reference requests per second")
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

// limits are the capacity and the target, each with its name beside it.
func (p *plot) limits(r *Result) {
	at := p.x(r.Profile.CapacityRps)
	p.line(capacityHue, dashed, at, p.y(0), at, p.y(p.top))
	p.text(capacityHue, "end", at-6, plotTop+12, "capacity %s rps (%s to %s)", number(r.Profile.CapacityRps), number(r.CapacityRps.Low), number(r.CapacityRps.High))
	p.line(targetHue, dashed, p.x(0), p.y(r.TargetSeconds), p.x(p.right), p.y(r.TargetSeconds))
	p.text(targetHue, "start", plotLeft+6, p.y(r.TargetSeconds)-5, "target %s", seconds(r.TargetSeconds))
}

func (p *plot) curve(r *Result) {
	fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, curveHue)
	for _, q := range r.TTFT {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x(q.Utilisation*r.Profile.CapacityRps), p.y(q.Seconds))
	}
	p.WriteString("\"/>\n")
}

func (p *plot) band(r *Result) {
	fmt.Fprintf(p, `<polygon fill="%s" fill-opacity="0.2" points="`, curveHue)
	for i := range r.TTFT {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x(r.TTFT[i].Utilisation*r.Profile.CapacityRps), p.y(r.TTFT[i].Seconds90.High))
	}
	for i := len(r.TTFT) - 1; i >= 0; i-- {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x(r.TTFT[i].Utilisation*r.Profile.CapacityRps), p.y(r.TTFT[i].Seconds90.Low))
	}
	p.WriteString("\"/>\n")
}

// runs are dots, hollow where they were not fitted; an arrow with its time where one
// is above the picture.
func (p *plot) runs(r *Result) {
	for _, q := range r.Points {
		fill := ink
		if q.Fate != Used {
			fill = "white"
		}
		x, y := p.x(q.LoadRps), p.y(q.TTFTSeconds)
		if q.TTFTSeconds <= p.top {
			p.dot(x, y, fill)
			continue
		}
		fmt.Fprintf(p, `<path d="M%.1f %.1fl-5 9h10z" fill="%s" stroke="%s"/>`+"\n", x, y-2, fill, ink)
		p.text(ink, "middle", x, y-6, "%s", seconds(q.TTFTSeconds))
	}
}
