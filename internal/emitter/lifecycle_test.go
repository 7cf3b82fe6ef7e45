// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// The loop, start and stop, in the fake time of testing/synctest.

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

var errOutage = errors.New("outage")

// bubble runs f in fake time.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// afterTicks waits until n ticks are over and everything they cause has happened.
func afterTicks(n int) {
	time.Sleep(time.Duration(n) * 15 * time.Second) // fake time
	synctest.Wait()
}

func TestSendsAtEveryIntervalInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t), &downstream{}
		o := f.Output(d)
		begin := time.Now()
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		for i := range 5 {
			f.record(10*i, 10)
			afterTicks(1)
		}
		o.Shutdown(t.Context())

		require.Len(t, d.at, 6, "one for each interval and the final one")
		for i, at := range d.at[:5] {
			assert.Equal(t, time.Duration(i+1)*15*time.Second, at.Sub(begin))
		}
		counts := d.counts()
		require.Len(t, counts, 6)
		for i, c := range counts {
			assert.EqualValues(t, min(10*(i+1), 50), c.value)
			assert.Equal(t, counts[0].start, c.start, "cumulative")
			if i > 0 {
				assert.Greater(t, c.end, counts[i-1].end, "also when the final collect is at the time of a tick")
			}
		}
	})
}

func TestSendsNothingWhenNothingWasRecorded(t *testing.T) {
	for _, configure := range []func(*serving.Config){func(*serving.Config) {}, delta} {
		bubble(t, func(t *testing.T) {
			f, d := newFixture(t, configure), &downstream{}
			o := f.Output(d)
			require.NoError(t, o.Start(componenttest.NewNopHost()))
			afterTicks(3)
			o.Shutdown(t.Context())
			assert.Zero(t, d.calls)
		})
	}
}

func TestEverySendHasADeadline(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: time.Second,
		15 * time.Second:       15 * time.Second,
		10 * time.Minute:       30 * time.Second,
	} {
		t.Run(interval.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFixture(t, func(c *serving.Config) { c.Interval = interval })
				slow, other := &downstream{}, &downstream{}
				// takes half of its time, which must not be taken from the next one
				slow.answer = func(context.Context, int) error { time.Sleep(want / 2); return nil }
				a, b := f.Output(slow), f.Output(other)
				require.NoError(t, a.Start(componenttest.NewNopHost()))
				require.NoError(t, b.Start(componenttest.NewNopHost()))
				f.record(0, 1)
				time.Sleep(interval + want)
				synctest.Wait()
				a.Shutdown(context.Background())
				b.Shutdown(context.Background())
				for _, d := range []*downstream{slow, other} {
					assert.Len(t, d.deadlines, d.calls)
					assert.GreaterOrEqual(t, d.calls, 2)
					for _, deadline := range d.deadlines {
						assert.Equal(t, want, deadline)
					}
				}
			})
		})
	}
}

func TestAConsumerThatDoesNotReturnDoesNotStarveTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFixture(t, delta)
		stuck, other := &downstream{}, &downstream{}
		stuck.answer = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		a, b := f.Output(stuck), f.Output(other)
		require.NoError(t, a.Start(componenttest.NewNopHost()))
		require.NoError(t, b.Start(componenttest.NewNopHost()))
		for i := range 4 {
			f.record(10*i, 10)
			afterTicks(2)
		}
		assert.EqualValues(t, 40, other.counted())
		// and has lost nothing when it returns again
		stuck.mu.Lock()
		stuck.answer = nil
		stuck.mu.Unlock()
		afterTicks(3)
		assert.EqualValues(t, 40, stuck.counted())
		a.Shutdown(t.Context())
		b.Shutdown(t.Context())
		assert.EqualValues(t, 40, stuck.counted())
		assert.EqualValues(t, 40, other.counted())
	})
}

func TestShutdownRightAfterIngest(t *testing.T) {
	for name, configure := range map[string]func(*serving.Config){"cumulative": func(*serving.Config) {}, "delta": delta} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, d := newFixture(t, configure), &downstream{}
				o := f.Output(d)
				require.NoError(t, o.Start(componenttest.NewNopHost()))
				f.record(0, 1000)
				o.Shutdown(t.Context())
				assert.EqualValues(t, 1000, d.counted())
				assert.EqualValues(t, 1, d.calls)

				f.record(1000, 7)
				assert.EqualValues(t, 7, f.Stats().Dropped)
				afterTicks(3)
				assert.EqualValues(t, 1, d.calls, "nothing more comes")
			})
		})
	}
}

func TestLifecycleMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t), &downstream{}
		assert.False(t, f.HasOutputs())
		o := f.Output(d)
		assert.True(t, f.HasOutputs())
		f.record(0, 1)

		o.Shutdown(t.Context()) // without start
		assert.Zero(t, d.calls)

		require.NoError(t, o.Start(componenttest.NewNopHost()))
		require.NoError(t, o.Start(componenttest.NewNopHost())) // twice
		afterTicks(1)
		assert.Equal(t, 1, d.calls, "one loop")

		o.Shutdown(t.Context())
		o.Shutdown(t.Context()) // twice
		assert.Equal(t, 2, d.calls, "one final collect")

		require.ErrorIs(t, o.Start(componenttest.NewNopHost()), errStopped)
		require.ErrorIs(t, f.Output(d).Start(componenttest.NewNopHost()), errStopped, "there is nothing to send any more")
		f.Close()
		f.Close()
	})
}

func TestShutdownByManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFixture(t, delta)
		var all [3]*downstream
		var outputs []*Output
		for i := range all {
			all[i] = &downstream{}
			outputs = append(outputs, f.Output(all[i]))
			require.NoError(t, outputs[i].Start(componenttest.NewNopHost()))
		}
		f.record(0, 100)
		var done sync.WaitGroup
		for _, o := range outputs {
			done.Go(func() { o.Shutdown(t.Context()) })
			done.Go(func() { o.Shutdown(t.Context()) })
		}
		done.Wait()
		for i, d := range all {
			assert.EqualValues(t, 100, d.counted(), i)
		}
	})
}

// A consumer holds what it was sent, and looks at no context.
func TestShutdownWhileAConsumerBlocks(t *testing.T) {
	for name, test := range map[string]struct {
		ctx  func(*testing.T) (context.Context, context.CancelFunc)
		want time.Duration
	}{
		"returns when its context ends": {
			func(t *testing.T) (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 3*time.Second)
			}, 3 * time.Second,
		},
		"returns by itself": {
			func(*testing.T) (context.Context, context.CancelFunc) {
				return context.WithCancel(context.Background()) // as the Collector calls it
			}, 30 * time.Second,
		},
	} {
		for when, ticks := range map[string]int{"during a periodic send": 1, "during the final one": 0} {
			t.Run(name+" "+when, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f, d := newFixture(t), &downstream{}
					release := make(chan struct{})
					d.answer = func(context.Context, int) error { <-release; return errOutage }
					o := f.Output(d)
					require.NoError(t, o.Start(componenttest.NewNopHost()))
					f.record(0, 10)
					afterTicks(ticks)

					ctx, cancel := test.ctx(t)
					defer cancel()
					begin := time.Now()
					o.Shutdown(ctx)
					assert.Equal(t, test.want, time.Since(begin))
					assert.Equal(t, 1, f.logs.FilterMessageSnippet("is lost").Len())
					f.record(10, 5)
					assert.EqualValues(t, 5, f.Stats().Dropped, "what comes later is counted")
					o.Shutdown(ctx)
					close(release)
					synctest.Wait()
					assert.Equal(t, 1, d.calls)
					assert.Zero(t, f.logs.FilterMessageSnippet("refuses the derived metrics").Len(), "it was said already")
				})
			})
		}
	}
}

// A consumer that looks at its context, and one output of two.
func TestShutdownWaitsForASendUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFixture(t, delta)
		slow, other := &downstream{}, &downstream{}
		slow.answer = func(_ context.Context, call int) error {
			if call == 0 {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		a, b := f.Output(slow), f.Output(other)
		require.NoError(t, a.Start(componenttest.NewNopHost()))
		require.NoError(t, b.Start(componenttest.NewNopHost()))
		f.record(0, 10)
		afterTicks(1) // slow has it
		f.record(10, 10)
		a.Shutdown(context.Background())
		b.Shutdown(context.Background())
		assert.EqualValues(t, 20, slow.counted())
		assert.EqualValues(t, 20, other.counted())
		assert.Zero(t, f.logs.FilterMessageSnippet("is lost").Len())
	})
}

func TestOneOutputStopsTheOtherGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFixture(t, delta)
		one, two := &downstream{}, &downstream{}
		a, b := f.Output(one), f.Output(two)
		require.NoError(t, a.Start(componenttest.NewNopHost()))
		require.NoError(t, b.Start(componenttest.NewNopHost()))
		f.record(0, 10)
		a.Shutdown(t.Context())
		f.record(10, 10)
		afterTicks(1)
		f.record(20, 10)
		b.Shutdown(t.Context())
		assert.EqualValues(t, 10, one.counted())
		assert.EqualValues(t, 30, two.counted())
		assert.Zero(t, f.Stats().Dropped)
		assertContiguous(t, two.counts())
	})
}

func TestRecordCollectAndShutdownAtOnce(t *testing.T) {
	// in real time, so that the race detector has something to see
	f, d := newFixture(t, delta, func(c *serving.Config) { c.Interval = 100 * time.Millisecond }), &downstream{}
	o := f.Output(d)
	require.NoError(t, o.Start(componenttest.NewNopHost()))
	var recorders sync.WaitGroup
	var half sync.WaitGroup
	half.Add(4)
	for i := range 4 {
		recorders.Go(func() {
			for n := range 200 {
				f.record(1_000_000*i+10*n, 10)
				_ = f.Stats()
				if n == 100 {
					half.Done()
				}
			}
		})
	}
	half.Wait()
	o.Shutdown(t.Context())
	recorders.Wait()
	stats := f.Stats()
	assert.EqualValues(t, 8000, d.counted()+stats.Dropped, "every request is counted or dropped, and none twice")
}

func TestRefusesBrokenConfig(t *testing.T) {
	c := serving.NewDefaultConfig()
	c.Engine.Key = nil
	_, err := New(&c, componenttest.NewNopTelemetrySettings(), component.NewDefaultBuildInfo(), "processor", testID)
	require.ErrorContains(t, err, "no key")
}

// assertContiguous asserts that delta points neither overlap nor leave a gap.
func assertContiguous(t testing.TB, counts []count) {
	for i, c := range counts {
		assert.Less(t, c.start, c.end)
		if i > 0 {
			assert.Equal(t, counts[i-1].end, c.start)
		}
	}
}

func TestDataOfTheRecordingsIsWhatTheyHold(t *testing.T) {
	f, d := newFixture(t), &downstream{}
	o := f.Output(d)
	require.NoError(t, o.Start(componenttest.NewNopHost()))
	f.Record(collectortest.V0(t), false)
	f.Record(collectortest.V1(t), false)
	o.Shutdown(t.Context())
	assert.EqualValues(t, 13, d.counted())
}
