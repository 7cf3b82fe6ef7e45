// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// How near the figures come to the truth of the simulated engines.

import (
	"math"
	"testing"
	"time"

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
		out.add(win, run, wait)
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
	out.compl, out.flags = out.compl/n, out.flags/n
	out.end()
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
