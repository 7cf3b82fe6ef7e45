// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Not with the race detector, which finds nothing in the arithmetic of one goroutine and makes it 20 times slower.

//go:build !race

package timeline

// How near the figures come to the truth of the simulated engines.

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// feed gives everything that the exports hold to t.
func feed(t *Timeline, exports []enginesim.Export, each func()) {
	var r llmrequest.Request
	for _, e := range exports {
		rss := e.Traces.ResourceSpans()
		for i := range rss.Len() {
			sss := rss.At(i).ScopeSpans()
			for j := range sss.Len() {
				src := llmrequest.NewSource(rss.At(i).Resource().Attributes(), sss.At(j).Scope().Name())
				spans := sss.At(j).Spans()
				for k := range spans.Len() {
					if llmrequest.Read(spans.At(k), &src, &r) {
						t.Add(&r)
						each()
					}
				}
			}
		}
	}
}

func judgeSim(tb testing.TB, cfg enginesim.Config, w enginesim.Workload, load float64, d time.Duration) cellResult {
	res, err := enginesim.Run(cfg, w, load, d)
	require.NoError(tb, err)
	t := New(Config{MaxNumSeqs: cfg.MaxNumSeqs})
	var ws []Window
	feed(t, res.Exports, func() { ws = append(ws, t.Windows()...) })
	t.Flush(false)
	ws = append(ws, t.Windows()...)
	tr := res.Truth(0)
	var out cellResult
	verdicts, steps, caps := 0, 0, 0
	end := cfg.Start.Add(d)
	for i := range ws {
		win := &ws[i]
		if win.Start.Before(cfg.Start.Add(2*time.Minute)) || win.End.After(end.Add(-200*time.Second)) {
			continue
		}
		a, b := win.Start.UnixNano(), win.End.UnixNano()
		truth := tr.Times(a, b).Share()
		out.n++
		run, _ := tr.Running(a, b)
		wait, _ := tr.Waiting(a, b)
		out.run += run
		out.runErr += math.Abs(win.Value(RunningMean) - run)
		out.waitErr += math.Abs(win.Value(WaitingMean) - wait)
		out.compl += win.Value(Completeness)
		if win.Flags&(MixedEngines|SpeculativeDecoding|Sampled) != 0 {
			out.flags++
		}
		if c, ok := win.Get(Capacity); ok {
			caps++
			out.capacity += c/res.Capacity.OutputTokens - 1
		}
		if s := decodeStep(tr.Steps(a, b)); s > 0 && win.Has(StepDuration) {
			out.stepErr += win.Value(StepDuration)/s - 1
			steps++
		}
		u, ok := win.Get(DeviceUtilization)
		if !ok {
			continue
		}
		out.dev++
		out.mae += math.Abs(u - truth)
		out.bias += u - truth
		lo, hi := win.Value(DeviceLower), win.Value(DeviceUpper)
		if truth >= lo-1e-4 && truth <= hi+1e-4 {
			out.inside++
		}
		out.width += hi - lo
		if occ := tr.Occupied(a, b).Seconds() / 10; occ > 0 {
			verdicts++
			if (truth/occ < 0.6) == (win.Value(DeviceWaitRatio) > 0.4) {
				out.verdict++
			}
		}
		if (win.Mode == ModeMixed) == (cfg.Mode == enginesim.ChunkedPrefill) {
			out.mode++
		}
		tt := tr.Times(a, b)
		for s, v := range map[State]time.Duration{
			StateIdle: tt[enginesim.Idle], StatePrefill: tt[enginesim.ForwardPrefill], StateDecode: tt[enginesim.ForwardDecode] + tt[enginesim.ForwardMixed],
			StateExecuteHost: tt[enginesim.ExecuteHost], StateScheduler: tt[enginesim.Scheduler], StateHostOther: tt[enginesim.HostOther],
		} {
			out.shares[s] += (win.States[s] - v).Seconds() / 10
		}
	}
	n := float64(out.n)
	out.run /= n
	out.runErr, out.waitErr, out.compl, out.flags = out.runErr/n, out.waitErr/n, out.compl/n, out.flags/n
	out.stepErr /= float64(max(steps, 1))
	out.capacity /= float64(max(caps, 1))
	out.caps = float64(caps) / n
	dev := max(out.dev, 1)
	out.mae, out.bias, out.inside, out.width, out.mode = out.mae/dev, out.bias/dev, out.inside/dev, out.width/dev, out.mode/dev
	out.verdict /= float64(max(verdicts, 1))
	for s := range out.shares {
		out.shares[s] /= dev
	}
	return out
}

