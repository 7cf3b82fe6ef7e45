// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

// servingctl summary: the summary page in a terminal, and an exit code for builds.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/otelcol-serving/otelcol-serving/cmd/servingctl/internal/page"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

const summaryLong = `Show what the engines suffer from and what to do about it, as the Collector's serving_summary
page does.

--wait asks until every engine has been diagnosed, which takes thirty finished requests and some
closed windows.

--fail-on ends with code 3 if the condition holds for any engine: verdict=NAME, verdict!=NAME, or
a figure with >, >=, < or <= and a number, a percentage or a duration. The figures are the names
in the JSON (device_utilization, capacity_utilization_fit, requests_waiting_mean, step_duration, ...), and
ttft_, tpot_ and e2e_ with mean, p50, p90, p95 or p99, goodput_all, rate, failed. A condition that cannot be
judged, since an engine has no such figure, ends with code 1: it is not known to be false.`

const summaryExample = `  servingctl summary

  # in a build: after a load test, fail if the first token came late or the host held up the device
  servingctl summary --wait 60s --fail-on 'ttft_p99>1s' --fail-on verdict=host_bound

  # for a report
  servingctl summary --format markdown > summary.md`

// exitMet is the exit code for a condition of --fail-on that holds.
const exitMet = 3

type summaryOptions struct {
	page   page.Options
	format string
	wait   time.Duration
	failOn []string
}

func newSummary(std stdio) *cobra.Command {
	var o summaryOptions
	cmd := &cobra.Command{
		Use:                   "summary [flags]",
		Short:                 "Show what the engines suffer from, and check it",
		Long:                  summaryLong,
		Example:               summaryExample,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return runSummary(cmd.Context(), std, &o) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.page.Endpoint, "endpoint", page.DefaultEndpoint, "the serving_summary extension, as host:port or URL")
	f.StringVar(&o.format, "format", "text", "\"text\", \"markdown\" or \"json\"")
	f.DurationVar(&o.wait, "wait", 0, "how long to wait for every engine to be diagnosed; 0: not at all")
	f.StringArrayVar(&o.failOn, "fail-on", nil, "condition that is a failure, as verdict=host_bound or ttft_p99>1s (repeatable)")
	f.StringArrayVar(&o.page.Headers, "header", nil, "header to send, as key=value (repeatable)")
	f.StringVar(&o.page.CAFile, "ca-file", "", "certificates to verify the server with, in PEM (default: the system's)")
	f.DurationVar(&o.page.Timeout, "timeout", 10*time.Second, "how long one request may take")
	return cmd
}

func runSummary(ctx context.Context, std stdio, o *summaryOptions) error {
	var conditions []*page.Condition
	for _, text := range o.failOn {
		c, err := page.ParseCondition(text)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--fail-on: %w", err)}
		}
		conditions = append(conditions, c)
	}
	if o.format != "text" && o.format != "markdown" && o.format != "json" {
		return &exitError{exitUsage, fmt.Errorf("--format must be text, markdown or json, it is %q", o.format)}
	}
	if o.wait < 0 || o.page.Timeout <= 0 {
		return &exitError{exitUsage, errors.New("--wait must not be negative, and --timeout must be positive")}
	}
	client, err := page.NewClient(o.page)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	get := client.Report
	if o.wait > 0 {
		get = func(ctx context.Context) (*summary.Report, []byte, error) { return client.Wait(ctx, o.wait) }
	}
	report, body, err := get(ctx)
	if err == nil {
		switch o.format {
		case "json":
			_, err = std.out.Write(append(body, '\n'))
		case "markdown":
			if body, err = client.Markdown(ctx); err == nil {
				_, err = std.out.Write(body)
			}
		default:
			err = page.Write(std.out, report)
		}
	}
	if stopped := (*signalError)(nil); errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	if err != nil {
		return &exitError{exitFailed, err}
	}
	return judge(std, report, conditions)
}

// judge says which conditions hold, and which cannot be judged.
func judge(std stdio, report *summary.Report, conditions []*page.Condition) error {
	met, unknown := 0, 0
	for _, f := range page.Check(report, conditions) {
		switch {
		case f.Met:
			met++
			fmt.Fprintf(std.err, "servingctl: %s: %s (it is %s)\n", f.Engine, f.Condition, f.Is)
		case f.Unknown:
			unknown++
			fmt.Fprintf(std.err, "servingctl: %s: %s cannot be judged (it is %s)\n", f.Engine, f.Condition, f.Is)
		}
	}
	switch {
	case met > 0:
		return &exitError{exitMet, errors.New("a condition of --fail-on holds")}
	case unknown > 0:
		return &exitError{exitFailed, errors.New("a condition of --fail-on cannot be judged")}
	case len(conditions) > 0 && len(report.Engines) == 0:
		return &exitError{exitFailed, errors.New("there is no engine to judge")}
	}
	return nil
}
