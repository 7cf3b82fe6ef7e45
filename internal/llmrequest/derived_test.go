// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// The recorded V0 span, worked out by hand from its attributes.
func TestDeriveV0(t *testing.T) {
	r, d := read(t, v0Span()), &Derived{}
	r.Derive(d)
	require.Empty(t, r.Rejections())

	running := 3.775825023651123 - 0.012117147445678711
	for share, want := range map[Share]float64{
		QueueShare:       0.012117147445678711 / 3.775825023651123,
		SchedulerShare:   0.017550230026245117 / running,
		ForwardShare:     3.151565277099609 / running,
		ExecuteShare:     3.6468167304992676 / running,
		ExecuteHostShare: (3.6468167304992676 - 3.151565277099609) / running,
		PrefillShare:     (0.2345738410949707 - 0.012117147445678711) / running,
	} {
		got, ok := d.Shares.Get(share)
		assert.True(t, ok, share)
		assert.InEpsilon(t, want, got, 1e-12, share)
	}
	_, ok := d.Shares.Get(FrontendShare)
	assert.False(t, ok, "V0 does not tell the front end apart")

	require.True(t, d.HasStages)
	assert.False(t, d.Stages.HasFrontend)
	assert.InEpsilon(t, 3.775825023651123, d.Stages.Queue+d.Stages.Prefill+d.Stages.Decode, 1e-12)
	require.True(t, d.HasComponents)
	c := d.Components
	assert.InEpsilon(t, running, c.Scheduler+c.Forward+c.ExecuteHost+c.Other, 1e-12)
	assert.InEpsilon(t, 0.09934091567993164, c.Other, 1e-9)

	tpot, ok := r.TimePerOutputToken()
	require.True(t, ok)
	assert.InEpsilon(t, (3.775825023651123-0.2345738410949707)/255, tpot, 1e-12)
}

func TestDeriveV1(t *testing.T) {
	r, d := read(t, v1Span()), &Derived{}
	r.Derive(d)
	require.Empty(t, r.Rejections())
	for share, want := range map[Share]float64{QueueShare: 0.1 / 0.99, PrefillShare: 0.08 / 0.78, FrontendShare: 1 - 0.88/0.99} {
		got, ok := d.Shares.Get(share)
		assert.True(t, ok, share)
		assert.InEpsilon(t, want, got, 1e-12, share)
	}
	for _, share := range []Share{SchedulerShare, ForwardShare, ExecuteShare, ExecuteHostShare} {
		_, ok := d.Shares.Get(share)
		assert.False(t, ok, "V1 has no such share")
	}
	require.True(t, d.HasStages && d.Stages.HasFrontend)
	assert.InEpsilon(t, 0.11, d.Stages.Frontend, 1e-9)
	assert.False(t, d.HasComponents)
}

// Shares over 1 are real: two pipeline stages add up their forward times.
func TestDeriveSharesOverOne(t *testing.T) {
	span := v0Span()
	span.Attributes().PutDouble("gen_ai.latency.time_in_model_forward", 6.3)
	span.Attributes().PutDouble("gen_ai.latency.time_in_model_execute", 7.2)
	r, d := read(t, span), &Derived{}
	r.Derive(d)
	share, _ := d.Shares.Get(ForwardShare)
	assert.InEpsilon(t, 6.3/3.7637078762054443, share, 1e-9)
	require.True(t, d.HasComponents)
	assert.Zero(t, d.Components.Other)
	assert.Equal(t, []Rejection{{NumFields, ReasonNegativeRemainder}}, r.Rejections())
}

// Of a request that ran for next to nothing, a part that is within the clocks' tolerance would be a share of
// thousands, and of one that ran for a denormal number of seconds an infinite one.
func TestDeriveImpossibleShares(t *testing.T) {
	for _, e2e := range []float64{1e-6, 5e-324} {
		span := v0Span()
		span.Attributes().PutDouble("gen_ai.latency.e2e", e2e)
		span.Attributes().PutDouble("gen_ai.latency.time_in_queue", 0)
		for _, name := range []string{"time_to_first_token", "time_in_model_forward", "time_in_model_execute"} {
			span.Attributes().Remove("gen_ai.latency." + name)
		}
		r, d := read(t, span), &Derived{}
		require.True(t, r.Has(Scheduler))
		r.Derive(d)
		_, ok := d.Shares.Get(SchedulerShare)
		assert.False(t, ok)
		assert.Equal(t, []Rejection{{NumFields, ReasonExceedsSpan}}, r.Rejections())
		queue, ok := d.Shares.Get(QueueShare)
		assert.True(t, ok)
		assert.Zero(t, queue)
	}
}

