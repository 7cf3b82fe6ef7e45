// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Not with the race detector, which finds nothing in the arithmetic of one goroutine and makes it 20 times slower.

//go:build !race

package main

// The shape of the tables, that a broken estimate shows, and the document.

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const document = "../../docs/accuracy.md"

var measured = &capacities{} // by all tests

// tiny runs a plan of one second, or only its cells.
func tiny(t *testing.T, engines []string, cells bool, spoil func(cfg *enginesim.Config, w *timeline.Window)) *results {
	p, err := newPlan(engines, []string{"chat/poisson"}, 10*time.Minute, 1)
	require.NoError(t, err)
	p.loads, p.faultLoads = []float64{0.5}, []float64{0.3}
	r := runner{plan: p, spoil: spoil, capacities: measured}
	if cells {
		res := &results{plan: p}
		for _, cfg := range p.engines {
			c := cell{engine: cfg.Name, workload: p.workloads[0].name, load: p.loads[0], v1: cfg.Dialect.V1()}
			require.NoError(t, r.cell(&c, cfg, p.workloads[0].Workload, c.load))
			res.cells = append(res.cells, c)
		}
		return res
	}
	res, err := r.run()
	require.NoError(t, err)
	return res
}

func render(t *testing.T, r *results) string {
	var b bytes.Buffer
	require.NoError(t, r.write(&b))
	return b.String()
}

func TestTables(t *testing.T) {
	res := tiny(t, []string{"v0-default", "v1"}, false, nil)
	out := render(t, res)
	for _, want := range []string{
		"### Aims", "### Device utilisation", "### Requests, steps, capacity, completeness", "### Faulty input",
		"| v0-default | 10 s | 0.0", "| v0-default | 60 s | 0.0", "\n| chat/poisson | 50 % | ", "\n10 s windows:\n", "\n60 s windows:\n",
	} {
		assert.Contains(t, out, want)
	}
	tables, columns := 0, 0
	for line := range strings.SplitSeq(out, "\n") {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		if columns == 0 {
			tables++
			columns = strings.Count(line, "|")
		}
		assert.Equal(t, columns, strings.Count(line, "|"), line)
		assert.NotContains(t, line, "NaN")
	}
	assert.GreaterOrEqual(t, tables, 10)

	assert.Len(t, res.cells, 2)
	for _, c := range res.cells {
		// A window closes a grace after its end: what the last minutes lack is not counted.
		assert.Greater(t, c.scores[0].windows, 30, c.title())
		assert.Less(t, c.scores[0].windows, 48, c.title())
		assert.Greater(t, c.scores[1].windows, 4, c.title())
		assert.Equal(t, c.v1, c.scores[0].given.sum == 0, c.title())
	}
	one := render(t, tiny(t, []string{"v0-default"}, false, nil))
	assert.Equal(t, one, render(t, tiny(t, []string{"v0-default"}, false, nil)), "the same twice")
}

