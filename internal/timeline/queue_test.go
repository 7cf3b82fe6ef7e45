// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// overloaded are requests that come at a rate and are served 8 a second in their order, each for 5 s.
func overloaded(rate func(t float64) float64, end float64, seed uint64) (reqs []llmrequest.Request, arrived []float64) {
	r := rand.New(rand.NewPCG(seed, 5))
	free := 0.0
	for t := 0.0; t < end; t += r.ExpFloat64() / rate(t) {
		s := max(t, free)
		free = s + 1.0/8
		reqs = append(reqs, plain(t, s-t, 5, 100))
		arrived = append(arrived, t)
	}
	return reqs, arrived
}

// live feeds as time goes by up to end, with what has ended by then.
func live(reqs []llmrequest.Request, end float64, cfg Config) []Window {
	tl := New(cfg)
	slices.SortStableFunc(reqs, func(a, b llmrequest.Request) int { return int(int64(a.End) - int64(b.End)) })
	for i := range reqs {
		if float64(int64(reqs[i].End)-simEpoch.UnixNano())/sec < end {
			tl.Add(&reqs[i])
		}
	}
	return tl.Windows()
}

func waitingAt(arrived []float64, a, b float64) float64 {
	sum := 0.0
	free := 0.0
	for _, t := range arrived {
		s := max(t, free)
		free = s + 1.0/8
		sum += max(0, min(s, b)-max(t, a))
	}
	return sum / (b - a)
}

func TestWaitingUnseen(t *testing.T) {
	reqs, arrived := overloaded(func(float64) float64 { return 10 }, 2400, 1)
	ws := live(reqs, 2400, Config{})
	require.Greater(t, len(ws), 200)
	exact, late, inside, n := 0, 0, 0, 0
	for i := range ws {
		w := &ws[i]
		a := w.Start.Sub(simEpoch).Seconds()
		truth := waitingAt(arrived, a, a+10)
		if w.Has(WaitingMean) {
			exact++
			assert.InDelta(t, truth, w.Value(WaitingMean), 1, "at %v", a)
			assert.GreaterOrEqual(t, w.Value(WaitingMax), w.Value(WaitingMean)-1)
		}
		if a < 300 {
			continue
		}
		n++
		require.True(t, w.Has(WaitingUpper), "at %v", a)
		lower, upper := w.Value(WaitingLower), w.Value(WaitingUpper)
		if lower-1 <= truth && truth <= upper+1 {
			inside++
		}
		middle, ok := w.Waiting()
		require.True(t, ok)
		assert.InDelta(t, truth, middle, max(1, 0.1*truth), "at %v", a)
		if truth > 8*200 {
			late++
			assert.False(t, w.Has(WaitingMean), "at %v", a)
			assert.False(t, w.Has(WaitingMax), "at %v", a)
			assert.Greater(t, upper-lower, 0.02*truth)
			assert.Less(t, upper-lower, 0.6*truth)
		}
	}
	assert.Greater(t, exact, 20)
	assert.Greater(t, late, 20, "windows in which requests wait longer than the longest grace")
	assert.Greater(t, n, 150)
	assert.GreaterOrEqual(t, inside, n*98/100)
}

// Where the arrivals come and go nobody knows how many wait unseen, but that some do.
func TestWaitingUnknown(t *testing.T) {
	reqs, arrived := overloaded(func(t float64) float64 {
		if int(t/90)%2 == 0 {
			return 18
		}
		return 3
	}, 2400, 1)
	ws := live(reqs, 2400, Config{})
	last := ws[len(ws)-1]
	assert.False(t, last.Has(WaitingMean))
	assert.False(t, last.Has(WaitingMax))
	assert.InDelta(t, 1, last.Value(QueuePressure), 1e-6)
	a := last.Start.Sub(simEpoch).Seconds()
	truth := waitingAt(arrived, a, a+10)
	assert.Greater(t, last.Value(WaitingUpper)-last.Value(WaitingLower), 0.2*truth)
	assert.LessOrEqual(t, last.Value(WaitingLower), truth)
	assert.GreaterOrEqual(t, last.Value(WaitingUpper), truth)
	assert.True(t, ws[5].Has(WaitingMean))
}

