// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The pace of decoding, what follows from it, and who waits unseen.

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// paced are requests of an engine that makes 50 steps/s and 20 steps/s in turn, changing every period
// seconds: arrivals a second, steps each.
func paced(period, end, perSecond float64, seed uint64) ([]llmrequest.Request, func(a, b float64) float64) {
	steps := func(t float64) float64 { // before t
		n := math.Floor(t / (2 * period))
		rest := t - n*2*period
		return n*period*70 + 50*min(rest, period) + 20*max(rest-period, 0)
	}
	r := rand.New(rand.NewPCG(seed, 3))
	var reqs []llmrequest.Request
	for t := 0.0; t < end; t += r.ExpFloat64() / perSecond {
		n := 20 + r.IntN(600)
		lo, hi := t, t+1000
		for range 50 {
			if m := (lo + hi) / 2; steps(m)-steps(t) < float64(n) {
				lo = m
			} else {
				hi = m
			}
		}
		q := plain(t-0.001, 0, lo-t+0.001, n+1)
		q.Set(llmrequest.TimeToFirstToken, 0.001)
		reqs = append(reqs, q)
	}
	slices.SortFunc(reqs, func(a, b llmrequest.Request) int { return int(int64(a.End) - int64(b.End)) })
	return reqs, func(a, b float64) float64 { return steps(b) - steps(a) }
}

func TestPaceFollowsTheEngine(t *testing.T) {
	reqs, steps := paced(25, 400, 4, 1)
	ws, _ := run(Config{}, reqs)
	n, worst, naive := 0, 0.0, 0.0
	for i := range ws {
		a := ws[i].Start.Sub(simEpoch).Seconds()
		if a < 60 || a > 360 {
			continue
		}
		n++
		truth := 10 / steps(a, a+10)
		worst = max(worst, math.Abs(ws[i].Value(StepDuration)/truth-1))
		// What the requests that end in the window say of their lives.
		var time, made float64
		for k := range reqs {
			if e := float64(int64(reqs[k].End)-simEpoch.UnixNano()) / sec; e >= a && e < a+10 {
				time += reqs[k].Value(llmrequest.E2E)
				made += reqs[k].Value(llmrequest.OutputTokens) - 1
			}
		}
		naive = max(naive, math.Abs(time/made/truth-1))
	}
	require.GreaterOrEqual(t, n, 29)
	assert.LessOrEqual(t, worst, 0.08, "the pace jumps within a bin")
	assert.Greater(t, naive, 0.3, "or the test shows nothing")
}

// Tokens are made when steps are.
func TestTokensFollowThePace(t *testing.T) {
	reqs, steps := paced(25, 400, 4, 2)
	ws, _ := run(Config{}, reqs)
	for i := range ws {
		a := ws[i].Start.Sub(simEpoch).Seconds()
		if a < 60 || a > 360 {
			continue
		}
		var truth float64
		for k := range reqs {
			s := float64(int64(reqs[k].Start)-simEpoch.UnixNano())/sec + 0.001
			e := float64(int64(reqs[k].End)-simEpoch.UnixNano()) / sec
			if lo, hi := max(s, a), min(e, a+10); hi > lo {
				truth += steps(lo, hi)
			}
		}
		assert.InEpsilon(t, truth/10, ws[i].Value(OutputThroughput), 0.08, "at %v", a)
	}
}

// A window in which hardly a step is made has no mean step.
func TestNoStepWithoutSteps(t *testing.T) {
	// One request decodes until 1 s and from 59 s; in between it is held up.
	a := plain(0, 0, 60, 3)
	a.Set(llmrequest.TimeToFirstToken, 1)
	ws, _ := run(Config{FromStart: true}, []llmrequest.Request{a})
	require.NotEmpty(t, ws)
	for i := range ws {
		assert.False(t, ws[i].Has(StepDuration), "window %d", i)
	}
}

func simulate(t *testing.T, name string, w enginesim.Workload, load float64, d time.Duration, cfg Config) (*enginesim.Result, *Timeline, []Window) {
	t.Helper()
	c, err := enginesim.Preset(name)
	require.NoError(t, err)
	res, err := enginesim.Run(c, w, load, d)
	require.NoError(t, err)
	if cfg.MaxNumSeqs == 0 {
		cfg.MaxNumSeqs = c.MaxNumSeqs
	}
	tl := New(cfg)
	var ws []Window
	feed(tl, res.Exports, func() { ws = append(ws, tl.Windows()...) })
	return res, tl, ws
}

var azureCode = enginesim.Workload{Lengths: enginesim.LengthsAzureCode, Arrivals: enginesim.Recorded}

