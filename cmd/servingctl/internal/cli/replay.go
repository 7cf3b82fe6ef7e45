// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

// servingctl replay: flags, progress and summary. The work is in package replay.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/otelcol-serving/otelcol-serving/cmd/servingctl/internal/replay"
)

const replayLong = `Send recorded spans to an OTLP endpoint, at the times an engine would have sent them.

A FILE is the text of the Collector's debug exporter (verbosity: detailed), OTLP JSON or OTLP
protobuf as the file exporter writes them, plain or compressed with gzip or zstd; "-" is the
standard input. All files are read before anything is sent.

Spans are ordered by the time they ended. The spans that ended within the same --batch of recorded
time are sent together, when the last of them ended. --speed scales these arrivals and nothing
else: start, end and duration of a span stay as recorded, and so do the figures that are derived
from them.

--now shifts all times by one offset so that the recording starts at the present; with a --speed
above 1 (or 0) it is shifted so that it ends at the present when the last span is sent, because a span of
the future is no use to anybody. Shifted spans get new trace and span IDs, consistent among
themselves, because a collector that has counted a span once does not count it again.`

const replayExample = `  # a recorded benchmark, as it was, into a local collector
  servingctl replay benchmark.otlp.jsonl

  # the same figures without waiting for them
  servingctl replay --speed 0 benchmark.otlp.jsonl

  # a live demo that never ends
  servingctl replay --loop benchmark.otlp.jsonl

  # OTLP/HTTP over TLS with a token
  servingctl replay --protocol http --endpoint https://collector.example.com:4318 --ca-file ca.pem --header "Authorization=Bearer $TOKEN" benchmark.otlp.jsonl`

func newReplay(std stdio) *cobra.Command {
	var (
		target   = replay.Target{UserAgentVersion: version()}
		options  = replay.Options{}
		insecure bool
	)
	cmd := &cobra.Command{
		Use:                   "replay [flags] FILE...",
		Short:                 "Send recorded spans to an OTLP endpoint, at the times an engine would have",
		Long:                  replayLong,
		Example:               replayExample,
		Args:                  cobra.MinimumNArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, files []string) error {
			if cmd.Flags().Changed("insecure") {
				target.Insecure = &insecure
			}
			return runReplay(cmd.Context(), std, target, options, files)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&target.Endpoint, "endpoint", "", "where to send to, as host:port or URL (default \"localhost:4317\", \"localhost:4318\" for http)")
	f.StringVar(&target.Protocol, "protocol", "grpc", "OTLP over \"grpc\" or \"http\"")
	f.Float64Var(&options.Speed, "speed", 1, "how many times faster than recorded spans arrive; 0: as fast as possible")
	f.BoolVar(&options.Now, "now", false, "shift the recording to the present")
	f.BoolVar(&options.Loop, "loop", false, "repeat forever, each pass shifted to the present (implies --now)")
	f.DurationVar(&options.Batch, "batch", 500*time.Millisecond, "recorded time whose spans are sent together")
	f.StringArrayVar(&target.Headers, "header", nil, "header to send, as key=value (repeatable)")
	f.BoolVar(&insecure, "insecure", false, "send without TLS (default true for a loopback address or an http URL, unless a TLS flag is given)")
	f.StringVar(&target.CAFile, "ca-file", "", "certificates to verify the server with, in PEM (default: the system's)")
	f.StringVar(&target.CertFile, "cert-file", "", "client certificate, in PEM")
	f.StringVar(&target.KeyFile, "key-file", "", "key of the client certificate, in PEM")
	f.StringVar(&target.ServerName, "server-name", "", "name that the server's certificate must have (default: the endpoint's host)")
	f.BoolVar(&target.SkipVerify, "insecure-skip-verify", false, "use TLS but do not verify the server")
	f.DurationVar(&target.Timeout, "timeout", 10*time.Second, "how long one request may take")
	f.DurationVar(&target.RetryTime, "retry-time", 30*time.Second, "how long a request is retried; 0: not at all")
	return cmd
}

