// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

// Recorded spans in, frozen metrics and annotations out. The connector is held to the same metrics. Write the
// files anew with go test -run TestGolden -update.

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenConfig has everything on that changes what comes out. The connector's test has the same.
func goldenConfig() *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.Metrics.SLO = serving.SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond, E2E: 10 * time.Second}
	cfg.Metrics.Compatibility = []string{"vllm"}
	return cfg
}

func goldenInput(t testing.TB) []ptrace.Traces {
	return []ptrace.Traces{
		collectortest.Engine(collectortest.V0(t), "vllm-v0", "old"),
		collectortest.Engine(collectortest.V1(t), "vllm", "new"),
	}
}

func TestGolden(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		collectortest.Forget()
		set := processortest.NewNopSettings(NewFactory().Type())
		cfg := goldenConfig()
		var traces consumertest.TracesSink
		var metrics consumertest.MetricsSink
		metricsSide, err := NewFactory().CreateMetrics(t.Context(), set, cfg, &metrics)
		require.NoError(t, err)
		tracesSide, err := NewFactory().CreateTraces(t.Context(), set, cfg, &traces)
		require.NoError(t, err)
		require.NoError(t, metricsSide.Start(t.Context(), componenttest.NewNopHost()))
		require.NoError(t, tracesSide.Start(t.Context(), componenttest.NewNopHost()))
		assert.True(t, tracesSide.Capabilities().MutatesData)
		assert.False(t, metricsSide.Capabilities().MutatesData)
		for _, td := range goldenInput(t) {
			if readOnly { // as no Collector does, which sees that the processor mutates
				td.MarkReadOnly()
			}
			require.NoError(t, tracesSide.ConsumeTraces(t.Context(), td))
		}
		require.NoError(t, tracesSide.Shutdown(t.Context()))
		require.NoError(t, metricsSide.Shutdown(t.Context()))

		require.Len(t, metrics.AllMetrics(), 1)
		got := metrics.AllMetrics()[0]
		path := filepath.Join("testdata", "golden", "metrics.yaml")
		if *update {
			require.NoError(t, golden.WriteMetricsToFile(path, got))
		}
		want, err := golden.ReadMetrics(path)
		require.NoError(t, err)
		require.NoError(t, pmetrictest.CompareMetrics(want, got, pmetrictest.IgnoreTimestamp(), pmetrictest.IgnoreStartTimestamp(),
			pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))

		require.Len(t, traces.AllTraces(), 2)
		for i, name := range []string{"annotated_v0.yaml", "annotated_v1.yaml"} {
			path := filepath.Join("testdata", "golden", name)
			got := traces.AllTraces()[i]
			if *update {
				require.NoError(t, golden.WriteTracesToFile(path, got))
			}
			want, err := golden.ReadTraces(path)
			require.NoError(t, err)
			require.NoError(t, ptracetest.CompareTraces(want, got))
			// only added to: without the shares it is what came in
			for _, rs := range got.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, span := range ss.Spans().All() {
						for share := range shareNames() {
							span.Attributes().Remove(share)
						}
					}
				}
			}
			require.NoError(t, ptracetest.CompareTraces(goldenInput(t)[i], got))
		}
	}
}

// Without annotate, the payload goes on as it is, shared or not.
func TestGoldenWithoutAnnotate(t *testing.T) {
	set := processortest.NewNopSettings(NewFactory().Type())
	cfg := goldenConfig()
	cfg.Annotate = false
	var traces consumertest.TracesSink
	metricsSide, err := NewFactory().CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	tracesSide, err := NewFactory().CreateTraces(t.Context(), set, cfg, &traces)
	require.NoError(t, err)
	require.NoError(t, metricsSide.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, tracesSide.Start(t.Context(), componenttest.NewNopHost()))
	assert.False(t, tracesSide.Capabilities().MutatesData)
	td := collectortest.V1(t)
	td.MarkReadOnly()
	require.NoError(t, tracesSide.ConsumeTraces(t.Context(), td))
	require.NoError(t, ptracetest.CompareTraces(collectortest.V1(t), traces.AllTraces()[0]))
	require.NoError(t, metricsSide.Shutdown(t.Context()))
	require.NoError(t, tracesSide.Shutdown(t.Context()))
}
