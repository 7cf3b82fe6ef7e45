// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsconnector

// The connector: an emitter behind the traces pipelines, with an output per metrics pipeline.

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pipeline"

	"github.com/otelcol-serving/otelcol-serving/connector/servingmetricsconnector/internal/metadata"
	"github.com/otelcol-serving/otelcol-serving/internal/emitter"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// NewFactory creates the factory of the serving_metrics connector.
func NewFactory() connector.Factory {
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithTracesToMetrics(createTracesToMetrics, metadata.TracesToMetricsStability))
}

func createTracesToMetrics(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (connector.Traces, error) {
	e, err := emitter.New((*serving.Config)(&cfg.(*Config).Metrics), set.TelemetrySettings, set.BuildInfo, "connector", set.ID)
	if err != nil {
		return nil, err
	}
	s := &servingMetrics{emitter: e}
	router, ok := next.(connector.MetricsRouterAndConsumer)
	if !ok {
		s.outputs = append(s.outputs, e.Output(next))
		return s, nil
	}
	// An output per pipeline: one that fails must not make the others get the same delta points again.
	pipelines := router.PipelineIDs()
	slices.SortFunc(pipelines, func(a, b pipeline.ID) int { return strings.Compare(a.String(), b.String()) })
	for _, id := range pipelines {
		next, err := router.Consumer(id)
		if err != nil {
			return nil, err
		}
		s.outputs = append(s.outputs, e.Output(next))
	}
	return s, nil
}

// servingMetrics is one instance for all traces pipelines that end in it.
type servingMetrics struct {
	emitter *emitter.Emitter
	outputs []*emitter.Output
}

var _ connector.Traces = (*servingMetrics)(nil)

func (*servingMetrics) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

func (s *servingMetrics) Start(_ context.Context, host component.Host) error {
	for _, o := range s.outputs {
		if err := o.Start(host); err != nil {
			return err
		}
	}
	return nil
}

// ConsumeTraces never fails: what cannot be counted is counted as such, and a refusal would make the
// client resend what the other exporters already have.
func (s *servingMetrics) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	s.emitter.Record(td, false)
	return nil
}

// Shutdown comes after the last ConsumeTraces: the Collector stops what sends to a connector first.
func (s *servingMetrics) Shutdown(ctx context.Context) error {
	for _, o := range s.outputs {
		o.Shutdown(ctx)
	}
	s.emitter.Close()
	return nil
}
