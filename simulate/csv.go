package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Columns of a CSV trace.
const (
	secondsColumn      = "seconds"
	promptColumn       = "prompt_tokens"
	outputColumn       = "output_tokens"
	classColumn        = "class"
	frontEndColumn     = "front-end"
	conversationColumn = "conversation"

	csvHead = "seconds,class,front-end,prompt_tokens,output_tokens,conversation"
)

// csvBlock is in how many tokens conversations of a CSV trace are divided.
const csvBlock = 128

// maxNames bounds the front-ends, and the classes, that a trace may name.
const maxNames = 10_000

// csvReader reads a CSV trace.
type csvReader struct {
	*csv.Reader
	trace     Trace
	columns   map[string]int
	began     float64
	frontEnds map[string]uint16 // marks
	classes   map[string]uint16
}

// ReadCSV reads a trace whose head names its columns, in any order: seconds,
// prompt_tokens and output_tokens, and if they are known class, front-end and
// conversation. Seconds count from any moment, and rise. A row of a conversation
// repeats in its prompt all of the one before, the answer included. An empty cell of
// the last three says nothing.
func ReadCSV(from io.Reader) (*Trace, error) {
	r := csvReader{Reader: csv.NewReader(from), columns: map[string]int{}, frontEnds: map[string]uint16{}, classes: map[string]uint16{}}
	r.ReuseRecord, r.TrimLeadingSpace = true, true
	if err := r.head(); err != nil {
		return nil, err
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return &r.trace, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w; write as many cells as the head has", err)
		}
		line, _ := r.FieldPos(0)
		if err := r.row(record, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func (r *csvReader) head() error {
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("line 1: %w; write the head %s", err, csvHead)
	}
	known := "," + csvHead + ","
	for i, name := range head {
		name = strings.TrimSpace(name)
		if _, twice := r.columns[name]; twice || !strings.Contains(known, ","+name+",") {
			return fmt.Errorf("line 1: column %.80q is unknown or named twice; write the head %s, of which class, front-end and conversation may be left out", name, csvHead)
		}
		r.columns[name] = i
	}
	for _, name := range []string{secondsColumn, promptColumn, outputColumn} {
		if _, ok := r.columns[name]; !ok {
			return fmt.Errorf("line 1: the head has no column %s; write the head %s", name, csvHead)
		}
	}
	if _, ok := r.columns[conversationColumn]; ok {
		r.trace.BlockTokens = csvBlock
	}
	return nil
}

// cell is what a row has in a column; empty without the column.
func (r *csvReader) cell(record []string, column string) string {
	i, ok := r.columns[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(record[i])
}

func (r *csvReader) row(record []string, line int) error {
	at, err := strconv.ParseFloat(r.cell(record, secondsColumn), 64)
	if err != nil || math.IsNaN(at) || math.IsInf(at, 0) {
		return fmt.Errorf("%s %.80q is no time; write seconds like 12.5", secondsColumn, r.cell(record, secondsColumn))
	}
	if len(r.trace.Rows) == 0 {
		r.began = at
	}
	row := Row{At: at - r.began}
	if row.Prompt, err = tokens(promptColumn, r.cell(record, promptColumn)); err != nil {
		return err
	}
	if row.Output, err = tokens(outputColumn, r.cell(record, outputColumn)); err != nil {
		return err
	}
	if row.Marks.FrontEnd, err = mark(&r.trace.FrontEnds, r.frontEnds, r.cell(record, frontEndColumn), line); err != nil {
		return err
	}
	if row.Marks.Class, err = mark(&r.trace.Classes, r.classes, r.cell(record, classColumn), line); err != nil {
		return err
	}
	if talk := r.cell(record, conversationColumn); talk != "" {
		row.Talk = max(1, xxhash.Sum64String(talk))
	}
	r.trace.Rows, err = appendRow(r.trace.Rows, row)
	return err
}

// mark returns the mark of a name, a new one for a new name; 0 for none.
func mark(names *[]Name, marks map[string]uint16, text string, line int) (uint16, error) {
	if text == "" || marks[text] > 0 {
		return marks[text], nil
	}
	if len(*names) == maxNames {
		return 0, fmt.Errorf("more than %d different names; is this the right column?", maxNames)
	}
	text = strings.Clone(text) // its record is used again
	*names = append(*names, Name{text, line})
	marks[text] = uint16(len(*names))
	return marks[text], nil
}
