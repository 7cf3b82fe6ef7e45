// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// What the Collector's own telemetry says of the aggregator, and what its log says of engines.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/emitter/internal/metadatatest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

func TestOwnTelemetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t, func(c *serving.Config) {
			c.Limits.Series, c.Limits.Engines = 2, 2
			c.Dedupe.MaxEntries = 64 // 1 in each of 32 shards and 2 generations
			c.Dimensions = []serving.Dimension{{Name: "tenant"}}
		}), &downstream{}
		o := f.Output(d)
		assert.False(t, hasMetric(f, "otelcol_serving_metrics_requests"), "nothing before the start")
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		assert.False(t, hasMetric(f, "otelcol_serving_metrics_last_collect"), "absent before the first time, not 1970")

		f.Record(collectortest.Engine(collectortest.V0(t), "vllm", "v0"), false)
		f.Record(collectortest.Engine(collectortest.V0(t), "vllm", "v0-again"), false)
		td := collectortest.Engine(collectortest.V0(t), "vllm", "v0")
		f.Record(td, false) // resent
		for i := range 3 {  // a series too many, and an engine too many
			td := collectortest.Requests(fmt.Sprint("e", i), 10*i, 1)
			a := firstSpan(td).Attributes()
			a.PutStr("tenant", strings.Repeat("x", 300))
			a.PutDouble("gen_ai.latency.time_in_queue", -1)
			f.Record(td, false)
		}
		afterTicks(1)
		lastCollect := float64(time.Now().UnixNano()) / 1e9

		ignore := metricdatatest.IgnoreTimestamp()
		m, err := f.telemetry.GetMetric("otelcol_serving_metrics_requests")
		require.NoError(t, err)
		var kinds []string
		var total int64
		for _, dp := range m.Data.(metricdata.Sum[int64]).DataPoints {
			kind, _ := dp.Attributes.Value("kind")
			generation, _ := dp.Attributes.Value("generation")
			kinds = append(kinds, kind.AsString()+" "+generation.AsString())
			total += dp.Value
		}
		assert.Contains(t, kinds, "vllm v0")
		assert.EqualValues(t, 5, total)
		metadatatest.AssertEqualServingMetricsRequestsDuplicate(t, f.telemetry, points(1), ignore)
		metadatatest.AssertEqualServingMetricsRequestsOverflow(t, f.telemetry, points(3), ignore)
		metadatatest.AssertEqualServingMetricsAttributesCut(t, f.telemetry, points(3), ignore)
		metadatatest.AssertEqualServingMetricsEngines(t, f.telemetry, points(2), ignore)
		metadatatest.AssertEqualServingMetricsSeries(t, f.telemetry, points(2), ignore)
		metadatatest.AssertEqualServingMetricsRequestsDropped(t, f.telemetry, points(0), ignore)
		metadatatest.AssertEqualServingMetricsRequestsLost(t, f.telemetry, points(0), ignore)
		metadatatest.AssertEqualServingMetricsRequestsLate(t, f.telemetry, points(0), ignore)
		metadatatest.AssertEqualServingMetricsRequestsOutlying(t, f.telemetry, points(0), ignore)
		metadatatest.AssertEqualServingMetricsWindowsSkipped(t, f.telemetry, points(0), ignore)
		metadatatest.AssertEqualServingMetricsLastCollect(t, f.telemetry, []metricdata.DataPoint[float64]{{
			Value: lastCollect, Attributes: attribute.NewSet(attribute.String("processor", testID.String())),
		}}, ignore)
		assert.EqualValues(t, 3, ownSum(t, f, "otelcol_serving_metrics_values_rejected"))

		f.record(100, 500)
		assert.Positive(t, ownSum(t, f, "otelcol_serving_metrics_dedupe_forgotten"))

		o.Shutdown(t.Context())
		f.record(1000, 4)
		metadatatest.AssertEqualServingMetricsRequestsDropped(t, f.telemetry, points(4), ignore) // is still told
		f.Close()
		f.Close()
		assert.False(t, hasMetric(f, "otelcol_serving_metrics_requests_dropped"))
		logs := f.logs.FilterMessageSnippet("came after the final collect").All()
		require.Len(t, logs, 1)
		assert.EqualValues(t, 4, logs[0].ContextMap()["requests"])
	})
}

func firstSpan(td ptrace.Traces) ptrace.Span {
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
}

func ownSum(t testing.TB, f *fixture, name string) (sum int64) {
	m, err := f.telemetry.GetMetric(name)
	require.NoError(t, err)
	for _, dp := range m.Data.(metricdata.Sum[int64]).DataPoints {
		sum += dp.Value
	}
	return sum
}

func TestEnginesAreLoggedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, d := newFixture(t, func(c *serving.Config) { c.Limits.Engines = 2 }), &downstream{}
		o := f.Output(d)
		require.NoError(t, o.Start(componenttest.NewNopHost()))
		mixed := func(first int) ptrace.Traces {
			td := collectortest.Requests("", first, 3)
			td.ResourceSpans().At(0).Resource().Attributes().Remove("service.instance.id")
			return td
		}
		for i := range 3 {
			f.Record(mixed(10*i), false)
			f.Record(collectortest.Requests("named", 100+10*i, 3), false)
			f.Record(collectortest.Requests("third", 200+10*i, 3), false)
			f.Record(collectortest.Requests("fourth", 300+10*i, 3), false)
		}
		synctest.Wait()
		mixedLogs := f.logs.FilterMessageSnippet("replicas may be mixed").All()
		require.Len(t, mixedLogs, 1)
		assert.Equal(t, "vllm", mixedLogs[0].ContextMap()["service.name"])
		assert.Contains(t, mixedLogs[0].Message, "OTEL_RESOURCE_ATTRIBUTES=service.instance.id=")
		assert.Equal(t, 1, f.logs.FilterMessage("New engine").Len())
		assert.Equal(t, 1, f.logs.FilterMessageSnippet("more engines than limits::engines").Len())
		assert.Equal(t, 3, f.logs.Len())
		o.Shutdown(t.Context())
	})
}

// brokenMeter refuses callbacks, or instruments.
type brokenMeter struct {
	noop.MeterProvider
	instruments bool
}

func (p brokenMeter) Meter(string, ...metric.MeterOption) metric.Meter {
	return meterThatFails{instruments: p.instruments}
}

type meterThatFails struct {
	noop.Meter
	instruments bool
}

func (m meterThatFails) Int64ObservableGauge(name string, options ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	if m.instruments {
		return nil, errOutage
	}
	return m.Meter.Int64ObservableGauge(name, options...)
}

func (meterThatFails) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errOutage
}

func TestBrokenTelemetry(t *testing.T) {
	c := serving.NewDefaultConfig()
	set := componenttest.NewNopTelemetrySettings()

	set.MeterProvider = brokenMeter{instruments: true}
	_, err := New(&c, set, component.NewDefaultBuildInfo(), "processor", testID)
	require.ErrorIs(t, err, errOutage)

	set.MeterProvider = brokenMeter{}
	e, err := New(&c, set, component.NewDefaultBuildInfo(), "processor", testID)
	require.NoError(t, err)
	o := e.Output(&downstream{})
	require.ErrorIs(t, o.Start(componenttest.NewNopHost()), errOutage)
	o.Shutdown(context.Background()) // and no goroutine is left
}
