// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// How large a batch can be, and what is said of the capacity where that is not known.

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

func TestRoomOfRunningRequests(t *testing.T) {
	var m room
	_, _, _, ok := m.batch(80_000)
	assert.False(t, ok, "of no request")
	// One in ten makes a hundred times as many tokens: of those that run at a moment, ten in eleven are of its kind.
	for range 100 {
		for k := range 10 {
			r := record{in: 300, out: 10, flags: hasIn | hasOut}
			if k == 0 {
				r.in, r.out = 500, 1000
			}
			m.add(&r)
		}
	}
	m.add(&record{in: 1 << 30, flags: hasIn | hasOut}) // no token, no say
	m.add(&record{in: 1 << 30, out: 1 << 30, flags: hasOut})
	held := (1000.*(500+500+blockLoss) + 9*10*(300+5+blockLoss)) / (1000 + 90)
	batch, least, most, ok := m.batch(80_000)
	require.True(t, ok)
	assert.InEpsilon(t, roomUsed*80_000/held, batch, 1e-9)
	assert.Less(t, least, batch*0.98)
	assert.Greater(t, most, batch*1.02)
	assert.Less(t, most/least, 1.2)
	_, _, _, ok = m.batch(0)
	assert.False(t, ok, "of a cache that is not known")

	before := m.again(batch)
	assert.Greater(t, before, m.again(2*batch), "few requests end less evenly")
	m.fade(roomHalfLife)
	after, _, wide, ok := m.batch(80_000)
	require.True(t, ok)
	assert.InEpsilon(t, batch, after, 1e-9)
	assert.Greater(t, wide, most, "less is known of it")
	for range 1000 {
		m.add(&record{in: 300, out: 100, flags: hasIn | hasOut | stepClock})
	}
	assert.Less(t, m.again(batch), before/2, "vLLM V0 keeps some of its cache free")
}

// TestPrefillStepsShare: prompts of 100 tokens, 20 ms a step and 0.05 ms a token, read one by one.
func TestPrefillStepsShare(t *testing.T) {
	g := prefillSteps{base: 0.001, seq: 0.00002}
	assert.InDelta(t, 1, g.share(100, 100), 0, "nothing is known")
	for k := range 200 {
		tokens := 50 + float64(k%101)
		d := 0.020 + 0.00005*tokens
		g.prompts, g.steps, g.time, g.host = g.prompts+1, g.steps+1, g.time+d, g.host+0.001
		g.x, g.xx, g.xt = g.x+tokens, g.xx+tokens*tokens, g.xt+tokens*d
	}
	mean := g.x / g.steps
	one := 0.020 + 0.00005*mean + 0.001
	// 3 requests end in a step: they share the next one.
	shared := -math.Expm1(-3) / 3
	assert.InEpsilon(t, (shared*(0.020+0.001+0.00002*300)+0.00005*mean)/one, g.share(300, 100), 1e-6)
	assert.InEpsilon(t, 1, g.share(1, 1000), 0.01, "an engine of one request")
}

// A window in which nothing ran says nothing of the host's time.
func TestPrefillStepsShareWhileIdle(t *testing.T) {
	tl := New(Config{})
	g := &tl.prefillSteps
	for k := range 200 {
		tokens := 50 + float64(k%101)
		d := 0.020 + 0.00005*tokens
		g.prompts, g.steps, g.time, g.host = g.prompts+1, g.steps+1, g.time+d, g.host+0.006
		g.x, g.xx, g.xt = g.x+tokens, g.xx+tokens*tokens, g.xt+tokens*d
	}
	g.add(tl, &estimate{between: 0.006, betweenBase: 0.004, betweenSeq: 0.00002}, 0, 10*sec)
	busy := g.share(256, 180)
	for k := range int64(30) {
		g.add(tl, &estimate{}, (k+1)*10*sec, (k+2)*10*sec)
	}
	assert.InEpsilon(t, busy, g.share(256, 180), 1e-6)
	g.add(tl, &estimate{between: 0.02}, 310*sec, 320*sec)
	assert.Greater(t, g.share(256, 180), 1.1*busy, "a slower host")
}

// Requests that ended say that there are more prompts to an output token than windows do: either may be right.
func TestLawBracketOfTwoMixes(t *testing.T) {
	const a, b, tokenTime, m = 0.012, 0.0003, 0.00004, 200.0
	tl := New(Config{MaxNumSeqs: m})
	tl.best = 1e6
	tl.pace.tokenTime = tokenTime
	for k := range 1000 {
		batch := 50 + float64(k%150)
		tl.pace.laws[0].add(batch, a+b*batch, 0)
	}
	rate := func(inPerOut float64) float64 { return m / (a + (b+tokenTime*inPerOut)*m) }
	bracket := func(ended, windows float64) (float64, float64) {
		tl.pace.in, tl.pace.out = ended*1000, 1000
		tl.full = full{each: tokenTime, allTokens: 1000, allPrompts: windows * 1000}
		wa, wb, lo, hi, _, ok := tl.pace.wall()
		lower, upper, known := tl.lawBracket(largest{m, m, m, true, true}, stepRange{wa, wb, lo, hi, ok})
		require.True(t, known)
		return lower, upper
	}
	lower, upper := bracket(3, 3)
	assert.InEpsilon(t, rate(3), (lower+upper)/2, 0.02)
	assert.Less(t, upper, rate(2)*1.02)
	assert.Less(t, upper/lower, 1.15)
	for _, mix := range [][2]float64{{5, 3}, {3, 5}} {
		wideLower, wideUpper := bracket(mix[0], mix[1])
		assert.InEpsilon(t, upper, wideUpper, 1e-3)
		assert.Less(t, wideLower, rate(5), "as many as any says")
	}
	tl.pace.in, tl.pace.out = 5000, 1000
	tl.full = full{each: tokenTime}
	wa, wb, lo, hi, _, ok := tl.pace.wall()
	_, upper, known := tl.lawBracket(largest{m, m, m, true, true}, stepRange{wa, wb, lo, hi, ok})
	require.True(t, known)
	assert.Less(t, upper, rate(4), "no window has counted yet")
}

