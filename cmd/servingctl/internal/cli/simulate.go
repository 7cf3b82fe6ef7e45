// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

// servingctl simulate: spans of engines that do not exist, with the truth about what they did.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/cmd/servingctl/internal/replay"
	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

const simulateLong = `Simulate vLLM engines under load and send the spans they would send, when they would send them.

--load is relative to what the engines can do at most, which is measured first: 1 is just full.

%s
The collector cannot see the last two in spans: it is told them as max_num_seqs and kv_cache_tokens, under
engine of serving_metrics.

The spans go to --endpoint at --speed times the simulated pace, or to --out as OTLP JSON, one request
a line, at once. --truth writes what the engines really did, one JSON object for each engine and
window: the seconds in each state, requests running and waiting, steps, tokens, preemptions. Its fields are
described under "The truth file" in cmd/servingctl/README.md; step_duration, not decode_step, is what
llm.serving.engine.step.duration estimates.

The simulation ends at the present: with --speed 1 it starts now, and times in spans are the times they are
sent at; faster, and to a file, it started in the past. --start decides otherwise. The same --seed
and --start give the same bytes.`

const simulateExample = `  # two busy engines into a local collector, as a demo
  servingctl simulate --engines 2 --load 0.8 --duration 1h

  # an engine whose device waits for its host, an hour in six minutes
  servingctl simulate --engine v0-hostbound --duration 1h --speed 10

  # a file and the truth about it
  servingctl simulate --workload azure-conv --arrivals trace --out spans.jsonl --truth truth.jsonl`

type simulateOptions struct {
	service                    string
	engine, workload, arrivals string
	engines                    int
	load, speed                float64
	duration, window           time.Duration
	out, truth, start          string
	seed                       uint64
	pooled                     bool
	sampling, abort            float64
	clock                      replay.Clock
}

func newSimulate(std stdio) *cobra.Command {
	var (
		target   = replay.Target{UserAgentVersion: version()}
		o        = simulateOptions{clock: replay.RealClock{}}
		insecure bool
	)
	cmd := &cobra.Command{
		Use:                   "simulate [flags]",
		Short:                 "Simulate engines under load and send the spans they would send",
		Long:                  fmt.Sprintf(simulateLong, kinds()),
		Example:               simulateExample,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("insecure") {
				target.Insecure = &insecure
			}
			if o.out != "" {
				for _, name := range []string{"endpoint", "protocol", "speed", "header", "insecure", "timeout", "retry-time"} {
					if cmd.Flags().Changed(name) {
						return &exitError{exitUsage, fmt.Errorf("--%s is for sending, --out writes a file: leave one out", name)}
					}
				}
			}
			return runSimulate(cmd.Context(), std, target, o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.engine, "engine", "v0-default", "kind of engine, see above")
	f.IntVar(&o.engines, "engines", 1, "number of engines")
	f.StringVar(&o.service, "service", "vllm", "service.name of the engines; each one's service.instance.id begins with it")
	f.BoolVar(&o.pooled, "pooled", false, "the engines share one resource, as data-parallel ranks behind one API server do")
	f.Float64Var(&o.load, "load", 0.7, "requests offered, relative to what the engines can do at most")
	f.StringVar(&o.workload, "workload", enginesim.LengthsChat, "lengths of requests: "+strings.Join(enginesim.Workloads(), ", "))
	f.StringVar(&o.arrivals, "arrivals", string(enginesim.Poisson), "arrivals of requests: poisson, bursty, onoff, or trace as recorded with the workload")
	f.DurationVar(&o.duration, "duration", 10*time.Minute, "simulated time")
	f.Uint64Var(&o.seed, "seed", 1, "another seed is another run of the same kind")
	f.StringVar(&o.start, "start", "", "simulated time at the start, as RFC 3339 (default: so that the run ends at the present)")
	f.Float64Var(&o.sampling, "sampling", 1, "share of requests whose spans are sampled")
	f.Float64Var(&o.abort, "abort-rate", 0, "share of requests whose client goes away before the end; they have no span")
	f.StringVar(&o.out, "out", "", "file to write OTLP JSON to instead of sending; \"-\" is the standard output")
	f.StringVar(&o.truth, "truth", "", "file to write the truth to; cmd/servingctl/README.md describes its fields")
	f.DurationVar(&o.window, "truth-window", 10*time.Second, "window of the truth, aligned to whole multiples in Unix time")
	f.StringVar(&target.Endpoint, "endpoint", "", "where to send to, as host:port or URL (default \"localhost:4317\", \"localhost:4318\" for http)")
	f.StringVar(&target.Protocol, "protocol", "grpc", "OTLP over \"grpc\" or \"http\"")
	f.Float64Var(&o.speed, "speed", 1, "how many times faster than simulated spans are sent; 0: as fast as possible")
	f.StringArrayVar(&target.Headers, "header", nil, "header to send, as key=value (repeatable)")
	f.BoolVar(&insecure, "insecure", false, "send without TLS (default true for a loopback address or an http URL)")
	f.DurationVar(&target.Timeout, "timeout", 10*time.Second, "how long one request may take")
	f.DurationVar(&target.RetryTime, "retry-time", 30*time.Second, "how long a request is retried; 0: not at all")
	return cmd
}

// kinds is the table of the kinds of engines.
func kinds() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  --engine\twhat it is\tmax_num_seqs\tkv_cache_tokens\n")
	for _, k := range enginesim.Kinds() {
		fmt.Fprintf(w, "  %s\t%s\t%d\t%d\n", k.Name, k.About, k.MaxNumSeqs, k.KVTokens)
	}
	_ = w.Flush() // a Builder takes all
	return b.String()
}

