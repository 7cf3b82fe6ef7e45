// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

// The two sides of the processor.

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

var (
	errNoMetricsPipeline = errors.New("the derived metrics have nowhere to go: add this processor, under the same ID, to the processors of a metrics pipeline, " +
		"or set annotate_only: true if the spans are only to be annotated")
	errAnnotateOnly = errors.New("annotate_only: true derives no metrics, so this processor adds nothing to its metrics pipeline: " +
		"remove it from there, or remove annotate_only")
	errNoTracesPipeline = errors.New("no traces pipeline has this processor, so there are no spans to derive metrics from: add it, under the same ID, to the processors of a traces pipeline")
)

// tracesSide records spans and annotates them.
type tracesSide struct {
	shared *shared
	once   sync.Once
}

func (t *tracesSide) start(context.Context, component.Host) error {
	if !t.shared.config.AnnotateOnly && !t.shared.emitter.HasOutputs() {
		return errNoMetricsPipeline
	}
	return nil
}

func (t *tracesSide) process(_ context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	if t.shared.config.Annotate && td.IsReadOnly() {
		// Not from the Collector, which knows that this processor changes its data.
		writable := ptrace.NewTraces()
		td.CopyTo(writable)
		td = writable
	}
	if t.shared.config.AnnotateOnly {
		serving.Annotate(td)
	} else {
		t.shared.emitter.Record(td, t.shared.config.Annotate)
	}
	return td, nil
}

func (t *tracesSide) shutdown(context.Context) error {
	t.once.Do(t.shared.leave)
	return nil
}

// metricsSide lets metrics pass and is where the derived ones come out.
type metricsSide struct {
	shared *shared
	output *emitter.Output
	once   sync.Once
}

func (m *metricsSide) start(_ context.Context, host component.Host) error {
	// Metrics of others pass all the same, so neither is a fault to fail on.
	if m.shared.config.AnnotateOnly {
		m.shared.warn.Do(func() { m.shared.logger.Warn(errAnnotateOnly.Error()) })
		return nil
	}
	if m.shared.traces == 0 {
		m.shared.warn.Do(func() { m.shared.logger.Warn(errNoTracesPipeline.Error()) })
		componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(errNoTracesPipeline))
	}
	return m.output.Start(host)
}

func (*metricsSide) process(_ context.Context, md pmetric.Metrics) (pmetric.Metrics, error) {
	return md, nil
}

func (m *metricsSide) shutdown(ctx context.Context) error {
	m.output.Shutdown(ctx)
	m.once.Do(m.shared.leave)
	return nil
}
