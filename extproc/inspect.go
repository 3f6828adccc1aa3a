package extproc

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"mime"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Bounds of what a compressed body may grow to, in bytes, besides that of a plain
// one.
const (
	minInflated     = 1 << 20
	maxInflateRatio = 100
	maxWindow       = 8 << 20 // what RFC 9659 lets a zstd sender ask for
)

// inspectable says why a body of this kind cannot be read, nil if it can.
func (h *head) inspectable() error {
	if kind, ok := h.value("content-type"); ok && !isJSON(kind) {
		return errContentType
	}
	switch h.encoding() {
	case "", "identity", "gzip", "zstd":
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
func (t *Table) read(ctx context.Context, h *head, body []byte) (facts, error) {
	encoding := h.encoding()
	if encoding == "" || encoding == "identity" {
		if len(body) > maxNames*leastName { // a smaller one cannot hold too much
			if err := new(shape).add(body); err != nil {
				return facts{}, err
			}
		}
		return t.wanted.read(ctx, bytes.NewBuffer(body)) // a Buffer is read without a copy
	}
	limit := min(int(t.bodyLimit), max(minInflated, maxInflateRatio*len(body)))
	from, err := inflate(encoding, body)
	if err != nil {
		return facts{}, errEncoding
	}
	defer from.Close()
	src := &inflated{from: from, left: limit}
	f, err := t.wanted.read(ctx, src)
	if src.err != nil {
		return facts{}, src.err
	}
	return f, err
}

// inflate opens a decompressor that works in this goroutine alone.
func inflate(encoding string, body []byte) (io.ReadCloser, error) {
	if encoding == "gzip" {
		return gzip.NewReader(bytes.NewReader(body))
	}
	z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// inflated reads a decompressor within bounds, and remembers what stopped it.
type inflated struct {
	from  io.Reader
	left  int
	shape shape
	err   error
}

func (r *inflated) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.left -= n; r.left < 0 {
		r.err = errTooLarge
		return 0, r.err
	}
	if r.err = r.shape.add(p[:n]); r.err != nil {
		return 0, r.err
	}
	if err != nil && err != io.EOF {
		r.err = errEncoding
	}
	return n, err
}
