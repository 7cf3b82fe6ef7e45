// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

// The processor's instances without a Collector, in orders in which no Collector calls them.

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
)

func sides(t testing.TB, cfg *Config, next consumer.Metrics) (processor.Traces, processor.Metrics) {
	set := processortest.NewNopSettings(NewFactory().Type())
	traces, err := NewFactory().CreateTraces(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	metrics, err := NewFactory().CreateMetrics(t.Context(), set, cfg, next)
	require.NoError(t, err)
	return traces, metrics
}

// The same *Config twice, as when a component is built anew. What was counted before does not count again.
func TestConfigBuiltTwice(t *testing.T) {
	collectortest.Forget()
	cfg := createDefaultConfig().(*Config)
	for round := range 2 {
		var sink consumertest.MetricsSink
		traces, metrics := sides(t, cfg, &sink)
		require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
		require.NoError(t, traces.Start(t.Context(), componenttest.NewNopHost()))
		require.NoError(t, traces.ConsumeTraces(t.Context(), collectortest.Requests("a", 0, 10*(round+1))))
		for range 2 { // a double shutdown must not let go of the shared part too early
			require.NoError(t, metrics.Shutdown(t.Context()))
		}
		assert.Len(t, sharedByConfig, 1)
		require.NoError(t, traces.ConsumeTraces(t.Context(), collectortest.Requests("a", 1000, 10)))
		for range 2 {
			require.NoError(t, traces.Shutdown(t.Context()))
		}
		assert.Empty(t, sharedByConfig)
		assert.EqualValues(t, 10, collectortest.Sum(collectortest.RequestCount, sink.AllMetrics()...))
	}
}

// A double shutdown of the traces side must not let go of what the metrics side still needs.
func TestTracesSideShutDownTwice(t *testing.T) {
	collectortest.Forget()
	cfg := createDefaultConfig().(*Config)
	var sink consumertest.MetricsSink
	traces, metrics := sides(t, cfg, &sink)
	require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, traces.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, traces.ConsumeTraces(t.Context(), collectortest.Requests("a", 0, 10)))
	for range 2 {
		require.NoError(t, traces.Shutdown(t.Context()))
		assert.Contains(t, sharedByConfig, cfg)
	}
	require.NoError(t, metrics.Shutdown(t.Context()))
	assert.NotContains(t, sharedByConfig, cfg)
	assert.EqualValues(t, 10, collectortest.Sum(collectortest.RequestCount, sink.AllMetrics()...))
}

func TestShutdownWithoutStart(t *testing.T) {
	traces, metrics := sides(t, createDefaultConfig().(*Config), consumertest.NewErr(errors.New("not called")))
	require.NoError(t, traces.Shutdown(t.Context()))
	require.NoError(t, metrics.Shutdown(t.Context()))
	assert.Empty(t, sharedByConfig)
}

func TestShutdownWhileThePipelineBlocks(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { <-release; return nil }) // looks at no context
	require.NoError(t, err)
	traces, metrics := sides(t, createDefaultConfig().(*Config), next)
	require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, traces.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, traces.ConsumeTraces(t.Context(), collectortest.Requests("a", 0, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, metrics.Shutdown(ctx)) // else this test never ends
	require.NoError(t, traces.Shutdown(ctx))
}

// processortest's own check of a traces side, which passes spans on until it is shut down.
func TestVerifyShutdown(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.AnnotateOnly = true
	processortest.VerifyShutdown(t, NewFactory(), cfg)
}

func TestFactoryErrorsLeaveNothingBehind(t *testing.T) {
	set := processortest.NewNopSettings(NewFactory().Type())
	for _, broken := range []brokenMeterProvider{{instrument: "otelcol_serving_metrics_engines"}, {instrument: "otelcol_processor_incoming_items"}} {
		set.MeterProvider = broken
		_, err := NewFactory().CreateTraces(t.Context(), set, createDefaultConfig(), consumertest.NewNop())
		require.ErrorIs(t, err, errBroken)
		_, err = NewFactory().CreateMetrics(t.Context(), set, createDefaultConfig(), consumertest.NewNop())
		require.ErrorIs(t, err, errBroken)
		assert.Empty(t, sharedByConfig)
	}
}

var errBroken = errors.New("broken")

// brokenMeterProvider refuses one instrument.
type brokenMeterProvider struct {
	noop.MeterProvider
	instrument string
}

func (p brokenMeterProvider) Meter(string, ...metric.MeterOption) metric.Meter {
	return brokenMeter{instrument: p.instrument}
}

type brokenMeter struct {
	noop.Meter
	instrument string
}

func (m brokenMeter) Int64ObservableGauge(name string, options ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	if name == m.instrument {
		return nil, errBroken
	}
	return m.Meter.Int64ObservableGauge(name, options...)
}

func (m brokenMeter) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name == m.instrument {
		return nil, errBroken
	}
	return m.Meter.Int64Counter(name, options...)
}