// config is the deployment that the flags ask for.
func (o *simulateOptions) config(now time.Time) (enginesim.Config, error) {
	cfg, err := enginesim.Preset(o.engine)
	if err != nil {
		return cfg, err
	}
	cfg.ServiceName = o.service
	cfg.Engines, cfg.Pooled, cfg.Seed, cfg.Sampling, cfg.TraceState, cfg.AbortRate = o.engines, o.pooled, o.seed, o.sampling, true, o.abort
	if o.workload == enginesim.LengthsMooncake && cfg.MaxModelLen < 131072 {
		return cfg, fmt.Errorf("the prompts of %s are too long for %s: use --engine v1-longcontext", o.workload, o.engine)
	}
	switch {
	case !(o.load >= 0 && o.load <= 100):
		return cfg, fmt.Errorf("--load must be from 0 to 100, it is %v", o.load)
	case !(o.speed >= 0) || math.IsInf(o.speed, 0):
		return cfg, fmt.Errorf("--speed must be 0 or more, it is %v", o.speed)
	case o.duration <= 0:
		return cfg, fmt.Errorf("--duration must be more than 0, it is %v", o.duration)
	case o.window < time.Millisecond:
		return cfg, fmt.Errorf("--truth-window must be 1ms or more, it is %v", o.window)
	}
	cfg.Start = now.Add(o.wall() - o.duration)
	if o.start != "" {
		if cfg.Start, err = time.Parse(time.RFC3339Nano, o.start); err != nil {
			return cfg, fmt.Errorf("--start must be like 2026-01-02T15:04:05Z, it is %q", o.start)
		}
	}
	return cfg, nil
}

// wall is how long the run takes.
func (o *simulateOptions) wall() time.Duration {
	if o.out != "" || o.speed == 0 {
		return 0
	}
	return time.Duration(min(float64(o.duration)/o.speed, 1<<62))
}

func runSimulate(ctx context.Context, std stdio, target replay.Target, o simulateOptions) (err error) {
	cfg, err := o.config(o.clock.Now())
	if err != nil {
		return &exitError{exitUsage, err}
	}
	w := enginesim.Workload{Lengths: o.workload, Arrivals: enginesim.Arrivals(o.arrivals)}
	capacity, err := enginesim.Capacity(cfg, w)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	sim, err := enginesim.New(cfg, w, o.load*capacity.Requests)
	if err != nil {
		return &exitError{exitUsage, err}
	}

	run := &simulation{sim: sim, o: o, start: cfg.Start}
	if o.out != "" {
		file, err := create(o.out, std.out)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		defer func() { err = errors.Join(err, failed(file.Close())) }()
		run.send = func(td ptrace.Traces) (int, error) {
			line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
			if err == nil {
				_, err = file.Write(append(line, '\n'))
			}
			return 0, err
		}
	} else {
		sender, err := target.Dial(ctx, func(message string) { fmt.Fprintf(std.err, "servingctl: %s\n", message) })
		if err != nil {
			return &exitError{exitUsage, err}
		}
		defer sender.Close()
		run.send = func(td ptrace.Traces) (int, error) { return sender.Send(ctx, td) }
		run.live = true
	}
	if o.truth != "" {
		file, err := create(o.truth, std.out)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		defer func() { err = errors.Join(err, failed(file.Close())) }()
		run.truth = json.NewEncoder(file)
	}

	fmt.Fprintf(std.err, "servingctl: each %s engine has max_num_seqs %d and kv_cache_tokens %d, which serving_metrics is told under engine\n", cfg.Name, cfg.MaxNumSeqs, cfg.KVTokens)
	err = run.all(ctx)
	summary := std.out
	if o.out == "-" || o.truth == "-" {
		summary = std.err
	}
	n := sim.Counts()
	fmt.Fprintf(summary, "%s, %d engine(s), load %.2f of %.1f requests/s and %.0f output tokens/s\n", cfg.Name, cfg.Engines, o.load, capacity.Requests, capacity.OutputTokens)
	fmt.Fprintf(summary, "simulated %v: %d requests arrived, %d finished, %d aborted; %d of %d spans sent\n", round(sim.Now().Sub(cfg.Start)), n.Arrived, n.Finished, n.Aborted, run.sent, n.Spans)
	if stopped := (*signalError)(nil); errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	return failed(undelivered(run.sent, n.Spans, err))
}

