// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Each rule by name: the fault, what is refused for which reason, and that the rest still counts.
func TestRefuseImplausible(t *testing.T) {
	const latency = "gen_ai.latency."
	put := func(key string, v any) func(ptrace.Span) {
		return func(span ptrace.Span) {
			value := span.Attributes().PutEmpty(key)
			require.NoError(t, value.FromRaw(v))
		}
	}
	for name, test := range map[string]struct {
		span   ptrace.Span
		change func(ptrace.Span)
		want   []Rejection
	}{
		"text for a double":        {v0Span(), put(latency+"e2e", "0.5"), []Rejection{{E2E, ReasonWrongType}}},
		"boolean for a double":     {v0Span(), put(latency+"e2e", true), []Rejection{{E2E, ReasonWrongType}}},
		"list for a count":         {v0Span(), put("gen_ai.usage.prompt_tokens", []any{1}), []Rejection{{InputTokens, ReasonWrongType}}},
		"fraction of a token":      {v0Span(), put("gen_ai.usage.prompt_tokens", 1.5), []Rejection{{InputTokens, ReasonWrongType}}},
		"integer for a double":     {v1Span(), put(latency+"time_in_queue", int64(0)), nil},
		"whole double for a count": {v1Span(), put("gen_ai.usage.prompt_tokens", 512.0), nil},
		"NaN":                      {v0Span(), put(latency+"time_in_queue", math.NaN()), []Rejection{{Queue, ReasonNotFinite}}},
		"infinity":                 {v0Span(), put(latency+"time_in_queue", math.Inf(1)), []Rejection{{Queue, ReasonNotFinite}}},
		"TensorRT-LLM's -1":        {v0Span(), put(latency+"time_in_queue", -1.0), []Rejection{{Queue, ReasonSentinel}}},
		"-1 as an integer":         {v0Span(), put("gen_ai.usage.completion_tokens", int64(-1)), []Rejection{{OutputTokens, ReasonSentinel}}},
		"negative queue":           {v1Span(), put(latency+"time_in_queue", -48.0), []Rejection{{Queue, ReasonNegative}}},
		"token count overflow":     {v1Span(), put("gen_ai.usage.prompt_tokens", int64(math.MaxInt64)), []Rejection{{InputTokens, ReasonTooLarge}}},
		"e2e in ms":                {v1Span(), put(latency+"e2e", 990.0), []Rejection{{E2E, ReasonMilliseconds}}},
		"ttft in ms":               {v1Span(), put(latency+"time_to_first_token", 200.0), []Rejection{{TimeToFirstToken, ReasonMilliseconds}}},
		"forward in ms":            {v0Span(), put(latency+"time_in_model_forward", 3151.5), []Rejection{{Forward, ReasonMilliseconds}}},
		"XPU forward":              {v0Span(), put(latency+"time_in_model_forward", 0.0031515), []Rejection{{Forward, ReasonXPUUnit}}},
		"prefill of host uptime":   {v1Span(), put(latency+"time_in_model_prefill", 8e5), []Rejection{{Prefill, ReasonExceedsSpan}}},
		"inference over e2e":       {v1Span(), put(latency+"time_in_model_inference", 2.0), []Rejection{{Inference, ReasonExceedsSpan}}},
		"forward over residency":   {v0Span(), put(latency+"time_in_model_forward", 5.0), nil}, // pipeline stages add up
		"ttft without output":      {v1Span(), put("gen_ai.usage.completion_tokens", int64(0)), []Rejection{{TimeToFirstToken, ReasonNoOutput}}},
		"ttft of zero":             {v1Span(), put(latency+"time_to_first_token", 0.0), []Rejection{{TimeToFirstToken, ReasonZeroTimeToFirstToken}}},
		"two names, one value":     {v1Span(), put("gen_ai.usage.input_tokens", int64(512)), nil},
		"two names, two values":    {v1Span(), put("gen_ai.usage.input_tokens", int64(5)), []Rejection{{InputTokens, ReasonDuplicateAttribute}}},
		"end before start": {
			v1Span(), func(s ptrace.Span) { s.SetEndTimestamp(s.StartTimestamp() - 1) },
			[]Rejection{{NumFields, ReasonEndBeforeStart}},
		},
		"no start":      {v1Span(), func(s ptrace.Span) { s.SetStartTimestamp(0) }, []Rejection{{NumFields, ReasonNoTimestamp}}},
		"no end":        {v1Span(), func(s ptrace.Span) { s.SetEndTimestamp(0) }, []Rejection{{NumFields, ReasonNoTimestamp}}},
		"start of 1970": {v1Span(), func(s ptrace.Span) { s.SetStartTimestamp(1); s.SetEndTimestamp(1.7e18); put(latency+"e2e", 1.7e9)(s) }, []Rejection{{E2E, ReasonTooLarge}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := read(t, test.span)
			present := before.present
			test.change(test.span)
			r := read(t, test.span)
			assert.Equal(t, test.want, append([]Rejection(nil), r.Rejections()...))
			for _, refused := range test.want {
				if refused.Field < NumFields && refused.Reason != ReasonDuplicateAttribute {
					present &^= 1 << refused.Field
				}
			}
			assert.Equal(t, present, r.present, "one value is refused, the others count")
			if refused := test.want; len(refused) > 0 && refused[0].Reason == ReasonEndBeforeStart {
				assert.Zero(t, r.End)
			}
		})
	}
}

