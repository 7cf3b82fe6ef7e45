// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$")

// docs/metrics.md has a row for every metric, with its unit and Prometheus name, and no other.
func TestMetricsDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	rows := map[string][]string{}
	for _, match := range tableRow.FindAllStringSubmatch(string(text), -1) {
		row := strings.Split(match[2], "|")
		if len(row) != 4 {
			continue // a table of attribute values
		}
		assert.NotContains(t, rows, match[1], "described twice")
		rows[match[1]] = row
	}

	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	types := map[string]otlptranslator.MetricType{
		"histogram": otlptranslator.MetricTypeHistogram, "counter": otlptranslator.MetricTypeMonotonicCounter, "gauge": otlptranslator.MetricTypeGauge,
	}
	for _, d := range Definitions() {
		row, ok := rows[d.Name]
		if !assert.True(t, ok, "docs/metrics.md has no row for %s", d.Name) {
			continue
		}
		delete(rows, d.Name)
		assert.Equal(t, d.Unit, strings.TrimSpace(row[0]), "unit of %s", d.Name)
		prometheusName, err := namer.Build(otlptranslator.Metric{Name: d.Name, Unit: d.Unit, Type: types[d.Kind]})
		require.NoError(t, err)
		assert.Equal(t, "`"+prometheusName+"`", strings.TrimSpace(row[3]), "Prometheus name of %s", d.Name)
		for _, attribute := range d.Attributes {
			assert.Contains(t, string(text), "`"+attribute+"`", d.Name)
		}
	}
	assert.Empty(t, rows, "metrics that the code does not have")
	for state := range timeline.NumStates {
		assert.Contains(t, string(text), "`"+state.String()+"`")
	}
	for _, f := range findings {
		assert.Contains(t, string(text), "`"+f.name+"`")
	}
}

// docs/engines.md explains every reason for which a value is refused.
func TestEnginesDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "engines.md"))
	require.NoError(t, err)
	for reason := llmrequest.Reason(1); reason < llmrequest.NumReasons; reason++ {
		assert.Contains(t, string(text), "`"+reason.String()+"`")
	}
}
