// Package figures holds what long measurements found against their bars, for people and
// for programs. A bar that is missed is no failure of the measurement.
package figures

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Variable of the environment that says where a measurement writes its report. Without it
// long ones do not run.
const Variable = "WEIR_FIGURES"

// Report is what a target measured.
type Report struct {
	Target  string   `json:"target"`
	Figures []Figure `json:"figures"`
}

// Figure is one.
type Figure struct {
	What      string  `json:"what"`
	Value     float64 `json:"value"`               // NaN: it could not be measured
	PlusMinus float64 `json:"plusMinus,omitempty"` // half of the 95 % confidence interval
	Unit      string  `json:"unit"`
	Bar       string  `json:"bar,omitempty"` // empty: it is only told
	Holds     bool    `json:"holds"`
}

// MarshalJSON writes what could not be measured as null.
func (f Figure) MarshalJSON() ([]byte, error) {
	type plain Figure
	if !math.IsNaN(f.Value) && !math.IsInf(f.Value, 0) {
		return json.Marshal(plain(f))
	}
	f.Value = 0
	return json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(f)})
}

// Tell adds a figure without a bar.
func (r *Report) Tell(what string, value float64, unit string) {
	r.Add(Figure{What: what, Value: value, Unit: unit, Holds: true})
}

// AtLeast adds a figure that has a bar below.
func (r *Report) AtLeast(what string, value float64, unit string, bar float64) {
	r.Add(Figure{What: what, Value: value, Unit: unit, Bar: "≥ " + number(bar), Holds: value >= bar})
}

// AtMost adds a figure that has a bar above.
func (r *Report) AtMost(what string, value float64, unit string, bar float64) {
	r.Add(Figure{What: what, Value: value, Unit: unit, Bar: "≤ " + number(bar), Holds: value <= bar})
}

// Add adds a figure.
func (r *Report) Add(f Figure) { r.Figures = append(r.Figures, f) }

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// Missed are the figures whose bars do not hold, in words.
func (r *Report) Missed() (out []string) {
	for _, f := range r.Figures {
		if !f.Holds {
			out = append(out, fmt.Sprintf("%s: %.4g %s, want %s", f.What, f.Value, f.Unit, f.Bar))
		}
	}
	return out
}

// String is a table.
func (r *Report) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range r.Figures {
		value := fmt.Sprintf("%.4g", f.Value)
		if f.PlusMinus != 0 {
			value += fmt.Sprintf(" ± %.2g", f.PlusMinus)
		}
		verdict := ""
		switch {
		case !f.Holds:
			verdict = "MISSED"
		case f.Bar != "":
			verdict = "holds"
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\t\n", f.What, value, f.Unit, f.Bar, verdict)
	}
	_ = w.Flush() // to memory
	return text.String()
}

// Write writes a report, or what embeds one, to a file, in a folder that it makes.
func Write(path string, report any) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
