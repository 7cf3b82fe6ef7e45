// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The collector under test, what is sent to it, and what receives from it.

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// The recordings of testdata/spans, which its README describes.
var (
	recordingV0 = recordingFile("vllm_v0_detailed.debug.log")
	recordingV1 = recordingFile("vllm_v1_concurrency8.otlp.json")
)

func recordingFile(name string) string { return filepath.Join("..", "..", "testdata", "spans", name) }

// shippedConfig is what `make run` starts.
var shippedConfig = filepath.Join("..", "..", "otelcol-config.yaml")

func example(name string) string { return filepath.Join("..", "..", "docs", "examples", name) }

func testConfig(name string) string { return filepath.Join("testdata", name) }

func collectorBinary(t *testing.T) string {
	return built(t, "E2E_BIN", filepath.Join("..", "..", "dist", "otelcol-serving"))
}

func servingctl(t *testing.T) string {
	return built(t, "E2E_SERVINGCTL", filepath.Join("..", "..", ".tools", "bin", "servingctl"))
}

// collector is a running one, with the ports it listens on.
type collector struct {
	*process
	grpc, http, metrics, health, self, summary string
}

// collectorOptions are what tests choose: one key=value each.
type collectorOptions struct {
	env []string
	set []string // as after --set
}

// startCollector runs the binary on config, with local.yaml over it, until it is ready.
func startCollector(t *testing.T, config string, o collectorOptions) *collector {
	t.Helper()
	c := prepareCollector(t)
	args := []string{"--config", config, "--config", testConfig("local.yaml")}
	for _, s := range o.set {
		args = append(args, "--set", s)
	}
	c.process = start(t, slices.Concat(c.env(), o.env), collectorBinary(t), args...)
	c.awaitOK(t, c.healthURL())
	return c
}

func prepareCollector(t *testing.T) *collector {
	return &collector{grpc: program.FreePort(), http: program.FreePort(), metrics: program.FreePort(), health: program.FreePort(), self: program.FreePort(), summary: program.FreePort()}
}

func (c *collector) env() []string {
	return []string{
		"GRPC_PORT=" + c.grpc, "HTTP_PORT=" + c.http, "PROMETHEUS_PORT=" + c.metrics,
		"HEALTH_PORT=" + c.health, "TELEMETRY_PORT=" + c.self, "SUMMARY_PORT=" + c.summary,
	}
}

func (c *collector) healthURL() string { return "http://" + program.Address(c.health) + "/status" }

// replay sends recordings to the collector with servingctl, as fast as possible and with the IDs they have. When
// it returns, the collector has acknowledged them.
func (c *collector) replay(t *testing.T, flagsAndFiles ...string) {
	t.Helper()
	c.replayTo(t, program.Address(c.grpc), flagsAndFiles...)
}

func (c *collector) replayTo(t *testing.T, endpoint string, flagsAndFiles ...string) {
	t.Helper()
	args := append([]string{"replay", "--speed", "0", "--endpoint", endpoint}, flagsAndFiles...)
	out, err := run(t, nil, servingctl(t), args...)
	require.NoError(t, err, out)
}

// scrape is what the prometheus exporter of the collector shows.
func (c *collector) scrape(t *testing.T) families { return scrape(t, c.metrics) }

// scrapeSelf is how the collector says it is itself.
func (c *collector) scrapeSelf(t *testing.T) families { return scrape(t, c.self) }

// families are samples by their Prometheus names.
type families map[string][]sample

type sample struct {
	labels map[string]string
	value  float64 // of a histogram: the sum
	count  uint64  // of a histogram
}

func scrape(t *testing.T, port string) families {
	t.Helper()
	body, err := program.Fetch(t.Context(), "http://"+program.Address(port)+"/metrics")
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(t, err, "%s", body)
	out := families{}
	for name, family := range parsed {
		for _, m := range family.Metric {
			s := sample{labels: map[string]string{}}
			for _, l := range m.Label {
				s.labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.Histogram != nil:
				s.value, s.count = m.Histogram.GetSampleSum(), m.Histogram.GetSampleCount()
			case m.Counter != nil:
				s.value = m.Counter.GetValue()
			case m.Gauge != nil:
				s.value = m.Gauge.GetValue()
			default:
				s.value = m.Untyped.GetValue()
			}
			out[name] = append(out[name], s)
		}
	}
	return out
}