func TestDeriveContradictions(t *testing.T) {
	t.Run("first token before schedule", func(t *testing.T) {
		span := v0Span()
		span.Attributes().PutDouble("gen_ai.latency.time_in_queue", 0.3)
		span.Attributes().Remove("gen_ai.latency.time_in_scheduler")
		r, d := read(t, span), &Derived{}
		r.Derive(d)
		assert.False(t, d.HasStages)
		assert.Equal(t, []Rejection{{NumFields, ReasonOutOfOrder}}, r.Rejections())
	})
	t.Run("phases longer than e2e", func(t *testing.T) {
		span := v1Span()
		span.Attributes().PutDouble("gen_ai.latency.time_in_model_decode", 0.85)
		r, d := read(t, span), &Derived{}
		r.Derive(d)
		require.True(t, d.HasStages)
		assert.Zero(t, d.Stages.Frontend)
		assert.Equal(t, []Rejection{{NumFields, ReasonNegativeRemainder}}, r.Rejections())
	})
	t.Run("inference without its parts", func(t *testing.T) {
		span := v1Span()
		span.Attributes().Remove("gen_ai.latency.time_in_model_prefill")
		r, d := read(t, span), &Derived{}
		r.Derive(d)
		assert.False(t, d.HasStages)
		share, ok := d.Shares.Get(FrontendShare)
		require.True(t, ok)
		assert.InEpsilon(t, 1-0.88/0.99, share, 1e-12)
	})
	t.Run("nothing but queue", func(t *testing.T) {
		span := ptrace.NewSpan()
		span.Attributes().PutDouble("gen_ai.latency.time_in_queue", 0.3)
		r, d := read(t, span), &Derived{}
		r.Derive(d)
		assert.Zero(t, d.Shares.present)
		assert.False(t, d.HasStages || d.HasComponents)
	})
	t.Run("e2e of zero", func(t *testing.T) {
		span := v1Span()
		for _, part := range []string{"e2e", "time_in_queue", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference"} {
			span.Attributes().PutDouble("gen_ai.latency."+part, 0)
		}
		r, d := read(t, span), &Derived{}
		r.Derive(d)
		assert.Zero(t, d.Shares.present, "nothing is divided by zero")
	})
}

func TestTimePerOutputToken(t *testing.T) {
	for tokens, want := range map[int64]bool{0: false, 1: false, 2: true} {
		span := v1Span()
		span.Attributes().PutInt("gen_ai.usage.completion_tokens", tokens)
		_, ok := read(t, span).TimePerOutputToken()
		assert.Equal(t, want, ok, tokens)
	}
	span := v0Span()
	span.Attributes().PutInt("gen_ai.usage.num_sequences", 4)
	_, ok := read(t, span).TimePerOutputToken()
	assert.False(t, ok, "the tokens of four sequences are no steps")
	span.Attributes().PutInt("gen_ai.usage.num_sequences", 0)
	_, ok = read(t, span).TimePerOutputToken()
	assert.True(t, ok, "a senseless number of sequences says nothing")
}

// renameOnWire gives an attribute the name of another of equal length, which only the wire allows.
func renameOnWire(t *testing.T, span ptrace.Span, from, to string) ptrace.Span {
	require.Len(t, to, len(from))
	td := ptrace.NewTraces()
	span.CopyTo(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
	wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	td, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(bytes.ReplaceAll(wire, []byte(from), []byte(to)))
	require.NoError(t, err)
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
}

// repeatAttribute is a span that has the attribute key once for each of values.
func repeatAttribute(t *testing.T, key string, values []float64) ptrace.Span {
	span := ptrace.NewSpan()
	for i, v := range values {
		span.Attributes().PutDouble(fmt.Sprintf("%s%02d", key[:len(key)-2], i), v)
	}
	for i := range values {
		span = renameOnWire(t, span, fmt.Sprintf("%s%02d", key[:len(key)-2], i), key)
	}
	return span
}
