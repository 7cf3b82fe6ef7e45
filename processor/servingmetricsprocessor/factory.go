// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

// The factory, and what joins the instances of one ID.

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.uber.org/zap"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
	"github.com/otelcol-serving/otelcol-serving/processor/servingmetricsprocessor/internal/metadata"
)

// NewFactory creates the factory of the serving_metrics processor.
func NewFactory() processor.Factory {
	return processor.NewFactory(metadata.Type, createDefaultConfig,
		processor.WithTraces(createTraces, metadata.TracesStability),
		processor.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createTraces(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
	c := cfg.(*Config)
	s, err := join(c, set)
	if err != nil {
		return nil, err
	}
	s.traces++
	side := &tracesSide{shared: s}
	p, err := processorhelper.NewTraces(ctx, set, cfg, next, side.process,
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: c.Annotate}),
		processorhelper.WithStart(side.start),
		processorhelper.WithShutdown(side.shutdown))
	if err != nil {
		s.leave()
	}
	return p, err
}

func createMetrics(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Metrics) (processor.Metrics, error) {
	s, err := join(cfg.(*Config), set)
	if err != nil {
		return nil, err
	}
	side := &metricsSide{shared: s, output: s.emitter.Output(next)}
	p, err := processorhelper.NewMetrics(ctx, set, cfg, next, side.process,
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		processorhelper.WithStart(side.start),
		processorhelper.WithShutdown(side.shutdown))
	if err != nil {
		s.leave()
	}
	return p, err
}

// shared is what the instances of one processor ID share: the Collector makes one per pipeline, all
// with the same *Config, and makes all of them before it starts any.
type shared struct {
	config  *Config
	logger  *zap.Logger
	emitter *emitter.Emitter
	traces  int // instances in traces pipelines
	warn    sync.Once

	members int // instances that were not shut down
}

// sharedByConfig finds the instances that belong together. The pointer, not the ID, is the key: IDs are unique
// only within one Collector, of which a process can run several.
var (
	sharedMu       sync.Mutex
	sharedByConfig = map[*Config]*shared{}
)

func join(c *Config, set processor.Settings) (*shared, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	s := sharedByConfig[c]
	if s == nil {
		e, err := emitter.New((*serving.Config)(&c.Metrics), set.TelemetrySettings, set.BuildInfo, "processor", set.ID)
		if err != nil {
			return nil, err
		}
		s = &shared{config: c, logger: set.Logger, emitter: e}
		sharedByConfig[c] = s
	}
	s.members++
	return s, nil
}

// leave forgets the shared part with its last member, so that the configuration can be built anew.
func (s *shared) leave() {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if s.members--; s.members == 0 {
		delete(sharedByConfig, s.config)
		s.emitter.Close()
	}
}
