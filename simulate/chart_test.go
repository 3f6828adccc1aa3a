package simulate

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"weir/fleet"
)

func TestChartIsWellFormed(t *testing.T) {
	nan := math.NaN()
	c := Chart{Title: `a < b & "c"`, Unit: "s", Traces: []Drawn{
		{"<first>", []float64{0, 10, 20, 30}, []float64{1, nan, 2, 4}},
		{"empty", nil, nil},
	}}
	var b strings.Builder
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	var paths []string
	var texts strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if a.Name.Local == "d" {
					paths = append(paths, a.Value)
				}
			}
		case xml.CharData:
			texts.Write(e)
		}
	}
	// 745 pixels for 30 s from 60 on, as names have 7 letters; 272 for 4 from the bottom, 316, up.
	if want := []string{"M60.0 248.0M556.7 180.0L805.0 44.0", ""}; len(paths) != 2 || paths[0] != want[0] || paths[1] != want[1] {
		t.Errorf("paths = %q, want %q", paths, want)
	}
	if !strings.Contains(texts.String(), `a < b & "c", s`) || !strings.Contains(texts.String(), "<first>") {
		t.Errorf("texts = %s", texts.String())
	}
}

func TestScale(t *testing.T) {
	for most, want := range map[float64]float64{8: 1, 9: 2, 0.04: 0.005, 41: 10, 100: 20, 3600: 500, 4: 0.5} {
		if got := scale(most, 8); math.Abs(got-want) > 1e-9 {
			t.Errorf("scale(%v) = %v, want %v", most, got, want)
		}
	}
}

// More lines than there are colours have a strip each, under one scale and in the
// drawing; with so many as there are colours all are in one pair of axes.
func TestManyLinesHaveStrips(t *testing.T) {
	draw := func(n int) string {
		c := Chart{Title: "t", Unit: "%", Level: 100, WarmUpSeconds: 5}
		for i := range n {
			c.Traces = append(c.Traces, Drawn{fmt.Sprintf("pool-%d-%s", i, strings.Repeat("x", 60)), []float64{0, 10}, []float64{0, float64(10 * (i + 1))}})
		}
		var b strings.Builder
		if err := c.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for n, panels := range map[int]int{len(hues): 1, len(hues) + 1: len(hues) + 1} {
		svg := draw(n)
		if got := strings.Count(svg, "stroke-dasharray"); got != panels {
			t.Errorf("%d lines: %d pairs of axes, want %d", n, got, panels)
		}
		if got := strings.Count(svg, "<path"); got != n {
			t.Errorf("%d lines: %d are drawn", n, got)
		}
		if strings.Contains(svg, strings.Repeat("x", 40)) || !strings.Contains(svg, "…</text>") {
			t.Errorf("%d lines: a name is longer than its place", n)
		}
	}
	if svg := draw(8); !strings.Contains(svg, `height="554"`) { // 8 strips of 46 pixels, 14 between them, 44 above and below
		t.Errorf("a drawing of eight strips: %.200s", svg)
	}
}

// The quantile of a part lies within its bin, and rises with what is in it.
func TestQuantileIn(t *testing.T) {
	var b fleet.Buckets
	for range 100 {
		b.Observe(1.02)
	}
	low, high := quantileIn(&b, 0.05), quantileIn(&b, 0.95)
	if bin := math.Exp2(1.0 / fleet.BinsPerDoubling); !(low < high && high/low < bin && low > 1.02/bin && high < 1.02*bin) {
		t.Errorf("5 and 95 of 100 are within %v and %v s, want both in the bin of 1.02 s", low, high)
	}
	if got := quantileIn(&fleet.Buckets{}, 0.95); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}