// undelivered is err with what did not arrive because of it. Spans that are missing without an error are one.
func undelivered(sent, made int, err error) error {
	switch {
	case sent == made:
		return err
	case err == nil:
		return fmt.Errorf("%d of %d spans were not delivered", made-sent, made)
	}
	return fmt.Errorf("%d of %d spans were not delivered: %w", made-sent, made, err)
}

// failed is the error of work that was begun.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitFailed, err}
}

// simulation drives a Sim through the real time.
type simulation struct {
	sim   *enginesim.Sim
	o     simulateOptions
	start time.Time
	live  bool // spans are sent, not written
	// send says how many of the spans were rejected.
	send  func(ptrace.Traces) (rejected int, err error)
	truth *json.Encoder
	sent  int
}

// truthLine is a line of the truth file.
type truthLine struct {
	Engine int `json:"engine"`
	enginesim.Window
}

func (r *simulation) all(ctx context.Context) error {
	begin, end := r.o.clock.Now(), r.start.Add(r.o.duration)
	// The first window that the run covers from its start.
	window := int64(r.o.window)
	first := time.Unix(0, (r.start.UnixNano()+window-1)/window*window)
	for now := r.start; now.Before(end); {
		now = now.Add(100 * time.Millisecond)
		if now.After(end) {
			now = end
		}
		if r.live && r.o.speed > 0 {
			_ = r.o.clock.Wait(ctx, begin.Add(time.Duration(float64(now.Sub(r.start))/r.o.speed)))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.deliver(r.sim.Advance(now)); err != nil {
			return err
		}
		for !first.Add(r.o.window).After(now) {
			if err := r.write(first); err != nil {
				return err
			}
			first = first.Add(r.o.window)
		}
		r.sim.Forget(first)
	}
	// The last step may end after the run, which ends at the present: what it finished is waited for, so that no span is of the future.
	for _, e := range r.sim.Close() {
		if late := e.At.Sub(end); r.live && late > 0 {
			_ = r.o.clock.Wait(ctx, begin.Add(r.o.wall()+late))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.deliver([]enginesim.Export{e}); err != nil {
			return err
		}
	}
	return nil
}

func (r *simulation) deliver(exports []enginesim.Export) error {
	for _, e := range exports {
		n := e.Traces.SpanCount()
		rejected, err := r.send(e.Traces)
		if err == nil {
			r.sent += n - min(rejected, n)
			if rejected > 0 {
				err = fmt.Errorf("the endpoint rejected %d of %d spans", rejected, n)
			}
		}
		if err != nil {
			// Requests leave in order: those that follow are not sent either.
			return fmt.Errorf("from the request of %s on: %w", e.At.Format(time.RFC3339Nano), err)
		}
	}
	return nil
}

// write writes the truth of the window that starts at from.
func (r *simulation) write(from time.Time) error {
	if r.truth == nil {
		return nil
	}
	for i := range r.sim.Engines() {
		if err := r.truth.Encode(truthLine{i, r.sim.Truth(i).Window(from.UnixNano(), from.Add(r.o.window).UnixNano())}); err != nil {
			return err
		}
	}
	return nil
}

// create opens a file for writing, or the standard output for "-".
func create(name string, stdout io.Writer) (io.WriteCloser, error) {
	if name == "-" {
		return &buffered{Writer: bufio.NewWriter(stdout)}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &buffered{bufio.NewWriter(f), f}, nil
}

// buffered flushes before it closes.
type buffered struct {
	*bufio.Writer
	file io.Closer
}

func (b *buffered) Close() error {
	err := b.Flush()
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
	}
	return err
}
