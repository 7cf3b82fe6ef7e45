// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const second = 1_000_000_000

// v0Span has the figures of the recorded vLLM V0 span (testdata/spans/vllm_v0_detailed.debug.log).
func v0Span() ptrace.Span {
	span := ptrace.NewSpan()
	span.SetName("llm_request")
	span.SetTraceID([16]byte{1})
	span.SetSpanID([8]byte{2})
	span.SetStartTimestamp(1722622719590171648)
	span.SetEndTimestamp(1722622723366565895)
	a := span.Attributes()
	a.PutStr("gen_ai.response.model", "/models/meta-llama/Meta-Llama-3-70B")
	a.PutStr("gen_ai.request.id", "fcdae8c235f84b618c24b656f3ad4024")
	a.PutDouble("gen_ai.request.temperature", 0)
	a.PutDouble("gen_ai.request.top_p", 1)
	a.PutInt("gen_ai.request.max_tokens", 256)
	a.PutInt("gen_ai.request.best_of", 1)
	a.PutInt("gen_ai.request.n", 1)
	a.PutInt("gen_ai.usage.num_sequences", 1)
	a.PutInt("gen_ai.usage.prompt_tokens", 2106)
	a.PutInt("gen_ai.usage.completion_tokens", 256)
	a.PutDouble("gen_ai.latency.time_in_queue", 0.012117147445678711)
	a.PutDouble("gen_ai.latency.time_to_first_token", 0.2345738410949707)
	a.PutDouble("gen_ai.latency.e2e", 3.775825023651123)
	a.PutDouble("gen_ai.latency.time_in_scheduler", 0.017550230026245117)
	a.PutDouble("gen_ai.latency.time_in_model_forward", 3.151565277099609)
	a.PutDouble("gen_ai.latency.time_in_model_execute", 3.6468167304992676)
	return span
}

// v1Span is a vLLM V1 span of one second.
func v1Span() ptrace.Span {
	span := ptrace.NewSpan()
	span.SetName("llm_request")
	span.SetStartTimestamp(1000 * second)
	span.SetEndTimestamp(1001 * second)
	a := span.Attributes()
	a.PutDouble("gen_ai.latency.time_to_first_token", 0.2)
	a.PutDouble("gen_ai.latency.e2e", 0.99)
	a.PutDouble("gen_ai.latency.time_in_queue", 0.1)
	a.PutInt("gen_ai.usage.prompt_tokens", 512)
	a.PutInt("gen_ai.usage.completion_tokens", 128)
	a.PutDouble("gen_ai.latency.time_in_model_prefill", 0.08)
	a.PutDouble("gen_ai.latency.time_in_model_decode", 0.7)
	a.PutDouble("gen_ai.latency.time_in_model_inference", 0.78)
	return span
}

func read(t testing.TB, span ptrace.Span) *Request {
	r := &Request{}
	require.True(t, Read(span, &Source{}, r))
	return r
}

func TestReadV0(t *testing.T) {
	r := read(t, v0Span())
	assert.Equal(t, KindVLLM, r.Kind)
	assert.Equal(t, GenerationV0, r.Generation)
	assert.Equal(t, "/models/meta-llama/Meta-Llama-3-70B", r.Model)
	assert.Equal(t, pcommon.TraceID{1}, r.TraceID)
	assert.Equal(t, pcommon.SpanID{2}, r.SpanID)
	assert.Empty(t, r.Rejections())
	assert.False(t, r.Failed)
	for field, want := range map[Field]float64{
		E2E: 3.775825023651123, TimeToFirstToken: 0.2345738410949707, Queue: 0.012117147445678711,
		Scheduler: 0.017550230026245117, Forward: 3.151565277099609, Execute: 3.6468167304992676,
		InputTokens: 2106, OutputTokens: 256, MaxTokens: 256,
	} {
		got, ok := r.Get(field)
		assert.True(t, ok, field)
		assert.Equal(t, want, got, field) //nolint:testifylint // bit for bit
	}
	assert.False(t, r.Has(Prefill) || r.Has(Decode) || r.Has(Inference), "V0 reports none of these")
}

