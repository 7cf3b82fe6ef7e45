// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// Consumers that refuse: nothing is lost, nothing is counted twice, and it is told once.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/internal/metadatatest"
)

// refuse makes d refuse the calls from first up to end.
func refuse(first, end int, err error) func(context.Context, int) error {
	return func(_ context.Context, call int) error {
		if call >= first && call < end {
			return err
		}
		return nil
	}
}

func TestRefusedDeltaGoesOutWithTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t, delta), &downstream{answer: refuse(1, 4, errOutage)}
		o := f.Output(d)
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		for i := range 6 {
			f.record(10*i, 10)
			afterTicks(1)
		}
		counts := d.counts()
		require.Len(t, counts, 3)
		for i, want := range []int64{10, 40, 10} {
			assert.Equal(t, want, counts[i].value)
		}
		assertContiguous(t, counts)
		o.Shutdown(t.Context())
		assert.EqualValues(t, 60, d.counted())
		metadatatest.AssertEqualServingMetricsSendFailed(t, f.telemetry, points(3), metricdatatest.IgnoreTimestamp())
	})
}

func TestRefusedDeltaGoesOutAtShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t, delta), &downstream{answer: refuse(0, 2, errOutage)}
		o := f.Output(d)
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		f.record(0, 10)
		afterTicks(1)
		f.record(10, 10)
		afterTicks(1)
		o.Shutdown(t.Context()) // with nothing new
		assert.EqualValues(t, 20, d.counted())
		assert.Equal(t, 3, d.calls)
	})
}

func TestRefusedCumulativeIsInTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t), &downstream{answer: refuse(0, 3, consumererror.NewPermanent(errOutage))}
		o := f.Output(d)
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		for i := range 4 {
			f.record(10*i, 10)
			afterTicks(1)
		}
		assert.EqualValues(t, 40, d.counted())
		o.Shutdown(t.Context())
		metadatatest.AssertEqualServingMetricsCollectsLost(t, f.telemetry, points(0), metricdatatest.IgnoreTimestamp())
	})
}

// Delta that is refused for good would be refused again, and with it all that comes later.
func TestPermanentlyRefusedDeltaIsLostAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t, delta), &downstream{answer: refuse(1, 2, fmt.Errorf("sink: %w", consumererror.NewPermanent(errOutage)))}
		o := f.Output(d)
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		for i := range 4 {
			f.record(10*i, 10)
			afterTicks(1)
		}
		assert.EqualValues(t, 30, d.counted())
		metadatatest.AssertEqualServingMetricsCollectsLost(t, f.telemetry, points(1), metricdatatest.IgnoreTimestamp())
		o.Shutdown(t.Context())
	})
}

func TestRefusedFinalCollectIsCountedOnceAndLogged(t *testing.T) {
	for name, err := range map[string]error{"permanent": consumererror.NewPermanent(errOutage), "transient": errOutage} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, d := newFixture(t, delta), &downstream{answer: refuse(0, 1, err)}
				o := f.Output(d)
				require.NoError(t, o.Start(componenttest.NewNopHost()))
				f.record(0, 10)
				o.Shutdown(t.Context())
				metadatatest.AssertEqualServingMetricsCollectsLost(t, f.telemetry, points(1), metricdatatest.IgnoreTimestamp())
				logs := f.logs.FilterMessageSnippet("did not take the final collect").All()
				require.Len(t, logs, 1)
				assert.Contains(t, logs[0].ContextMap()["error"], "outage")
			})
		})
	}
}

// Outputs that fail at random, independently of each other, also at shutdown.
func TestOutputsNeitherLoseNorDouble(t *testing.T) {
	for seed := range uint64(50) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			f := newFixture(t, delta)
			var all [3]*downstream
			var outputs []*Output
			for i := range all {
				all[i] = &downstream{}
				if i > 0 { // the first never fails
					own := rand.New(rand.NewPCG(seed, uint64(i)+2))
					all[i].answer = func(context.Context, int) error {
						if own.IntN(3) > 0 {
							return errOutage
						}
						return nil
					}
				}
				outputs = append(outputs, f.Output(all[i]))
				require.NoError(t, outputs[i].Start(componenttest.NewNopHost()))
			}
			total := 0
			for range 20 {
				n := random.IntN(3)
				f.record(total, n)
				total += n
				afterTicks(1)
			}
			f.record(total, 5)
			for _, i := range random.Perm(len(all)) {
				all[i].mu.Lock()
				all[i].answer = nil // else the final collect may be lost
				all[i].mu.Unlock()
				outputs[i].Shutdown(t.Context())
			}
			for i, d := range all {
				require.EqualValues(t, total+5, d.counted(), "seed %d, output %d", seed, i)
				counts := d.counts()
				for j := range counts[1:] {
					require.GreaterOrEqual(t, counts[j+1].start, counts[j].end, "points overlap")
				}
			}
		})
	}
}

func TestAnOutageIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d, h := newFixture(t), &downstream{answer: refuse(1, 4, errOutage)}, &host{}
		o := f.Output(d)
		require.NoError(t, o.Start(h))
		require.NoError(t, o.Start(componenttest.NewNopHost())) // changes nothing
		f.record(0, 1)
		afterTicks(3)
		warnings := f.logs.FilterMessageSnippet("refuses the derived metrics").All()
		require.Len(t, warnings, 1)
		assert.Equal(t, zap.WarnLevel, warnings[0].Level)
		assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError}, h.statuses())

		afterTicks(3)
		assert.Equal(t, 1, f.logs.FilterMessageSnippet("takes the derived metrics again").Len())
		assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}, h.statuses())
		o.Shutdown(t.Context())
		assert.Len(t, h.statuses(), 2, "stopping is the Collector's to tell")
		require.ErrorIs(t, h.events[0].Err(), errOutage)
	})
}

// points are those of a counter of the component under test.
func points(value int64, more ...attribute.KeyValue) []metricdata.DataPoint[int64] {
	return []metricdata.DataPoint[int64]{point(value, more...)}
}

func point(value int64, more ...attribute.KeyValue) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{Value: value, Attributes: attribute.NewSet(append(more, attribute.String("processor", testID.String()))...)}
}

func hasMetric(f *fixture, name string) bool {
	_, err := f.telemetry.GetMetric(name)
	return err == nil
}
