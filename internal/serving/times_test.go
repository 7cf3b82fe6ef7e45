// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Times that are far apart or absurd, and windows that are closed by who records while they are taken.

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// recordAt records n requests of an engine, i of which ended at(i).
func recordAt(a *Aggregator, engine string, n int, at func(i int) time.Time) {
	td, spans := payload(engine)
	for i := range n {
		span := addV1(spans, 0) // no valid ID: never the same
		d := span.EndTimestamp().AsTime().Sub(span.StartTimestamp().AsTime())
		span.SetTraceID(pcommon.TraceID{})
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(at(i).Add(-d)))
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(at(i)))
	}
	a.Record(td, false)
}

// A second's worth of requests whose times are far apart would otherwise hold up the metrics of all engines for minutes.
func TestTimesFarApart(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second })
	const requests = 3000
	recordAt(a, "far", requests, func(i int) time.Time { return testEpoch.Add(time.Duration(i/3) * 25 * time.Minute) })
	for i := range 300 {
		recordAt(a, "near", 1, func(int) time.Time { return testEpoch.Add(time.Duration(i) * time.Second) })
	}
	md := tick(a, clock)
	assert.EqualValues(t, requests+300, total(md, "llm.serving.request.count"))
	assert.Greater(t, a.Stats().SkippedWindows, int64(100_000), "149 of an idle engine lie between two threes")
	near := 0
	for _, p := range find(md, "llm.serving.engine.occupancy") {
		if p.instance == "near" {
			near++
		}
	}
	assert.Greater(t, near, 20, "an engine at work pays with its requests")

	// The next collect has time again, for a backlog with an idle hour in it.
	before := a.Stats().SkippedWindows
	recordAt(a, "backlog", 9, func(i int) time.Time { return testEpoch.Add(time.Duration(i/3) * 25 * time.Minute) })
	idle := 0
	for _, p := range find(tick(a, clock), "llm.serving.engine.occupancy") {
		if p.instance == "backlog" {
			idle++
		}
	}
	assert.Greater(t, idle, 200)
	assert.Equal(t, before, a.Stats().SkippedWindows)
}

func TestTimesThatNoWindowCanHave(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second })
	recordAt(a, "future", 5, func(int) time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) })
	md := tick(a, clock)
	assert.EqualValues(t, 5, total(md, "llm.serving.request.count"))
	assert.EqualValues(t, 5, a.Stats().Outlying)
}

// Who records more than may wait closes windows, also while others are taken.
func TestWindowsAreTakenWhileRequestsAreRecorded(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second })
	a.noted.Add(maxNotedTotal) // as if other engines had so many
	var recorders sync.WaitGroup
	for e := range 3 {
		recorders.Go(func() {
			for k := range 300 {
				recordAt(a, fmt.Sprint("engine-", e), chunkSize+1, func(i int) time.Time {
					return testEpoch.Add(time.Duration(k)*15*time.Second + time.Duration(i)*100*time.Millisecond)
				})
			}
		})
	}
	over := make(chan struct{})
	go func() {
		recorders.Wait()
		close(over)
	}()
	windows := 0
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
		}
		windows += len(find(tick(a, clock), "llm.serving.engine.occupancy"))
	}
	assert.Greater(t, windows, 1000)
}
