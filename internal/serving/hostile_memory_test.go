// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package serving

// A million distinct values against the documented bound of memory. Not under the race detector, whose own memory is
// several times as much.

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bounds that the documentation of LimitConfig and DedupeConfig gives, as TestMemory measures them, and what an
// engine has besides its series. Two accumulators are in a series' figure: what is live and what is being sent.
const (
	boundPerSeries = 16 << 10
	boundPerEngine = 64 << 10
	boundPerDedupe = 50
	boundBase      = 32 << 20 // runtime, test binary, what is under way
)

func TestMillionDistinctValues(t *testing.T) {
	const distinct = 1_000_000
	for _, test := range []struct {
		name            string
		series, engines int
		// what the n-th request says of itself
		engine, model, tenant func(n int) string
	}{
		{
			name: "models", series: 4000, engines: 100,
			engine: func(int) string { return "engine" }, model: numbered("model"), tenant: func(int) string { return "" },
		},
		{
			name: "engines, models and tenants", series: 4000, engines: 500,
			engine: numbered("engine"), model: numbered("model"), tenant: numbered("tenant"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			const entries = 400_000
			ceiling := int64(test.series*boundPerSeries + test.engines*boundPerEngine + entries*boundPerDedupe + boundBase)
			// As GOMEMLIMIT would: the runtime collects harder as it comes near, and goes over it if more is alive.
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(ceiling - ceiling/10))

			a := newRealAggregator(t, func(c *Config) {
				c.Limits.Series, c.Limits.Engines = test.series, test.engines
				c.Dimensions = []Dimension{{Name: "tenant"}}
				c.Dedupe.MaxEntries = entries
			})
			const batch = 20
			var ids spanNumber
			peak, taken := int64(0), 0
			begin := time.Now()
			for n := 0; n < distinct; n += batch {
				td, spans := payload("")
				resource := td.ResourceSpans().At(0).Resource().Attributes()
				resource.PutStr("service.instance.id", test.engine(n/batch))
				for i := range batch {
					span := addV1(spans, ids.next())
					span.Attributes().PutStr("gen_ai.response.model", test.model(n+i))
					if tenant := test.tenant(n + i); tenant != "" {
						span.Attributes().PutStr("tenant", tenant)
					}
				}
				a.Record(td, false)
				if n%(distinct/20) == 0 {
					a.Take() // as the interval does; nobody holds on to it
					taken++
					peak = max(peak, mapped())
				}
			}
			peak = max(peak, mapped())
			stats := a.Stats()
			took := time.Since(begin).Round(time.Millisecond)
			t.Logf("%d requests in %v: peak %d MiB of %d MiB, %d MiB alive at the end; %d series, %d engines, %d requests over a limit",
				distinct, took, peak>>20, ceiling>>20, heap()>>20, stats.Series, stats.Engines, stats.Overflow)
			assert.LessOrEqual(t, peak, ceiling)
			assert.EqualValues(t, test.series, stats.Series)
			assert.LessOrEqual(t, stats.Engines, int64(test.engines))
			assert.EqualValues(t, distinct-test.series, stats.Overflow)
			recorded := int64(0)
			for _, generations := range stats.Requests {
				for _, n := range generations {
					recorded += n
				}
			}
			require.EqualValues(t, distinct, recorded)
			require.EqualValues(t, 20, taken)
			runtime.KeepAlive(a)
		})
	}
}

func numbered(name string) func(int) string {
	return func(n int) string { return fmt.Sprintf("%s-%d", name, n) }
}

// mapped is the memory that the runtime has from the system, which is what GOMEMLIMIT is about.
func mapped() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
