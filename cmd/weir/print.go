package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
)

var isoTime = zapcore.ISO8601TimeEncoder

// outputFlag adds -o to a command.
func outputFlag(c *cobra.Command) *string {
	o := output("table")
	c.Flags().VarP(&o, "output", "o", "output `format`: table, json or yaml")
	return (*string)(&o)
}

// output is a format. A wrong one is told before anything is done.
type output string

func (o *output) String() string { return string(*o) }

// Type is what help calls the values.
func (o *output) Type() string { return "format" }

// Set implements pflag's Value.
func (o *output) Set(format string) error {
	switch format {
	case "table", "json", "yaml":
		*o = output(format)
		return nil
	}
	return fmt.Errorf("unknown output format %q: write table, json or yaml", format)
}

// patience is for how long somebody waits. None at all is told before anything is done.
type patience time.Duration

// timeoutFlag adds --timeout to a command.
func timeoutFlag(c *cobra.Command, timeout *time.Duration, usual time.Duration, what string) {
	*timeout = usual
	c.Flags().Var((*patience)(timeout), "timeout", "how long to wait for "+what)
}

func (p *patience) String() string { return time.Duration(*p).String() }

// Type is what help calls the values.
func (p *patience) Type() string { return "duration" }

// Set implements pflag's Value.
func (p *patience) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: want a time above 0, like 5s", text)
	}
	*p = patience(d)
	return nil
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
	panic("weir: output format " + format) // the flag takes no other
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
