// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

// The processor in real Collectors: every way to wire it, right and wrong.

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver"
)

func newCollector(t testing.TB, file string, overrides ...string) *collectortest.Collector {
	processors, err := otelcol.MakeFactoryMap(NewFactory(), collectortest.HoldFactory("hold"))
	require.NoError(t, err)
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](llmspanreceiver.NewFactory())
	require.NoError(t, err)
	return collectortest.New(t, otelcol.Factories{Processors: processors, Receivers: receivers}, filepath.Join("testdata", "wiring", file), overrides...)
}

// otherMetrics are some that are not derived.
func otherMetrics() pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("other")
	m.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1)
	return md
}

func TestWiringBothSides(t *testing.T) {
	c := newCollector(t, "both.yaml")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.V1(t)))
	require.NoError(t, c.Receiver("push").Metrics(t.Context(), otherMetrics()))
	require.NoError(t, c.Shutdown())

	assert.Equal(t, 16, c.Sink("sink/traces").SpanCount(), "spans that are no requests pass")
	md := c.Sink("sink/metrics").Metrics()
	require.Len(t, md, 2, "what passed and the final collect")
	assert.Equal(t, 1, md[0].DataPointCount())
	assert.EqualValues(t, 12, collectortest.Sum(collectortest.RequestCount, md...))
}

func TestWiringTracesSideAloneFails(t *testing.T) {
	c := newCollector(t, "traces_only.yaml")
	err := c.Start()
	require.ErrorContains(t, err, "the derived metrics have nowhere to go: add this processor, under the same ID, to the processors of a metrics pipeline, "+
		"or set annotate_only: true if the spans are only to be annotated")
	assert.Empty(t, sharedByConfig, "nothing is left of it")
}

func TestWiringTracesSideAloneIsWellWithAnnotateOnly(t *testing.T) {
	c := newCollector(t, "traces_only.yaml", "processors::serving_metrics::annotate_only: true")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 1)))
	require.NoError(t, c.Shutdown())
	share, ok := onlySpan(t, c.Sink("sink/traces").Traces()[0]).Attributes().Get("llm.serving.request.queue.share")
	require.True(t, ok)
	assert.InDelta(t, 0.25, share.Double(), 1e-12)
}

func onlySpan(t testing.TB, td ptrace.Traces) ptrace.Span {
	require.Equal(t, 1, td.SpanCount())
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
}

func TestWiringMetricsSideAlonePassesAndWarns(t *testing.T) {
	c := newCollector(t, "metrics_only.yaml")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Metrics(t.Context(), otherMetrics()))

	logs := c.Logs.FilterMessage(errNoTracesPipeline.Error())
	assert.Equal(t, 1, logs.Len())
	statuses := c.Statuses("Processor serving_metrics")
	require.NotEmpty(t, statuses)
	last := statuses[len(statuses)-1]
	assert.Equal(t, componentstatus.StatusRecoverableError, last.Status)
	assert.Equal(t, errNoTracesPipeline, last.Err)

	require.NoError(t, c.Shutdown())
	md := c.Sink("sink/metrics").Metrics()
	require.Len(t, md, 1)
	assert.Equal(t, 1, md[0].DataPointCount())
}

func TestWiringMetricsSideAloneWarnsOnceForAllPipelines(t *testing.T) {
	c := newCollector(t, "metrics_only.yaml", "service::pipelines::metrics/2: {receivers: [push], processors: [serving_metrics], exporters: [sink/metrics]}")
	require.NoError(t, c.Start())
	assert.Equal(t, 1, c.Logs.FilterMessage(errNoTracesPipeline.Error()).Len())
}

func TestWiringTwoMetricsPipelinesGetTheSame(t *testing.T) {
	c := newCollector(t, "two_metrics_pipelines.yaml")
	require.NoError(t, c.Start())
	one, two := c.Sink("sink/one"), c.Sink("sink/two")
	for i := range 5 {
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 10*i, 10)))
		// an interval each, so that it is not only the final collect that both get
		want := int64(10 * (i + 1))
		require.Eventually(t, func() bool {
			return collectortest.Sum(collectortest.RequestCount, one.Metrics()...) == want && collectortest.Sum(collectortest.RequestCount, two.Metrics()...) == want
		}, 10*time.Second, 5*time.Millisecond)
	}
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 100, 7)))
	require.NoError(t, c.Shutdown())

	a, b := pointsByTime(one.Metrics()), pointsByTime(two.Metrics())
	assert.EqualValues(t, 57, collectortest.Sum(collectortest.RequestCount, one.Metrics()...))
	assert.EqualValues(t, 57, collectortest.Sum(collectortest.RequestCount, two.Metrics()...))
	// The very same points, except the last ones: each pipeline has its own final collect.
	require.GreaterOrEqual(t, len(a), 6)
	assert.Equal(t, a[:5], b[:5])
}

