package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
)

const (
	defaultDimensions = 384
	maxDimensions     = 4096
	maxInputs         = 2048 // of one request
)

// embeddings is OpenAI's embeddings API.
type embeddings struct{ openAI }

// embedding says what vectors to make.
type embedding struct {
	inputs     []string
	dimensions int
	base64     bool // little-endian 32-bit floats, instead of numbers
}

func (embeddings) read(body []byte) (*request, error) {
	var r struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Format     string          `json:"encoding_format"`
		Dimensions *int            `json:"dimensions"`
		User       json.RawMessage `json:"user"`
	}
	err := json.Unmarshal(body, &r)
	inputs, inputError := inputs(r.Input)
	q := &request{model: r.Model, user: text(r.User)}
	q.embed = &embedding{inputs: inputs, dimensions: defaultDimensions, base64: r.Format == "base64"}
	if r.Dimensions != nil {
		q.embed.dimensions = *r.Dimensions
	}
	for _, in := range inputs {
		q.turns = append(q.turns, turn{text: in})
	}
	if err := q.check(err, "input"); err != nil {
		return q, err
	}
	if inputError != nil {
		return q, fmt.Errorf("input: %w", inputError)
	}
	return q, q.embed.check(r.Format)
}

func (m *embedding) check(format string) error {
	switch {
	case format != "" && format != "float" && format != "base64":
		return fmt.Errorf("encoding_format %q: want float or base64", format)
	case m.dimensions < 1 || m.dimensions > maxDimensions:
		return fmt.Errorf("dimensions %d: want 1 to %d", m.dimensions, maxDimensions)
	case len(m.inputs) > maxInputs:
		return fmt.Errorf("input: %d texts: want at most %d", len(m.inputs), maxInputs)
	}
	return nil
}

func (embeddings) whole(j *job) any {
	type item struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	items := make([]item, len(j.embed.inputs))
	for i, input := range j.embed.inputs {
		v := vector(j.seed, j.model, input, j.embed.dimensions)
		items[i] = item{"embedding", i, v}
		if j.embed.base64 {
			items[i].Embedding = packed(v)
		}
	}
	return map[string]any{
		"object": "list", "model": j.model, "data": items,
		"usage": map[string]int{"prompt_tokens": j.prompt, "total_tokens": j.prompt},
	}
}

// vector is of length 1, and the same for the same text, model and seed.
func vector(seed uint64, model, text string, dimensions int) []float32 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %s", model, text) // a hash takes everything
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	v := make([]float32, dimensions)
	sum := 0.0
	for i := range v {
		x := random.NormFloat64()
		v[i], sum = float32(x), sum+x*x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func packed(v []float32) string {
	bytes := make([]byte, 0, 4*len(v))
	for _, x := range v {
		bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(bytes)
}
