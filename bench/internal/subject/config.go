// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package subject

// The configurations: defaults, but for what the load needs.

import (
	"fmt"
	"strings"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
)

// servingConfig keeps limits above the load: what is beyond them costs less.
func servingConfig(l Load) string {
	config := fmt.Sprintf("limits: {engines: %d, series: %d}\n", max(1000, 2*l.Engines), max(20_000, 2*l.Engines, 2*l.Series))
	if l.Series > 0 {
		config += fmt.Sprintf("dimensions: [{name: %s}]\n", spans.Dimension)
	}
	return config
}

// spanMetricsConfig is the default: calls and duration. Its memory of resources is made to hold all of the engines.
func spanMetricsConfig(l Load) string {
	config := fmt.Sprintf("resource_metrics_cache_size: %d\n", max(1000, 2*l.Engines))
	if l.Series > 0 {
		config += fmt.Sprintf("dimensions: [{name: %s}]\n", spans.Dimension)
	}
	return config
}

// SignalToMetricsConfig derives nine of the histograms of docs/metrics.md, each as its formula there, with the buckets of
// ours. It has no conditions, which would cost more, and goes on where a span lacks an attribute.
func SignalToMetricsConfig(l Load) string {
	const (
		seconds = "[0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]"
		shares  = "[0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.5, 2]"
	)
	latency := func(name string) string { return fmt.Sprintf(`span.attributes["gen_ai.latency.%s"]`, name) }
	e2e, queue, ttft := latency("e2e"), latency("time_in_queue"), latency("time_to_first_token")
	type histogram struct{ name, unit, value string }
	all := []histogram{
		{"gen_ai.server.request.duration", "s", e2e},
		{"gen_ai.server.time_to_first_token", "s", ttft},
		{"gen_ai.server.time_per_output_token", "s", fmt.Sprintf(`(%s - %s) / (Double(span.attributes["gen_ai.usage.completion_tokens"]) - 1.0)`, e2e, ttft)},
		{"llm.serving.request.time_in_queue", "s", queue},
		{"llm.serving.request.queue.share", "1", queue + " / " + e2e},
	}
	if l.Kind.IsV0() {
		all = append(all,
			histogram{"llm.serving.request.time_in_model_forward", "s", latency("time_in_model_forward")},
			histogram{"llm.serving.request.time_in_model_execute", "s", latency("time_in_model_execute")},
			histogram{"llm.serving.request.scheduler.share", "1", fmt.Sprintf("%s / (%s - %s)", latency("time_in_scheduler"), e2e, queue)},
			histogram{"llm.serving.request.forward.share", "1", fmt.Sprintf("%s / (%s - %s)", latency("time_in_model_forward"), e2e, queue)})
	} else {
		prefill, decode := latency("time_in_model_prefill"), latency("time_in_model_decode")
		all = append(all,
			histogram{"llm.serving.request.time_in_model_prefill", "s", prefill},
			histogram{"llm.serving.request.time_in_model_decode", "s", decode},
			histogram{"llm.serving.request.time_in_model_inference", "s", latency("time_in_model_inference")},
			histogram{"llm.serving.request.prefill.share", "1", fmt.Sprintf("%s / (%s + %s)", prefill, prefill, decode)})
	}
	var b strings.Builder
	b.WriteString("error_mode: silent\nspans:\n")
	for _, h := range all {
		buckets := seconds
		if h.unit == "1" {
			buckets = shares
		}
		fmt.Fprintf(&b, "  - name: %s\n    unit: %q\n    histogram: {buckets: %s, value: '%s'}\n", h.name, h.unit, buckets, h.value)
		b.WriteString("    include_resource_attributes: [{key: service.name}, {key: service.instance.id}]\n")
		var attributes []string
		if l.Kind.IsV0() {
			attributes = append(attributes, "{key: gen_ai.response.model}")
		}
		if l.Series > 0 {
			attributes = append(attributes, "{key: "+spans.Dimension+"}")
		}
		if len(attributes) > 0 {
			fmt.Fprintf(&b, "    attributes: [%s]\n", strings.Join(attributes, ", "))
		}
	}
	return b.String()
}
