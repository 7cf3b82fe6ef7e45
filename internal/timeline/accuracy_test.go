// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Not with the race detector, which finds nothing in the arithmetic of one goroutine and makes it 20 times slower.

//go:build !race

package timeline

// How near the figures come to the truth of the small engine.

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
		res.runErr += math.Abs(win.Value(RunningMean) - run/(b-a))
		res.run += run / (b - a)
		res.compl += win.Value(Completeness)
		res.waitErr += math.Abs(win.Value(WaitingMean) - wait/(b-a))
		for s := range win.States {
			res.shares[s] += float64(win.States[s]) / float64(b-a) / sec
		}
	}
	n := float64(res.n)
	res.mae, res.bias, res.inside, res.width, res.mode = res.mae/n, res.bias/n, res.inside/n, wide/n, res.mode/n
	res.verdict /= float64(max(verdicts, 1))
	res.stepErr /= n
	res.compl /= n
	res.runErr /= n
	res.run /= n
	res.waitErr /= n
	for s := range res.shares {
		res.shares[s] /= n
	}
	return res
}

func TestAccuracy(t *testing.T) {
	total, cells := 0.0, 0
	for _, name := range []string{"default", "async", "hostbound", "preempt", "chunked"} {
		for wi, w := range []workload{chat, long} {
			w.burst = [2]string{"onoff", "poisson"}[wi]
			for _, load := range []float64{0.2, 0.8, 1.2} {
				r := judge(modelOf(name), w, load, 1)
				total += r.mae
				cells++
				t.Logf("%-9s %-7s %3.0f %%: MAE %.4f bias %+.4f bracket %.2f holds %.3f wait verdict %.3f mode %.2f step %+.4f running %.2f waiting %.2f completeness %.3f",
					name, w.burst, 100*load, r.mae, r.bias, r.width, r.inside, r.verdict, r.mode, r.stepErr, r.runErr, r.waitErr, r.compl)
				if name == "preempt" && load > 1 {
					// One request in two is preempted here, and no span tells of the prompts run again.
					assert.LessOrEqual(t, r.mae, 0.07, "%s %v", name, load)
					assert.Negative(t, r.bias)
				} else {
					assert.LessOrEqual(t, r.mae, 0.03, "%s %v", name, load)
					assert.LessOrEqual(t, math.Abs(r.bias), 0.02, "%s %v", name, load)
				}
				assert.EqualValues(t, 1, r.inside, "%s %v: the bracket holds the truth", name, load)
				assert.GreaterOrEqual(t, r.mode, 0.98, "%s %v", name, load)
				assert.LessOrEqual(t, r.runErr, 1+0.01*r.run, "%s %v", name, load)
				if load <= 1 {
					assert.LessOrEqual(t, r.waitErr, 1.0, "%s %v", name, load)
				}
			}
		}
	}
	t.Logf("mean MAE %.4f", total/float64(cells))
	assert.LessOrEqual(t, total/float64(cells), 0.01)
}

// TestCompleteness closes windows early, so that much is missing, and compares what the window
// says is missing with what is.
func TestCompleteness(t *testing.T) {
	for _, name := range []string{"default", "chunked", "v1"} {
		for _, load := range []float64{0.3, 0.8} {
			m := modelOf(name)
			c, _ := capacityOf(m, chat)
			tr := m.run(7, chat, c*load, 1300, 1e9)
			reqs := m.spans(tr, 7, 5, 0)
			for _, grace := range []time.Duration{time.Nanosecond, 5 * time.Second, 20 * time.Second} {
				ws, _ := run(Config{Grace: grace}, reqs)
				var said, seen, corrected float64
				n := 0
				for i := range ws {
					a := float64(ws[i].Start.Sub(simEpoch)) / sec
					if a < warmUp || a > 1200 {
						continue
					}
					run, _, _ := tr.concurrency(a, a+10)
					said += ws[i].Value(Completeness)
					seen += ws[i].Value(RunningMean) * ws[i].Value(Completeness) * 10 / run
					corrected += ws[i].Value(RunningMean) * 10 / run
					n++
				}
				t.Logf("%s %.0f %% grace %v: says %.3f, is %.3f, running corrected x%.3f", name, 100*load, grace, said/float64(n), seen/float64(n), corrected/float64(n))
				assert.InDelta(t, seen/float64(n), said/float64(n), 0.05)
				assert.Less(t, said/float64(n), 1.0)
			}
		}
	}
}