// As long as the rate of arrivals is not known there is a lower end only.
func TestWaitingLowerOnly(t *testing.T) {
	reqs, arrived := overloaded(func(float64) float64 { return 16 }, 200, 1)
	n := 0
	for _, w := range live(reqs, 200, Config{Grace: 4 * time.Second}) {
		a := w.Start.Sub(simEpoch).Seconds()
		if a < 60 {
			continue
		}
		n++
		assert.False(t, w.Has(WaitingMean), "at %v", a)
		assert.False(t, w.Has(WaitingUpper), "at %v", a)
		assert.Positive(t, w.Value(WaitingLower))
		assert.LessOrEqual(t, w.Value(WaitingLower), waitingAt(arrived, a, a+10)+1e-6)
		_, ok := w.Waiting()
		assert.False(t, ok)
	}
	assert.Greater(t, n, 5)
}

// Who was seen stands for those scheduled with him that have not ended yet.
func TestWaits(t *testing.T) {
	var h lengths
	for i := range 400 {
		h.add([]float64{1, 1, 1, 100}[i%4], 1)
	}
	const w1 = int64(10 * sec)
	now := int64(60 * sec)
	wait := func(s *waits, scheduled float64) {
		at := int64(scheduled * sec)
		s.add(at-int64(20*sec), at, w1, 1) // all of the window
	}
	sum := func(u unseen, at ...float64) (lower, mean, upper float64, precise bool) {
		var s waits
		s.begin(&h, u, 0, w1, now)
		for _, x := range at {
			wait(&s, x)
		}
		lower, mean, upper, precise, _ = s.end(1)
		return lower, mean, upper, precise
	}
	nobody := unseen{since: math.MaxInt64, known: true}
	times := slices.Repeat([]float64{12}, 30)
	lower, mean, upper, precise := sum(nobody, times...)
	assert.InEpsilon(t, 40, mean, 1e-3, "three of four take so short")
	assert.False(t, precise)
	sigma := math.Sqrt(30 * 0.25 / (0.75 * 0.75))
	assert.InDelta(t, 40+3*sigma, upper, 3, "and what is not known about running times")
	assert.InDelta(t, 30, lower, 1e-9, "never fewer than seen")

	now = int64(1000 * sec)
	_, mean, upper, precise = sum(nobody, times...)
	assert.InEpsilon(t, 30, mean, 1e-6, "all have ended by now")
	assert.True(t, precise)
	assert.InDelta(t, 30, upper, 0.2)

	lower, mean, upper, precise = sum(unseen{since: 0, rate: 3, sigma: 5, known: true}, times...)
	assert.InEpsilon(t, 45, mean, 1e-6, "and 3 a second came")
	assert.InDelta(t, 60, upper, 0.2)
	assert.InDelta(t, 30, lower, 0.2)
	assert.False(t, precise)
	_, _, upper, precise = sum(unseen{since: 0}, times...)
	assert.True(t, math.IsInf(upper, 1))
	assert.False(t, precise)

	// Nobody who came after since is counted twice.
	var s waits
	s.begin(&h, unseen{since: int64(-15 * sec), rate: 1, known: true}, 0, w1, now)
	wait(&s, 12)
	_, mean, _, _, last := s.end(1)
	assert.InEpsilon(t, 20, mean, 1e-6)
	assert.InEpsilon(t, 25, last, 1e-6)

	// Of a tenth of the requests little follows.
	var part waits
	part.begin(&h, nobody, 0, w1, now)
	wait(&part, 12)
	_, mean, upper, precise, _ = part.end(0.1)
	assert.InEpsilon(t, 10, mean, 1e-6)
	assert.InDelta(t, 10+3*math.Sqrt(0.9)/0.1, upper, 0.5)
	assert.False(t, precise)
}

// A queue that has ended holds nobody, however long the last in it waited.
func TestNobodyWaitsAfterTheQueue(t *testing.T) {
	reqs, arrived := overloaded(func(t float64) float64 {
		if t > 900 {
			return 0.003
		}
		return 12
	}, 5000, 1)
	// Nobody comes for a while, and the last of the queue runs on for long.
	last := 0
	for arrived[last+1] < 900 {
		last++
	}
	next := last + 1
	for arrived[next] < 1900 {
		next++
	}
	reqs, arrived = slices.Delete(reqs, last+1, next), slices.Delete(arrived, last+1, next)
	reqs[last] = plain(arrived[last], reqs[last].Value(llmrequest.Queue), 150, 100)
	n := 0
	for _, w := range live(reqs, 5000, Config{}) {
		a := w.Start.Sub(simEpoch).Seconds()
		if a < 900 || waitingAt(arrived, a, a+10) > 0.1 {
			continue
		}
		n++
		require.True(t, w.Has(WaitingMean), "at %v", a)
		assert.LessOrEqual(t, w.Value(WaitingMean), 0.5, "at %v", a)
	}
	assert.Greater(t, n, 50)
}

