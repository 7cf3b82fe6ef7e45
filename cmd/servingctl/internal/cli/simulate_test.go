// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

// simulate runs the command on its own, as the root command would.
func simulate(ctx context.Context, args ...string) (result, error) {
	var out, errs bytes.Buffer
	cmd := newSimulate(stdio{out: &out, err: &errs})
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	return result{out: out.String(), err: errs.String()}, err
}

func TestSimulateFile(t *testing.T) {
	dir := t.TempDir()
	spans, truth := filepath.Join(dir, "spans.jsonl"), filepath.Join(dir, "truth.jsonl")
	args := []string{"--engines", "2", "--load", "0.9", "--duration", "65s", "--start", "2026-01-02T15:04:03Z", "--workload", "azure-conv", "--arrivals", "trace", "--out", spans, "--truth", truth}
	r, err := simulate(t.Context(), args...)
	require.NoError(t, err)
	assert.Regexp(t, `^v0-default, 2 engine\(s\), load 0\.90 of [\d.]+ requests/s and \d+ output tokens/s
simulated 1m5s: \d+ requests arrived, \d+ finished, 0 aborted; (\d+) of \d+ spans sent
$`, r.out)
	assert.Equal(t, "servingctl: each v0-default engine has max_num_seqs 256 and kv_cache_tokens 1048576, which serving_metrics is told under engine\n", r.err)

	data, err := os.ReadFile(spans)
	require.NoError(t, err)
	n := 0
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(lines.Bytes())
		require.NoError(t, err)
		n += td.SpanCount()
	}
	require.NoError(t, lines.Err())
	assert.Greater(t, n, 300)

	f, err := os.Open(truth)
	require.NoError(t, err)
	defer f.Close()
	for decoder, i := json.NewDecoder(f), 0; decoder.More(); i++ {
		var line truthLine
		require.NoError(t, decoder.Decode(&line))
		assert.Equal(t, i%2, line.Engine)
		assert.Equal(t, time.Date(2026, 1, 2, 15, 4, 10*(i/2+1), 0, time.UTC), line.Start)
		assert.InDelta(t, 10, line.Idle+line.Prefill+line.Decode+line.Mixed+line.ExecuteHost+line.Scheduler+line.HostOther, 1e-6)
		assert.Positive(t, line.OutputTokens)
		require.Less(t, i, 10, "five windows lie within the run")
	}

	// The same again.
	args[len(args)-3] = filepath.Join(dir, "again.jsonl")
	_, err = simulate(t.Context(), args...)
	require.NoError(t, err)
	again, err := os.ReadFile(args[len(args)-3])
	require.NoError(t, err)
	assert.Equal(t, data, again)
}

func TestSimulateSends(t *testing.T) {
	var mu sync.Mutex
	spans, latest := 0, time.Time{}
	grpc, http := serve(t, nil, func(td ptrace.Traces) error {
		mu.Lock()
		defer mu.Unlock()
		spans += td.SpanCount()
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if end := s.EndTimestamp().AsTime(); end.After(latest) {
						latest = end
					}
				}
			}
		}
		return nil
	})
	begin := time.Now()
	_, err := simulate(t.Context(), "--engine", "v1", "--endpoint", grpc, "--duration", "60s", "--speed", "100", "--truth", "-", "--truth-window", "20s")
	require.NoError(t, err)
	assert.Greater(t, time.Since(begin), 600*time.Millisecond)
	assert.Greater(t, spans, 400)
	assert.False(t, latest.After(time.Now()), "no span of the future")
	assert.WithinDuration(t, begin, latest, time.Since(begin)+time.Second, "at the present")

	spans = 0
	_, err = simulate(t.Context(), "--protocol", "http", "--endpoint", "http://"+http, "--duration", "30s", "--speed", "0")
	require.NoError(t, err)
	assert.Greater(t, spans, 50)
}

// The README names every field of the truth file and no other, and says of every kind of engine what it really has; so does the help.
func TestSimulateDocumented(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	section := func(title string) string {
		_, text, ok := strings.Cut(string(readme), "\n### "+title+"\n")
		require.True(t, ok, title)
		text, _, _ = strings.Cut(text, "\n## ")
		text, _, _ = strings.Cut(text, "\n### ")
		return text
	}
	var described []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.+?`) \\|").FindAllStringSubmatch(section("The truth file"), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			described = append(described, strings.Trim(name, "`"))
		}
	}
	written := []string{"engine"}
	for field := range reflect.TypeFor[enginesim.Window]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		written = append(written, name)
	}
	assert.ElementsMatch(t, written, described)

	help := newSimulate(stdio{}).Long
	rows := regexp.MustCompile("(?m)^\\| `v.*$").FindAllString(section("Kinds of engines"), -1)
	require.Len(t, rows, len(enginesim.Kinds()))
	for i, k := range enginesim.Kinds() {
		cfg, err := enginesim.Preset(k.Name)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("| `%s` | %s | %d | %d |", k.Name, k.About, cfg.MaxNumSeqs, cfg.KVTokens), rows[i])
		assert.Regexp(t, fmt.Sprintf(`(?m)^  %s +%s +%d +%d$`, k.Name, regexp.QuoteMeta(k.About), cfg.MaxNumSeqs, cfg.KVTokens), help)
	}
}

