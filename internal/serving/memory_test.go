// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package serving

// What is allocated and kept. Not under the race detector, which allocates of its own accord.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecordAllocatesNothing(t *testing.T) {
	for _, test := range []struct {
		name       string
		generation string
		change     func(*Config)
	}{
		{"V0", "V0", nil},
		{"V1", "V1", nil},
		{"V0 exponential", "V0", func(c *Config) { c.Histograms.Type = Exponential }},
		{"V1 compatibility", "V1", func(c *Config) { c.Compatibility = []string{"vllm"}; c.SLO.E2E = time.Second }},
		{"V0 dimensions", "V0", func(c *Config) {
			none := "none"
			c.Dimensions = []Dimension{{Name: "gen_ai.request.n"}, {Name: "tenant", Default: &none}, {Name: "host.name"}}
		}},
		{"V1 overflow", "V1", func(c *Config) { c.Limits.Series = 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newRealAggregator(t, func(c *Config) {
				c.Dedupe.MaxEntries = 4000
				if test.change != nil {
					test.change(c)
				}
			})
			l := newLoad(test.generation, 2, 6)
			i := 0
			next := func() { a.Record(l.next(i), false); i++ }
			for range 600 {
				next()
			}
			a.Take() // gives back the memory of notes, for the next ones to use, and takes the exemplars
			for range 100 {
				next()
			}
			allocations := testing.AllocsPerRun(200, next)
			assert.Zero(t, allocations, "a payload of %d spans of known series", spansPerPayload)
		})
	}
}

// The figures in the documentation of limits::series and dedupe::max_entries.
func TestMemory(t *testing.T) {
	perSeries := func(generation string, change func(*Config)) int64 {
		a := newRealAggregator(t, func(c *Config) {
			c.Dedupe.Window = 0
			if change != nil {
				change(c)
			}
		})
		const series = 4000
		l := newLoad(generation, 4, series)
		before := heap()
		for i := range 4 * len(l.payloads) {
			a.Record(l.next(i), false)
		}
		for range 2 {
			a.Take()
		}
		size := (heap() - before) / series
		require.EqualValues(t, series, a.Stats().Series)
		return size
	}
	for _, test := range []struct {
		name   string
		size   int64
		atMost int64
	}{
		{"V0", perSeries("V0", nil), 16 << 10},
		{"V1", perSeries("V1", nil), 16 << 10},
		{"V0 exponential", perSeries("V0", func(c *Config) { c.Histograms.Type = Exponential }), 40 << 10},
		{"V1 with compatibility", perSeries("V1", func(c *Config) { c.Compatibility = []string{"vllm"} }), 24 << 10},
	} {
		t.Logf("%s: %d B per series", test.name, test.size)
		assert.LessOrEqual(t, test.size, test.atMost, test.name)
	}

	for _, entries := range []int{1_000_000, 1_100_000} {
		before := heap()
		d := newDedupe(time.Hour, entries)
		for n := range 2 * entries {
			trace, span := ids(uint64(n))
			d.seenOne(trace, span, time.Second)
		}
		size := float64(heap()-before) / float64(entries)
		t.Logf("dedupe: %.0f B per entry with max_entries %d", size, entries)
		assert.LessOrEqual(t, size, 18.0)
		if entries == NewDefaultConfig().Dedupe.MaxEntries {
			assert.InDelta(t, 16, size, 1, "as the comment of max_entries has it")
		}
		trace, span := ids(1 << 60)
		assert.False(t, d.seenOne(trace, span, time.Second)) // and d lives up to here
	}
}
