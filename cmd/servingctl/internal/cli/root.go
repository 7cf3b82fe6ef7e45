// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

// The root command, and how a command ends.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// The exit codes of servingctl, besides 128 + the number of the signal that stopped it.
const (
	exitOK     = 0
	exitFailed = 1 // the work was done in part or not at all
	exitUsage  = 2 // nothing was done: wrong flags, or a file that cannot be read
)

// exitError ends a command with a code. The message is printed unless it is empty.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return "stopped by " + e.signal.String() }

func (e *signalError) code() int {
	if s, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitFailed
}

// stdio is what a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	// terminal is true if err is a terminal: somebody looks at it now.
	terminal bool
}

// Main runs the command line and returns the exit code. SIGINT and SIGTERM stop the command in an orderly way; a
// second one ends the process at once.
func Main(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(&signalError{s})
		case <-ctx.Done():
		}
	}()
	return run(ctx, args, stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))})
}

// run runs the command line in ctx. A cause of ctx that is a *signalError decides the exit code.
func run(ctx context.Context, args []string, std stdio) int {
	root := newRoot(std)
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(std.err, "servingctl: %v\n", err)
	if stopped := (*signalError)(nil); errors.As(err, &stopped) {
		return stopped.code()
	}
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return exit.code
	}
	// What cobra itself finds: unknown commands and flags.
	return exitUsage
}

// newRoot is the command line. A new command is one more line here, and one more file.
func newRoot(std stdio) *cobra.Command {
	root := &cobra.Command{
		Use:           "servingctl",
		Short:         "Work with recorded spans of LLM inference engines",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		// Without a RunE, cobra would show the help for an unknown command too, and call that a success.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newReplay(std), newSimulate(std), newSummary(std))
	return root
}

// version is that of the module the tool was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
