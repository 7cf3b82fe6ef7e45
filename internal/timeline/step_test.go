// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The step: how near it comes where that is hard, and where it is withheld.

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

// stepErrors is the mean absolute error and the bias of the step, and the share of windows with one, of those with 20 decode steps.
func stepErrors(t *testing.T, name string, w enginesim.Workload, load float64, cfg Config) (mae, bias, given float64) {
	t.Helper()
	res, _, ws := simulate(t, name, w, load, 20*time.Minute, cfg)
	n, all := 0.0, 0.0
	for i := range ws {
		steps := res.Truth(0).Steps(ws[i].Start.UnixNano(), ws[i].End.UnixNano())
		decodes := 0
		for _, s := range steps {
			if s.Decodes > 0 {
				decodes++
			}
		}
		if decodes <= 20 || ws[i].Start.Sub(ws[0].Start) < 2*time.Minute {
			continue
		}
		all++
		if v, ok := ws[i].Get(StepDuration); ok {
			n++
			mae += math.Abs(v/decodeStep(steps) - 1)
			bias += v/decodeStep(steps) - 1
		}
	}
	require.Greater(t, n, 10.0)
	return mae / n, bias / n, n / all
}

// An engine that mostly reads prompts leaves little time for decoding, whose step goes down by three quarters as a batch drains: bins are short,
// a bin full of prompts has no decoding time, and enough sweeps are made. The batch grows while prompts are read and falls while requests
// decode, and the host takes time by the batch.
func TestStepBetweenPrompts(t *testing.T) {
	for _, c := range []struct {
		engine    string
		load, mae float64
	}{
		{"v0-default", 0.5, 0.008},
		{"v0-default", 0.8, 0.008},
		{"v0-hostbound", 0.5, 0.014},
		{"v0-hostbound", 0.8, 0.013},
		{"v0-async", 0.8, 0.008},
		{"v1", 0.2, 0.012},
	} {
		mae, bias, given := stepErrors(t, c.engine, azureCode, c.load, Config{})
		assert.LessOrEqual(t, mae, c.mae, "%s at %v", c.engine, c.load)
		assert.LessOrEqual(t, math.Abs(bias), 0.012, "%s at %v", c.engine, c.load)
		assert.GreaterOrEqual(t, given, 0.9, "%s at %v", c.engine, c.load)
	}
	mae, _, _ := stepErrors(t, "v0-default", azureCode, 0.5, Config{Window: time.Minute})
	assert.LessOrEqual(t, mae, 0.035, "windows of a minute")
}

// steady are requests of an engine that makes 40 steps/s, share of which made fewer than it, by up to a quarter.
func steady(share, end float64, seed uint64) []llmrequest.Request {
	r := rand.New(rand.NewPCG(seed, 5))
	var reqs []llmrequest.Request
	for t := 0.0; t < end; t += r.ExpFloat64() / 3 {
		n := 100 + r.IntN(500)
		length := float64(n) / 40
		if r.Float64() < share {
			n -= r.IntN(n / 4)
		}
		q := plain(t, 0, length+0.001, n+1)
		q.Set(llmrequest.TimeToFirstToken, 0.001)
		reqs = append(reqs, q)
	}
	slices.SortFunc(reqs, func(a, b llmrequest.Request) int { return int(int64(a.End) - int64(b.End)) })
	return reqs
}

// Preempted requests made fewer steps than the engine: those that were not tell. Taken alike, all would say 5 % more than it takes.
func TestStepOfPreemptedRequests(t *testing.T) {
	for _, share := range []float64{0, 0.1, 0.4} {
		ws, _ := run(Config{}, steady(share, 500, 1))
		n, mean := 0, 0.0
		for i := range ws {
			if a := ws[i].Start.Sub(simEpoch).Seconds(); a < 100 || a > 450 {
				continue
			}
			if v, ok := ws[i].Get(StepDuration); ok {
				n++
				mean += v
			}
		}
		require.Greater(t, n, 30, "with %v of them", share)
		assert.InEpsilon(t, 1./40, mean/float64(n), 0.012, "with %v of them", share)
	}
	mae, bias, given := stepErrors(t, "v1-preempt", enginesim.Workload{Lengths: enginesim.LengthsLong, Arrivals: enginesim.Poisson}, 1.2, Config{})
	t.Logf("off by %.4f (%+.4f), given in %.3f", mae, bias, given)
	assert.LessOrEqual(t, math.Abs(bias), 0.007)
	assert.LessOrEqual(t, mae, 0.027)
	assert.GreaterOrEqual(t, given, 0.7)
}