// pointsByTime are end and value of the points of the request count that say something.
func pointsByTime(payloads []pmetric.Metrics) (points [][2]int64) {
	for _, dp := range collectortest.Points(collectortest.RequestCount, payloads...) {
		points = append(points, [2]int64{int64(dp.Timestamp()), dp.IntValue()})
	}
	return points
}

func TestWiringTwoTracesPipelinesCountEachSpanOnce(t *testing.T) {
	c := newCollector(t, "two_traces_pipelines.yaml")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
	assert.EqualValues(t, 10, ownCount(t, c, "otelcol_serving_metrics_requests_duplicate"), "they are reported")
	require.NoError(t, c.Shutdown())

	assert.EqualValues(t, 10, collectortest.Sum(collectortest.RequestCount, c.Sink("sink/metrics").Metrics()...))
	for _, sink := range []string{"sink/one", "sink/two"} {
		assert.Equal(t, 10, c.Sink(sink).SpanCount())
		_, annotated := c.Sink(sink).Traces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Get("llm.serving.request.queue.share")
		assert.True(t, annotated, "a span that was counted before is annotated all the same")
	}
}

// Which of the two pipelines stops first is random, so both outcomes are seen.
func TestWiringAfterAsynchronousProcessorCountsDropped(t *testing.T) {
	seen := map[int64]int{}
	for range 30 {
		c := newCollector(t, "after_batch.yaml")
		require.NoError(t, c.Start())
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
		require.NoError(t, c.Shutdown())

		require.Equal(t, 10, c.Sink("sink/traces").SpanCount())
		counted := collectortest.Sum(collectortest.RequestCount, c.Sink("sink/metrics").Metrics()...)
		var dropped int64
		for _, entry := range c.Logs.FilterMessageSnippet("came after the final collect").All() {
			dropped += entry.ContextMap()["requests"].(int64)
		}
		require.EqualValues(t, 10, counted+dropped, "counted or told to be dropped, never lost in silence")
		seen[dropped]++
		if len(seen) == 2 {
			break
		}
	}
	assert.Len(t, seen, 2)
}

func TestWiringAnnotateOnly(t *testing.T) {
	c := newCollector(t, "annotate_only.yaml")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 1)))
	require.NoError(t, c.Receiver("push").Metrics(t.Context(), otherMetrics()))
	require.NoError(t, c.Shutdown())

	_, annotated := onlySpan(t, c.Sink("sink/traces").Traces()[0]).Attributes().Get("llm.serving.request.queue.share")
	assert.True(t, annotated)
	md := c.Sink("sink/metrics").Metrics()
	require.Len(t, md, 1)
	assert.Equal(t, 1, md[0].DataPointCount(), "nothing is derived")
	assert.Equal(t, 1, c.Logs.FilterMessage(errAnnotateOnly.Error()).Len())
}

func TestWiringReload(t *testing.T) {
	c := newCollector(t, "both.yaml")
	require.NoError(t, c.Start())
	for i := range 3 {
		require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 10*i, 10)))
		require.NoError(t, c.Reload())
		md := c.Sink("sink/metrics").Metrics()
		require.Len(t, md, i+1, "the retired configuration gave its final collect")
		assert.EqualValues(t, 10, collectortest.Sum(collectortest.RequestCount, md[i]), "and the new one began with nothing")
	}
	require.NoError(t, c.Shutdown())
	assert.Empty(t, sharedByConfig)
}

// A final collect that is refused must not end the Collector, which exits if a configuration cannot be retired.
func TestWiringReloadWhileMetricsAreRefused(t *testing.T) {
	c := newCollector(t, "both.yaml")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
	c.Sink("sink/metrics").Fail(1, fmt.Errorf("outage"))
	require.NoError(t, c.Reload())
	assert.Equal(t, 1, c.Logs.FilterMessageSnippet("did not take the final collect").Len())
	assert.EqualValues(t, 1, ownCount(t, c, "otelcol_serving_metrics_collects_lost"))
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 10, 5)))
	require.NoError(t, c.Shutdown())
	assert.EqualValues(t, 5, collectortest.Sum(collectortest.RequestCount, c.Sink("sink/metrics").Metrics()...))
}

