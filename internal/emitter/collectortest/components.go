// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package collectortest

// The ends of the pipelines: what the test pushes in and what it finds at the other end.

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/receiver"
)

// ErrStopped is what a stopped Receiver answers.
var ErrStopped = errors.New("the receiver was shut down")

// Receiver is a push receiver, one for all signals, whose first Shutdown lets nobody in any more and waits for those
// who are.
type Receiver struct {
	mu      sync.RWMutex
	stopped bool
	traces  consumer.Traces
	metrics consumer.Metrics
}

// Traces pushes td.
func (r *Receiver) Traces(ctx context.Context, td ptrace.Traces) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.stopped {
		return ErrStopped
	}
	return r.traces.ConsumeTraces(ctx, td)
}

// Metrics pushes md.
func (r *Receiver) Metrics(ctx context.Context, md pmetric.Metrics) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.stopped {
		return ErrStopped
	}
	return r.metrics.ConsumeMetrics(ctx, md)
}

// Start makes it a component.
func (*Receiver) Start(context.Context, component.Host) error { return nil }

// Shutdown makes it a component.
func (r *Receiver) Shutdown(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	return nil
}

// endConfig has a size, so that the pointers of two differ.
type endConfig struct {
	Note string `mapstructure:"note"`
}

func (c *Collector) receiverFactory() receiver.Factory {
	byConfig := map[component.Config]*Receiver{}
	get := func(set receiver.Settings, cfg component.Config) *Receiver {
		r := byConfig[cfg]
		if r == nil {
			r = &Receiver{}
			byConfig[cfg] = r
			c.mu.Lock()
			defer c.mu.Unlock()
			c.receivers[set.ID] = r
		}
		return r
	}
	return receiver.NewFactory(component.MustNewType("push"), func() component.Config { return &endConfig{} },
		receiver.WithTraces(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Traces) (receiver.Traces, error) {
			r := get(set, cfg)
			r.traces = next
			return r, nil
		}, component.StabilityLevelDevelopment),
		receiver.WithMetrics(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			r := get(set, cfg)
			r.metrics = next
			return r, nil
		}, component.StabilityLevelDevelopment))
}

// Sink is a sink exporter, one for all signals.
type Sink struct {
	traces  consumertest.TracesSink
	metrics consumertest.MetricsSink

	mu       sync.Mutex
	failures int
	failure  error
}

// Fail makes the Sink refuse the next n payloads with err.
func (s *Sink) Fail(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.failure = n, err
}

func (s *Sink) fails() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == 0 {
		return nil
	}
	s.failures--
	return s.failure
}

// Traces are the payloads so far.
func (s *Sink) Traces() []ptrace.Traces { return s.traces.AllTraces() }

// SpanCount is the number of spans so far.
func (s *Sink) SpanCount() int { return s.traces.SpanCount() }

// Metrics are the payloads so far.
func (s *Sink) Metrics() []pmetric.Metrics { return s.metrics.AllMetrics() }

func (c *Collector) exporterFactory() exporter.Factory {
	return exporter.NewFactory(component.MustNewType("sink"), func() component.Config { return &endConfig{} },
		exporter.WithTraces(func(_ context.Context, set exporter.Settings, _ component.Config) (exporter.Traces, error) {
			s := c.sink(set.ID)
			next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
				if err := s.fails(); err != nil {
					return err
				}
				return s.traces.ConsumeTraces(ctx, td)
			})
			return tracesEnd{Traces: next}, err
		}, component.StabilityLevelDevelopment),
		exporter.WithMetrics(func(_ context.Context, set exporter.Settings, _ component.Config) (exporter.Metrics, error) {
			s := c.sink(set.ID)
			next, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
				if err := s.fails(); err != nil {
					return err
				}
				return s.metrics.ConsumeMetrics(ctx, md)
			})
			return metricsEnd{Metrics: next}, err
		}, component.StabilityLevelDevelopment))
}

type tracesEnd struct {
	component.StartFunc
	component.ShutdownFunc
	consumer.Traces
}

type metricsEnd struct {
	component.StartFunc
	component.ShutdownFunc
	consumer.Metrics
}

// HoldFactory makes a processor of this type that takes everything and hands it on only when it is shut down, as an asynchronous
// processor does with what it has left.
func HoldFactory(typ string) processor.Factory {
	return processor.NewFactory(component.MustNewType(typ), func() component.Config { return &struct{}{} },
		processor.WithTraces(func(_ context.Context, _ processor.Settings, _ component.Config, next consumer.Traces) (processor.Traces, error) {
			return &hold{next: next}, nil
		}, component.StabilityLevelDevelopment))
}

type hold struct {
	component.StartFunc
	next consumer.Traces
	mu   sync.Mutex
	held []ptrace.Traces
}

func (*hold) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (h *hold) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = append(h.held, td)
	return nil
}

func (h *hold) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, td := range h.held {
		if err := h.next.ConsumeTraces(ctx, td); err != nil {
			return err
		}
	}
	return nil
}