// With a grace too short for most requests those who waited are counted up, and those not seen added.
func TestWaitingOfTheUnfinished(t *testing.T) {
	reqs, arrived := overloaded(func(float64) float64 { return 9 }, 900, 2)
	r := rand.New(rand.NewPCG(4, 4))
	for i := range reqs {
		reqs[i] = plain(arrived[i], reqs[i].Value(llmrequest.Queue), 1+14*r.Float64(), 100)
	}
	said, all, n := 0.0, 0.0, 0
	for _, w := range live(reqs, 900, Config{Grace: 4 * time.Second}) {
		a := w.Start.Sub(simEpoch).Seconds()
		if truth := waitingAt(arrived, a, a+10); a > 300 && truth < 700 {
			middle, ok := w.Waiting()
			require.True(t, ok, "at %v", a)
			n++
			said += middle
			all += truth
			assert.LessOrEqual(t, w.Value(WaitingLower), truth, "at %v", a)
			assert.GreaterOrEqual(t, w.Value(WaitingUpper), truth, "at %v", a)
		}
	}
	require.Greater(t, n, 15)
	t.Logf("%.4g of %.4g", said, all)
	assert.InEpsilon(t, all, said, 0.04)
}

// A short recording with hardly a queue knows who waits, one that ends in a queue does not.
func TestWaitingAtTheEnd(t *testing.T) {
	for wait, known := range map[float64]bool{0.01: true, 20: false} {
		tl := New(Config{})
		for i := range 30 {
			q := plain(float64(i), wait, 3, 20)
			tl.Add(&q)
		}
		tl.Flush(false)
		ws := tl.Windows()
		require.NotEmpty(t, ws)
		assert.Equal(t, known, ws[len(ws)-1].Has(WaitingMean), "waits of %v s", wait)
	}
}

// Where requests stop coming while others wait, nobody knows how many do.
func TestCutOff(t *testing.T) {
	const stop = 900
	feed := func(reqs []llmrequest.Request, until float64) []Window {
		tl := New(Config{MaxNumSeqs: 64})
		slices.SortStableFunc(reqs, func(a, b llmrequest.Request) int { return int(int64(a.End) - int64(b.End)) })
		last := 0.0
		for i := range reqs {
			if end := float64(int64(reqs[i].End)-simEpoch.UnixNano()) / sec; end < until {
				tl.Add(&reqs[i])
				last = max(last, end)
			}
		}
		for s := 0.0; s < 600; s += 15 {
			tl.Advance(simEpoch.Add(time.Duration((last + s) * sec)))
		}
		return tl.Windows()
	}
	reqs, arrived := overloaded(func(float64) float64 { return 10 }, 1500, 3)
	r := rand.New(rand.NewPCG(8, 8))
	for i := range reqs {
		reqs[i] = plain(arrived[i], reqs[i].Value(llmrequest.Queue), 1+8*r.Float64(), 100)
	}
	inside, after := 0, 0
	ws := feed(slices.Clone(reqs), stop)
	for i := range ws {
		w := &ws[i]
		a := w.Start.Sub(simEpoch).Seconds()
		truth := waitingAt(arrived, a, a+10)
		if v, ok := w.Get(WaitingMean); ok {
			assert.InDelta(t, truth, v, 1.5, "at %v", a)
		}
		if w.Has(WaitingUpper) {
			assert.Less(t, a, float64(stop))
			if truth <= w.Value(WaitingUpper)+1 && truth >= w.Value(WaitingLower)-1 {
				inside++
			}
		}
		if a >= stop {
			after++
			assert.Zero(t, w.Value(Completeness))
			assert.Equal(t, w.End.Sub(w.Start), w.States[StateUnknown], "at %v", a)
			assert.False(t, w.Has(RunningMean))
			assert.False(t, w.Has(OutputThroughput))
			assert.False(t, w.Has(Occupancy))
		}
	}
	assert.Greater(t, after, 10)
	assert.GreaterOrEqual(t, inside, 60)

	// An engine that has served its queue to the end is idle.
	var served []llmrequest.Request
	for i, at := range arrived {
		if at < 300 {
			served = append(served, reqs[i])
		}
	}
	ws = feed(served, math.Inf(1))
	last := ws[len(ws)-1]
	assert.Equal(t, last.End.Sub(last.Start), last.States[StateIdle])
	assert.True(t, last.Has(WaitingMean))
	assert.Zero(t, last.Value(WaitingMean))
}