// TestBrokenEstimates breaks one figure at a time: what depends on it is missed, and nothing else.
func TestBrokenEstimates(t *testing.T) {
	add := func(f timeline.Figure, x float64) func(*enginesim.Config, *timeline.Window) {
		return func(_ *enginesim.Config, w *timeline.Window) {
			if v, ok := w.Get(f); ok {
				w.Set(f, v+x)
			}
		}
	}
	times := func(f timeline.Figure, x float64) func(*enginesim.Config, *timeline.Window) {
		return func(_ *enginesim.Config, w *timeline.Window) {
			if v, ok := w.Get(f); ok {
				w.Set(f, v*x)
			}
		}
	}
	unset := func(f timeline.Figure, every int64) func(*enginesim.Config, *timeline.Window) {
		return func(_ *enginesim.Config, w *timeline.Window) {
			if w.Start.Unix()%every == 0 {
				w.Unset(f)
			}
		}
	}
	single := func(cfg *enginesim.Config) bool { return !cfg.Pooled && cfg.Sampling == 1 }
	const (
		mae, meanMAE, bias    = "device utilisation, 10 s: mean absolute error <= 0.03", "averaged over the cells", "bias within"
		bracket, verdict      = "the bracket holds", "waits for host"
		stepBias              = "step duration, 10 s: bias"
		running, waiting      = "running requests, 10 s, where given", "waiting requests, 10 s, where given"
		runs, runsIn          = "running requests, 10 s: given", "running requests, 10 s: the bracket"
		waits, waitsIn        = "waiting requests, 10 s: both ends", "waiting requests, 10 s: the bracket"
		step, complete, early = "step duration, 10 s: mean absolute", "completeness, 10 s", "closed too early"
		stepGiven             = "step duration, 10 s: given"
		given, silent         = "device utilisation given", "never given"
		pooledFound, isSingle = "four engines under one key", "never taken for several"
		known, withheld       = "flagged where it can be known", "withheld"
		whole                 = "never taken for sampled"
	)
	for _, c := range []struct {
		name  string
		spoil func(cfg *enginesim.Config, w *timeline.Window)
		want  []string
	}{
		{"nothing", nil, nil},
		{"utilisation 0.05 too high", add(timeline.DeviceUtilization, 0.05), []string{mae, meanMAE, bias}},
		{"utilisation 0.025 too low", add(timeline.DeviceUtilization, -0.025), []string{meanMAE, bias}},
		{"the bracket's upper end", times(timeline.DeviceUpper, 0.5), []string{bracket}},
		{"the bracket's lower end", add(timeline.DeviceLower, 1), []string{bracket}},
		{"the wait ratio", func(_ *enginesim.Config, w *timeline.Window) {
			if v, ok := w.Get(timeline.DeviceWaitRatio); ok {
				w.Set(timeline.DeviceWaitRatio, 1-v)
			}
		}, []string{verdict}},
		{"running", func(cfg *enginesim.Config, w *timeline.Window) {
			if single(cfg) {
				add(timeline.RunningMean, 3)(cfg, w)
			}
		}, []string{running}},
		{"waiting", add(timeline.WaitingMean, 2), []string{waiting}},
		{"no running requests", unset(timeline.RunningMean, 40), []string{runs}},
		{"running requests' lower end", func(cfg *enginesim.Config, w *timeline.Window) {
			if single(cfg) {
				add(timeline.RunningLower, 30)(cfg, w)
			}
		}, []string{runsIn}},
		{"running requests' upper end", times(timeline.RunningUpper, 0.5), []string{runsIn}},
		{"no upper end of waiting requests", unset(timeline.WaitingUpper, 40), []string{waits}},
		{"no lower end of waiting requests", unset(timeline.WaitingLower, 40), []string{waitsIn}},
		{"waiting requests' upper end", add(timeline.WaitingUpper, -3), []string{waitsIn}},
		{"step", times(timeline.StepDuration, 1.1), []string{step, stepBias}},
		{"step withheld in a fourth of the windows", unset(timeline.StepDuration, 40), []string{stepGiven}},
		{"step withheld in a few windows", unset(timeline.StepDuration, 120), []string{stepGiven}},
		{"completeness", times(timeline.Completeness, 0.8), []string{complete, early}},
		{"withheld for no reason", func(_ *enginesim.Config, w *timeline.Window) {
			if w.Start.Unix()%240 == 0 {
				w.Unset(timeline.DeviceUtilization)
			}
		}, []string{given}},
		{"a device figure for V1", func(cfg *enginesim.Config, w *timeline.Window) {
			if cfg.Dialect.V1() && single(cfg) {
				w.Set(timeline.DeviceUtilization, 0.5)
			}
		}, []string{mae, meanMAE, bias, bracket, verdict, silent}},
		{"pooled engines not found", func(cfg *enginesim.Config, w *timeline.Window) {
			if cfg.Pooled {
				w.Flags &^= timeline.MixedEngines
			}
		}, []string{pooledFound}},
		{"one engine taken for several", func(cfg *enginesim.Config, w *timeline.Window) {
			if single(cfg) {
				w.Flags |= timeline.MixedEngines
			}
		}, []string{isSingle}},
		{"sampling not flagged", func(cfg *enginesim.Config, w *timeline.Window) {
			if cfg.Sampling < 1 {
				w.Flags &^= timeline.Sampled
			}
		}, []string{known}},
		{"sampled figures given", func(_ *enginesim.Config, w *timeline.Window) {
			if w.Flags.Has(timeline.Sampled) {
				w.Set(timeline.Capacity, 1000)
			}
		}, []string{withheld}},
		{"all requests taken for a sample", func(cfg *enginesim.Config, w *timeline.Window) {
			if single(cfg) {
				w.Flags |= timeline.Sampled
			}
		}, []string{whole}},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines := []string{"v0-default"}
			if slices.Contains(c.want, silent) {
				engines = append(engines, "v1")
			}
			faulty := c.want == nil
			for _, aim := range []string{early, pooledFound, known, withheld} {
				faulty = faulty || slices.Contains(c.want, aim)
			}
			res := tiny(t, engines, !faulty, c.spoil)
			var missed []string
			for _, a := range res.aims() {
				if !a.met {
					missed = append(missed, a.name)
				}
			}
			require.Len(t, missed, len(c.want), "%q", missed)
			for i, want := range c.want {
				assert.Contains(t, missed[i], want)
			}
			if faulty {
				assert.Equal(t, len(c.want), strings.Count(render(t, res), "| **missed** |"))
			}
		})
	}
}