func runReplay(ctx context.Context, std stdio, target replay.Target, options replay.Options, files []string) error {
	if s := options.Speed; s < 0 || math.IsNaN(s) || math.IsInf(s, 0) {
		return &exitError{exitUsage, fmt.Errorf("--speed must be 0 or more, it is %v", s)}
	}
	if options.Batch <= 0 {
		return &exitError{exitUsage, fmt.Errorf("--batch must be more than 0, it is %v", options.Batch)}
	}
	warn := func(message string) { fmt.Fprintf(std.err, "servingctl: %s\n", message) }
	sender, err := target.Dial(ctx, warn)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer sender.Close()

	recording, err := replay.Load(ctx, files, std.in)
	if stopped := (*signalError)(nil); errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	if err == nil {
		err = recording.Check(options)
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if options.Loop && (options.Speed > 1 || options.Speed == 0) {
		warn("the passes of a loop faster than recorded lie over each other in time: good for load, wrong for utilisation and concurrency")
	}

	progress := newProgress(std, recording, options, warn)
	options.Progress = progress.add
	options.Warn = progress.warn
	summary := replay.Run(ctx, recording, sender, options)
	progress.finish()
	if err := printSummary(std.out, recording, summary); err != nil {
		return &exitError{exitFailed, err}
	}
	switch stopped := (*signalError)(nil); {
	case errors.As(context.Cause(ctx), &stopped):
		return stopped
	case summary.Err != nil:
		return &exitError{exitFailed, summary.Err}
	case summary.Failed > 0 || summary.Unsent > 0:
		return &exitError{exitFailed, fmt.Errorf("%d of %d spans were not delivered", summary.Failed+summary.Unsent, summary.Failed+summary.Unsent+summary.Sent)}
	}
	return nil
}

// progress is a bar on a terminal, and nothing anywhere else.
type progress struct {
	bar   *progressbar.ProgressBar
	print func(string)
}

func newProgress(std stdio, recording *replay.Recording, options replay.Options, warn func(string)) *progress {
	p := &progress{print: warn}
	if !std.terminal {
		return p
	}
	total := int64(recording.Spans)
	if options.Loop {
		total = -1 // there is no end to be a share of
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(std.err),
		progressbar.OptionSetDescription("spans"),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		// Without an end the bar is a spinner, which would turn in a goroutine that nothing stops.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
	return p
}

func (p *progress) add(spans int) {
	if p.bar != nil {
		_ = p.bar.Add(spans)
	}
}

// warn prints a line without leaving half a bar before it.
func (p *progress) warn(message string) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	p.print(message)
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}

func printSummary(out io.Writer, r *replay.Recording, s replay.Summary) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "files\t%d\n", r.Files)
	fmt.Fprintf(w, "payloads\t%d\n", r.Payloads)
	if r.Skipped > 0 {
		fmt.Fprintf(w, "other payloads\t%d (metrics, logs or profiles: not sent)\n", r.Skipped)
	}
	fmt.Fprintf(w, "spans\t%d\n", r.Spans)
	fmt.Fprintf(w, "requests\t%d (spans with gen_ai.latency.*)\n", r.Requests)
	fmt.Fprintf(w, "recorded time\t%s\n", round(r.Duration()))
	if s.Passes > 1 {
		fmt.Fprintf(w, "passes\t%d\n", s.Passes)
	}
	fmt.Fprintf(w, "sent\t%d spans, %d requests\n", s.Sent, s.SentRequests)
	fmt.Fprintf(w, "failed\t%d spans\n", s.Failed)
	if s.Unsent > 0 {
		fmt.Fprintf(w, "not tried\t%d spans\n", s.Unsent)
	}
	if s.MaxLag >= 100*time.Millisecond {
		fmt.Fprintf(w, "late by\tup to %s\n", round(s.MaxLag))
	}
	fmt.Fprintf(w, "duration\t%s\n", round(s.Duration))
	return w.Flush()
}

// round keeps three or four digits, which is what a person wants of a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}
