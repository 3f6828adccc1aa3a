package scrape

import (
	"context"
	"net/http"
	"sync"
	"time"

	"weir/fleet"
	"weir/signals/dialect"
)

// book is a table of dialects with readers of it that are free.
type book struct {
	table   *dialect.Table
	readers sync.Pool
}

func newBook(t *dialect.Table) *book {
	return &book{table: t, readers: sync.Pool{New: func() any { return dialect.NewReader(t) }}}
}

// target is one engine to scrape. It belongs to the goroutine that watches it.
type target struct {
	pool   fleet.PoolID
	engine fleet.EngineID
	base   string // scheme and address
	client *http.Client
	book   *book
	paths  []string // where its page may be; the first is where it was last
	likely string   // the dialect to expect

	failing bool // the last page could not be had
	read    last
}

// last is what the last page said that could be read.
type last struct {
	dialect string
	values  dialect.Values
	at      time.Time
}

// scrape reads the engine's page, wherever it is.
func (t *target) scrape(ctx context.Context) (page dialect.Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	reader := t.book.readers.Get().(*dialect.Reader)
	defer t.book.readers.Put(reader)
	for i, path := range t.paths {
		page, err = fetch(ctx, t.client, t.base+path, reader, t.likely)
		if err == nil {
			t.paths[0], t.paths[i] = t.paths[i], t.paths[0]
			return page, nil
		}
		if !elsewhere(err) {
			break
		}
	}
	return page, err
}

// sample is what is known of the engine after a scrape.
func (t *target) sample(now time.Time, page *dialect.Page, err error) Sample {
	s := Sample{Pool: t.pool, Engine: t.engine, At: now, Err: err, Notes: page.Notes}
	if t.failing = err != nil; t.failing {
		if now.Sub(t.read.at) > forgetAfter {
			t.read = last{}
		}
		s.Dialect, s.Values, s.ReadAt = t.read.dialect, t.read.values.Stale(), t.read.at
		return s
	}
	s.Dialect, s.Values, s.ReadAt = page.Dialect, page.Values, now
	if t.read.dialect == page.Dialect {
		s.Window, s.Over = dialect.Between(&t.read.values, &page.Values), now.Sub(t.read.at)
	}
	t.likely = page.Dialect
	t.read = last{page.Dialect, page.Values, now}
	return s
}
