package fit

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// columns are those that a CSV file may have. Times have a name for either unit.
var columns = map[string]func(*Measurement, float64){
	"rps":           func(m *Measurement, v float64) { m.AchievedRps = v },
	"offered_rps":   func(m *Measurement, v float64) { m.OfferedRps = v },
	"concurrency":   func(m *Measurement, v float64) { m.Concurrency = v },
	"ttft_ms":       func(m *Measurement, v float64) { m.TTFTSeconds = v / 1000 },
	"ttft_s":        func(m *Measurement, v float64) { m.TTFTSeconds = v },
	"tbt_ms":        func(m *Measurement, v float64) { m.TBTSeconds = v / 1000 },
	"tbt_s":         func(m *Measurement, v float64) { m.TBTSeconds = v },
	"prompt_tokens": func(m *Measurement, v float64) { m.Tokens.Prompt = v },
	"output_tokens": func(m *Measurement, v float64) { m.Tokens.Output = v },
	"cached_tokens": func(m *Measurement, v float64) { m.Tokens.Cached = v },
	"requests":      func(m *Measurement, v float64) { m.Requests = v },
	"failed":        func(m *Measurement, v float64) { m.Failed = v },
	"duration_s":    func(m *Measurement, v float64) { m.DurationSeconds = v },
}

const columnHint = "columns are rps, offered_rps, concurrency, ttft_ms or ttft_s, tbt_ms or tbt_s, prompt_tokens, output_tokens, cached_tokens, requests, failed, duration_s"

// readCSV reads a line of column names and a line for each run. Lines that begin
// with # are comments; an empty field is not known.
func readCSV(name string, content []byte) ([]Measurement, error) {
	r := csv.NewReader(bytes.NewReader(content))
	r.Comment, r.TrimLeadingSpace, r.ReuseRecord = '#', true, true
	head, err := r.Read()
	if err != nil {
		return nil, csvError(name, err)
	}
	set, err := header(fmt.Sprintf("%s:%d", name, line(r)), head)
	if err != nil {
		return nil, err
	}
	var ms []Measurement
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, csvError(name, err)
		}
		m, err := run(fmt.Sprintf("%s:%d", name, line(r)), set, record)
		if err != nil {
			return nil, err
		}
		if ms = append(ms, m); len(ms) > maxMeasurements {
			return nil, fmt.Errorf("%s: more than %d lines: give one for each run, not for each request", name, maxMeasurements)
		}
	}
	if len(ms) == 0 {
		return nil, fmt.Errorf("%s: there is no line below the column names; give one for each run", name)
	}
	return ms, nil
}

func line(r *csv.Reader) int {
	l, _ := r.FieldPos(0)
	return l
}

func csvError(name string, err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: there is no line of column names; %s", name, columnHint)
	case errors.As(err, &parse):
		return fmt.Errorf("%s:%d: %w; give each line as many fields as there are columns", name, parse.Line, parse.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// column is one of a file.
type column struct {
	name string
	set  func(*Measurement, float64)
}

func header(where string, names []string) ([]column, error) {
	var found []column
	for _, n := range names {
		n = strings.ToLower(strings.TrimSpace(n))
		set, ok := columns[n]
		if !ok {
			return nil, fmt.Errorf("%s: unknown column %q; %s", where, n, columnHint)
		}
		if i := slices.IndexFunc(found, func(c column) bool { return quantityOf(c.name) == quantityOf(n) }); i >= 0 {
			return nil, fmt.Errorf("%s: column %s says what %s says; keep one", where, n, found[i].name)
		}
		found = append(found, column{n, set})
	}
	has := func(n string) bool {
		return slices.ContainsFunc(found, func(c column) bool { return quantityOf(c.name) == n })
	}
	if !has("rps") && !has("offered_rps") {
		return nil, fmt.Errorf("%s: there is no load; add a column rps (completed per second), offered_rps or both", where)
	}
	if !has("ttft") {
		return nil, fmt.Errorf("%s: there is no TTFT; add a column ttft_ms or ttft_s", where)
	}
	return found, nil
}

// quantityOf is a column's name without the unit of a time.
func quantityOf(name string) string {
	for _, unit := range []string{"_ms", "_s"} {
		if q, ok := strings.CutSuffix(name, unit); ok {
			return q
		}
	}
	return name
}

func run(where string, set []column, record []string) (Measurement, error) {
	m := Measurement{Source: where}
	for i, text := range record {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) && set[i].name != "offered_rps" {
			return m, fmt.Errorf("%s: %s: %q is not a number that could be measured; write digits alone, the unit stands in the column's name", where, set[i].name, text)
		}
		if v == 0 && (set[i].name == "rps" || set[i].name == "requests") {
			// Zero stands for what is not known in a measurement; here it is known.
			return m, fmt.Errorf("%s: %s is 0: where nothing was answered there is no TTFT; leave the run out, or the field empty if it is not known", where, set[i].name)
		}
		set[i].set(&m, v)
	}
	return m, m.check()
}
