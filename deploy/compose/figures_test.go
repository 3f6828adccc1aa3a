package compose

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"text/tabwriter"
)

// figures are what was measured, for people and for programs to read.
type figures struct {
	Target  string   `json:"target"`
	Figures []figure `json:"figures"`
}

type figure struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bar   string  `json:"bar,omitempty"` // empty: it is only told
	Holds bool    `json:"holds"`
}

// MarshalJSON writes what could not be measured as null.
func (f figure) MarshalJSON() ([]byte, error) {
	type plain figure
	if !math.IsNaN(f.Value) && !math.IsInf(f.Value, 0) {
		return json.Marshal(plain(f))
	}
	f.Value = 0
	return json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(f)})
}

func (f *figures) tell(what string, value float64, unit string) {
	f.Figures = append(f.Figures, figure{what, value, unit, "", true})
}

func (f *figures) atLeast(what string, value float64, unit string, bar float64) {
	f.Figures = append(f.Figures, figure{what, value, unit, "≥ " + number(bar), value >= bar})
}

func (f *figures) atMost(what string, value float64, unit string, bar float64) {
	f.Figures = append(f.Figures, figure{what, value, unit, "≤ " + number(bar), value <= bar})
}

func (f *figures) write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// String is a table.
func (f *figures) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tVALUE\tUNIT\tBAR\tHOLDS")
	for _, x := range f.Figures {
		holds := "yes"
		if !x.Holds {
			holds = "NO"
		}
		if x.Bar == "" {
			holds = ""
		}
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\t%s\n", x.What, x.Value, x.Unit, x.Bar, holds)
	}
	_ = w.Flush() // to memory
	return text.String()
}
