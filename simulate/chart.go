package simulate

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Chart is a drawing of values over the time of a run.
type Chart struct {
	Title  string
	Unit   string // of the values
	Traces []Drawn
}

// Drawn is one line of a chart. A value that is not a number is a gap.
type Drawn struct {
	Name           string
	Seconds, Value []float64
}

// Sizes of a chart, pixels.
const (
	chartWidth, chartHeight = 900.0, 360.0
	left, right             = 60.0, 190.0 // margins: the scale, the names
	top, bottom             = 36.0, 40.0
	nameHeight              = 16.0
)

// hues are told apart by most people (Okabe and Ito, 2008); further lines are dashed.
var hues = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// WriteSVG draws the chart.
func (c *Chart) WriteSVG(to io.Writer) error {
	xMost, yMost := c.most()
	xStep, yStep := scale(xMost), scale(yMost)
	yMost = max(yStep, math.Ceil(yMost/yStep-1e-9)*yStep)
	x := func(seconds float64) float64 { return left + seconds/xMost*(chartWidth-left-right) }
	y := func(value float64) float64 {
		return chartHeight - bottom - value/yMost*(chartHeight-top-bottom)
	}
	var b strings.Builder
	height := max(chartHeight, top+nameHeight*float64(len(c.Traces)+1))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%.0f" y="20" font-size="14">%s, %s</text>`+"\n", left, escaped(c.Title), escaped(c.Unit))
	for v := 0.0; v <= yMost*1.0001; v += yStep {
		fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
			left, chartWidth-right, y(v), y(v), left-6, y(v)+4, v)
	}
	for v := 0.0; v <= xMost*1.0001; v += xStep {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" text-anchor="middle">%.4g</text>`+"\n", x(v), chartHeight-bottom+16, v)
	}
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">seconds</text>`+"\n", chartWidth-right, chartHeight-6)
	for i := range c.Traces {
		c.Traces[i].draw(&b, i, x, y)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// most are the largest time and value, above 0.
func (c *Chart) most() (seconds, value float64) {
	for _, t := range c.Traces {
		for i, v := range t.Value {
			seconds = max(seconds, t.Seconds[i])
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				value = max(value, v)
			}
		}
	}
	return cmp.Or(seconds, 1), cmp.Or(value, 1)
}

// scale is the distance of the marks on an axis: 1, 2 or 5 times a power of ten, at
// most eight of them.
func scale(most float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most/8)))
	for _, by := range []float64{1, 2, 5} {
		if by*step*8 >= most {
			return by * step
		}
	}
	return 10 * step
}

// draw adds the line and its name.
func (d *Drawn) draw(b *strings.Builder, number int, x, y func(float64) float64) {
	hue, dash := hues[number%len(hues)], ""
	if round := number / len(hues); round > 0 {
		dash = fmt.Sprintf(` stroke-dasharray="%d 3"`, 3*round)
	}
	fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.5"%s d="`, hue, dash)
	pen := "M"
	for i, v := range d.Value {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			pen = "M"
			continue
		}
		fmt.Fprintf(b, "%s%.1f %.1f", pen, x(d.Seconds[i]), y(v))
		pen = "L"
	}
	at := top + nameHeight*float64(number)
	fmt.Fprintf(b, `"/><line x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0f" stroke="%s" stroke-width="2"%s/><text x="%.0f" y="%.0f">%s</text>`+"\n",
		chartWidth-right+10, chartWidth-right+30, at, at, hue, dash, chartWidth-right+36, at+4, escaped(d.Name))
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

// Charts draw the course of a comparison's runs under its first seed: TTFT, time from
// end to end, refusals, and for each policy how busy its pools are. They are named by
// what they show.
func Charts(c *Comparison, pools []string) map[string]*Chart {
	out := map[string]*Chart{
		"ttft":       {Title: "TTFT, 95 of 100 requests within", Unit: "seconds"},
		"end-to-end": {Title: "end to end, mean", Unit: "seconds"},
		"shed":       {Title: "refused", Unit: "% of requests"},
	}
	for i, policy := range c.Policies {
		parts := c.Results[i][0].Parts
		add := func(name, line string, of func(*Part) float64) {
			d := Drawn{Name: line}
			for k := range parts {
				d.Seconds, d.Value = append(d.Seconds, parts[k].At), append(d.Value, of(&parts[k]))
			}
			out[name].Traces = append(out[name].Traces, d)
		}
		add("ttft", policy, func(p *Part) float64 { return p.TTFT.Quantile(0.95) })
		add("end-to-end", policy, func(p *Part) float64 { return p.EndToEnd.Mean() })
		add("shed", policy, func(p *Part) float64 { return 100 * float64(p.Refused) / float64(p.Arrived) })
		busy := "utilisation-" + policy
		out[busy] = &Chart{Title: "utilisation of pools under " + policy, Unit: "%"}
		for k, pool := range pools {
			add(busy, pool, func(p *Part) float64 { return 100 * p.Utilisations[k] })
		}
	}
	return out
}