// A batch is not larger than the engine's limit, unless it was seen to be.
func TestRunningIsBounded(t *testing.T) {
	for _, c := range []struct {
		limit             int
		seen              float64
		mean, most, upper float64
	}{
		{0, 250, 250 / 0.95, 260 / 0.95, 250/0.9 + 3*math.Sqrt(250*0.1)/0.9},
		{256, 250, 256, 260, 256},
		{200, 250, 250 / 0.95, 260 / 0.95, 250/0.9 + 3*math.Sqrt(250*0.1)/0.9}, // a limit that is wrong bounds nothing
		{1000, 250, 250 / 0.95, 260 / 0.95, 250/0.9 + 3*math.Sqrt(250*0.1)/0.9},
	} {
		tl := New(Config{MaxNumSeqs: c.limit})
		var w Window
		tl.ran(&w, c.seen, 260, 0.95, 0.9, 0, 0)
		assert.InEpsilon(t, c.mean, w.Value(RunningMean), 1e-9, "%+v", c)
		assert.InEpsilon(t, c.most, w.Value(RunningMax), 1e-9, "%+v", c)
		assert.InEpsilon(t, c.seen, w.Value(RunningLower), 1e-9, "%+v", c)
		assert.InEpsilon(t, c.upper, w.Value(RunningUpper), 1e-9, "%+v", c)
	}
}

// Of few requests that were seen little follows for the others.
func TestRunningMostlyUnseen(t *testing.T) {
	for complete, given := range map[float64]bool{0.2: false, 0.4: true} {
		tl := New(Config{MaxNumSeqs: 256})
		var w Window
		tl.ran(&w, 20, 25, complete, complete, 0, 0)
		assert.Equal(t, given, w.Has(RunningMean), "%v", complete)
		assert.EqualValues(t, 20, w.Value(RunningLower))
		assert.Equal(t, !given, w.Value(RunningUpper) == 256, "%v", complete)
	}
}

// Where requests wait at a batch that is not full, an engine that has just begun may have long requests that nobody has seen yet.
func TestRunningOfAYoungEngine(t *testing.T) {
	for _, c := range []struct {
		name           string
		limit          int
		begun, ended   float64 // s ago; s after
		waiting, batch float64
		given          bool
	}{
		{"young", 256, 200, 1, 5, 200, false},
		{"young, limit unknown", 0, 200, 1, 5, 200, false},
		{"full", 256, 200, 1, 5, 250, true},
		{"nobody waits", 256, 200, 1, 0, 200, true},
		{"old enough", 256, 300, 1, 5, 200, true},
		{"ran before it was seen", 256, 200, 50, 5, 200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Config{MaxNumSeqs: c.limit})
			const now = int64(1e6 * sec)
			tl.begun = begun{rs: now - int64(c.begun*sec), re: now - int64((c.begun-c.ended)*sec)}
			for range 100 {
				tl.running.add(100, 1)
			}
			var w Window
			tl.ran(&w, c.batch, c.batch, 0.98, 0.97, c.waiting, now)
			assert.Equal(t, c.given, w.Has(RunningMean))
			assert.Equal(t, c.given, w.Has(RunningMax))
			assert.Equal(t, c.batch, w.Value(RunningLower))
			if !c.given {
				assert.Equal(t, c.limit > 0, w.Has(RunningUpper))
				assert.EqualValues(t, c.limit, w.Value(RunningUpper))
			}
			middle, ok := w.Running()
			assert.Equal(t, c.given || c.limit > 0, ok)
			if !c.given && c.limit > 0 {
				assert.EqualValues(t, 228, middle)
			}
		})
	}
}
