package simulate

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
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
	// 650 pixels for 30 s from 60 on; 284 for 4 from the bottom, 320, up.
	if want := []string{"M60.0 249.0M493.3 178.0L710.0 36.0", ""}; len(paths) != 2 || paths[0] != want[0] || paths[1] != want[1] {
		t.Errorf("paths = %q, want %q", paths, want)
	}
	if !strings.Contains(texts.String(), `a < b & "c", s`) || !strings.Contains(texts.String(), "<first>") {
		t.Errorf("texts = %s", texts.String())
	}
}

func TestScale(t *testing.T) {
	for most, want := range map[float64]float64{8: 1, 9: 2, 0.04: 0.005, 41: 10, 100: 20, 3600: 500, 4: 0.5} {
		if got := scale(most); math.Abs(got-want) > 1e-9 {
			t.Errorf("scale(%v) = %v, want %v", most, got, want)
		}
	}
}
