// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/signaltometricsconnector"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
)

func TestAllConsume(t *testing.T) {
	for _, s := range All() {
		for _, kind := range []spans.Kind{spans.V0, spans.V1} {
			for _, series := range []int{0, 20} {
				t.Run(s.Name+"/"+kind.String(), func(t *testing.T) {
					r, err := s.Open(Load{Kind: kind, Engines: 2, Series: series})
					require.NoError(t, err)
					template, err := spans.New(kind, 10, series > 0)
					require.NoError(t, err)
					template.Set(spans.Export{FirstID: 1, End: 1_790_000_000_000_000_000, Step: 1e8, Series: 10})
					td, err := template.Traces()
					require.NoError(t, err)
					assert.NoError(t, r.Consume(td))
					assert.NoError(t, r.Close())
				})
			}
		}
	}
}

// The peer must not win by failing silently.
func TestSignalToMetricsDerivesNineHistograms(t *testing.T) {
	for _, kind := range []spans.Kind{spans.V0, spans.V1} {
		for series, perHistogram := range map[int]int{0: 1, 10: 10} {
			factory := signaltometricsconnector.NewFactory()
			cfg := factory.CreateDefaultConfig()
			require.NoError(t, configure(cfg, SignalToMetricsConfig(Load{Kind: kind, Series: series})))
			sink := &consumertest.MetricsSink{}
			c, err := factory.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(factory.Type()), cfg, sink)
			require.NoError(t, err)
			template, err := spans.New(kind, 10, series > 0)
			require.NoError(t, err)
			template.Set(spans.Export{FirstID: 1, End: 1_790_000_000_000_000_000, Step: 1e8, Series: 10})
			td, err := template.Traces()
			require.NoError(t, err)
			require.NoError(t, c.ConsumeTraces(context.Background(), td))

			require.Len(t, sink.AllMetrics(), 1)
			metrics := sink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
			assert.Equal(t, 9, metrics.Len())
			for _, m := range metrics.All() {
				points := m.Histogram().DataPoints()
				assert.Equal(t, perHistogram, points.Len(), m.Name())
				count := uint64(0)
				for _, p := range points.All() {
					count += p.Count()
				}
				assert.EqualValues(t, 10, count, m.Name())
			}
		}
	}
}
