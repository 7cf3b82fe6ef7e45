// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spans

// The kinds of spans: recorded ones, and ones made with the attributes of recorded ones.

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/spanlog"
)

// Kind is a kind of spans.
type Kind uint8

// The kinds. The values of made spans differ from span to span, so that branch prediction has no short cycle to learn;
// the recorded ones, of which there are 1 and 12 requests, are repeated.
const (
	V0 Kind = iota // vLLM V0 with detailed traces, made
	V1             // vLLM V1, made
	RecordedV0
	RecordedV1
)

// Recordings is the folder of the recorded spans, from the folder of this module.
const Recordings = "../testdata/spans/"

// String names the kind for people.
func (k Kind) String() string {
	return [...]string{"V0 detailed", "V1", "V0 detailed, recorded", "V1, recorded"}[k]
}

// IsV0 tells whether the spans have what only vLLM V0 reports.
func (k Kind) IsV0() bool { return k == V0 || k == RecordedV0 }

func (k Kind) traces(n int) (ptrace.Traces, error) {
	switch k {
	case RecordedV0:
		return recorded(Recordings+"vllm_v0_detailed.debug.log", n)
	case RecordedV1:
		return recorded(Recordings+"vllm_v1_concurrency8.otlp.json", n)
	}
	td, all := empty()
	// The number of spans is a seed, too: exports of one size are alike.
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for range n {
		k.request(all.AppendEmpty(), random)
	}
	return td, nil
}

func empty() (ptrace.Traces, ptrace.SpanSlice) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	resource := rs.Resource().Attributes()
	resource.PutStr("service.name", "vllm")
	resource.PutStr("telemetry.sdk.language", "python")
	resource.PutStr("telemetry.sdk.name", "opentelemetry")
	resource.PutStr("telemetry.sdk.version", "1.27.0")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	return td, ss.Spans()
}

func (k Kind) request(span ptrace.Span, random *rand.Rand) {
	queue := random.ExpFloat64() * 0.05
	prefill := 0.05 + random.ExpFloat64()*0.1
	tokens := 2 + random.IntN(500)
	decode := float64(tokens) * (0.01 + random.Float64()*0.02)
	e2e := queue + prefill + decode + 0.002

	span.SetName("llm_request")
	span.SetKind(ptrace.SpanKindServer)
	span.SetEndTimestamp(1_790_000_000_000_000_000)
	span.SetStartTimestamp(span.EndTimestamp() - pcommon.Timestamp(e2e*1e9) - 1e6)
	a := span.Attributes()
	if k == V0 {
		a.PutStr("gen_ai.response.model", "meta-llama/Meta-Llama-3-70B")
	}
	a.PutStr("gen_ai.request.id", fmt.Sprintf("cmpl-%016x%016x", random.Uint64(), random.Uint64()))
	a.PutDouble("gen_ai.request.temperature", 0.7)
	a.PutDouble("gen_ai.request.top_p", 1)
	a.PutInt("gen_ai.request.max_tokens", 512)
	a.PutInt("gen_ai.request.n", 1)
	a.PutInt("gen_ai.usage.prompt_tokens", int64(100+random.IntN(4000)))
	a.PutInt("gen_ai.usage.completion_tokens", int64(tokens))
	a.PutDouble("gen_ai.latency.time_in_queue", queue)
	a.PutDouble("gen_ai.latency.time_to_first_token", queue+prefill+0.001)
	a.PutDouble("gen_ai.latency.e2e", e2e)
	if k == V0 {
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

// recorded repeats the request spans of a recording until there are n.
func recorded(path string, n int) (ptrace.Traces, error) {
	reader, err := spanlog.Open(path)
	if err != nil {
		return ptrace.Traces{}, err
	}
	defer reader.Close()
	from, err := reader.Next()
	if err != nil {
		return ptrace.Traces{}, err
	}
	var requests []ptrace.Span
	for _, rs := range from.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
			for _, span := range ss.Spans().All() {
				if llmrequest.Read(span, &src, &llmrequest.Request{}) {
					requests = append(requests, span)
				}
			}
		}
	}
	if len(requests) == 0 {
		return ptrace.Traces{}, fmt.Errorf("%s holds no request", path)
	}
	td, all := empty()
	for _, span := range slices.Repeat(requests, n/len(requests)+1)[:n] {
		span.CopyTo(all.AppendEmpty())
	}
	return td, nil
}