// An aborted request of vLLM V1 that was never scheduled: its times are differences to zero.
func TestRefuseAborted(t *testing.T) {
	span := v1Span()
	a := span.Attributes()
	a.PutDouble("gen_ai.latency.time_in_queue", -812345.6)
	a.PutDouble("gen_ai.latency.time_in_model_prefill", 812345.7)
	a.PutDouble("gen_ai.latency.time_in_model_inference", 812345.7)
	a.PutDouble("gen_ai.latency.time_in_model_decode", 0)
	a.PutInt("gen_ai.usage.completion_tokens", 0)
	r, d := read(t, span), &Derived{}
	r.Derive(d)
	assert.Equal(t, []Rejection{
		{Queue, ReasonNegative}, {Prefill, ReasonExceedsSpan}, {Inference, ReasonExceedsSpan}, {TimeToFirstToken, ReasonNoOutput},
	}, r.Rejections())
	assert.True(t, r.Has(E2E))
	assert.False(t, d.HasStages)
	for share := range NumShares {
		_, ok := d.Shares.Get(share)
		assert.False(t, ok)
	}
}

// Duplicate keys are possible on the wire, though not through an SDK.
func TestDuplicateKey(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   []Rejection
	}{
		"equal":               {[]float64{0.5, 0.5}, nil},
		"different":           {[]float64{0.5, 0.25}, []Rejection{{E2E, ReasonDuplicateAttribute}}},
		"good after bad":      {[]float64{-1, 0.5}, []Rejection{{E2E, ReasonSentinel}, {E2E, ReasonDuplicateAttribute}}},
		"more than are kept":  {make([]float64, 40), nil},
		"more that are wrong": {append([]float64{0.1}, make([]float64, 40)...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			span := ptrace.NewSpan()
			span.SetStartTimestamp(1000 * second)
			span.SetEndTimestamp(1001 * second)
			for i, v := range test.values {
				// Put would replace, so the twin is put under another name of equal length and renamed
				// on the wire.
				span.Attributes().PutDouble([...]string{"gen_ai.latency.e2e", "gen_ai.latency.e3e"}[min(i, 1)], v)
			}
			if len(test.values) > 2 {
				span = repeatAttribute(t, "gen_ai.latency.e2e", test.values)
			} else {
				span = renameOnWire(t, span, "gen_ai.latency.e3e", "gen_ai.latency.e2e")
			}
			r := read(t, span)
			if test.want != nil || len(test.values) == 2 {
				assert.Equal(t, test.want, append([]Rejection(nil), r.Rejections()...))
			}
			assert.LessOrEqual(t, len(r.Rejections()), maxRejections)
		})
	}
}