// Requests that contradict each other tell no step.
func TestNoStepOfContradictoryRequests(t *testing.T) {
	share := func(reqs []llmrequest.Request) float64 {
		ws, _ := run(Config{}, reqs)
		n, given := 0.0, 0.0
		for i := range ws {
			if a := ws[i].Start.Sub(simEpoch).Seconds(); a >= 100 && a <= 450 {
				n++
				if ws[i].Has(StepDuration) {
					given++
				}
			}
		}
		return given / n
	}
	reqs := steady(0, 500, 2)
	assert.InDelta(t, 1, share(reqs), 1e-9)
	r := rand.New(rand.NewPCG(7, 7))
	for i := range reqs {
		n := reqs[i].Value(llmrequest.OutputTokens)
		reqs[i].Set(llmrequest.OutputTokens, math.Round(n*(0.6+0.8*r.Float64())))
	}
	assert.Less(t, share(reqs), 0.1)
}

// What prompts leave of a window may hold a prompt that was not seen: a step that contradicts what is known is not given, until it has gone on
// for long enough to be a change of the engine.
func TestDoubtful(t *testing.T) {
	begin := func(masked bool) *pace {
		p := &pace{masked: masked, bin: sec, paceScratch: &paceScratch{sumS: []float64{0, 10, 20}, sumB: []float64{0, 1000, 2000}}}
		for range 5 {
			p.laws[1].add(100, 0.050, 0)
		}
		return p
	}
	p := begin(true)
	ask := func(step, prompts float64) bool { return p.doubtful(0, 2*sec, step, 20, prompts) }
	assert.False(t, ask(0.051, 8), "as usual")
	for range unusualWindows {
		assert.True(t, ask(0.056, 8))
	}
	assert.False(t, ask(0.056, 8), "it has changed")
	assert.False(t, ask(0.051, 8))
	assert.True(t, ask(0.046, 8), "and again")
	assert.False(t, ask(0.056, 2), "mostly decoding")
	p.laws[1] = stepLaw{}
	assert.False(t, ask(0.056, 8), "nothing is known")
	p = begin(false)
	assert.False(t, ask(0.056, 8), "prompts are part of the steps")

	p.doubt = 0.7
	assert.False(t, ask(0.05, 0))
	p.doubt = 0.8
	assert.True(t, ask(0.05, 0), "more than 3 % of 20 steps")
	p.lost, p.doubt = 0.2, 0.5
	assert.True(t, ask(0.05, 0), "of requests of which many are not believed more is asked")
	p.doubt = 0.4
	assert.False(t, ask(0.05, 0))
	p.lost = 0.55
	assert.True(t, ask(0.05, 0), "and where hardly any is believed there is no step")
}

func TestStepLawNear(t *testing.T) {
	var l stepLaw
	for range 3 {
		l.add(100, 0.05, 0)
	}
	_, ok := l.near(100)
	assert.False(t, ok)
	l.add(100, 0.05, 0)
	v, ok := l.near(100)
	assert.True(t, ok)
	assert.InDelta(t, 0.05, v, 1e-6)
	v, _ = l.near(105)
	assert.InDelta(t, 0.0515, v, 1e-6)
	_, ok = l.near(0)
	assert.False(t, ok)
}

// The rate of arrivals is taken from minutes, however short the bins of the pace are.
func TestArrivalsRemembered(t *testing.T) {
	for _, win := range []time.Duration{10 * time.Second, time.Minute} {
		var q arrivals
		q.add(simEpoch.UnixNano(), 1, int64(win))
		assert.GreaterOrEqual(t, time.Duration(q.bin*arrivalBins), 20*time.Minute)
	}
}

// Tokens that all came with the first took no decode step: there is none to be reported.
func TestNoDecodeTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 31))
	m := modelOf("default")
	reqs := m.spans(m.run(2, chat, 4, 200, 1e9), 2, 0, 0)
	for i := range 3000 {
		prefill := 0.05 + 0.01*r.Float64()
		q := plain(210+0.1*float64(i), 0.001*r.Float64(), prefill, 10)
		q.Set(llmrequest.TimeToFirstToken, q.Value(llmrequest.E2E))
		q.Set(llmrequest.Forward, prefill-0.002)
		q.Set(llmrequest.Execute, prefill-0.001)
		q.Set(llmrequest.Scheduler, 0.0005)
		reqs = append(reqs, q)
	}
	ws, _ := run(Config{}, reqs)
	checkWindows(t, ws, 10*time.Second)
	for i := len(ws) - 10; i < len(ws)-2; i++ {
		w := &ws[i]
		require.Equal(t, ModeMasked, w.Mode)
		assert.False(t, w.Has(StepDuration), "%v", w.Value(StepDuration))
		assert.False(t, w.Has(HostGap))
	}
}