func TestWiringValidateLeavesNothingRunning(t *testing.T) {
	c := newCollector(t, "both.yaml")
	require.NoError(t, c.DryRun()) // goleak in TestMain sees the rest
	t.Cleanup(func() { clear(sharedByConfig) })
	assert.Len(t, sharedByConfig, 1, "all that stays, as with the otlp receiver")
}

func TestWiringTwoCollectorsDoNotShare(t *testing.T) {
	a, b := newCollector(t, "both.yaml"), newCollector(t, "both.yaml")
	require.NoError(t, a.Start())
	require.NoError(t, b.Start())
	require.NoError(t, a.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
	require.NoError(t, b.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 3)))
	require.NoError(t, a.Shutdown())
	require.NoError(t, b.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 3, 3)))
	require.NoError(t, b.Shutdown())
	assert.EqualValues(t, 10, collectortest.Sum(collectortest.RequestCount, a.Sink("sink/metrics").Metrics()...))
	assert.EqualValues(t, 6, collectortest.Sum(collectortest.RequestCount, b.Sink("sink/metrics").Metrics()...))
}

func TestWiringTwoIDsDoNotShare(t *testing.T) {
	c := newCollector(t, "both.yaml", "processors::serving_metrics/2::interval: 10m", "exporters::sink/2:",
		"service::pipelines::traces/2: {receivers: [push], processors: [serving_metrics/2], exporters: [sink/traces]}",
		"service::pipelines::metrics/2: {receivers: [push], processors: [serving_metrics/2], exporters: [sink/2]}")
	require.NoError(t, c.Start())
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 10)))
	require.NoError(t, c.Shutdown())
	for _, sink := range []string{"sink/metrics", "sink/2"} {
		assert.EqualValues(t, 10, collectortest.Sum(collectortest.RequestCount, c.Sink(sink).Metrics()...), sink)
	}
}

// Two unconnected pipelines stop in random order. Clients send until the server lets them in no more.
func TestShutdownUnderLoadLosesNothing(t *testing.T) {
	for _, file := range []string{"llm_span.yaml", "both.yaml"} {
		t.Run(file, func(t *testing.T) {
			for range 20 {
				shutdownUnderLoad(t, file)
			}
		})
	}
}

func shutdownUnderLoad(t *testing.T, file string) {
	c := newCollector(t, file)
	require.NoError(t, c.Start())
	send := func(ctx context.Context, td ptrace.Traces) error { return c.Receiver("push").Traces(ctx, td) }
	if file == "llm_span.yaml" {
		conn, err := grpc.NewClient("passthrough:///"+grpcEndpoint(t, c), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		client := ptraceotlp.NewGRPCClient(conn)
		send = func(ctx context.Context, td ptrace.Traces) error {
			_, err := client.Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
			return err
		}
	}

	var acknowledged, next atomic.Int64
	const clients, batch = 4, 5
	var warm, clientsDone sync.WaitGroup
	warm.Add(clients)
	for range clients {
		clientsDone.Go(func() {
			for i := 0; ; i++ {
				err := send(t.Context(), collectortest.Requests("a", int(next.Add(batch)), batch))
				if i == 0 {
					warm.Done()
				}
				if err != nil {
					return
				}
				acknowledged.Add(batch)
			}
		})
	}
	warm.Wait()
	require.NoError(t, c.Shutdown())
	clientsDone.Wait()

	counted := collectortest.Sum(collectortest.RequestCount, c.Sink("sink/metrics").Metrics()...)
	require.Positive(t, acknowledged.Load())
	require.EqualValues(t, c.Sink("sink/traces").SpanCount(), counted, "as many as were passed on")
	require.GreaterOrEqual(t, counted, acknowledged.Load(), "all that clients were told are in")
	require.Zero(t, c.Logs.FilterMessageSnippet("final collect").Len())
}

func grpcEndpoint(t testing.TB, c *collectortest.Collector) string {
	logs := c.Logs.FilterMessage("Starting GRPC server").All()
	require.Len(t, logs, 1)
	return logs[0].ContextMap()["endpoint"].(string)
}

// ownCount is the value of a counter of the Collector's own telemetry.
func ownCount(t testing.TB, c *collectortest.Collector, name string) int64 {
	m, err := c.Telemetry.GetMetric(name)
	require.NoError(t, err)
	return sumOf(t, m)
}
