// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// sumOf adds up all points of a counter of integers.
func sumOf(t testing.TB, m metricdata.Metrics) (sum int64) {
	data, ok := m.Data.(metricdata.Sum[int64])
	require.True(t, ok, "%T", m.Data)
	for _, dp := range data.DataPoints {
		sum += dp.Value
	}
	return sum
}

// shareNames are the attributes that annotate adds.
func shareNames() map[string]bool {
	names := map[string]bool{}
	for share := range llmrequest.NumShares {
		names[serving.ShareAttribute(share)] = true
	}
	return names
}
