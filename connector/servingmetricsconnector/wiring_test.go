// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsconnector

// The connector in real Collectors.

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
)

func newCollector(t testing.TB, file string, overrides ...string) *collectortest.Collector {
	connectors, err := otelcol.MakeFactoryMap(NewFactory())
	require.NoError(t, err)
	processors, err := otelcol.MakeFactoryMap(collectortest.HoldFactory("hold"))
	require.NoError(t, err)
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	require.NoError(t, err)
	return collectortest.New(t, otelcol.Factories{Connectors: connectors, Processors: processors, Receivers: receivers},
		filepath.Join("testdata", "wiring", file), overrides...)
}

func counted(c *collectortest.Collector, sink string) int64 {
	return collectortest.Sum(collectortest.RequestCount, c.Sink(sink).Metrics()...)
}

func ownCount(t testing.TB, c *collectortest.Collector, name string) (sum int64) {
	m, err := c.Telemetry.GetMetric(name)
	require.NoError(t, err)
	for _, dp := range m.Data.(metricdata.Sum[int64]).DataPoints {
		sum += dp.Value
		kind, _ := dp.Attributes.Value("connector")
		assert.Equal(t, "serving_metrics", kind.AsString())
	}
	return sum
}

// A fan-out shares its data between exporters, which must find it as it came.
func TestWiringSharesDataWithExporters(t *testing.T) {
	c := newCollector(t, "one.yaml", "exporters::sink/second:", "service::pipelines::traces::exporters: [sink/traces, serving_metrics, sink/second]")
	require.NoError(t, c.Start())
	td := collectortest.V1(t)
	require.NoError(t, c.Receiver("push").Traces(t.Context(), td))
	require.True(t, td.IsReadOnly())
	require.NoError(t, c.Shutdown())
	for _, sink := range []string{"sink/traces", "sink/second"} {
		require.Len(t, c.Sink(sink).Traces(), 1)
		require.NoError(t, ptracetest.CompareTraces(collectortest.V1(t), c.Sink(sink).Traces()[0]))
	}
	assert.EqualValues(t, 12, counted(c, "sink/metrics"))
}

func TestWiringTwoTracesPipelinesCountEachSpanOnce(t *testing.T) {
	c := newCollector(t, "two_traces_pipelines.yaml")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
	assert.EqualValues(t, 10, ownCount(t, c, "otelcol_serving_metrics_requests_duplicate"))
	require.NoError(t, c.Shutdown())
	assert.EqualValues(t, 10, counted(c, "sink/metrics"))
}

// One pipeline fails now and then: it gets everything later, and the other nothing twice.
func TestWiringTwoMetricsPipelinesFailOnTheirOwn(t *testing.T) {
	c := newCollector(t, "two_metrics_pipelines.yaml")
	require.NoError(t, c.Start())
	for i := range 4 {
		c.Sink("sink/one").Fail(i, errors.New("outage"))
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 10*i, 10)))
		want := int64(10 * (i + 1))
		require.Eventually(t, func() bool { return counted(c, "sink/one") == want && counted(c, "sink/two") == want }, 10*time.Second, 5*time.Millisecond)
	}
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 100, 7)))
	require.NoError(t, c.Shutdown())
	assert.EqualValues(t, 47, counted(c, "sink/one"))
	assert.EqualValues(t, 47, counted(c, "sink/two"))
	assert.GreaterOrEqual(t, ownCount(t, c, "otelcol_serving_metrics_send_failed"), int64(6))
}

// What an asynchronous processor gives back at shutdown is counted: the Collector stops along the edges.
func TestWiringAfterAsynchronousProcessorLosesNothing(t *testing.T) {
	for range 20 {
		c := newCollector(t, "after_batch.yaml")
		require.NoError(t, c.Start())
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
		require.NoError(t, c.Shutdown())
		require.EqualValues(t, 10, counted(c, "sink/metrics"))
	}
}

