// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package subject

// The components, and how they are made and started outside of a collector.

import (
	"context"
	"fmt"
	"runtime"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/signaltometricsconnector"
	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/connector/servingmetricsconnector"
	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension"
	"github.com/otelcol-serving/otelcol-serving/processor/servingmetricsprocessor"
)

// Load says what a component has to cope with.
type Load struct {
	Kind    spans.Kind
	Engines int
	Series  int // over all engines; 0: one each, without spans.Dimension
}

// Subject is something that consumes spans.
type Subject struct {
	Name string
	// Ours keep a memory of spans, which is to be full before they are measured.
	Ours bool
	open func(Load) (*Running, error)
}

// Open makes and starts it.
func (s *Subject) Open(l Load) (*Running, error) {
	r, err := s.open(l)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return r, nil
}

// Running is a component that was started.
type Running struct {
	consume func(context.Context, ptrace.Traces) error
	close   []func(context.Context) error
}

// Consume gives it spans.
func (r *Running) Consume(td ptrace.Traces) error { return r.consume(context.Background(), td) }

// Close shuts it down.
func (r *Running) Close() error {
	for _, f := range r.close {
		if err := f(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// The subjects.
var (
	Walk = &Subject{Name: "walk over the attributes", open: func(Load) (*Running, error) {
		return &Running{consume: walk}, nil
	}}
	SpanMetrics = &Subject{Name: "span_metrics, 2 metrics", open: func(l Load) (*Running, error) {
		return connect(spanmetricsconnector.NewFactory(), spanMetricsConfig(l), nil)
	}}
	SignalToMetrics = &Subject{Name: "signal_to_metrics, 9 histograms", open: func(l Load) (*Running, error) {
		return connect(signaltometricsconnector.NewFactory(), SignalToMetricsConfig(l), nil)
	}}
	Connector = &Subject{Name: "serving_metrics connector", Ours: true, open: func(l Load) (*Running, error) {
		return connect(servingmetricsconnector.NewFactory(), servingConfig(l), nil)
	}}
	ConnectorSummary = &Subject{Name: "serving_metrics connector, summary", Ours: true, open: func(l Load) (*Running, error) {
		return connect(servingmetricsconnector.NewFactory(), servingConfig(l)+"summary: serving_summary\n", summaryHost)
	}}
	Processor = &Subject{Name: "serving_metrics processor, annotate: false", Ours: true, open: func(l Load) (*Running, error) {
		return process(servingConfig(l)+"annotate: false\n", nil)
	}}
	ProcessorAnnotate = &Subject{Name: "serving_metrics processor, annotate", Ours: true, open: func(l Load) (*Running, error) {
		return process(servingConfig(l), nil)
	}}
	ProcessorSummary = &Subject{Name: "serving_metrics processor, annotate, summary", Ours: true, open: func(l Load) (*Running, error) {
		return process(servingConfig(l)+"summary: serving_summary\n", summaryHost)
	}}
)

// All lists the subjects in the order of the tables.
func All() []*Subject {
	return []*Subject{Walk, SpanMetrics, SignalToMetrics, Connector, ConnectorSummary, Processor, ProcessorAnnotate, ProcessorSummary}
}

// host has extensions.
type host struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h *host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// summaryHost has a serving_summary that is registered with and not asked.
func summaryHost() (component.Host, error) {
	factory := servingsummaryextension.NewFactory()
	e, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), factory.CreateDefaultConfig())
	if err != nil {
		return nil, err
	}
	return &host{componenttest.NewNopHost(), map[component.ID]component.Component{component.NewID(factory.Type()): e}}, nil
}

func configure(cfg component.Config, text string) error {
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		return err
	}
	if err := confmap.NewFromStringMap(raw).Unmarshal(cfg); err != nil {
		return err
	}
	if v, ok := cfg.(confmap.Validator); ok {
		return v.Validate()
	}
	return nil
}

func start(newHost func() (component.Host, error), all ...component.Component) (closers []func(context.Context) error, err error) {
	h := componenttest.NewNopHost()
	if newHost != nil {
		if h, err = newHost(); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		if err := c.Start(context.Background(), h); err != nil {
			return nil, err
		}
		closers = append(closers, c.Shutdown)
	}
	return closers, nil
}

func connect(factory connector.Factory, config string, newHost func() (component.Host, error)) (*Running, error) {
	cfg := factory.CreateDefaultConfig()
	if err := configure(cfg, config); err != nil {
		return nil, err
	}
	settings := connectortest.NewNopSettings(factory.Type())
	// Not a new name each time: one component leaves its memory of spans to the next of its name.
	settings.ID = component.NewID(factory.Type())
	c, err := factory.CreateTracesToMetrics(context.Background(), settings, cfg, consumertest.NewNop())
	if err != nil {
		return nil, err
	}
	closers, err := start(newHost, c)
	return &Running{consume: c.ConsumeTraces, close: closers}, err
}

// process makes both sides of the processor.
func process(config string, newHost func() (component.Host, error)) (*Running, error) {
	factory := servingmetricsprocessor.NewFactory()
	cfg := factory.CreateDefaultConfig()
	if err := configure(cfg, config); err != nil {
		return nil, err
	}
	settings := processortest.NewNopSettings(factory.Type())
	traces, err := factory.CreateTraces(context.Background(), settings, cfg, consumertest.NewNop())
	if err != nil {
		return nil, err
	}
	metrics, err := factory.CreateMetrics(context.Background(), settings, cfg, consumertest.NewNop())
	if err != nil {
		return nil, err
	}
	closers, err := start(newHost, traces, metrics)
	return &Running{consume: traces.ConsumeTraces, close: closers}, err
}

// walk reads every attribute and does nothing with it: the floor of any consumer of spans.
func walk(_ context.Context, td ptrace.Traces) error {
	n := 0
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				for key, value := range span.Attributes().All() {
					n += len(key) + int(value.Type())
				}
			}
		}
	}
	runtime.KeepAlive(n) // else the compiler could leave the walk out
	return nil
}