func TestReadV1(t *testing.T) {
	r := read(t, v1Span())
	assert.Equal(t, KindVLLM, r.Kind)
	assert.Equal(t, GenerationV1, r.Generation)
	assert.Empty(t, r.Model, "V1 names no model")
	assert.True(t, r.HasAll(E2E, TimeToFirstToken, Queue, Prefill, Decode, Inference, InputTokens, OutputTokens))
	assert.False(t, r.Has(Scheduler) || r.Has(Forward) || r.Has(Execute), "V1 reports none of these")
}

// The oldest versions report neither scheduler nor forward time (v0.5.1 to v0.5.4).
func TestReadV0First(t *testing.T) {
	span := v0Span()
	for _, part := range []string{"scheduler", "model_forward", "model_execute"} {
		span.Attributes().Remove("gen_ai.latency.time_in_" + part)
	}
	r := read(t, span)
	assert.Equal(t, KindVLLM, r.Kind)
	assert.Equal(t, GenerationV0, r.Generation)
	assert.False(t, r.Has(Scheduler) || r.Has(Forward) || r.Has(Execute))
}

func TestReadFutureNames(t *testing.T) {
	span := v1Span()
	span.SetName("chat facebook/opt-125m")
	a := span.Attributes()
	a.Remove("gen_ai.usage.prompt_tokens")
	a.Remove("gen_ai.usage.completion_tokens")
	a.PutInt("gen_ai.usage.input_tokens", 7)
	a.PutInt("gen_ai.usage.output_tokens", 9)
	a.PutStr("gen_ai.request.model", "facebook/opt-125m")
	a.PutStr("gen_ai.operation.name", "chat")

	r := &Request{}
	src := NewSource(pcommon.NewMap(), "vllm.tracing.otel")
	require.True(t, Read(span, &src, r))
	assert.Equal(t, KindVLLM, r.Kind)
	assert.Equal(t, GenerationV1, r.Generation)
	assert.Equal(t, "facebook/opt-125m", r.Model)
	assert.Equal(t, "chat", r.Operation)
	assert.Equal(t, 7.0, r.Value(InputTokens))  //nolint:testifylint // exact
	assert.Equal(t, 9.0, r.Value(OutputTokens)) //nolint:testifylint // exact
}

func TestNoRequests(t *testing.T) {
	loading := ptrace.NewSpan()
	loading.SetName("Load model")
	loading.Attributes().PutStr("code.function", "load_model")

	client := ptrace.NewSpan()
	client.SetName("chat gpt-4o")
	client.SetKind(ptrace.SpanKindClient)
	client.Attributes().PutInt("gen_ai.usage.input_tokens", 3)
	client.Attributes().PutStr("gen_ai.request.model", "gpt-4o")
	client.Attributes().PutStr("", "no key")

	named := ptrace.NewSpan()
	named.SetName("llm_request")

	for name, span := range map[string]ptrace.Span{"loading": loading, "client side": client, "by name only": named} {
		assert.False(t, Read(span, &Source{}, &Request{}), name)
		assert.False(t, IsRequest(span), name)
	}
	assert.True(t, IsRequest(v0Span()))
}

func TestModelPrecedence(t *testing.T) {
	resource := pcommon.NewMap()
	resource.PutStr("llmisvc.name", "from-resource")
	src := NewSource(resource, "")
	r := &Request{}

	span := v1Span()
	require.True(t, Read(span, &src, r))
	assert.Equal(t, "from-resource", r.Model)
	span.Attributes().PutStr("gen_ai.request.model", "requested")
	require.True(t, Read(span, &src, r))
	assert.Equal(t, "requested", r.Model)
	span.Attributes().PutStr("gen_ai.response.model", "served")
	require.True(t, Read(span, &src, r))
	assert.Equal(t, "served", r.Model)
}

func TestSourceKind(t *testing.T) {
	resource := pcommon.NewMap()
	resource.PutStr("service.name", "x")
	assert.Equal(t, KindUnknown, NewSource(resource, "my.tracer").Kind)
	assert.Equal(t, KindVLLM, NewSource(resource, "vllm.llm_engine").Kind)
	resource.PutStr("vllm.process_id", "4242")
	assert.Equal(t, KindVLLM, NewSource(resource, "my.tracer").Kind)
}

// An engine that shares vLLM's latency names without its marks is not called vLLM.
func TestUnknownKind(t *testing.T) {
	span := ptrace.NewSpan()
	span.SetName("Req 3f2a9b10")
	span.Attributes().PutDouble("gen_ai.latency.e2e", 1)
	span.Attributes().PutDouble("gen_ai.latency.time_in_model_decode", 0.5)
	r := read(t, span)
	assert.Equal(t, KindUnknown, r.Kind)
	assert.Equal(t, GenerationUnknown, r.Generation)
	assert.Equal(t, "unknown", r.Kind.String())
}

