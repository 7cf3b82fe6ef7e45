// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Not with the race detector, which finds nothing in the arithmetic of one goroutine and makes it 20 times slower.

//go:build !race

package timeline

// The comparisons with simulated engines that take seconds.

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

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
				assert.LessOrEqual(t, r.waitErr, 1.0, "%s %v", name, load)
				assert.GreaterOrEqual(t, r.held, 0.98, "%s %v", name, load)
				assert.GreaterOrEqual(t, r.waitedBracket, 0.8, "%s %v", name, load)
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
				// Runs as short as these are all of engines that have just begun.
				assert.LessOrEqual(t, r.runErr, 1+0.015*r.run, cell)
				assert.LessOrEqual(t, r.waitErr, 1.0, cell)
				assert.GreaterOrEqual(t, r.held, 0.96, cell)
				assert.GreaterOrEqual(t, r.waitedBracket, 0.7, cell)
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

func TestMixedEngines(t *testing.T) {
	for _, name := range []string{"default", "async", "hostbound", "preempt", "chunked", "v1"} {
		found, runs := 0, 0
		for seed := range uint64(4) {
			for _, load := range []float64{0.1, 0.3, 0.8} {
				ws, _ := run(Config{}, together(name, chat, load, 1, seed+1, 600))
				for i := range ws {
					assert.False(t, ws[i].Flags.Has(MixedEngines), "%s: a single engine at load %v", name, load)
				}
				ws, _ = run(Config{}, together(name, chat, load, 4, seed+1, 600))
				runs++
				last := ws[len(ws)-1]
				if last.Flags.Has(MixedEngines) {
					found++
					assert.False(t, last.Has(DeviceUtilization))
				}
			}
		}
		assert.GreaterOrEqual(t, float64(found), 0.95*float64(runs), name)
	}
}
