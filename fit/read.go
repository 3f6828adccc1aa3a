package fit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Read makes measurements of a file that a benchmark wrote, whose kind it tells by
// itself: results of vLLM's bench serve, reports of GuideLLM, stages of
// inference-perf, or CSV. Errors name the file, the place and the remedy.
func Read(name string, content []byte) ([]Measurement, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	start := bytes.TrimSpace(content)
	switch {
	case len(start) == 0:
		return nil, fmt.Errorf("%s: the file is empty", name)
	case start[0] == '{' || start[0] == '[':
		return readJSON(name, content)
	}
	return readCSV(name, content)
}

// readJSON reads the values of a file one after the other: vLLM appends them.
func readJSON(name string, content []byte) ([]Measurement, error) {
	var all []Measurement
	d := json.NewDecoder(bytes.NewReader(content))
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, syntaxError(name, content, err)
		}
		at := document{name, content, int(d.InputOffset()) - len(raw)}
		ms, err := at.read(raw)
		if err != nil {
			return nil, err
		}
		if all = append(all, ms...); len(all) > maxMeasurements {
			return nil, fmt.Errorf("%s: more than %d runs", name, maxMeasurements)
		}
	}
}

// document is one JSON value of a file.
type document struct {
	name    string
	content []byte
	offset  int // of the value
}

// read tells whose the value is by keys that only that tool writes.
func (d document) read(raw json.RawMessage) ([]Measurement, error) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		return nil, fmt.Errorf("%s: not an object; %s", d.where(0), knownFormats)
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return keys[n] == nil })
	}
	switch {
	case has("benchmarks"):
		return readInto(d, raw, guideLLM.measurements)
	case has("load_summary", "successes"):
		return readInto(d, raw, inferencePerf.measurements)
	case has("request_throughput", "duration"):
		return readInto(d, raw, vllmResult.measurements)
	}
	return nil, fmt.Errorf("%s: not a result that is known; %s", d.where(0), knownFormats)
}

const knownFormats = "give a result of vllm bench serve (--save-result), a report of GuideLLM (benchmarks.json), " +
	"stages of inference-perf (stage_*_lifecycle_metrics.json), or CSV with a line of column names"

// readInto decodes a value and makes measurements of it.
func readInto[T any](d document, raw json.RawMessage, measurements func(T, document) ([]Measurement, error)) ([]Measurement, error) {
	var value T
	err := json.Unmarshal(raw, &value)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return nil, fmt.Errorf("%s: %s: a %s is no value for it; was the file changed by hand?", d.where(int(kind.Offset)), kind.Field, kind.Value)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", d.where(0), err)
	}
	return measurements(value, d)
}

// where is a place in the file, that many bytes into the value.
func (d document) where(into int) string {
	return fmt.Sprintf("%s:%d", d.name, lineAt(d.content, d.offset+into))
}

func lineAt(content []byte, offset int) int {
	return 1 + bytes.Count(content[:min(max(offset, 0), len(content))], []byte("\n"))
}

func syntaxError(name string, content []byte, err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		hint := "was it cut off?"
		if at := min(int(syntax.Offset), len(content)); at > 0 && strings.ContainsRune("NI", rune(content[at-1])) {
			hint = "NaN and Infinity come from a run in which no request succeeded; leave it out"
		}
		return fmt.Errorf("%s:%d: not JSON: %w; %s", name, lineAt(content, int(syntax.Offset)), err, hint)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s:%d: the JSON ends too early; was it cut off?", name, lineAt(content, len(bytes.TrimSpace(content))))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// need holds what must be there to its place and range.
func need(where, field string, value float64) error {
	if value > 0 && !math.IsInf(value, 0) {
		return nil
	}
	return fmt.Errorf("%s: %s is missing or no positive number; was any answer streamed to its end?", where, field)
}