func TestFailed(t *testing.T) {
	span := v1Span()
	span.Status().SetCode(ptrace.StatusCodeError)
	r := read(t, span)
	assert.True(t, r.Failed)
	assert.Equal(t, "_OTHER", r.ErrorType)
	span.Attributes().PutStr("error.type", "timeout")
	assert.Equal(t, "timeout", read(t, span).ErrorType)
}

// A Request is read into again and again: nothing of the span before may remain.
func TestReadResets(t *testing.T) {
	r := &Request{}
	first := v0Span()
	first.Attributes().PutStr("error.type", "timeout")
	first.Attributes().PutStr("gen_ai.operation.name", "chat")
	first.Attributes().PutInt("gen_ai.usage.num_sequences", 3)
	first.Attributes().PutDouble("gen_ai.latency.time_in_queue", -1)
	require.True(t, Read(first, &Source{}, r))
	second := ptrace.NewSpan()
	second.SetStartTimestamp(1)
	second.SetEndTimestamp(2)
	second.Attributes().PutDouble("gen_ai.latency.e2e", 0)
	require.True(t, Read(second, &Source{}, r))

	fresh := &Request{}
	require.True(t, Read(second, &Source{}, fresh))
	assert.Equal(t, fresh.present, r.present)
	assert.Empty(t, r.Rejections())
	assert.Equal(t, [...]any{fresh.Kind, fresh.Generation, fresh.Model, fresh.Operation, fresh.ErrorType, fresh.Failed, fresh.Sequences, fresh.canonical},
		[...]any{r.Kind, r.Generation, r.Model, r.Operation, r.ErrorType, r.Failed, r.Sequences, r.canonical})
}

func TestPutCanonical(t *testing.T) {
	span := v0Span()
	before := span.Attributes().AsRaw()
	r := read(t, span)
	r.PutCanonical(span.Attributes())

	after := span.Attributes().AsRaw()
	for key, value := range before {
		assert.Equal(t, value, after[key], key)
		delete(after, key)
	}
	assert.Equal(t, map[string]any{
		"gen_ai.provider.name": "vllm", "gen_ai.usage.input_tokens": int64(2106), "gen_ai.usage.output_tokens": int64(256),
	}, after)

	// A second pass, such as through a second collector, changes nothing.
	length := span.Attributes().Len()
	read(t, span).PutCanonical(span.Attributes())
	assert.Equal(t, length, span.Attributes().Len())
}

// A canonical attribute with a refused value is the engine's to mend, not ours to overwrite.
func TestPutCanonicalKeepsBadValues(t *testing.T) {
	span := v1Span()
	span.Attributes().PutStr("gen_ai.usage.output_tokens", "many")
	span.Attributes().PutStr("gen_ai.provider.name", "mine")
	r := read(t, span)
	r.PutCanonical(span.Attributes())
	v, _ := span.Attributes().Get("gen_ai.usage.output_tokens")
	assert.Equal(t, "many", v.Str())
	v, _ = span.Attributes().Get("gen_ai.provider.name")
	assert.Equal(t, "mine", v.Str())
}

func TestReadAllocatesNothing(t *testing.T) {
	span, src, r, d := v0Span(), Source{}, &Request{}, &Derived{}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		Read(span, &src, r)
		r.Derive(d)
	}))
}

// What a Source has learnt of one span does no harm to the next, be it of another order or length.
func TestReadInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var src Source
	for range 200 {
		span := v0Span()
		if rng.IntN(2) == 0 {
			span = v1Span()
		}
		var names []string
		for name := range span.Attributes().All() {
			names = append(names, name)
		}
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		shuffled := pcommon.NewMap()
		for i := range rng.IntN(2) * 30 {
			shuffled.PutStr(fmt.Sprint("other.", i), "x")
		}
		shuffled.PutStr("", "no key")
		for _, name := range names {
			value, _ := span.Attributes().Get(name)
			value.CopyTo(shuffled.PutEmpty(name))
		}
		want := read(t, span)
		shuffled.CopyTo(span.Attributes())
		var got Request
		require.True(t, Read(span, &src, &got))
		require.Equal(t, *want, got)
	}
}

