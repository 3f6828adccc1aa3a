package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
)

var isoTime = zapcore.ISO8601TimeEncoder

// outputFlag adds -o to a command.
func outputFlag(c *cobra.Command) *string {
	return c.Flags().StringP("output", "o", "table", "output `format`: table, json or yaml")
}

// show prints a value as a table for people, or as JSON or YAML for programs.
func show(out io.Writer, format string, value any, table func(*tabwriter.Writer)) error {
	switch format {
	case "table":
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		table(w)
		return w.Flush()
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case "yaml":
		return showYAML(out, value)
	}
	return usage("unknown output format %q: write table, json or yaml", format)
}

// showYAML goes by way of JSON, so that both have the same keys.
func showYAML(out io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

func row(w io.Writer, format string, values ...any) { fmt.Fprintf(w, format+"\n", values...) }
