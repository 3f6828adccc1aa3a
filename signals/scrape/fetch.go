package scrape

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"weir/signals/dialect"
)

// Why a page could not be had.
var (
	// ErrNoDialect: it is not the page of an engine that Weir knows.
	ErrNoDialect = errors.New("no metrics of an engine that Weir knows")

	errUnreachable = errors.New("cannot be reached")
	errTimeout     = errors.New("no page in time")
	errStatus      = errors.New("no page")
	errRedirect    = errors.New("redirects are not followed")
	errEncoding    = errors.New("cannot be unpacked")
)

// elsewhere says whether the page may be at another path.
func elsewhere(err error) bool {
	return errors.Is(err, errStatus) || errors.Is(err, errRedirect) || errors.Is(err, ErrNoDialect)
}

// Probe reads one page. Of a URL without a path the usual paths are tried.
func Probe(ctx context.Context, client *http.Client, t *dialect.Table, where string) (*dialect.Page, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, err
	}
	if u.Host == "" {
		return nil, fmt.Errorf("%q names no host: write http://host:port", where)
	}
	paths := []string{""}
	if strings.Trim(u.Path, "/") == "" && u.RawQuery == "" {
		u.Path = ""
		paths = t.Paths("")
	}
	var failed []error
	for _, path := range paths {
		page, err := fetch(ctx, client, u.String()+path, dialect.NewReader(t), "")
		if err == nil {
			return &page, nil
		}
		failed = append(failed, fmt.Errorf("%s%s: %w", u.Path, path, err))
		if !elsewhere(err) {
			break
		}
	}
	return nil, errors.Join(failed...)
}

// fetch reads the page at a URL. A page that breaks off counts as read, with a
// note, if something is known of it.
func fetch(ctx context.Context, client *http.Client, where string, r *dialect.Reader, likely string) (dialect.Page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return dialect.Page{}, err
	}
	req.Header.Set("User-Agent", "weir")
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := client.Do(req)
	if err != nil {
		return dialect.Page{}, because(errUnreachable, err)
	}
	defer resp.Body.Close()
	if err := usable(resp); err != nil {
		// Little of it is left, as a rule, and the connection can be used again.
		_, _ = io.CopyN(io.Discard, resp.Body, 16<<10)
		return dialect.Page{}, err
	}
	body, done, err := unpacked(resp)
	if err != nil {
		return dialect.Page{}, because(errEncoding, err)
	}
	defer done()
	page, err := r.Read(body, likely)
	switch {
	case err != nil && !page.Values.Any():
		return page, because(errUnreachable, err)
	case page.Dialect == "":
		return page, ErrNoDialect
	case err != nil:
		page.Notes = append(page.Notes, fmt.Sprintf("the page broke off: %v", err))
	}
	return page, nil
}

func usable(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		return fmt.Errorf("%w: answered %d", errRedirect, code)
	case code != http.StatusOK:
		return fmt.Errorf("%w: answered %d, want 200", errStatus, code)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && (kind == "application/json" || kind == "text/html") {
		return fmt.Errorf("%w: answered %s", ErrNoDialect, kind)
	}
	return nil
}

// because names why, and strips the URL, which every reader knows.
func because(why, err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", errTimeout, err)
	}
	return fmt.Errorf("%w: %w", why, err)
}

var unpackers sync.Pool

// unpacked returns the body as the engine wrote it; done gives back what that took.
func unpacked(resp *http.Response) (body io.Reader, done func(), err error) {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return resp.Body, func() {}, nil
	case "gzip", "x-gzip":
		z, ok := unpackers.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		if err := z.Reset(resp.Body); err != nil {
			return nil, nil, err
		}
		return z, func() { unpackers.Put(z) }, nil
	default:
		return nil, nil, fmt.Errorf("encoding %q was not asked for", encoding)
	}
}
