// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // where spans.Recordings begins
		panic(err)
	}
	os.Exit(m.Run())
}

// What is measured must be what costs most: requests that are new, plausible, of a series that there is room for, and in
// time for their window. Anything else is done with sooner.
func TestEveryRequestIsCountedInFull(t *testing.T) {
	for _, kind := range []spans.Kind{spans.V0, spans.V1, spans.RecordedV0, spans.RecordedV1} {
		for _, cores := range []int{1, 2, -1, -2} {
			hot := cores < 0
			cores = max(cores, -cores)
			const engines, series = 4, 40
			c := serving.NewDefaultConfig()
			c.Dimensions = []serving.Dimension{{Name: spans.Dimension}}
			a, err := serving.New(&c, serving.Settings{})
			require.NoError(t, err)
			var mu sync.Mutex
			var given int64
			consume := func(td ptrace.Traces) error {
				mu.Lock()
				given += int64(td.SpanCount())
				mu.Unlock()
				a.Record(td, false)
				return nil
			}

			p := Plan{Load: subject.Load{Kind: kind, Engines: engines, Series: series}, Batch: 25, Cores: cores, Hot: hot}
			feed, err := newFeed(p)
			require.NoError(t, err)
			require.NoError(t, feed.introduce(consume))
			require.EqualValues(t, series, a.Stats().Series)
			require.NoError(t, feed.fill(1000, consume))
			workers := make([]worker, cores)
			var wait sync.WaitGroup
			until := time.Now().Add(50 * time.Millisecond)
			for i := range workers {
				workers[i].feed, workers[i].now = feed.of(i), clock
				wait.Go(func() {
					if hot {
						workers[i].err = workers[i].hot(until, consume)
					} else {
						workers[i].err = workers[i].run(until, consume)
					}
				})
			}
			wait.Wait()
			a.Take()

			stats := a.Stats()
			var total worker
			for i := range workers {
				total.add(&workers[i])
			}
			assert.NoError(t, total.err)
			assert.EqualValues(t, given, series+1000+total.spans)
			counted := int64(0)
			for _, byGeneration := range stats.Requests {
				for _, n := range byGeneration {
					counted += n
				}
			}
			assert.Equal(t, given, counted, "%v, %d cores, hot %t", kind, cores, hot)
			assert.Zero(t, stats.Duplicates)
			assert.Zero(t, stats.Overflow)
			assert.Zero(t, stats.Outlying)
			if cores == 1 { // of two, one can be kept from sending for a while
				assert.Zero(t, stats.Late)
			}
			assert.EqualValues(t, engines+1, stats.Engines)
			if kind == spans.V0 || kind == spans.V1 {
				assert.Equal(t, [llmrequest.NumReasons]int64{}, stats.Rejected)
			}
		}
	}
}

func TestSpread(t *testing.T) {
	assert.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, Of([]float64{9, 1, 2}))
	assert.Equal(t, Spread{Median: 3, Min: 1, Max: 9}, Of([]float64{9, 1, 2, 4}))
	assert.Equal(t, "3.0 (1.0..9.0)", Spread{3, 1, 9}.Format("%.1f"))
}
