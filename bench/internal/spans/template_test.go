// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // where Recordings begins
		panic(err)
	}
	os.Exit(m.Run())
}

// What is set in place is what a decoder reads, and nothing else changes.
func TestSet(t *testing.T) {
	for _, kind := range []Kind{V0, V1, RecordedV0, RecordedV1} {
		t.Run(kind.String(), func(t *testing.T) {
			template, err := New(kind, 30, true)
			require.NoError(t, err)
			before, err := template.Clone().Traces()
			require.NoError(t, err)
			template.Set(Export{FirstID: 1000, Engine: 123, End: 2_000_000_000_000_000_000, Step: 1000, FirstSeries: 5, Series: 10})
			td, err := template.Traces()
			require.NoError(t, err)

			rs := td.ResourceSpans().At(0)
			name, _ := rs.Resource().Attributes().Get("service.instance.id")
			assert.Equal(t, "engine-0000123", name.Str())
			ids := map[[24]byte]bool{}
			all := rs.ScopeSpans().At(0).Spans()
			require.Equal(t, 30, all.Len())
			for i, span := range all.All() {
				id := [24]byte{}
				trace, spanID := span.TraceID(), span.SpanID()
				copy(id[:], trace[:])
				copy(id[16:], spanID[:])
				ids[id] = true
				assert.EqualValues(t, 2_000_000_000_000_000_000+uint64(i)*1000, span.EndTimestamp())
				assert.EqualValues(t, template.durations[i], span.EndTimestamp()-span.StartTimestamp())
				series, _ := span.Attributes().Get(Dimension)
				assert.Equal(t, "tenant-000000"+string(rune('0'+(5+i)%10)), series.Str())

				old := before.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(i)
				assert.NotEqual(t, old.SpanID(), span.SpanID())
				series.SetStr("tenant-0000000")
				assert.Equal(t, old.Attributes().AsRaw(), span.Attributes().AsRaw())
				assert.Equal(t, old.Name(), span.Name())
			}
			assert.Len(t, ids, 30)

			// Renumber gives the same.
			renumbered := ptrace.NewTraces()
			td.CopyTo(renumbered)
			template.Set(Export{FirstID: 5000, Engine: 123, End: 2_100_000_000_000_000_000, Step: 7, Series: 1})
			Renumber(renumbered, Export{FirstID: 5000, End: 2_100_000_000_000_000_000, Step: 7})
			want, err := template.Traces()
			require.NoError(t, err)
			assert.Equal(t, times(want), times(renumbered))
		})
	}
}

type idsAndTimes struct {
	trace      pcommon.TraceID
	span       pcommon.SpanID
	start, end pcommon.Timestamp
}

func times(td ptrace.Traces) (all []idsAndTimes) {
	for _, span := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		all = append(all, idsAndTimes{span.TraceID(), span.SpanID(), span.StartTimestamp(), span.EndTimestamp()})
	}
	return all
}
