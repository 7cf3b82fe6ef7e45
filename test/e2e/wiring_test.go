// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The ways to wire it up: by processor, by connector, with other receivers, and wrongly.

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

func TestConnectorEqualsProcessor(t *testing.T) {
	t.Parallel()
	for _, temporality := range []string{"cumulative", "delta"} {
		t.Run(temporality, func(t *testing.T) {
			results := map[string]pmetric.Metrics{}
			for _, wiring := range []string{"processor.yaml", "connector.yaml"} {
				s := startSink(t)
				c := startCollector(t, testConfig(wiring), collectorOptions{env: s.env(longInterval, temporality)})
				c.replay(t, recordingV0, recordingV1)
				c.terminate(t)
				results[wiring] = last(t, &s.grpcMetrics)
				assert.Equal(t, 13.0, total(results[wiring], "llm.serving.request.count", nil), wiring)
				assert.Equal(t, temporality, temporalities(t, results[wiring]), wiring)
			}
			assert.NoError(t, pmetrictest.CompareMetrics(results["processor.yaml"], results["connector.yaml"],
				pmetrictest.IgnoreTimestamp(), pmetrictest.IgnoreStartTimestamp(),
				pmetrictest.IgnoreResourceMetricsOrder(), pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))
			t.Logf("%d metrics with %d points are the same", results["processor.yaml"].MetricCount(), results["processor.yaml"].DataPointCount())
		})
	}
}

// temporalities is that of all sums and histograms.
func temporalities(t *testing.T, md pmetric.Metrics) string {
	found := map[string]bool{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				switch m.Type() {
				case pmetric.MetricTypeSum:
					found[m.Sum().AggregationTemporality().String()] = true
				case pmetric.MetricTypeHistogram:
					found[m.Histogram().AggregationTemporality().String()] = true
				}
			}
		}
	}
	require.Len(t, found, 1)
	for name := range found {
		return strings.ToLower(name)
	}
	return ""
}

// TestOtherReceivers has the spans come in by the otlp receiver, as the example for that says.
func TestOtherReceivers(t *testing.T) {
	t.Parallel()
	traces := startSink(t)
	port := program.FreePort()
	c := startCollector(t, example("connector.yaml"), collectorOptions{
		env: []string{"TRACES_ENDPOINT=" + program.Address(traces.grpc)},
		set: []string{
			"receivers.otlp.protocols.grpc.endpoint=" + program.Address(port),
			"connectors.serving_metrics.interval=200ms",
		},
	})
	c.replayTo(t, program.Address(port), recordingV0, recordingV1)
	var got families
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		got = c.scrape(t)
		assert.Equal(ct, 13.0, got.sum("llm_serving_request_count_total"))
	}, patience, poll)
	assert.InEpsilon(t, v0E2E+addUpV1(t).e2e, got.sum("llm_serving_request_stage_time_seconds_total"), 1e-9)
	assert.InEpsilon(t, v0Running, got.sum("llm_serving_request_component_time_seconds_total"), 1e-9)
	assert.Equal(t, 12.0, got.sum("llm_serving_request_count_total", "job=vllm", "instance=vllm"))
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		assert.Len(ct, spansOf(traces.grpcTraces.AllTraces()...), 17)
	}, patience, poll)
	for _, span := range spansOf(traces.grpcTraces.AllTraces()...) {
		for key := range span.Attributes().All() {
			assert.False(t, strings.HasPrefix(key, "llm.serving."), "a connector changed a span: %s", key)
		}
	}
}

// TestWrongWiring: derived metrics that would go nowhere are no silent loss.
func TestWrongWiring(t *testing.T) {
	t.Parallel()
	t.Run("traces side alone", func(t *testing.T) {
		c := prepareCollector(t)
		out, err := run(t, c.env(), collectorBinary(t), "--config", testConfig("traces_only.yaml"), "--config", testConfig("local.yaml"))
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, out)
		assert.Equal(t, 1, exit.ExitCode())
		assert.Contains(t, out, "the derived metrics have nowhere to go: add this processor, under the same ID, to the processors of a metrics pipeline")
		assert.Contains(t, out, "annotate_only: true")
	})
	t.Run("traces side alone, annotating only", func(t *testing.T) {
		c := startCollector(t, testConfig("traces_only.yaml"), collectorOptions{set: []string{"processors.serving_metrics.annotate_only=true"}})
		c.replay(t, recordingV1)
		c.terminate(t)
	})
	t.Run("metrics side alone", func(t *testing.T) {
		c := startCollector(t, testConfig("metrics_only.yaml"), collectorOptions{})
		assert.Contains(t, c.Output(), "no traces pipeline has this processor, so there are no spans to derive metrics from")
		body, err := program.Fetch(t.Context(), c.healthURL())
		require.NoError(t, err)
		assert.Contains(t, string(body), "no traces pipeline has this processor")
		c.terminate(t)
	})
	t.Run("a key that does not exist", func(t *testing.T) {
		c := prepareCollector(t)
		out, err := run(t, c.env(), collectorBinary(t), "validate", "--config", shippedConfig, "--set", "processors.serving_metrics.intervall=1s")
		require.Error(t, err)
		assert.Contains(t, out, "intervall")
	})
}

// TestComponents: the binary has what testdata/components.txt lists, no less and no more.
func TestComponents(t *testing.T) {
	t.Parallel()
	out, err := run(t, nil, collectorBinary(t), "components")
	require.NoError(t, err, out)
	var parsed yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(out), &parsed))
	var lines []string
	root := parsed.Content[0]
	for i := 0; i < len(root.Content); i += 2 {
		var entries []struct{ Name string }
		if root.Content[i+1].Decode(&entries) != nil {
			continue // what is built into all collectors
		}
		for _, e := range entries {
			if e.Name != "" {
				lines = append(lines, root.Content[i].Value+": "+e.Name)
			}
		}
	}
	want := strings.Split(strings.TrimSpace(string(readFile(t, filepath.Join("testdata", "components.txt")))), "\n")
	assert.Equal(t, want, lines)
}
