package extproc

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"strings"
)

// Bounds of what a compressed body may grow to, in bytes.
const (
	maxInflated     = 32 << 20
	minInflated     = 1 << 20
	maxInflateRatio = 100
)

// inspectable says why a body of this kind cannot be read, nil if it can.
func (h *head) inspectable() error {
	if kind, ok := h.value("content-type"); ok && !isJSON(kind) {
		return errContentType
	}
	switch h.encoding() {
	case "", "identity", "gzip":
		return nil
	}
	return errEncoding
}

func (h *head) encoding() string {
	encoding, _ := h.value("content-encoding")
	return strings.ToLower(strings.TrimSpace(encoding))
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// read reads of a whole body what the table wants.
func (t *Table) read(h *head, body []byte) (facts, error) {
	if h.encoding() == "gzip" {
		return t.wanted.readGzip(body)
	}
	return t.wanted.read(bytes.NewBuffer(body)) // a Buffer is read without a copy
}

func (w *wanted) readGzip(body []byte) (facts, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return facts{}, errEncoding
	}
	limit := min(maxInflated, max(minInflated, maxInflateRatio*len(body)))
	src := &inflated{from: z, left: limit}
	f, err := w.read(src)
	if src.err != nil {
		return facts{}, src.err
	}
	return f, err
}

// inflated reads a decompressor within a bound, and remembers what stopped it.
type inflated struct {
	from io.Reader
	left int
	err  error
}

func (r *inflated) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.left -= n; r.left < 0 {
		r.err = errTooLarge
		return 0, r.err
	}
	if err != nil && err != io.EOF {
		r.err = errEncoding
	}
	return n, err
}
