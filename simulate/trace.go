package simulate

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Row is one request of a trace.
type Row struct {
	At             float64 // seconds from the first row
	Prompt, Output int     // tokens
	Blocks         []uint64
}

// maxRows bounds what is read of a trace.
const maxRows = 5_000_000

// ReadAzure reads a trace in the form of the AzurePublicDataset's LLM inference
// traces: CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens. It
// knows nothing of what prompts have in common.
func ReadAzure(from io.Reader) ([]Row, error) {
	r := csv.NewReader(from)
	r.ReuseRecord, r.FieldsPerRecord = true, 3
	var rows []Row
	var began time.Time
	for line := 1; ; line++ {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		if line == 1 {
			continue // the head
		}
		row, at, err := azureRow(record)
		if err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
		if len(rows) == 0 {
			began = at
		}
		row.At = at.Sub(began).Seconds()
		if rows, err = appendRow(rows, row); err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
	}
}

func azureRow(record []string) (row Row, at time.Time, err error) {
	at, err = time.Parse("2006-01-02 15:04:05.9999999", record[0])
	if err != nil {
		return row, at, err
	}
	if row.Prompt, err = strconv.Atoi(record[1]); err != nil {
		return row, at, err
	}
	row.Output, err = strconv.Atoi(record[2])
	return row, at, err
}

// ReadMooncake reads a trace in the form of Mooncake's: a JSON object a line with
// timestamp (ms), input_length, output_length and hash_ids, one for each block of the
// prompt, that stands for the prompt up to the block's end. Rows that were recorded
// at the same moment, seconds after the ones before, are spread over the time until
// the next.
func ReadMooncake(from io.Reader) ([]Row, error) {
	s := bufio.NewScanner(from)
	s.Buffer(nil, 16<<20)
	var rows []Row
	for line := 1; s.Scan(); line++ {
		var r struct {
			Timestamp float64  `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		err := json.Unmarshal(s.Bytes(), &r)
		if err == nil {
			rows, err = appendRow(rows, Row{r.Timestamp / 1000, r.Input, r.Output, r.Hashes})
		}
		if err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	spread(rows)
	return rows, nil
}

func appendRow(rows []Row, r Row) ([]Row, error) {
	switch {
	case len(rows) >= maxRows:
		return nil, fmt.Errorf("more than %d rows", maxRows)
	case !(r.At >= 0) || r.Prompt < 0 || r.Output < 0:
		return nil, fmt.Errorf("%v s, %d and %d tokens: want nothing negative", r.At, r.Prompt, r.Output)
	case len(rows) > 0 && r.At < rows[len(rows)-1].At:
		return nil, errors.New("it is earlier than the one before")
	}
	return append(rows, r), nil
}

// spread moves rows of the same moment apart. The last moment lasts as long as the
// one before it.
func spread(rows []Row) {
	pause := 0.0
	for i := 0; i < len(rows); {
		end := i
		for end < len(rows) && rows[end].At == rows[i].At {
			end++
		}
		if end < len(rows) {
			pause = rows[end].At - rows[i].At
		}
		for k := i; k < end; k++ {
			rows[k].At += pause * float64(k-i) / float64(end-i)
		}
		i = end
	}
}