// TestBrokenCapacity needs a load at which the guard admits one, told and not told.
func TestBrokenCapacity(t *testing.T) {
	cfg, err := enginesim.Preset("v0-default")
	require.NoError(t, err)
	const told, untold = "capacity, 10 s", "the same by an estimator that is not told"
	const toldInside, untoldInside = "the capacity is in its bracket", "the same, not told"
	times := func(w *timeline.Window, f timeline.Figure, by float64) {
		if v, ok := w.Get(f); ok {
			w.Set(f, v*by)
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(w *timeline.Window)
		want  []string
	}{
		{"nothing", func(*timeline.Window) {}, nil},
		{"the figure", func(w *timeline.Window) { times(w, timeline.Capacity, 1.3) }, []string{told, untold}},
		{"the lower end", func(w *timeline.Window) { times(w, timeline.CapacityLower, 1.3) }, []string{toldInside, untoldInside}},
		{"the upper end", func(w *timeline.Window) { times(w, timeline.CapacityUpper, 0.8) }, []string{toldInside, untoldInside}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runner{plan: plan{duration: 12 * time.Minute, seeds: 1}, capacities: measured, spoil: func(_ *enginesim.Config, w *timeline.Window) { c.spoil(w) }}
			res := results{cells: make([]cell, 1)}
			require.NoError(t, r.cell(&res.cells[0], cfg, enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, 1.2))
			for _, name := range []string{told, untold, toldInside, untoldInside} {
				i := slices.IndexFunc(res.aims(), func(a aim) bool { return strings.HasPrefix(a.name, name) })
				require.GreaterOrEqual(t, i, 0, name)
				a := res.aims()[i]
				assert.Equal(t, !slices.Contains(c.want, name), a.met, "%s: %s", name, a.figure)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	for args, want := range map[string]string{
		"-engines v9":          "unknown engine \"v9\"",
		"-workloads chat":      "unknown workload \"chat\"",
		"-engines ,":           "no engine",
		"-seeds 0":             "-seeds 0",
		"-duration 1m":         "-duration 1m0s",
		"-nonsense":            "not defined",
		"more":                 "unexpected argument",
		"-write no/such/file":  "no such file",
		"-short -write doc.go": "once each",
	} {
		assert.ErrorContains(t, command(strings.Fields(args), io.Discard, io.Discard), want, args)
	}
	file := filepath.Join(t.TempDir(), "a.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n"+section.Begin+"\n"+section.End+"\nafter\n"), 0o600))
	args := []string{"-engines", "v0-preempt", "-workloads", "chat/poisson", "-duration", "10m", "-seeds", "1"}
	require.NoError(t, command(append(args, "-write", file), io.Discard, io.Discard))
	written, err := os.ReadFile(file) //nolint:gosec // its own
	require.NoError(t, err)
	text := string(written)
	assert.True(t, strings.HasPrefix(text, "before\n"+section.Begin+"\n\n1 engine kinds, 1 workloads"), text)
	assert.True(t, strings.HasSuffix(text, "\n"+section.End+"\nafter\n"), text)
	assert.Contains(t, text, "\n### Faulty input\n")
}

// TestDocument: docs/accuracy.md holds the tables of a full run of today's engine kinds, workloads and aims.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(document)
	require.NoError(t, err)
	require.NoError(t, section.Check(document))
	text := string(data)
	_, rest, _ := strings.Cut(text, section.Begin)
	tables, _, _ := strings.Cut(rest, section.End)

	p, err := newPlan(enginesim.Presets(), workloadNames(), defaultDuration, defaultSeeds)
	require.NoError(t, err)
	assert.Contains(t, tables, p.settings(), "run go run ./internal/accuracy -write docs/accuracy.md")
	for _, title := range []string{"\n10 s windows:\n", "\n60 s windows:\n"} {
		_, rest, found := strings.Cut(tables, title)
		require.True(t, found, title)
		table, _, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
		var rows []string
		for _, m := range regexp.MustCompile(`(?m)^\| (v\S+) \|`).FindAllStringSubmatch(table, -1) {
			rows = append(rows, m[1])
		}
		assert.Equal(t, enginesim.Presets(), rows, title)
	}
	for _, w := range p.workloads {
		if w.Lengths != enginesim.LengthsMooncake { // no V0 kind has room for it
			assert.Contains(t, tables, "\n| "+w.name+" | 120 % |")
		}
	}
	for _, a := range cellAims {
		assert.Contains(t, tables, "| "+a.name+" |")
	}
	for _, name := range enginesim.Presets() {
		assert.Contains(t, strings.ReplaceAll(text, tables, ""), "`"+name+"`", "what the engine kind is")
	}
}
