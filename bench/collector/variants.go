// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The pipelines that are compared.

import "fmt"

type variant struct {
	name     string
	receiver string
	parts    string // of the configuration
}

var variants = []*variant{
	{name: "otlp, nop", receiver: "otlp", parts: `
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [nop]}
`},
	{name: "otlp, serving_metrics, nop", receiver: "otlp", parts: `
processors:
  serving_metrics:
service:
  pipelines:
    traces: {receivers: [otlp], processors: [serving_metrics], exporters: [nop]}
    metrics: {receivers: [otlp], processors: [serving_metrics], exporters: [nop]}
`},
	{name: "otlp, serving_metrics without annotate, nop", receiver: "otlp", parts: `
processors:
  serving_metrics: {annotate: false}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [serving_metrics], exporters: [nop]}
    metrics: {receivers: [otlp], processors: [serving_metrics], exporters: [nop]}
`},
	{name: "metrics only: otlp, connector serving_metrics, nop", receiver: "otlp", parts: `
connectors:
  serving_metrics:
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [serving_metrics]}
    metrics: {receivers: [serving_metrics], exporters: [nop]}
`},
	{name: "llm_span, serving_metrics, nop", receiver: "llm_span", parts: `
processors:
  serving_metrics:
service:
  pipelines:
    traces: {receivers: [llm_span], processors: [serving_metrics], exporters: [nop]}
    metrics: {receivers: [llm_span], processors: [serving_metrics], exporters: [nop]}
`},
}

// config is the whole configuration. The collector's own metrics are off in all of them: their port could be taken.
func (v *variant) config(port int) string {
	return fmt.Sprintf(`
receivers:
  %s:
    protocols:
      grpc: {endpoint: "127.0.0.1:%d"}
exporters:
  nop:
%s  telemetry:
    metrics: {level: none}
    logs: {level: warn}
`, v.receiver, port, v.parts)
}
