// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package collectortest

// What goes in, and figures of what comes out.

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/spanlog"
)

// V0 is the recorded request of a vLLM V0, V1 the 12 recorded requests, and 4 other spans, of a vLLM V1.
func V0(t testing.TB) ptrace.Traces { return recording(t, "vllm_v0_detailed.debug.log") }

// V1 is described at V0.
func V1(t testing.TB) ptrace.Traces { return recording(t, "vllm_v1_concurrency8.otlp.json") }

func recording(t testing.TB, name string) ptrace.Traces {
	root, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err = os.Stat(filepath.Join(root, "go.mod")); err == nil || root == filepath.Dir(root) {
			break
		}
		root = filepath.Dir(root)
	}
	require.NoError(t, err)
	r, err := spanlog.Open(filepath.Join(root, "testdata", "spans", name))
	require.NoError(t, err)
	td, err := r.Next()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return td
}

// Engine gives all resources of td this name, and its spans IDs of their own.
func Engine(td ptrace.Traces, service, instance string) ptrace.Traces {
	for _, rs := range td.ResourceSpans().All() {
		rs.Resource().Attributes().PutStr("service.name", service)
		rs.Resource().Attributes().PutStr("service.instance.id", instance)
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				id := span.TraceID()
				for i := range instance {
					id[i%len(id)] ^= instance[i]
				}
				span.SetTraceID(id)
			}
		}
	}
	return td
}

// Requests is a payload of n requests of one engine, whose span IDs count up from first.
func Requests(instance string, first, n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	rs.Resource().Attributes().PutStr("service.instance.id", instance)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	for i := range n {
		span := ss.Spans().AppendEmpty()
		span.SetName("llm_request")
		span.SetTraceID(pcommon.TraceID{15: 1})
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(first+i)+1)
		span.SetSpanID(id)
		span.SetStartTimestamp(1_790_960_617_000_000_000)
		span.SetEndTimestamp(1_790_960_618_000_000_000)
		a := span.Attributes()
		a.PutDouble("gen_ai.latency.e2e", 1)
		a.PutDouble("gen_ai.latency.time_in_queue", 0.25)
		a.PutDouble("gen_ai.latency.time_to_first_token", 0.5)
		a.PutInt("gen_ai.usage.completion_tokens", 5)
	}
	return td
}

// Sum is the sum over all points of a counter in all payloads. Of delta payloads that is what was
// counted.
func Sum(name string, payloads ...pmetric.Metrics) (sum int64) {
	for _, dp := range Points(name, payloads...) {
		sum += dp.IntValue()
	}
	return sum
}

// Points are all points of a counter in all payloads.
func Points(name string, payloads ...pmetric.Metrics) (points []pmetric.NumberDataPoint) {
	for _, md := range payloads {
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() == name && m.Type() == pmetric.MetricTypeSum {
						for _, dp := range m.Sum().DataPoints().All() {
							points = append(points, dp)
						}
					}
				}
			}
		}
	}
	return points
}

// RequestCount is the metric that counts every request once.
const RequestCount = "llm.serving.request.count"
