// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// The factory, which puts the otlp receiver's server behind this receiver's name.

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadata"
)

// NewFactory makes the factory of the llm_span receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(
		metadata.Type,
		createDefaultConfig,
		receiver.WithTraces(createTraces, metadata.TracesStability),
		receiver.WithMetrics(createMetrics, metadata.MetricsStability),
	)
}

// The otlp receiver shares one server between the signals of one configuration, which it knows by
// its pointer. So traces and metrics here share one as well: the first Shutdown of either stops it
// and waits for the requests in flight.

func createTraces(ctx context.Context, set receiver.Settings, cfg component.Config, next consumer.Traces) (receiver.Traces, error) {
	c := cfg.(*Config)
	spans, err := newSpans(set.TelemetrySettings, c.OtherSpans, next)
	if err != nil {
		return nil, err
	}
	factory := otlpreceiver.NewFactory()
	return factory.CreateTraces(ctx, asOTLP(factory, set), &c.OTLP, spans)
}

func createMetrics(ctx context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	factory := otlpreceiver.NewFactory()
	return factory.CreateMetrics(ctx, asOTLP(factory, set), &cfg.(*Config).OTLP, next)
}

// asOTLP gives the inner receiver an ID of its own type, which its factory insists on: llm_span
// becomes otlp/llm_span and llm_span/x becomes otlp/llm_span/x, so that its telemetry is not taken
// for that of an otlp receiver next to it.
func asOTLP(factory receiver.Factory, set receiver.Settings) receiver.Settings {
	set.ID = component.NewIDWithName(factory.Type(), set.ID.String())
	return set
}
