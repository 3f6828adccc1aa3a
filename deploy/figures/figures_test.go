package figures_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/deploy/figures"
)

// What is written is what was measured, and nothing that was not.
func TestReport(t *testing.T) {
	r := &figures.Report{Target: "t"}
	r.AtMost("latency", 2, "s", 1.5)
	r.AtLeast("share", 0.9, "of 1", 0.9)
	r.AtLeast("nothing", math.NaN(), "s", 0)
	r.Tell("count", 7, "")
	path := filepath.Join(t.TempDir(), "new", "t.json")
	if err := figures.Write(path, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Target  string
		Figures []struct {
			What  string
			Value *float64
			Bar   string
			Holds bool
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for i, holds := range []bool{false, true, false, true} {
		if f := got.Figures[i]; f.Holds != holds || (f.Value == nil) != (f.What == "nothing") {
			t.Errorf("%+v", f)
		}
	}
	if missed := r.Missed(); len(missed) != 2 || missed[0] != "latency: 2 s, want ≤ 1.5" {
		t.Errorf("missed are %q", missed)
	}
	if table := r.String(); strings.Count(table, "MISSED") != 2 || strings.Count(table, "holds") != 1 {
		t.Errorf("\n%s", table)
	}
}