// clock is always there when it is waited for.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Wait(ctx context.Context, t time.Time) error {
	if t.After(c.now) {
		c.now = t
	}
	return ctx.Err()
}

// simulated runs the flags with a clock of its own and gives what is sent to send.
func simulated(t *testing.T, c *clock, o simulateOptions, send func(ptrace.Traces) (int, error)) (*simulation, error) {
	t.Helper()
	o.clock = c
	cfg, err := o.config(c.now)
	require.NoError(t, err)
	sim, err := enginesim.New(cfg, enginesim.Workload{Lengths: o.workload}, 40)
	require.NoError(t, err)
	run := &simulation{sim: sim, o: o, start: cfg.Start, live: true, send: send}
	return run, run.all(t.Context())
}

// All spans are sent, those of a step that ends after the run as well, and none before it has ended.
func TestSimulateSendsAll(t *testing.T) {
	for _, speed := range []float64{0, 1, 20} {
		late := 0
		for seed := range uint64(12) {
			begin := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
			c := &clock{begin}
			sent := 0
			o := simulateOptions{engine: "v1", engines: 1, sampling: 1, duration: 20 * time.Second, window: 10 * time.Second, speed: speed, seed: seed}
			end := begin.Add(o.wall())
			run, err := simulated(t, c, o, func(td ptrace.Traces) (int, error) {
				sent += td.SpanCount()
				for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
					assert.False(t, s.EndTimestamp().AsTime().After(c.now), "a span of the future")
					if s.EndTimestamp().AsTime().After(end) {
						late++
					}
				}
				return 0, nil
			})
			require.NoError(t, err)
			assert.Equal(t, run.sim.Counts().Spans, sent, "speed %v, seed %d", speed, seed)
			assert.Equal(t, sent, run.sent)
			assert.Less(t, c.now.Sub(end), time.Second)
		}
		assert.Positive(t, late, "no run ended within a step that finished a request")
	}
}

// What was not delivered is said, with the moment and the reason.
func TestSimulateRefused(t *testing.T) {
	grpc, _ := serve(t, nil, func(ptrace.Traces) error { return status.Error(codes.InvalidArgument, "no such tenant") })
	r := execute(t.Context(), nil, false, "simulate", "--endpoint", grpc, "--duration", "30s", "--speed", "0", "--start", "2026-01-02T15:04:00Z")
	assert.Equal(t, exitFailed, r.code)
	assert.Regexp(t, `; 0 of (\d+) spans sent\n$`, r.out)
	assert.Regexp(t, `(?m)^servingctl: (\d+) of \d+ spans were not delivered: from the request of 2026-01-02T15:04:\S+Z on: .*no such tenant`, r.err)

	// Refused in part: the rest counts as sent, and the run ends there.
	o := simulateOptions{engine: "v1", engines: 1, sampling: 1, duration: 20 * time.Second, window: 10 * time.Second}
	n := 0
	run, err := simulated(t, &clock{time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}, o, func(td ptrace.Traces) (int, error) {
		n += td.SpanCount()
		return 2, nil
	})
	require.ErrorContains(t, err, "the endpoint rejected 2 of ")
	assert.Equal(t, n-2, run.sent)
	assert.Greater(t, run.sim.Counts().Spans, n, "those of the next request")

	assert.NoError(t, undelivered(5, 5, nil))
	assert.EqualError(t, undelivered(4, 5, nil), "1 of 5 spans were not delivered")
	assert.EqualError(t, undelivered(5, 5, errors.New("the truth")), "the truth")
}

func TestSimulateErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown engine":       {"--engine", "x"},
		"unknown workload":     {"--workload", "x"},
		"use --engine v1-long": {"--workload", "mooncake"},
		"need a recorded":      {"--arrivals", "trace"},
		"--load must":          {"--load", "-1"},
		"--speed must":         {"--speed", "nan"},
		"--duration must":      {"--duration", "0s"},
		"--truth-window must":  {"--truth-window", "1us"},
		"--start must":         {"--start", "yesterday"},
		"leave one out":        {"--out", "x", "--endpoint", "localhost:1"},
		"0 engines":            {"--engines", "0"},
		"sampling":             {"--sampling", "0"},
		"--protocol must":      {"--protocol", "x"},
		"no such file":         {"--out", filepath.Join("none", "x")},
		"unknown command":      {"x"},
	} {
		r, err := simulate(t.Context(), args...)
		require.ErrorContains(t, err, want)
		assert.Empty(t, r.out)
		if exit := (*exitError)(nil); errors.As(err, &exit) {
			assert.Equal(t, exitUsage, exit.code)
		}
	}
	// A peer that is not there is a failure, and a signal is a signal.
	_, err := simulate(t.Context(), "--endpoint", "127.0.0.1:1", "--speed", "0", "--retry-time", "0")
	exit := (*exitError)(nil)
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, exitFailed, exit.code)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&signalError{syscall.SIGTERM})
	_, err = simulate(ctx, "--endpoint", "127.0.0.1:1")
	stopped := (*signalError)(nil)
	require.ErrorAs(t, err, &stopped)
	assert.Equal(t, 143, stopped.code())
}
