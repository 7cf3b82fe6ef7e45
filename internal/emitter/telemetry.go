// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// The aggregator's health as Collector telemetry, read when the Collector collects it.

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// attributes name the component, as processorhelper and the other helpers do.
func (e *Emitter) attributes(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, attribute.String(e.kind, e.id.String()))...)
}

// observe registers what is read when the Collector collects its own telemetry.
func (e *Emitter) observe() error {
	builder := e.telemetry
	own := e.attributes()
	// There from the start: the increase of a counter that begins with its first event does not show that event.
	builder.ServingMetricsSendFailed.Add(context.Background(), 0, own)
	builder.ServingMetricsCollectsLost.Add(context.Background(), 0, own)
	number := func(value func(*serving.Stats) int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			stats := e.aggregator.Stats()
			o.Observe(value(&stats), own)
			return nil
		}
	}
	return errors.Join(
		builder.RegisterServingMetricsEnginesCallback(number(func(s *serving.Stats) int64 { return s.Engines })),
		builder.RegisterServingMetricsSeriesCallback(number(func(s *serving.Stats) int64 { return s.Series })),
		builder.RegisterServingMetricsRequestsDroppedCallback(number(func(s *serving.Stats) int64 { return s.Dropped })),
		builder.RegisterServingMetricsRequestsDuplicateCallback(number(func(s *serving.Stats) int64 { return s.Duplicates })),
		builder.RegisterServingMetricsRequestsLostCallback(number(func(s *serving.Stats) int64 { return s.Lost })),
		builder.RegisterServingMetricsRequestsLateCallback(number(func(s *serving.Stats) int64 { return s.Late })),
		builder.RegisterServingMetricsRequestsOutlyingCallback(number(func(s *serving.Stats) int64 { return s.Outlying })),
		builder.RegisterServingMetricsWindowsSkippedCallback(number(func(s *serving.Stats) int64 { return s.SkippedWindows })),
		builder.RegisterServingMetricsRequestsOverflowCallback(number(func(s *serving.Stats) int64 { return s.Overflow })),
		builder.RegisterServingMetricsAttributesCutCallback(number(func(s *serving.Stats) int64 { return s.Cut })),
		builder.RegisterServingMetricsDedupeForgottenCallback(number(func(s *serving.Stats) int64 { return s.Forgotten })),
		builder.RegisterServingMetricsRequestsCallback(func(_ context.Context, o metric.Int64Observer) error {
			stats := e.aggregator.Stats()
			for kind := range stats.Requests {
				for generation, n := range stats.Requests[kind] {
					if n > 0 {
						o.Observe(n, e.attributes(attribute.String("kind", llmrequest.Kind(kind).String()),
							attribute.String("generation", llmrequest.Generation(generation).String())))
					}
				}
			}
			return nil
		}),
		builder.RegisterServingMetricsValuesRejectedCallback(func(_ context.Context, o metric.Int64Observer) error {
			stats := e.aggregator.Stats()
			for reason, n := range stats.Rejected {
				if n > 0 {
					o.Observe(n, e.attributes(attribute.String("reason", llmrequest.Reason(reason).String())))
				}
			}
			return nil
		}),
		builder.RegisterServingMetricsLastCollectCallback(func(_ context.Context, o metric.Float64Observer) error {
			if at := e.aggregator.Stats().LastCollect; !at.IsZero() {
				o.Observe(float64(at.UnixNano())/1e9, own)
			}
			return nil
		}),
	)
}
