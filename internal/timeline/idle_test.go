// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What is unseen: requests longer than the grace, and the long ones of an engine that has just begun.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

// visits are requests of 1 s that come every 4 s from 0 to 60 s; from a moment on they wait as one does behind a step of 20 ms.
func visits(worksFrom float64) []record {
	var out []record
	for s := 1.0; s < 60; s += 4 {
		q := 0.0005
		if s > worksFrom {
			q = 0.0112
		}
		rs := int64((s + q) * sec)
		out = append(out, record{rs: rs, re: rs + sec, queue: float32(q), flags: hasQueue})
	}
	return out
}

func TestIdleDoubt(t *testing.T) {
	const step = 0.020
	tell := func(from float64, w0, w1 int64) float64 {
		d := idle{usual: 0.0005, n: 20}
		return float64(d.doubt(visits(from), w0*sec, w1*sec, step, true)) / sec
	}
	assert.Zero(t, tell(100, 10, 20), "who comes later finds the engine at rest")
	assert.InDelta(t, 8, tell(-1, 10, 20), 0.1, "all in which nothing is seen to run")
	// One that found it at rest may have come just when a step ended, if eleven that come later did not.
	assert.InDelta(t, 8, tell(14, 10, 20), 0.1)
	// Three that found it at rest outweigh one that comes later and did not.
	assert.Zero(t, tell(56, 30, 40))
	assert.InDelta(t, 3, tell(56, 40, 50), 0.1, "from 46 to 49 s two outweigh it not yet")
	assert.Zero(t, tell(58, 10, 20), "what begins after the window is not in it")

	d := idle{usual: 0.0005, n: 20}
	assert.Zero(t, d.doubt(nil, 0, 10*sec, step, true), "of nobody nothing follows")
	rs := int64(5.02 * sec)
	soon := []record{{re: 5 * sec}, {rs: rs, re: rs + sec, queue: 0.018, flags: hasQueue}}
	assert.Zero(t, d.doubt(soon, 0, 5*sec, step, true), "who comes within steps of the last end may wait for the last step")
}

func TestIdleDoubtsSilence(t *testing.T) {
	one := []record{{rs: 2 * sec, re: 4 * sec, flags: hasQueue}}
	var d idle
	assert.EqualValues(t, 6*sec, d.doubt(one, 0, 10*sec, 0.02, true), "nobody came after 4 s")
	assert.Zero(t, d.doubt(one, 0, 10*sec, 0.02, false), "nobody is left who could run")
	assert.Zero(t, d.doubt(nil, 10*sec, 20*sec, 0.02, true), "an engine without requests rests")
}

func TestIdleLearnsItsUsualDelay(t *testing.T) {
	var d idle
	for range 200 {
		d.learn(0.004)
		d.learn(0.006)
	}
	assert.InDelta(t, 0.005, d.usual, 0.0012)
	d.learn(0.100) // one unseen request does not move it much
	assert.Less(t, d.usual, 0.0065)
}

// A request longer than the grace of a nearly idle engine is in no window that it begins in; the bracket knows.
func TestBracketHoldsUnseenRequests(t *testing.T) {
	cfg, err := enginesim.Preset("v0-preempt")
	require.NoError(t, err)
	w := enginesim.Workload{Lengths: enginesim.LengthsAzureCode, Arrivals: enginesim.Recorded}
	out := judgeSim(t, cfg, w, 0.05, 30*time.Minute)
	assert.InDelta(t, 1, out.inside, 0)
	assert.Less(t, out.width, 0.06)
}

func TestLengthsOfAnEngineThatHasJustBegun(t *testing.T) {
	// One request of 1 s and one of 100 s begin every second from 0 on; at 150 s half as many of the long ones have ended.
	var seen, grown lengths
	var b begun
	const now = 150
	end := func(from, l int) {
		if from+l > now {
			return
		}
		r := record{rs: int64(from) * sec, re: int64(from+l) * sec}
		b.add(&r)
		seen.add(float64(l), 1)
	}
	for s := range now {
		end(s, 1)
		end(s, 100)
	}
	b.grow(&grown, &seen, now*sec)
	short := 0.0
	for _, n := range grown.count[:lengthsBucket(10)+1] {
		short += float64(n)
	}
	assert.InDelta(t, 150, short, 3)
	assert.InDelta(t, 150, grown.n-150, 20, "as many long ones as short ones")
	assert.InDelta(t, 51, seen.n-150, 1e-3, "not so many have been seen")

	// One that ran before has requests of all ages from the start.
	var before begun
	before.add(&record{rs: -100 * sec, re: sec})
	before.grow(&grown, &seen, now*sec)
	assert.Equal(t, seen, grown)
	// Nor has one of long ago just begun.
	b.grow(&grown, &seen, 2*3600*sec)
	assert.Equal(t, seen, grown)
}

func TestRunsOfPrefills(t *testing.T) {
	var p prefills
	ms := int64(1e6)
	p.add([]span{{10 * ms, 50 * ms}, {45 * ms, 80 * ms}, {75 * ms, 100 * ms}, {200 * ms, 220 * ms}})
	assert.Equal(t, 2, p.runs(0, len(p.entries)))
	assert.Equal(t, 1, p.runs(0, 3))
	assert.Zero(t, p.runs(1, 3), "both follow at once")
}

func TestSmoothPrompts(t *testing.T) {
	p := pace{bin: sec, hi: 12, tokenTime: 1e-4, paceScratch: new(paceScratch)}
	tokens := func(perBin float64, at int) {
		p.cumTokens = p.cumTokens[:0]
		c := 0.0
		for k := range 12*finePerBin + 1 {
			p.cumTokens = append(p.cumTokens, c)
			if k%finePerBin == at {
				c += perBin // all of a bin's at one moment
			}
		}
	}
	tokens(3000, 3)
	before := append([]float64{}, p.cumTokens...)
	p.smooth()
	assert.Equal(t, before, p.cumTokens, "0.3 of the time: as they were read")

	tokens(8000, 3)
	p.smooth()
	assert.IsNonDecreasing(t, p.cumTokens)
	for k := 2 * finePerBin; k < 10*finePerBin; k++ {
		assert.InDelta(t, 8000.0/finePerBin, p.cumTokens[k+1]-p.cumTokens[k], 480, k)
	}
	assert.InDelta(t, 12*8000, p.cumTokens[12*finePerBin], 1)
}
