// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// How the engines get onto the summary page: as storage is found, by the ID of an extension of the host.

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// register makes the extension id show the engines, and returns what ends that. Nil: none is wanted.
func (e *Emitter) register(host component.Host) (unregister func(), err error) {
	if e.summary == nil {
		return func() {}, nil
	}
	extension, ok := host.GetExtensions()[*e.summary]
	if !ok {
		return nil, fmt.Errorf("summary: there is no extension %q: add it to extensions and to service::extensions, or remove summary", e.summary)
	}
	registry, ok := extension.(summary.Registry)
	if !ok {
		return nil, fmt.Errorf("summary: the extension %q shows no summary: name one of type serving_summary", e.summary)
	}
	return registry.Register(&reporter{Aggregator: e.aggregator, id: e.kind + "/" + e.id.String(), interval: e.interval}), nil
}

// reporter is an aggregator with the name of its component.
type reporter struct {
	*serving.Aggregator
	id       string
	interval time.Duration
}

var _ summary.Reporter = (*reporter)(nil)

func (r *reporter) Source() summary.Source {
	s := r.Aggregator.Source()
	s.ID, s.IntervalSeconds = r.id, r.interval.Seconds()
	return s
}

func (r *reporter) Engines(now time.Time) []summary.Engine {
	all := r.Aggregator.Engines(now)
	for i := range all {
		all[i].Source = r.id
	}
	return all
}

func (r *reporter) Engine(key string, now time.Time) (summary.EngineReport, bool) {
	report, ok := r.Aggregator.Engine(key, now)
	report.Engine.Source = r.id
	return report, ok
}
