// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The spans that are measured: the attributes of recorded ones, with values that differ from span to span so that
// branch prediction has no short cycle to learn.

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// payload is one export of an engine: kind v0 or v1, n spans, the number of the engine.
func payload(kind string, n, engine int) ptrace.Traces {
	random := rand.New(rand.NewPCG(1, uint64(engine)))
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	resource := rs.Resource().Attributes()
	resource.PutStr("service.name", "vllm")
	resource.PutStr("service.instance.id", fmt.Sprintf("engine-%d", engine))
	resource.PutStr("telemetry.sdk.language", "python")
	resource.PutStr("telemetry.sdk.name", "opentelemetry")
	resource.PutStr("telemetry.sdk.version", "1.27.0")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	for i := range n {
		request(ss.Spans().AppendEmpty(), kind, i, random)
	}
	renumber(td, uint64(engine)<<40)
	return td
}

func request(span ptrace.Span, kind string, i int, random *rand.Rand) {
	queue := random.ExpFloat64() * 0.05
	prefill := 0.05 + random.ExpFloat64()*0.1
	tokens := 2 + random.IntN(500)
	decode := float64(tokens) * (0.01 + random.Float64()*0.02)
	e2e := queue + prefill + decode + 0.002

	span.SetName("llm_request")
	span.SetKind(ptrace.SpanKindServer)
	start := uint64(1_790_000_000_000_000_000) + uint64(i)*1e7
	span.SetStartTimestamp(pcommon.Timestamp(start))
	span.SetEndTimestamp(pcommon.Timestamp(start + uint64(e2e*1e9) + 1e6))
	a := span.Attributes()
	if kind == "v0" {
		a.PutStr("gen_ai.response.model", "meta-llama/Meta-Llama-3-70B")
	}
	a.PutStr("gen_ai.request.id", fmt.Sprintf("cmpl-%032x", random.Uint64()))
	a.PutDouble("gen_ai.request.temperature", 0.7)
	a.PutDouble("gen_ai.request.top_p", 1)
	a.PutInt("gen_ai.request.max_tokens", 512)
	a.PutInt("gen_ai.request.n", 1)
	a.PutInt("gen_ai.usage.prompt_tokens", int64(100+random.IntN(4000)))
	a.PutInt("gen_ai.usage.completion_tokens", int64(tokens))
	a.PutDouble("gen_ai.latency.time_in_queue", queue)
	a.PutDouble("gen_ai.latency.time_to_first_token", queue+prefill+0.001)
	a.PutDouble("gen_ai.latency.e2e", e2e)
	if kind == "v0" {
		running := e2e - queue
		a.PutInt("gen_ai.usage.num_sequences", 1)
		a.PutDouble("gen_ai.latency.time_in_scheduler", running*0.01)
		a.PutDouble("gen_ai.latency.time_in_model_forward", running*(0.5+0.4*random.Float64()))
		a.PutDouble("gen_ai.latency.time_in_model_execute", running*0.95)
	} else {
		a.PutDouble("gen_ai.latency.time_in_model_prefill", prefill)
		a.PutDouble("gen_ai.latency.time_in_model_decode", decode)
		a.PutDouble("gen_ai.latency.time_in_model_inference", prefill+decode)
	}
}

// renumber gives every span an ID that was not there before, since resent spans are not counted.
func renumber(td ptrace.Traces, next uint64) uint64 {
	var trace pcommon.TraceID
	var id pcommon.SpanID
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				next++
				// Spread as random IDs are, by an odd multiplier (the golden ratio's).
				binary.LittleEndian.PutUint64(trace[:8], next*0x9e3779b97f4a7c15)
				binary.LittleEndian.PutUint64(trace[8:], next)
				binary.LittleEndian.PutUint64(id[:], next*0x9e3779b97f4a7c15+1)
				span.SetTraceID(trace)
				span.SetSpanID(id)
			}
		}
	}
	return next
}

// walk reads every attribute and does nothing with it: the floor of any consumer of spans.
func walk(td ptrace.Traces) (sum int) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				for key, value := range span.Attributes().All() {
					sum += len(key) + int(value.Type())
				}
			}
		}
	}
	return sum
}
