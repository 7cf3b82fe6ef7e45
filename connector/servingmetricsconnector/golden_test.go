// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsconnector

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// The metrics are the processor's: its golden file is the connector's. It has no other name for any.
func TestGoldenIsTheProcessors(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		cfg := createDefaultConfig().(*Config)
		cfg.Metrics.SLO = serving.SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond, E2E: 10 * time.Second}
		cfg.Metrics.Compatibility = []string{"vllm"}
		var metrics consumertest.MetricsSink
		c, err := NewFactory().CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(NewFactory().Type()), cfg, &metrics)
		require.NoError(t, err)
		require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
		assert.False(t, c.Capabilities().MutatesData)
		input := func() []ptrace.Traces {
			return []ptrace.Traces{
				collectortest.Engine(collectortest.V0(t), "vllm-v0", "old"),
				collectortest.Engine(collectortest.V1(t), "vllm", "new"),
			}
		}
		given := input()
		for _, td := range given {
			if readOnly {
				td.MarkReadOnly()
			}
			require.NoError(t, c.ConsumeTraces(t.Context(), td))
		}
		require.NoError(t, c.Shutdown(t.Context()))
		for i, td := range input() {
			require.NoError(t, ptracetest.CompareTraces(td, given[i]), "the spans are as they came")
		}

		require.Len(t, metrics.AllMetrics(), 1)
		want, err := golden.ReadMetrics(filepath.Join("..", "..", "processor", "servingmetricsprocessor", "testdata", "golden", "metrics.yaml"))
		require.NoError(t, err)
		require.NoError(t, pmetrictest.CompareMetrics(want, metrics.AllMetrics()[0], pmetrictest.IgnoreTimestamp(), pmetrictest.IgnoreStartTimestamp(),
			pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))
	}
}

func TestStartAfterShutdown(t *testing.T) {
	c, err := NewFactory().CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(NewFactory().Type()), createDefaultConfig(), consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, c.Shutdown(t.Context()))
	require.ErrorContains(t, c.Start(t.Context(), componenttest.NewNopHost()), "cannot be started again")
	require.NoError(t, c.Shutdown(t.Context()))
}

// A pipeline that takes nothing and does not return: Shutdown ends with its context.
func TestShutdownWhileThePipelineBlocks(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	next := blocked{release: release}
	c, err := NewFactory().CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(NewFactory().Type()), createDefaultConfig(), next)
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, c.ConsumeTraces(t.Context(), collectortest.Requests("a", 0, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Shutdown(ctx)) // else this test never ends
}

func TestBrokenTelemetry(t *testing.T) {
	set := connectortest.NewNopSettings(NewFactory().Type())
	set.MeterProvider = brokenMeterProvider{}
	_, err := NewFactory().CreateTracesToMetrics(t.Context(), set, createDefaultConfig(), consumertest.NewNop())
	require.ErrorIs(t, err, errBroken)
}

var errBroken = errors.New("broken")

type brokenMeterProvider struct{ noop.MeterProvider }

func (brokenMeterProvider) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

type brokenMeter struct{ noop.Meter }

func (brokenMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return nil, errBroken
}