// decodeStep is the mean duration of the steps that decode, s.
func decodeStep(steps []enginesim.Step) float64 {
	sum, n := 0.0, 0
	for i, st := range steps {
		if st.Decodes > 0 && i+1 < len(steps) && steps[i+1].Start == st.End {
			sum += float64(st.End-st.Start) / sec
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// TestEngineSim is the table of docs/accuracy.md in short: engines by workload and load.
func TestEngineSim(t *testing.T) {
	type sums struct{ mae, width, verdict, step, capacity, caps, dev, n float64 }
	totals := map[string]*sums{}
	names := []string{"v0-default", "v0-async", "v0-hostbound", "v0-preempt", "v0-chunked", "v1"}
	for _, name := range names {
		sum := &sums{}
		totals[name] = sum
		for _, w := range []enginesim.Workload{
			{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson},
			{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Bursty},
			{Lengths: enginesim.LengthsLong, Arrivals: enginesim.Poisson},
			{Lengths: enginesim.LengthsLong, Arrivals: enginesim.OnOff},
		} {
			for _, load := range []float64{0.05, 0.2, 0.5, 0.8, 1.0, 1.2} {
				cfg, err := enginesim.Preset(name)
				require.NoError(t, err)
				r := judgeSim(t, cfg, w, load, 14*time.Minute)
				t.Logf("%-12s %s %-7s %3.0f %%: n=%d MAE %.4f bias %+.4f bracket %.2f holds %.3f wait verdict %.3f mode %.2f step %+.4f running %.2f waiting %.2f completeness %.3f capacity %+.3f of %.2f states %+.3f",
					name, w.Lengths, w.Arrivals, 100*load, r.n, r.mae, r.bias, r.width, r.inside, r.verdict, r.mode, r.stepErr, r.runErr, r.waitErr, r.compl, r.capacity, r.caps, r.shares)
				cell := fmt.Sprintf("%s %s %s %v", name, w.Lengths, w.Arrivals, load)
				require.Positive(t, r.n, cell)
				assert.Zero(t, r.flags, "%s: nothing is wrong with the input", cell)
				if name == "v1" {
					assert.Zero(t, r.dev, "%s: V1 says nothing of the device", cell)
				} else {
					assert.LessOrEqual(t, r.mae, 0.03, cell)
					assert.LessOrEqual(t, math.Abs(r.bias), 0.02, cell)
					assert.EqualValues(t, 1, r.inside, "%s: the bracket holds the truth", cell)
				}
				// Where requests outlast the longest grace some are still to come, and those that stand in
				// for them vary.
				tolerance := 0.01
				if r.compl < 0.9995 {
					tolerance = 0.025
				}
				assert.LessOrEqual(t, r.runErr, 1+tolerance*r.run, cell)
				if load <= 1 && w.Arrivals == enginesim.Poisson {
					assert.LessOrEqual(t, r.waitErr, 1.0, cell)
				}
				sum.mae, sum.width, sum.dev = sum.mae+r.mae, sum.width+r.width, sum.dev+r.dev
				sum.step += math.Abs(r.stepErr)
				if r.caps > 0 {
					sum.capacity += math.Abs(r.capacity)
					sum.caps++
				}
				if load >= 0.2 {
					sum.verdict += r.verdict
				}
				sum.n++
			}
		}
	}
	for _, name := range names {
		s := totals[name]
		t.Logf("%-12s MAE %.4f bracket %.3f wait verdict %.4f step %.4f capacity %.3f", name, s.mae/s.n, s.width/s.n, s.verdict/s.n*6/5, s.step/s.n, s.capacity/s.caps)
		if name != "v1" {
			assert.LessOrEqual(t, s.mae/s.n, 0.01, name)
			assert.GreaterOrEqual(t, s.verdict/s.n*6/5, 0.97, name)
		}
		assert.LessOrEqual(t, s.step/s.n, 0.03, name)
		assert.LessOrEqual(t, s.capacity/s.caps, 0.10, name)
	}
}
