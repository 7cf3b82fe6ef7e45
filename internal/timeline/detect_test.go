// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What is found about the input: several engines, samples, rounding, several tokens a step.

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// together are the requests of several engines under one key, in order of their end.
func together(name string, w workload, load float64, engines int, seed uint64, length float64) []llmrequest.Request {
	m := modelOf(name)
	c, _ := capacityOf(m, w)
	var all []llmrequest.Request
	for k := range engines {
		all = append(all, m.spans(m.run(seed*100+uint64(k), w, c*load, length, 1e9), seed, 0, 0)...)
	}
	slices.SortStableFunc(all, func(a, b llmrequest.Request) int { return int(int64(a.End) - int64(b.End)) })
	return all
}

func TestSampled(t *testing.T) {
	full := together("default", chat, 0.6, 1, 1, 900)
	r := rand.New(rand.NewPCG(1, 1))
	var some []llmrequest.Request
	for _, q := range full {
		if r.Float64() < 0.1 {
			some = append(some, q)
		}
	}
	all, _ := run(Config{}, full)
	ws, _ := run(Config{SamplingProbability: 0.1}, some)
	checkWindows(t, ws, 10e9)
	var want, got float64
	for i := range all[10:70] {
		want += all[10+i].Value(RunningMean)
		got += ws[10+i].Value(RunningMean)
		w := ws[10+i]
		assert.True(t, w.Flags.Has(Sampled))
		for _, f := range []Figure{DeviceUtilization, DeviceLower, Occupancy, QueuePressure, Capacity} {
			assert.False(t, w.Has(f))
		}
		assert.EqualValues(t, 10e9, w.States[StateUnknown])
	}
	assert.InEpsilon(t, want, got, 0.25, "counts are divided by the probability")
}

// TestSampledUnsaid is sampling of which nobody says anything: it shows when requests wait while
// nothing seems to run.
func TestSampledUnsaid(t *testing.T) {
	m := modelOf("default")
	m.maxSeqs = 8
	c, _ := capacityOf(m, chat)
	full := m.spans(m.run(1, chat, c*1.05, 3000, 1e9), 1, 5, 0)
	ws, _ := run(Config{}, full)
	for i := range ws {
		assert.False(t, ws[i].Flags.Has(Sampled), "all requests")
	}
	r := rand.New(rand.NewPCG(1, 1))
	var some []llmrequest.Request
	for _, q := range full {
		if r.Float64() < 0.1 {
			some = append(some, q)
		}
	}
	ws, _ = run(Config{}, some)
	assert.True(t, ws[len(ws)-1].Flags.Has(Sampled))
	assert.False(t, ws[len(ws)-1].Has(DeviceUtilization))
}

func TestRoundedTimestamps(t *testing.T) {
	for _, name := range []string{"default", "chunked"} {
		for _, unit := range []float64{0.001, 0.01} {
			reqs := together(name, chat, 0.5, 1, 1, 300)
			for i := range reqs {
				for f := llmrequest.E2E; f <= llmrequest.Queue; f++ {
					reqs[i].Set(f, math.Round(reqs[i].Value(f)/unit)*unit)
				}
			}
			ws, _ := run(Config{}, reqs)
			w := ws[len(ws)-3]
			assert.True(t, w.Flags.Has(RoundedTimestamps), "%s %v", name, unit)
			assert.False(t, w.Flags.Has(MixedEngines), "%s %v", name, unit)
			if name == "default" {
				assert.False(t, w.Has(DeviceUtilization), "masked mode cannot be had")
			}
		}
	}
	for _, name := range []string{"default", "v1"} {
		ws, _ := run(Config{}, together(name, chat, 0.5, 1, 1, 300))
		for i := range ws {
			assert.False(t, ws[i].Flags.Has(RoundedTimestamps))
		}
	}
}

func TestSpeculativeDecoding(t *testing.T) {
	for _, name := range []string{"default", "chunked", "v1"} {
		m := modelOf(name)
		c, _ := capacityOf(m, chat)
		for _, spec := range []float64{0, 2.5} {
			m.spec = spec
			ws, _ := run(Config{}, m.spans(m.run(1, chat, c*0.6, 600, 1e9), 1, 0, 0))
			assert.Equal(t, spec > 0, ws[len(ws)-2].Flags.Has(SpeculativeDecoding), "%s %v tokens a step", name, spec)
		}
	}
}