// sum adds up the samples of a family that have the labels, given as key=value.
func (f families) sum(name string, labels ...string) float64 {
	total := 0.0
	for _, s := range f[name] {
		if !slices.ContainsFunc(labels, func(label string) bool {
			key, value, _ := strings.Cut(label, "=")
			return s.labels[key] != value
		}) {
			total += s.value
		}
	}
	return total
}

// longInterval is when the metrics come out by themselves: never while a test runs.
const longInterval = "30m"

// sink receives what the collector sends over OTLP, apart by protocol.
type sink struct {
	grpc, http               string // ports
	grpcMetrics, httpMetrics consumertest.MetricsSink
	grpcTraces, httpTraces   consumertest.TracesSink
}

func startSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{grpc: program.FreePort(), http: program.FreePort()}
	factory := otlpreceiver.NewFactory()
	for protocol, port := range map[string]string{"grpc": s.grpc, "http": s.http} {
		cfg := factory.CreateDefaultConfig()
		require.NoError(t, confmap.NewFromStringMap(map[string]any{
			"protocols": map[string]any{protocol: map[string]any{"endpoint": program.Address(port)}},
		}).Unmarshal(cfg))
		metrics, traces := &s.grpcMetrics, &s.grpcTraces
		if protocol == "http" {
			metrics, traces = &s.httpMetrics, &s.httpTraces
		}
		set := receivertest.NewNopSettings(factory.Type())
		mr, err := factory.CreateMetrics(t.Context(), set, cfg, metrics)
		require.NoError(t, err)
		tr, err := factory.CreateTraces(t.Context(), set, cfg, traces)
		require.NoError(t, err)
		for _, r := range []component.Component{mr, tr} {
			require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
			t.Cleanup(func() { require.NoError(t, r.Shutdown(context.WithoutCancel(t.Context()))) })
		}
	}
	return s
}

// env names the sink to processor.yaml and connector.yaml.
func (s *sink) env(interval, temporality string) []string {
	return []string{
		"SINK_GRPC=" + program.Address(s.grpc), "SINK_HTTP=" + program.Address(s.http),
		"INTERVAL=" + interval, "TEMPORALITY=" + temporality,
	}
}

// last is the newest of the metrics, in which cumulative points stand for all before them.
func last(t *testing.T, s *consumertest.MetricsSink) pmetric.Metrics {
	t.Helper()
	all := s.AllMetrics()
	require.NotEmpty(t, all, "no metrics came out")
	return all[len(all)-1]
}

// total adds up the points of a sum, or the sums of a histogram's points, that have the attributes.
func total(md pmetric.Metrics, name string, attributes map[string]string) float64 {
	result := 0.0
	matches := func(m pcommon.Map) bool {
		for key, want := range attributes {
			if got, ok := m.Get(key); !ok || got.AsString() != want {
				return false
			}
		}
		return true
	}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != name {
					continue
				}
				switch m.Type() {
				case pmetric.MetricTypeSum:
					for _, p := range m.Sum().DataPoints().All() {
						if matches(p.Attributes()) {
							result += p.DoubleValue() + float64(p.IntValue())
						}
					}
				case pmetric.MetricTypeHistogram:
					for _, p := range m.Histogram().DataPoints().All() {
						if matches(p.Attributes()) {
							result += p.Sum()
						}
					}
				}
			}
		}
	}
	return result
}

// resourceOf is the part of the metrics that is about one engine.
func resourceOf(t *testing.T, md pmetric.Metrics, instance string) pmetric.Metrics {
	t.Helper()
	out := pmetric.NewMetrics()
	for _, rm := range md.ResourceMetrics().All() {
		if v, ok := rm.Resource().Attributes().Get("service.instance.id"); ok && v.Str() == instance {
			rm.CopyTo(out.ResourceMetrics().AppendEmpty())
		}
	}
	require.Equal(t, 1, out.ResourceMetrics().Len(), instance)
	return out
}

// spansOf are all spans of the payloads.
func spansOf(payloads ...ptrace.Traces) []ptrace.Span {
	var spans []ptrace.Span
	for _, td := range payloads {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					spans = append(spans, span)
				}
			}
		}
	}
	return spans
}

func isRequest(span ptrace.Span) bool {
	_, ok := span.Attributes().Get("gen_ai.latency.e2e")
	return ok
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