// A clock set back leaves nothing of its future behind.
func TestPaceAfterRestart(t *testing.T) {
	reqs, steps := paced(25, 400, 4, 1)
	tl := New(Config{})
	// The same two hours later, first.
	for _, q := range reqs {
		q.Start, q.End = q.Start+2*3600*sec, q.End+2*3600*sec
		tl.Add(&q)
	}
	tl.Windows()
	for i := range reqs {
		tl.Add(&reqs[i])
	}
	assert.Positive(t, tl.Stats().Restarts)
	n := 0
	for _, w := range tl.Windows() {
		a := w.Start.Sub(simEpoch).Seconds()
		if a < 100 || a > 360 {
			continue
		}
		n++
		assert.InEpsilon(t, 10/steps(a, a+10), w.Value(StepDuration), 0.08, "at %v", a)
		assert.True(t, w.Has(WaitingMean))
	}
	assert.Greater(t, n, 10)
	assert.Less(t, tl.queue.next*tl.queue.bin, simEpoch.Add(time.Hour).UnixNano())
}

// What a prompt token takes is learnt where prompts share steps with decoding.
func TestPromptTokenTime(t *testing.T) {
	res, tl, _ := simulate(t, "v1", azureCode, 0.5, 10*time.Minute, Config{})
	_ = res
	c, err := enginesim.Preset("v1")
	require.NoError(t, err)
	assert.InEpsilon(t, c.Law.PrefillPerToken, tl.pace.tokenTime, 0.05)
}

// ... and so from the first requests on: the prompts beside them were noted before anybody knew how the engine takes them.
func TestPromptTokenTimeAtOnce(t *testing.T) {
	c, err := enginesim.Preset("v0-chunked")
	require.NoError(t, err)
	for seed := range uint64(3) {
		c.Seed = seed + 3
		res, err := enginesim.Run(c, enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.OnOff}, 1, 5*time.Minute)
		require.NoError(t, err)
		tl := New(Config{MaxNumSeqs: c.MaxNumSeqs})
		n := 0
		feed(tl, res.Exports, func() {
			if ws := tl.Windows(); len(ws) > 0 && tl.pace.tokenTime > 0 {
				n++
				assert.InEpsilon(t, c.Law.PrefillPerToken, tl.pace.tokenTime, 0.5, "seed %d, before %v", c.Seed, ws[len(ws)-1].End.Sub(c.Start))
			}
		})
		assert.Greater(t, n, 5)
	}
}

// The device's figure is not taken in by an engine that mostly reads prompts.
func TestHostPartOfPrompts(t *testing.T) {
	c, err := enginesim.Preset("v0-hostbound")
	require.NoError(t, err)
	r := judgeSim(t, c, azureCode, 0.8, 12*time.Minute)
	assert.LessOrEqual(t, r.mae, 0.03)
	assert.LessOrEqual(t, math.Abs(r.bias), 0.02)
}

// The output of an engine that reads prompts first and mostly is no capacity.
func TestNoCapacityOfPrompts(t *testing.T) {
	_, _, ws := simulate(t, "v0-default", azureCode, 0.8, 12*time.Minute, Config{})
	require.NotEmpty(t, ws)
	for i := range ws {
		assert.False(t, ws[i].Has(Capacity), "window %d", i)
		assert.NotEqual(t, GuardOK, ws[i].Guard)
	}
}

// An engine that was full says its capacity, whatever filled it: here the KV cache.
func TestCapacityMeasured(t *testing.T) {
	res, _, ws := simulate(t, "v1-preempt", enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, 1.2, 12*time.Minute, Config{})
	last := ws[len(ws)-1]
	require.True(t, last.Has(Capacity))
	assert.InEpsilon(t, res.Capacity.OutputTokens, last.Value(Capacity), 0.08)
}

func TestFull(t *testing.T) {
	tl := New(Config{})
	w := Window{}
	w.Set(QueuePressure, 1)
	w.Set(RunningMax, 50)
	for range 3 {
		tl.full.add(&w, tl, 100, 100, 5)
	}
	assert.InDelta(t, 10, tl.full.time, 0.1, "the first 20 s do not count")
	assert.InDelta(t, 30, tl.full.limited, 0.2, "half a batch, and nothing that is read")
	assert.InDelta(t, 100, tl.full.tokens/tl.full.time, 1e-6)
	w.Unset(RunningMax)
	tl.full.add(&w, tl, 100, 100, 5)
	assert.InDelta(t, 30, tl.full.limited, 0.5, "how many ran is not known")
	tl.full.add(&w, tl, 0, 100, 1)
	assert.Zero(t, tl.full.streak, "hardly anybody waits")
	w.Set(QueuePressure, 0.5)
	tl.full.add(&w, tl, 0, 100, 5)
	assert.Zero(t, tl.full.streak)
}

