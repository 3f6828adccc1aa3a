package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/signals"
	"weir/signals/dialect"
	"weir/signals/scrape"
)

func newSignals() *cobra.Command {
	c := &cobra.Command{Use: "signals", Short: "Look at what Weir hears of engines", Args: args()}
	c.AddCommand(newSignalsProbe())
	return c
}

func newSignalsProbe() *cobra.Command {
	c := &cobra.Command{
		Use:   "probe URL",
		Short: "Read one engine's metrics as Weir does, and say what it misses",
		Long: `Read one engine's metrics as Weir does, and say what it misses.

URL is http://host:port, where the usual paths are tried; the page's own URL; or a
saved page, as file:///path or path. Means are over all that the page's histograms
have counted.`,
		Args: args("URL"),
	}
	output := outputFlag(c)
	var timeout time.Duration
	timeoutFlag(c, &timeout, scrape.Timeout, "the page")
	c.RunE = func(c *cobra.Command, a []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		page, err := probe(ctx, a[0])
		if err != nil {
			return fmt.Errorf("probe %s: %w", a[0], err)
		}
		heard := hear(page)
		return show(c.OutOrStdout(), *output, heard, heard.table(page))
	}
	return c
}

// probe reads a page from an engine or a file.
func probe(ctx context.Context, where string) (*dialect.Page, error) {
	table := dialect.NewTable(dialect.Dialects()...)
	if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
		client, _, err := signals.NewEngineClient(nil)
		if err != nil {
			return nil, err
		}
		defer client.CloseIdleConnections()
		return scrape.Probe(ctx, client, table, where)
	}
	page, err := probeFile(table, strings.TrimPrefix(where, "file://"))
	if _, _, bad := net.SplitHostPort(where); bad == nil && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: for an engine write http://%s", err, where)
	}
	return page, err
}

func probeFile(table *dialect.Table, path string) (*dialect.Page, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	page, err := dialect.NewReader(table).Read(f, "")
	if err != nil {
		page.Notes = append(page.Notes, err.Error())
	}
	if page.Dialect == "" {
		return nil, errors.Join(scrape.ErrNoDialect, err)
	}
	return &page, nil
}

// heard is what a page says. Its JSON form is a stable interface; null stands for
// what is not known.
type heard struct {
	Dialect         string        `json:"dialect"`
	Running         dialect.Value `json:"running"`
	Waiting         dialect.Value `json:"waiting"`
	KVUsage         dialect.Value `json:"kvUsage"`
	TTFTMeanSeconds dialect.Value `json:"ttftMeanSeconds"`
	TBTMeanSeconds  dialect.Value `json:"tbtMeanSeconds"`
	PromptTokens    dialect.Value `json:"promptTokens"`
	GeneratedTokens dialect.Value `json:"generatedTokens"`
	Notes           []string      `json:"notes"`
}

func hear(p *dialect.Page) *heard {
	v := &p.Values
	return &heard{
		p.Dialect, v.Running, v.Waiting, v.KVUsage, v.TTFT.Mean(), v.TBT.Mean(), v.PromptTokens, v.GeneratedTokens,
		append(append([]string{}, p.Notes...), p.Missing()...),
	}
}

func (h *heard) table(p *dialect.Page) func(*tabwriter.Writer) {
	return func(w *tabwriter.Writer) {
		row(w, "dialect\t%s\t", h.Dialect)
		for _, r := range []struct {
			field dialect.Field
			value dialect.Value
			unit  string
		}{
			{dialect.Running, h.Running, ""},
			{dialect.Waiting, h.Waiting, ""},
			{dialect.KVUsage, h.KVUsage, ""},
			{dialect.TTFT, h.TTFTMeanSeconds, " s mean"},
			{dialect.TBT, h.TBTMeanSeconds, " s mean"},
			{dialect.PromptTokens, h.PromptTokens, ""},
			{dialect.GeneratedTokens, h.GeneratedTokens, ""},
		} {
			row(w, "%s\t%s\t%s", r.field, written(r.value, r.unit), p.Names[r.field])
		}
		for _, n := range h.Notes {
			row(w, "%s", n)
		}
	}
}

func written(v dialect.Value, unit string) string {
	if v.State == dialect.Unknown {
		return "unknown"
	}
	return fmt.Sprintf("%.6g%s", v.X, unit)
}
