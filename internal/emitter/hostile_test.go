// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// Everything at once, in real time, for the race detector: ingest, collects, the Collector's own telemetry, reloads and
// shutdowns.

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// raceTime is how long the test below goes on. A minute with RACE_MINUTE=1, as in CI.
func raceTime() time.Duration {
	if os.Getenv("RACE_MINUTE") == "1" {
		return time.Minute
	}
	return 5 * time.Second
}

// life is one emitter, from a start or reload to the next.
type life struct {
	*fixture
	outputs    []*Output
	downstream [2]*downstream
	stopping   atomic.Bool
	// atEnd is what had been counted when the shutdown began.
	atEnd int64
}

// counted is what the emitter says that it counted.
func (l *life) counted() int64 {
	n := int64(0)
	for _, generations := range l.Stats().Requests {
		for _, requests := range generations {
			n += requests
		}
	}
	return n
}

func newLife(t *testing.T) *life {
	l := &life{fixture: newFixture(t, delta, func(c *serving.Config) {
		c.Interval = 100 * time.Millisecond
		c.Dimensions = []serving.Dimension{{Name: "tenant"}}
		// Small, so that limits and forgetting take part.
		c.Limits.Series, c.Limits.Engines = 8, 4
	})}
	for i := range l.downstream {
		d := &downstream{}
		d.answer = func(_ context.Context, call int) error {
			if call%3 == 1 && !l.stopping.Load() { // refused, and so merged with what comes next
				return errOutage
			}
			return nil
		}
		l.downstream[i] = d
		l.outputs = append(l.outputs, l.Output(d))
		require.NoError(t, l.outputs[i].Start(componenttest.NewNopHost()))
	}
	return l
}

// end is the shutdown of a reload: all outputs, and while requests still come.
func (l *life) end(t *testing.T) {
	l.stopping.Store(true)
	l.atEnd = l.counted()
	var done sync.WaitGroup
	for _, o := range l.outputs {
		done.Go(func() { o.Shutdown(t.Context()) })
	}
	done.Wait()
	l.Close()
}

func TestIngestCollectReloadShutdown(t *testing.T) {
	const recorders, perLife = 3, 3000
	var current atomic.Pointer[life]
	first := newLife(t)
	current.Store(first)
	lives := []*life{first}

	over, due := make(chan struct{}), make(chan struct{}, 1)
	var sent, resent atomic.Int64
	var all sync.WaitGroup
	for i := range recorders {
		all.Go(func() {
			engine := string(rune('a' + i))
			for n := 0; ; n += 10 {
				select {
				case <-over:
					return
				default:
				}
				td := collectortest.Requests(engine, 10*n+100_000_000*i, 10)
				for j, span := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
					span.Attributes().PutInt("tenant", int64(j))
				}
				l := current.Load() // may be at its end when Record comes
				l.Record(td, n%3 == 0)
				if sent.Add(10)%perLife == 0 {
					select {
					case due <- struct{}{}:
					default: // it is at it
					}
				}
				if n%7 == 0 {
					l.Record(td, false)
					resent.Add(10)
				}
			}
		})
	}
	all.Go(func() { // the Collector reads its own telemetry, and so do pages
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			l := current.Load()
			_ = l.Stats()
			_ = l.telemetry.Reader.Collect(t.Context(), &metricdata.ResourceMetrics{})
		}
	})
	// Reloads: the old one is shut down before the new one is made, or after, both under load.
	deadline := time.After(raceTime())
	for reloading := true; reloading; {
		select {
		case <-deadline:
			reloading = false
			continue
		case <-due:
		}
		old := current.Load()
		if len(lives)%2 == 0 {
			old.end(t)
		}
		next := newLife(t)
		current.Store(next)
		if len(lives)%2 == 1 {
			old.end(t)
		}
		lives = append(lives, next)
	}
	close(over)
	all.Wait()
	current.Load().end(t)

	require.Greater(t, len(lives), 3, "reloads")
	recorded, duplicates, dropped, lost, said := int64(0), int64(0), int64(0), int64(0), 0
	for i, l := range lives {
		stats, own := l.Stats(), l.counted()
		// The output that stops last gets all that was recorded, once, but for what Merge says it left out; the other
		// may lack what came after its own end, but nothing from before it.
		most, least := max(l.downstream[0].counted(), l.downstream[1].counted()), min(l.downstream[0].counted(), l.downstream[1].counted())
		assert.LessOrEqual(t, most, own, "life %d", i)
		if l.logs.FilterMessageSnippet("is lost").Len() > 0 {
			said++ // its shutdown would not wait longer: on a machine that stood still, 3 s pass without it
		} else {
			assert.LessOrEqual(t, own, most+stats.Lost, "life %d", i)
			assert.LessOrEqual(t, l.atEnd, least+stats.Lost, "life %d", i)
		}
		lost += stats.Lost
		recorded += own
		duplicates += stats.Duplicates
		dropped += stats.Dropped
		assert.LessOrEqual(t, stats.Series, int64(8))
		assert.LessOrEqual(t, stats.Engines, int64(4))
	}
	t.Logf("%d lives, %d requests and %d again: %d counted, %d recognised as resent, %d too late, %d left out", len(lives), sent.Load(), resent.Load(), recorded, duplicates, dropped, lost)
	assert.Equal(t, sent.Load()+resent.Load(), recorded+duplicates+dropped)
	assert.Positive(t, duplicates)
	assert.LessOrEqual(t, said, len(lives)/10, "lives that lost something and said so")
}
