package simulate

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Chart is a drawing of values over the time of a run.
type Chart struct {
	Title         string
	Unit          string // of the values
	Traces        []Drawn
	WarmUpSeconds float64 // from the start, that figures leave out; shaded
	Level         float64 // drawn as a dashed line across; 0: none
}

// Drawn is one line of a chart. A value that is not a number is a gap.
type Drawn struct {
	Name           string
	Seconds, Value []float64
}

// Sizes of a chart, pixels.
const (
	chartWidth, chartHeight = 900.0, 360.0
	left, top, bottom       = 60.0, 44.0, 44.0 // margins
	nameHeight              = 18.0
	characterWidth          = 7.0 // of a letter of a name, about
	swatch                  = 36.0
	mostNamed               = 40 // letters of a name
	stripHeight, stripGap   = 46.0, 14.0
)

// hues are told apart by most people, on a screen and on paper (Okabe and Ito, "Color
// Universal Design", 2008). Their yellow is too pale for a line.
var hues = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// sheet is a chart that is being drawn.
type sheet struct {
	*Chart
	strings.Builder
	right       float64 // where the time axis ends
	most        float64 // seconds that it shows
	value, step float64 // the greatest value that is shown, and between two marks
}

// panel is a pair of axes: the places of its greatest value and of zero.
type panel struct{ top, bottom float64 }

// WriteSVG draws the chart. Lines that are more than there are colours have a strip
// each, with the same scale: a tangle says nothing.
func (c *Chart) WriteSVG(to io.Writer) error {
	s := c.sheet()
	ends := chartHeight - bottom
	strips := len(c.Traces) > len(hues)
	if strips {
		ends = top + float64(len(c.Traces))*(stripHeight+stripGap) - stripGap
	}
	s.head(ends + bottom)
	if strips {
		for i := range c.Traces {
			at := top + float64(i)*(stripHeight+stripGap)
			s.panel(panel{at, at + stripHeight}, c.Traces[i:i+1])
		}
	} else {
		s.panel(panel{top, ends}, c.Traces)
	}
	s.times(ends)
	s.WriteString("</svg>\n")
	_, err := io.WriteString(to, s.String())
	return err
}

// sheet settles the scales.
func (c *Chart) sheet() *sheet {
	s := &sheet{Chart: c}
	longest := 0
	for i := range c.Traces {
		longest = max(longest, utf8.RuneCountInString(shortened(c.Traces[i].Name)))
	}
	s.right = chartWidth - 10 - swatch - characterWidth*float64(longest)
	s.most, s.value = c.most()
	marks := 8.0
	if len(c.Traces) > len(hues) {
		marks = 2
	}
	s.step = scale(s.value, marks)
	s.value = max(s.step, math.Ceil(s.value/s.step-1e-9)*s.step)
	return s
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
	return cmp.Or(seconds, 1), cmp.Or(max(value, c.Level), 1)
}

// scale is the distance of the marks on an axis: 1, 2 or 5 times a power of ten, at
// most so many of them.
func scale(most, marks float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most/marks)))
	for _, by := range []float64{1, 2, 5} {
		if by*step*marks >= most {
			return by * step
		}
	}
	return 10 * step
}

func (s *sheet) x(seconds float64) float64 { return left + seconds/s.most*(s.right-left) }

func (s *sheet) y(p panel, value float64) float64 {
	return p.bottom - value/s.value*(p.bottom-p.top)
}

// head begins the drawing. Its ground is white, whatever page it stands on.
func (s *sheet) head(height float64) {
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12" fill="#222">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(s, `<rect width="100%%" height="100%%" fill="white"/><text x="%.0f" y="22" font-size="14">%s, %s</text>`+"\n", left, escaped(s.Title), escaped(s.Unit))
	if s.WarmUpSeconds > 0 {
		s.text(left, top-6, "start", "#777", "shaded: not measured")
	}
}

func (s *sheet) text(x, y float64, anchor, fill, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, fill, escaped(text))
}

// panel draws axes, lines and their names.
func (s *sheet) panel(p panel, lines []Drawn) {
	if s.WarmUpSeconds > 0 {
		fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#f0f0f0"/>`+"\n", left, p.top, s.x(min(s.WarmUpSeconds, s.most))-left, p.bottom-p.top)
	}
	for v := 0.0; v <= s.value*1.0001; v += s.step {
		s.across(p, v, `stroke="#ccc"`)
		s.text(left-6, s.y(p, v)+4, "end", "#222", fmt.Sprintf("%.4g", v))
	}
	if s.Level > 0 {
		s.across(p, s.Level, `stroke="#555" stroke-dasharray="5 3"`)
	}
	for i := range lines {
		s.line(p, &lines[i], hues[i])
		at := p.top + 4 + nameHeight*float64(i)
		if len(lines) < len(s.Traces) {
			at = (p.top + p.bottom) / 2 // of a strip
		}
		fmt.Fprintf(s, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`+"\n", s.right+10, s.right+30, at, at, hues[i])
		s.text(s.right+swatch, at+4, "start", "#222", shortened(lines[i].Name))
	}
}

func (s *sheet) across(p panel, value float64, stroke string) {
	fmt.Fprintf(s, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" %s/>`+"\n", left, s.right, s.y(p, value), s.y(p, value), stroke)
}

func (s *sheet) line(p panel, d *Drawn, hue string) {
	fmt.Fprintf(s, `<path fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round" d="`, hue)
	pen := "M"
	for i, v := range d.Value {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			pen = "M"
			continue
		}
		fmt.Fprintf(s, "%s%.1f %.1f", pen, s.x(d.Seconds[i]), s.y(p, v))
		pen = "L"
	}
	s.WriteString(`"/>` + "\n")
}

// times draws the marks of the time axis below all panels.
func (s *sheet) times(ends float64) {
	for v, step := 0.0, scale(s.most, 10); v <= s.most*1.0001; v += step {
		fmt.Fprintf(s, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#222"/>`+"\n", s.x(v), s.x(v), ends, ends+4)
		s.text(s.x(v), ends+17, "middle", "#222", fmt.Sprintf("%.4g", v))
	}
	s.text((left+s.right)/2, ends+34, "middle", "#222", "seconds from the start of the run")
}

// shortened is a name that fits beside the lines.
func shortened(name string) string {
	if r := []rune(name); len(r) > mostNamed {
		return string(r[:mostNamed-1]) + "…"
	}
	return name
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
