// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// How near the figures come to the truth of the small engine.

import (
	"math"
)

type cellResult struct {
	n                      int
	run                    float64
	mae, bias              float64
	inside, verdict, width float64
	mode                   float64
	stepErr                float64
	runErr, waitErr, compl float64
	shares                 [NumStates]float64
	dev, flags             float64
	capacity, caps         float64

	// Windows with a figure; of all, those with a bracket of the waiting requests, and with the truth in both brackets, to one request and a hundredth.
	ran, waited, waitedBracket, held float64
}

// add compares the running and waiting requests of a window.
func (c *cellResult) add(w *Window, running, waiting float64) {
	if v, ok := w.Get(RunningMean); ok {
		c.ran++
		c.runErr += math.Abs(v - running)
	}
	if v, ok := w.Get(WaitingMean); ok {
		c.waited++
		c.waitErr += math.Abs(v - waiting)
	}
	in := func(truth float64, lower, upper Figure) bool {
		slack := 1 + truth/100
		return truth >= w.Value(lower)-slack && (!w.Has(upper) || truth <= w.Value(upper)+slack)
	}
	if w.Has(WaitingUpper) {
		c.waitedBracket++
	}
	if in(running, RunningLower, RunningUpper) && in(waiting, WaitingLower, WaitingUpper) {
		c.held++
	}
}

func (c *cellResult) end() {
	c.runErr /= max(c.ran, 1)
	c.waitErr /= max(c.waited, 1)
	c.waitedBracket /= float64(c.n)
	c.held /= float64(c.n)
}

var (
	chat = workload{210, 180, "poisson"}
	long = workload{1800, 570, "poisson"}
)

type capKey struct {
	m engineModel
	w workload
}

var capacities = map[capKey][2]float64{}

func capacityOf(m engineModel, w workload) (float64, float64) {
	w.burst = "poisson"
	k := capKey{m, w}
	if c, ok := capacities[k]; ok {
		return c[0], c[1]
	}
	r, tok := m.capacity(w)
	capacities[k] = [2]float64{r, tok}
	return r, tok
}

const (
	warmUp  = 120.0
	measure = 1200.0
)

// judge runs one cell and compares its windows with the truth.
func judge(m engineModel, w workload, load float64, seed uint64) cellResult {
	c, _ := capacityOf(m, w)
	tr := m.run(seed, w, c*load, warmUp+measure+100, 1e9)
	t := New(Config{MaxNumSeqs: m.maxSeqs})
	var ws []Window
	reqs := m.spans(tr, seed, 5, 0)
	for i := range reqs {
		t.Add(&reqs[i])
		ws = append(ws, t.Windows()...)
	}
	t.Flush(true)
	ws = append(ws, t.Windows()...)
	var res cellResult
	wide := 0.0
	verdicts := 0
	for i := range ws {
		win := &ws[i]
		a := float64(win.Start.Sub(simEpoch)) / sec
		b := float64(win.End.Sub(simEpoch)) / sec
		if a < warmUp || b > warmUp+measure {
			continue
		}
		u, ok := win.Get(DeviceUtilization)
		if !ok {
			continue
		}
		truth := tr.busy(a, b) / (b - a)
		run, wait, occ := tr.concurrency(a, b)
		res.n++
		res.mae += math.Abs(u - truth)
		res.bias += u - truth
		lo, hi := win.Value(DeviceLower), win.Value(DeviceUpper)
		if truth >= lo-1e-4 && truth <= hi+1e-4 {
			res.inside++
		}
		wide += hi - lo
		if occ > 0 {
			verdicts++
			if (truth/(occ/(b-a)) < 0.6) == (win.Value(DeviceWaitRatio) > 0.4) {
				res.verdict++
			}
		}
		if (win.Mode == ModeMixed) == m.chunked {
			res.mode++
		}
		if s := tr.step(a, b); s > 0 && win.Has(StepDuration) {
			res.stepErr += win.Value(StepDuration)/s - 1
		}
		res.add(win, run/(b-a), wait/(b-a))
		res.run += run / (b - a)
		res.compl += win.Value(Completeness)
		for s := range win.States {
			res.shares[s] += float64(win.States[s]) / float64(b-a) / sec
		}
	}
	n := float64(res.n)
	res.mae, res.bias, res.inside, res.width, res.mode = res.mae/n, res.bias/n, res.inside/n, wide/n, res.mode/n
	res.verdict /= float64(max(verdicts, 1))
	res.stepErr /= n
	res.compl /= n
	res.end()
	res.run /= n
	for s := range res.shares {
		res.shares[s] /= n
	}
	return res
}