// TestLawIsCorrected: what a token of a prompt takes becomes known after most of the windows.
func TestLawIsCorrected(t *testing.T) {
	var l stepLaw
	for k := range 400 {
		b := 2 + float64(k%100)
		l.add(b, 0.012+0.0003*b+0.00004*8*b, 8*b)
	}
	a, b, _, _, ok := l.fit(0.00004)
	require.True(t, ok)
	assert.InEpsilon(t, 0.012, a, 0.01)
	assert.InEpsilon(t, 0.0003, b, 0.01)
	assert.InDelta(t, 400, l.windows(), 8)
}

// TestKVCacheLimitsTheBatch is an engine whose cache holds fewer requests than MaxNumSeqs, before it was ever full.
func TestKVCacheLimitsTheBatch(t *testing.T) {
	cfg, err := enginesim.Preset("v1-preempt")
	require.NoError(t, err)
	const tokens = 160_000 // more than twice what is needed here
	cfg.KVTokens, cfg.MaxNumSeqs = tokens, 1024
	run := func(load float64, c Config) (truth float64, ws []Window) {
		res, err := enginesim.Run(cfg, enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Bursty}, load, 20*time.Minute)
		require.NoError(t, err)
		tl := New(c)
		feed(tl, res.Exports, func() { ws = append(ws, tl.Windows()...) })
		return res.Capacity.OutputTokens, ws
	}
	count := func(truth float64, ws []Window) (brackets, inside, points int, width float64) {
		for i := range ws {
			w := &ws[i]
			lower, ok := w.Get(CapacityLower)
			assert.Equal(t, ok, w.Has(CapacityUpper))
			if c, ok := w.Get(Capacity); ok {
				points++
				assert.InEpsilon(t, truth, c, 0.1)
				assert.Equal(t, GuardOK, w.Guard)
				assert.LessOrEqual(t, w.Value(CapacityUpper), c*(1+maxCapacityError+1e-9))
				assert.GreaterOrEqual(t, lower, c*(1-maxCapacityError-1e-9))
			}
			if !ok {
				assert.NotEqual(t, GuardOK, w.Guard)
				continue
			}
			brackets++
			if upper := w.Value(CapacityUpper); lower <= truth*1.05 && upper >= truth*0.95 {
				inside++
			}
			width += w.Value(CapacityUpper) / lower
			least, most, ok := w.CapacityUsed()
			assert.True(t, ok)
			assert.InDelta(t, w.Value(OutputThroughput), most*lower, 1e-6)
			assert.InDelta(t, w.Value(OutputThroughput), least*w.Value(CapacityUpper), 1e-6)
		}
		return brackets, inside, points, width / float64(brackets)
	}

	truth, ws := run(0.75, Config{MaxNumSeqs: cfg.MaxNumSeqs, KVCacheTokens: tokens})
	brackets, inside, points, told := count(truth, ws)
	assert.Greater(t, brackets, 80)
	assert.GreaterOrEqual(t, float64(inside), 0.97*float64(brackets))
	assert.Greater(t, points, 20, "the limit is known")

	truth, ws = run(0.75, Config{MaxNumSeqs: cfg.MaxNumSeqs})
	brackets, inside, points, alone := count(truth, ws)
	assert.Greater(t, brackets, 80)
	assert.GreaterOrEqual(t, float64(inside), 0.97*float64(brackets))
	assert.Zero(t, points, "the batch seen may be the largest, or a fourth of it")
	assert.Greater(t, alone, 1.3*told)

	// The cache alone is enough, and neither is nothing.
	truth, ws = run(0.75, Config{KVCacheTokens: tokens})
	_, _, points, _ = count(truth, ws)
	assert.Greater(t, points, 20)
	_, ws = run(0.75, Config{})
	for i := range ws {
		assert.False(t, ws[i].Has(CapacityLower) || ws[i].Has(CapacityUpper) || ws[i].Has(Capacity))
		assert.Equal(t, GuardUnknown, ws[i].Guard)
	}
}

// A largest batch that is exceeded all the time is none.
func TestNoCapacityOfAWrongLimit(t *testing.T) {
	for _, c := range []Config{{MaxNumSeqs: 4}, {MaxNumSeqs: 256, KVCacheTokens: 1}} {
		_, _, ws := simulate(t, "v1", enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, 0.5, 10*time.Minute, c)
		n := 0
		for i := range ws {
			if ws[i].Value(RunningLower) > 20 {
				n++
				assert.False(t, ws[i].Has(CapacityLower), "%+v: %v", c, ws[i].Start)
				assert.False(t, ws[i].Has(CapacityFit), "%+v: %v", c, ws[i].Start)
			}
		}
		assert.Greater(t, n, 20)
	}
}
