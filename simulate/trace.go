package simulate

import (
	"bufio"
	"bytes"
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
	Talk           uint64 // names its conversation; 0: its blocks do, if it has any
	Marks          Marks
}

// Marks are what a row says of where it belongs: places among the names of its trace,
// from 1 on; 0: it does not say.
type Marks struct{ FrontEnd, Class uint16 }

// Trace is recorded requests.
type Trace struct {
	Rows        []Row
	BlockTokens int // of the rows' blocks, and of their conversations'; 0: nothing is known of what prompts have in common
	// Names that rows give, by their marks less 1.
	FrontEnds, Classes []Name
}

// Name is a word of a trace, and the line on which it stands first.
type Name struct {
	Text string
	Line int
}

// What is read of a trace is bounded.
const (
	maxRows    = 5_000_000
	maxTokens  = 10_000_000 // of a prompt, or of an answer
	maxSeconds = 1e8        // from the first row
)

// mooncakeBlock is the size of the blocks whose hashes Mooncake's trace has, tokens.
const mooncakeBlock = 512

// ReadTrace reads a trace in any of the forms that are known, by how it begins: those
// of [ReadAzure], [ReadMooncake] and [ReadCSV]. Errors name the line.
func ReadTrace(from io.Reader) (*Trace, error) {
	in := bufio.NewReaderSize(from, 1<<16)
	head, err := in.Peek(4096)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if rest, marked := bytes.CutPrefix(head, []byte("\ufeff")); marked {
		head = rest
		_, _ = in.Discard(len("\ufeff"))
	}
	t := &Trace{}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case len(bytes.TrimSpace(head)) == 0:
		return nil, errors.New("the trace has no row; write a head, and a row for each request")
	case bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")):
		t.BlockTokens = mooncakeBlock
		t.Rows, err = ReadMooncake(in)
	case bytes.Contains(line, []byte("TIMESTAMP")):
		t.Rows, err = ReadAzure(in)
	case bytes.Contains(line, []byte(secondsColumn)):
		t, err = ReadCSV(in)
	default:
		err = fmt.Errorf("line 1: %.80q begins no trace that is known; write the head %s", bytes.TrimSpace(line), csvHead)
	}
	if err == nil && len(t.Rows) == 0 {
		err = errors.New("the trace has no row; write one for each request below the head")
	}
	return t, err
}

// ReadAzure reads a trace in the form of the AzurePublicDataset's LLM inference
// traces: CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens. It
// knows nothing of what prompts have in common.
func ReadAzure(from io.Reader) ([]Row, error) {
	r := csv.NewReader(from)
	r.ReuseRecord, r.FieldsPerRecord = true, 3
	var rows []Row
	var began time.Time
	for head := true; ; head = false {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w; write the columns TIMESTAMP, ContextTokens and GeneratedTokens", err)
		}
		if head {
			continue
		}
		line, _ := r.FieldPos(0)
		row, at, err := azureRow(record)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if len(rows) == 0 {
			began = at
		}
		row.At = at.Sub(began).Seconds()
		if rows, err = appendRow(rows, row); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func azureRow(record []string) (row Row, at time.Time, err error) {
	at, err = time.Parse("2006-01-02 15:04:05.9999999", record[0])
	if err != nil {
		return row, at, fmt.Errorf("TIMESTAMP %.80q is no time; write it like 2023-11-16 18:15:46.6805900", record[0])
	}
	if row.Prompt, err = tokens("ContextTokens", record[1]); err == nil {
		row.Output, err = tokens("GeneratedTokens", record[2])
	}
	return row, at, err
}

// ReadMooncake reads a trace in the form of Mooncake's: a JSON object a line with
// timestamp (ms), input_length, output_length and hash_ids, one for each block of the
// prompt, that stands for the prompt up to the block's end. The first timestamp, from
// whenever it counts, is when the trace begins. Rows that were recorded at the same
// moment, seconds after the ones before, are spread over the time until the next.
func ReadMooncake(from io.Reader) ([]Row, error) {
	s := bufio.NewScanner(from)
	s.Buffer(nil, 16<<20)
	var rows []Row
	began, line := 0.0, 1
	for ; s.Scan(); line++ {
		var r struct {
			Timestamp float64  `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		err := mooncakeError(json.Unmarshal(s.Bytes(), &r))
		if len(rows) == 0 {
			began = r.Timestamp
		}
		if err == nil {
			rows, err = appendRow(rows, Row{At: (r.Timestamp - began) / 1000, Prompt: r.Input, Output: r.Output, Blocks: r.Hashes})
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w; write an object a line", line, err)
	}
	spread(rows)
	return rows, nil
}

// mooncakeError says of what a line of JSON is not what to write.
func mooncakeError(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s: a %s is no value for it; write %s", kind.Field, kind.Value, mooncakeForms)
	case errors.As(err, &kind):
		return fmt.Errorf("a %s is no row; write an object a line, with %s", kind.Value, mooncakeForms)
	}
	return fmt.Errorf("no JSON: %w; write an object a line, with %s", err, mooncakeForms)
}

const mooncakeForms = `"timestamp" in ms, "input_length" and "output_length" as whole numbers, and "hash_ids" as a list of whole numbers from 0 up`

// tokens reads how many a cell says.
func tokens(column, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s %.80q is no number of tokens; write a whole one from 0 to %d", column, text, maxTokens)
	}
	return n, nil
}

func appendRow(rows []Row, r Row) ([]Row, error) {
	switch {
	case len(rows) >= maxRows:
		return nil, fmt.Errorf("more than %d rows; cut the trace", maxRows)
	case r.Prompt < 0 || r.Output < 0 || r.Prompt > maxTokens || r.Output > maxTokens:
		return nil, fmt.Errorf("%d and %d tokens; write 0 to %d", r.Prompt, r.Output, maxTokens)
	case len(rows) > 0 && r.At < rows[len(rows)-1].At:
		return nil, errors.New("it is earlier than the one before; sort the rows by time")
	case !(r.At >= 0 && r.At <= maxSeconds):
		return nil, fmt.Errorf("%v s; write 0 to %v", r.At, maxSeconds)
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
