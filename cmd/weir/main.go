// Command weir is Weir's control plane and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"weir/config"
)

// Exit codes.
const (
	exitFailed    = 1 // the command could not do its work, or what it checked is not so
	exitUsage     = 2 // the command was called wrongly
	exitAttention = 3 // status: somebody should look at what it shows
)

// errUsage marks errors in how a command was called.
var errUsage = errors.New("usage")

func main() { os.Exit(run(os.Args[1:])) }

// run is main without the exit, so that tests can call it.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		if errors.Is(err, errAttention) {
			return exitAttention
		}
		complain(err)
		if errors.Is(err, errUsage) || strings.HasPrefix(err.Error(), "unknown command") {
			return exitUsage
		}
		return exitFailed
	}
	return 0
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Weir balances LLM inference traffic over engine pools by Envoy",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w\nrun '%s --help' for its flags", err, c.CommandPath())
	})
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.AddCommand(newCheck(), newPlan(), newServe(), newBootstrap(), newSnapshot(), newStatus(), newDemo(), newVersion(), newSignals(), newExplain(), newWhatIf(), newPolicy(), newFit(), newSimulate())
	root.AddCommand(brakeVerbs()...)
	return root
}

// usage is an error in how a command was called.
func usage(format string, values ...any) error {
	return fmt.Errorf(format+"%w", append(values, silent{errUsage})...)
}

// silent carries an error for errors.Is without adding to the text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// args checks the number of arguments and names what is missing.
func args(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, got []string) error {
		if len(got) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no argument"
		}
		path := c.CommandPath()
		return usage("%s takes %s, not %q: run '%s --help'", path, want, got, path)
	}
}

// complain prints an error; a fleet file's problems speak for themselves.
func complain(err error) {
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stderr, "weir:", err)
}

func newLogger() (*zap.Logger, error) {
	c := zap.NewProductionConfig()
	c.EncoderConfig.EncodeTime = isoTime
	c.DisableStacktrace = true
	c.DisableCaller = true
	return c.Build()
}
