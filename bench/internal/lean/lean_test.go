// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package lean

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // where spans.Recordings begins
		panic(err)
	}
	os.Exit(m.Run())
}

// What is measured must be the same work: the same requests as from decoded spans, with hardly any allocation.
func TestSameAsDecoding(t *testing.T) {
	for _, kind := range []spans.Kind{spans.V0, spans.V1, spans.RecordedV0, spans.RecordedV1} {
		template, err := spans.New(kind, 40, false)
		require.NoError(t, err)
		template.Set(spans.Export{FirstID: 7, Engine: 3, End: 1_790_000_000_000_000_000, Step: 1e8})
		td, err := template.Traces()
		require.NoError(t, err)
		rs := td.ResourceSpans().At(0)
		src := llmrequest.NewSource(rs.Resource().Attributes(), rs.ScopeSpans().At(0).Scope().Name())
		var want llmrequest.Request
		i := 0
		require.NoError(t, Requests(template.Wire, func(resource *Resource, r *llmrequest.Request) {
			assert.Equal(t, Resource{"vllm", "engine-0000003"}, *resource)
			require.True(t, llmrequest.Read(rs.ScopeSpans().At(0).Spans().At(i), &src, &want))
			assert.Equal(t, [3]any{want.TraceID, want.SpanID, want.Model}, [3]any{r.TraceID, r.SpanID, r.Model})
			assert.Equal(t, [2]any{want.Start, want.End}, [2]any{r.Start, r.End})
			for f := range llmrequest.NumFields {
				assert.Equal(t, want.Has(f), r.Has(f), f)
				assert.Equal(t, want.Value(f), r.Value(f), f)
			}
			i++
		}))
		assert.Equal(t, 40, i)
		assert.LessOrEqual(t, testing.AllocsPerRun(10, func() { _ = Requests(template.Wire, func(*Resource, *llmrequest.Request) {}) }), 3.0, "per export")
	}
}

func TestNotOTLP(t *testing.T) {
	template, err := spans.New(spans.V0, 2, false)
	require.NoError(t, err)
	for n := range template.Wire {
		_ = Requests(template.Wire[:n], func(*Resource, *llmrequest.Request) {}) // no panic
	}
	assert.Error(t, Requests(template.Wire[:len(template.Wire)-1], func(*Resource, *llmrequest.Request) {}))
}
