// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

// Which series there are: derived metrics, the collector's own telemetry, recording rules.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// known are the series by name: the metric they are of, and the labels they have.
type known map[string]knownSeries

type knownSeries struct {
	// metric is the name without _bucket, _sum or _count.
	metric string
	labels map[string]bool
}

// Labels that all derived metrics have, and those that the metrics of requests have besides.
var (
	engineLabels  = []string{"job", "instance"}
	requestLabels = []string{"gen_ai_provider_name", "gen_ai_response_model", "gen_ai_operation_name", "error_type"}
)

func (k known) add(metric string, suffixes, labels []string) {
	set := map[string]bool{}
	for _, l := range labels {
		set[l] = true
	}
	for _, suffix := range suffixes {
		k[metric+suffix] = knownSeries{metric, set}
	}
}

// knownMetrics are all metrics of the code, and the recording rules of rules.
func knownMetrics(t *testing.T, rules []*rule) known {
	t.Helper()
	all := known{}
	all.add("up", []string{""}, engineLabels) // Prometheus' own
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	types := map[string]otlptranslator.MetricType{
		"histogram": otlptranslator.MetricTypeHistogram, "counter": otlptranslator.MetricTypeMonotonicCounter, "gauge": otlptranslator.MetricTypeGauge,
	}
	for _, d := range serving.Definitions() {
		name, err := namer.Build(otlptranslator.Metric{Name: d.Name, Unit: d.Unit, Type: types[d.Kind]})
		require.NoError(t, err)
		labels := append([]string{}, engineLabels...)
		for _, a := range d.Attributes {
			labels = append(labels, strings.ReplaceAll(a, ".", "_"))
		}
		if !strings.HasPrefix(d.Name, "llm.serving.engine.") && !strings.HasPrefix(d.Name, "llm.serving.device.") && !strings.HasPrefix(d.Name, "llm.serving.estimate.") {
			labels = append(labels, requestLabels...)
		}
		suffixes := []string{""}
		if d.Kind == "histogram" {
			suffixes = []string{"_bucket", "_sum", "_count"}
			labels = append(labels, "le")
		}
		all.add(name, suffixes, labels)
	}
	for _, document := range ownTelemetry(t) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		found := 0
		for _, section := range strings.Split(string(text), "\n### ")[1:] {
			name := strings.Fields(section)[0]
			labels := []string{"job", "instance", "processor", "connector", "receiver", "exporter", "transport", "data_type"}
			for _, attribute := range regexp.MustCompile(`(?m)^\| ([a-z_.]+) \|`).FindAllStringSubmatch(section, -1) {
				labels = append(labels, strings.ReplaceAll(attribute[1], ".", "_"))
			}
			all.add(name, []string{""}, labels)
			found++
		}
		require.Positive(t, found, "%s has no metrics", document)
	}
	for _, r := range rules {
		if r.Record != "" {
			all.add(r.Record, []string{""}, level(r.Record))
		}
	}
	return all
}

// ownTelemetry are the documents of the collector's own telemetry: of our components and, in the versions that are built in,
// of the Collector's.
func ownTelemetry(t *testing.T) []string {
	t.Helper()
	documents := []string{
		filepath.Join(root, "internal", "emitter", "documentation.md"),
		filepath.Join(root, "receiver", "llmspanreceiver", "documentation.md"),
	}
	for _, module := range []string{"exporter/exporterhelper", "receiver/receiverhelper", "service"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "go.opentelemetry.io/collector/"+module).Output()
		require.NoError(t, err, module)
		documents = append(documents, filepath.Join(strings.TrimSpace(string(out)), "documentation.md"))
	}
	return documents
}

// levelLabels are the labels that the words of a recording rule's level stand for.
var levelLabels = map[string]string{
	"model": "gen_ai_response_model", "type": "gen_ai_token_type",
	"job": "job", "instance": "instance", "state": "state", "basis": "basis", "finding": "finding", "stage": "stage", "component": "component", "slo": "slo", "le": "le",
}

// level are the labels that a recording rule's series have by its name.
func level(record string) []string {
	var labels []string
	words, _, _ := strings.Cut(record, ":")
	for _, word := range strings.Split(words, "_") {
		labels = append(labels, levelLabels[word])
	}
	return labels
}

// labelValues are those of labels whose values the code names.
func labelValues() map[string]map[string]bool {
	states, verdicts := map[string]bool{}, map[string]bool{}
	for s := range timeline.NumStates {
		states[s.String()] = true
	}
	for v := range diagnosis.NumVerdicts {
		verdicts[v.String()] = true
	}
	set := func(values ...string) map[string]bool {
		m := map[string]bool{}
		for _, v := range values {
			m[v] = true
		}
		return m
	}
	return map[string]map[string]bool{
		"state": states, "verdict": verdicts, "stat": set("mean", "max"), "basis": set("fit", "peak"), "slo": set("ttft", "tpot", "e2e", "all"),
		"gen_ai_token_type": set("input", "output"), "stage": set("queue", "prefill", "decode", "frontend"), "component": set("scheduler", "forward", "execute_host", "other"),
		"finding": set("mixed_engines", "sampled", "rounded_timestamps", "speculative_decoding", "async_output", "thinned", "contradiction"),
	}
}