func TestNegativeZero(t *testing.T) {
	span := v0Span()
	span.Attributes().PutDouble("gen_ai.latency.time_in_queue", math.Copysign(0, -1))
	queue, ok := read(t, span).Get(Queue)
	assert.True(t, ok)
	assert.False(t, math.Signbit(queue), "a zero with a sign is a zero")
}

// Every known attribute is found by its key, and keys like it are not.
func TestAttributeTable(t *testing.T) {
	n := 0
	for _, d := range dialects {
		for _, a := range d.attributes {
			n++
			found := table.find(a.key)
			require.NotNil(t, found, a.key)
			assert.Equal(t, a.key, found.key)
			assert.Nil(t, table.find(a.key+"x"))
			assert.Nil(t, table.find(a.key[:len(a.key)-1]))
		}
	}
	assert.Greater(t, n, 15)
	assert.Nil(t, table.find(""))
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for f := range NumFields {
		assert.NotEmpty(t, f.String())
		assert.False(t, seen[f.String()], f)
		seen[f.String()] = true
	}
	for r := Reason(1); r < NumReasons; r++ {
		assert.NotEmpty(t, r.String())
		assert.False(t, seen[r.String()], r)
		seen[r.String()] = true
	}
	assert.Equal(t, "unknown", NumFields.String())
	assert.Empty(t, NumReasons.String())
	assert.Equal(t, "unknown", NumKinds.String())
	assert.Equal(t, "unknown", NumGenerations.String())
	assert.Equal(t, "v0", GenerationV0.String())
	assert.Equal(t, "tensorrt_llm", KindTensorRTLLM.String())
}

// What comes in over the network never panics, and whatever is read of it is finite and not negative.
func FuzzRead(f *testing.F) {
	for _, span := range []ptrace.Span{v0Span(), v1Span()} {
		td := ptrace.NewTraces()
		span.CopyTo(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
		wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		require.NoError(f, err)
		f.Add(wire)
	}
	if text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "spans", "vllm_v1_concurrency8.otlp.json")); err == nil {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(text)
		require.NoError(f, err)
		wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		require.NoError(f, err)
		f.Add(wire)
	}
	r, d := &Request{}, &Derived{}
	f.Fuzz(func(t *testing.T, wire []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
		if err != nil {
			return
		}
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				src := NewSource(rs.Resource().Attributes(), ss.Scope().Name())
				for _, span := range ss.Spans().All() {
					if got := Read(span, &src, r); got != IsRequest(span) {
						t.Fatalf("Read says %v, IsRequest %v", got, !got)
					} else if got {
						checkInvariants(t, r, d)
						r.PutCanonical(span.Attributes())
					}
				}
			}
		}
	})
}

func checkInvariants(t *testing.T, r *Request, d *Derived) {
	for field := range NumFields {
		if v, ok := r.Get(field); ok && (math.IsNaN(v) || math.IsInf(v, 0) || v < 0) {
			t.Fatalf("%v = %v", field, v)
		}
	}
	r.Derive(d)
	exact := true // no remainder was refused
	for _, rejection := range r.Rejections() {
		exact = exact && rejection.Reason != ReasonNegativeRemainder
	}
	for share := range NumShares {
		if v, ok := d.Shares.Get(share); ok && (math.IsNaN(v) || math.IsInf(v, 0) || v < 0) {
			t.Fatalf("share %d = %v", share, v)
		}
	}
	if s := d.Stages; d.HasStages && exact {
		requireClose(t, r.Value(E2E), s.Queue+s.Prefill+s.Decode+s.Frontend)
	}
	if c := d.Components; d.HasComponents && exact {
		requireClose(t, r.Value(E2E)-r.Value(Queue), c.Scheduler+c.Forward+c.ExecuteHost+c.Other)
	}
}

func requireClose(t *testing.T, want, got float64) {
	if math.Abs(want-got) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Fatalf("%v is not %v", got, want)
	}
}

func BenchmarkRead(b *testing.B) {
	for name, span := range map[string]ptrace.Span{"v0": v0Span(), "v1": v1Span()} {
		b.Run(name, func(b *testing.B) {
			src, r, d := Source{}, &Request{}, &Derived{}
			b.ReportAllocs()
			for b.Loop() {
				Read(span, &src, r)
				r.Derive(d)
			}
		})
	}
}