func TestShutdownUnderLoadLosesNothing(t *testing.T) {
	for range 20 {
		c := newCollector(t, "one.yaml")
		require.NoError(t, c.Start())
		var acknowledged, next atomic.Int64
		var warm, clients sync.WaitGroup
		warm.Add(4)
		for range 4 {
			clients.Go(func() {
				for i := 0; ; i++ {
					err := c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", int(next.Add(5)), 5))
					if i == 0 {
						warm.Done()
					}
					if err != nil {
						return
					}
					acknowledged.Add(5)
				}
			})
		}
		warm.Wait()
		require.NoError(t, c.Shutdown())
		clients.Wait()
		require.Positive(t, acknowledged.Load())
		require.Equal(t, acknowledged.Load(), counted(c, "sink/metrics"))
	}
}

func TestWiringReload(t *testing.T) {
	c := newCollector(t, "one.yaml")
	require.NoError(t, c.Start())
	for i := range 3 {
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 10*i, 10)))
		require.NoError(t, c.Reload())
		assert.EqualValues(t, 10*(i+1), counted(c, "sink/metrics"))
	}
}

// What clients resend, because another exporter refused it before the reload, counts once.
func TestWiringReloadWhileClientsResend(t *testing.T) {
	c := newCollector(t, "one.yaml")
	require.NoError(t, c.Start())
	for i := range 3 {
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10*(i+1))))
		require.NoError(t, c.Reload())
		assert.EqualValues(t, 10*(i+1), counted(c, "sink/metrics"))
	}
}

func TestWiringTwoCollectorsDoNotShare(t *testing.T) {
	a, b := newCollector(t, "one.yaml"), newCollector(t, "one.yaml")
	require.NoError(t, a.Start())
	require.NoError(t, b.Start())
	require.NoError(t, a.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
	require.NoError(t, b.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 3)))
	require.NoError(t, a.Shutdown())
	require.NoError(t, b.Shutdown())
	assert.EqualValues(t, 10, counted(a, "sink/metrics"))
	assert.EqualValues(t, 3, counted(b, "sink/metrics"))
}

func TestWiringRefusesAnnotate(t *testing.T) {
	c := newCollector(t, "one.yaml", "connectors::serving_metrics::annotate: true")
	require.ErrorContains(t, c.Start(),
		"connectors::serving_metrics: annotate: a connector never changes the spans it is given; remove it, or use the serving_metrics processor")
}

// An exporter beside the connector fails, so a real SDK sends the whole request again, and again.
func TestClientRetriesAreCountedOnce(t *testing.T) {
	for _, failures := range []int{0, 1, 3} {
		c := newCollector(t, "retry.yaml")
		require.NoError(t, c.Start())
		c.Sink("sink/fails").Fail(failures, errors.New("outage"))

		logs := c.Logs.FilterMessage("Starting GRPC server").All()
		require.Len(t, logs, 1)
		client, err := otlptracegrpc.New(t.Context(),
			otlptracegrpc.WithEndpoint(logs[0].ContextMap()["endpoint"].(string)), otlptracegrpc.WithInsecure(),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
				Enabled: true, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, MaxElapsedTime: time.Minute,
			}))
		require.NoError(t, err)
		sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(client),
			sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "vllm"), attribute.String("service.instance.id", "a"))))
		for range 5 {
			_, span := sdk.Tracer("vllm.tracing.otel").Start(t.Context(), "llm_request", trace.WithSpanKind(trace.SpanKindServer))
			span.SetAttributes(attribute.Float64("gen_ai.latency.e2e", 1), attribute.Float64("gen_ai.latency.time_in_queue", 0.5))
			span.End()
		}
		require.NoError(t, sdk.ForceFlush(t.Context()))
		require.NoError(t, sdk.Shutdown(t.Context()))

		assert.EqualValues(t, 5*failures, ownCount(t, c, "otelcol_serving_metrics_requests_duplicate"))
		assert.EqualValues(t, 5, ownCount(t, c, "otelcol_serving_metrics_requests"))
		require.NoError(t, c.Shutdown())
		_, err = c.Telemetry.GetMetric("otelcol_serving_metrics_requests")
		require.Error(t, err, "a connector that was shut down tells nothing more")
		assert.EqualValues(t, 5, counted(c, "sink/metrics"))
		assert.Equal(t, 5*(failures+1), c.Sink("sink/traces").SpanCount(), "what an exporter without dedupe sees")
		assert.Equal(t, 5, c.Sink("sink/fails").SpanCount())
	}
}