func TestFullOfPrompts(t *testing.T) {
	tl := New(Config{})
	w := Window{}
	w.Set(QueuePressure, 1)
	w.Set(RunningMax, 50)
	tl.pace.masked, tl.pace.share = true, 0.6
	for range 6 {
		tl.full.add(&w, tl, 100, 100, 5)
	}
	assert.InDelta(t, 40, tl.full.limited, 0.6, "at first they may wait to be read")
	assert.InDelta(t, 100, tl.full.rate(), 1e-6, "all windows are full ones: their mix is the mix")

	// As many windows with a third of the prompts: 0.4 s of each second make 100 tokens, and prompts take 0.4 s of 100 on average.
	w.Set(QueuePressure, 0)
	tl.pace.share = 0.2
	for range 2 {
		tl.full.add(&w, tl, 100, 100, 0)
	}
	all := tl.full.allPrompts / tl.full.allTokens
	assert.InDelta(t, 0.0040, all, 1e-4)
	assert.InEpsilon(t, 1/(0.004+all), tl.full.rate(), 1e-3)

	tl.pace.masked = false
	tl.full.add(&w, tl, 100, 100, 0)
	assert.Zero(t, tl.full.time, "another mode has other prompts")
}

// What a token of a prompt takes is known only after the first minutes: those before count by what is known then.
func TestFullOfPromptsInMixedMode(t *testing.T) {
	tl := New(Config{})
	w := Window{}
	w.Set(QueuePressure, 1)
	w.Set(RunningMax, 50)
	tl.pace.share, tl.pace.read, tl.pace.tokenTime = 0.1, 1000, 0.0001
	add := func(waiting float64) { tl.full.add(&w, tl, 100, 100, waiting) }
	for range 6 {
		add(5)
	}
	assert.InEpsilon(t, 100, tl.full.rate(), 1e-6)
	w.Set(QueuePressure, 0)
	tl.pace.tokenTime, tl.pace.share = 0.004, 0.4 // far off, of few prompts
	tl.pace.read = 100
	add(0)
	add(0)
	tl.pace.tokenTime = 0.0001
	tl.pace.read = 1000
	add(0)
	// Of five windows that count, two read a tenth of the prompts.
	mix := tl.full.allPrompts / tl.full.allTokens
	assert.InDelta(t, 6.4, mix, 0.4)
	assert.InEpsilon(t, 1/(0.009+0.0001*mix), tl.full.rate(), 1e-3)
}

// The host's time after prefill steps is told from that after decode steps, at full load too.
func TestStepInOverload(t *testing.T) {
	c, err := enginesim.Preset("v0-default")
	require.NoError(t, err)
	r := judgeSim(t, c, enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, 1.2, 12*time.Minute)
	assert.LessOrEqual(t, math.Abs(r.stepErr), 0.01)
}

func TestLengthsResidual(t *testing.T) {
	var h lengths
	for range 3 {
		h.add(1, 1)
	}
	h.add(9, 1)
	assert.InDelta(t, (3*1+81)/12.0, h.residual(), 1e-4, "long requests are met more often")
	assert.InEpsilon(t, 9, h.most(0.5), 0.1)
	assert.InEpsilon(t, 1, h.most(0.8), 0.1)
	assert.Zero(t, h.most(1))
}

func TestVainTime(t *testing.T) {
	s := int64(sec)
	occupied := []span{{0, 1 * s}, {1*s + s/100, 2 * s}, {3 * s, 10 * s}}
	assert.InDelta(t, 0.01+0.05+0, vainTime(occupied, 10*s, 0.05)/sec, 1e-9, "not into the next, not out of the window")
	assert.Zero(t, vainTime(nil, s, 1))
}

// Bursts of an engine with asynchronous output processing end with a step that no span shows.
func TestBracketHoldsVainSteps(t *testing.T) {
	c, err := enginesim.Preset("v0-async")
	require.NoError(t, err)
	r := judgeSim(t, c, azureCode, 0.05, 20*time.Minute)
	assert.EqualValues(t, 1, r.inside)
}

// A long window holds more requests, and takes more of them into its bracket.
func TestBracketOfLongWindows(t *testing.T) {
	w := enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}
	width := func(length time.Duration) float64 {
		_, _, ws := simulate(t, "v0-default", w, 0.5, 10*time.Minute, Config{Window: length})
		sum := 0.0
		for i := range ws {
			sum += ws[i].Value(DeviceUpper) - ws[i].Value(DeviceLower)
		}
		return sum / float64(len(ws))
	}
	assert.Less(t, width(time.Minute), width(10*time.Second))
}
