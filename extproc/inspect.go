package extproc

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
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
	case identity, "gzip", "deflate", "zstd":
		return nil
	}
	return errEncoding
}

// identity is the encoding of a body that is not compressed.
const identity = ""

// encoding is how the body is compressed. "x-gzip" is gzip's older name.
func (h *head) encoding() string {
	encoding, _ := h.value("content-encoding")
	switch encoding = strings.ToLower(strings.TrimSpace(encoding)); encoding {
	case "identity":
		return identity
	case "x-gzip":
		return "gzip"
	}
	return encoding
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// read reads of a whole body what the table wants.
func (t *Table) read(ctx context.Context, h *head, body []byte) (facts, error) {
	encoding := h.encoding()
	if encoding == identity {
		return t.wanted.read(ctx, body)
	}
	packed := bytes.NewReader(body)
	from, err := inflate(encoding, packed)
	if err != nil {
		return facts{}, errEncoding
	}
	defer from.Close()
	src := &inflated{from: from, left: t.mayInflateTo(int64(len(body)))}
	plain, _ := io.ReadAll(src)
	if src.err != nil {
		return facts{}, src.err
	}
	f, err := t.wanted.read(ctx, plain)
	if err == nil && packed.Len() > 0 { // something follows the compressed content
		return facts{}, errEncoding
	}
	return f, err
}

// mayInflateTo is what a compressed body of so many bytes may grow to.
func (t *Table) mayInflateTo(length int64) int64 {
	return min(t.bodyLimit, max(minInflated, maxInflateRatio*length))
}

// cost is the memory that reading a body of so many bytes may take. A length below 0
// is not known.
func (t *Table) cost(h *head, length int64) int64 {
	if length < 0 {
		length = unsaidLength
	}
	switch h.encoding() {
	case identity:
		return length
	case "zstd":
		return length + t.mayInflateTo(length) + maxWindow
	}
	return length + t.mayInflateTo(length)
}

// inflate opens a decompressor that works in this goroutine alone.
func inflate(encoding string, packed *bytes.Reader) (io.ReadCloser, error) {
	switch encoding {
	case "gzip":
		return gzip.NewReader(packed)
	case "deflate":
		return undeflate(packed)
	}
	z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// undeflate reads what is called deflate: the zlib format, as RFC 9110 has it, or
// what some clients send in its place, the bare deflate format.
func undeflate(packed *bytes.Reader) (io.ReadCloser, error) {
	z, err := zlib.NewReader(packed)
	if err == nil {
		return z, nil
	}
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return flate.NewReader(packed), nil
}

// inflated reads a decompressor within bounds, and remembers what stopped it.
type inflated struct {
	from io.Reader
	left int64 // bytes
	err  error
}

func (r *inflated) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.left -= int64(n); r.left < 0 {
		r.err = errTooLarge
		return 0, r.err
	}
	if err != nil && err != io.EOF {
		r.err = errEncoding
	}
	return n, err
}
