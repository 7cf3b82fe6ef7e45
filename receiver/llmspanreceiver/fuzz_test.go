// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

import (
	"net"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// FuzzConsumeTraces feeds what a network can send. Whatever decodes goes through: every span once
// and in its order, with all it had; or, if they are to be dropped, every request.
func FuzzConsumeTraces(f *testing.F) {
	f.Add(protobuf(f, recordedTraces(f)), false)
	f.Add(protobuf(f, recordedTraces(f)), true)
	f.Add(protobuf(f, payloadOf(0, 4, map[string]any{"service.name": "vllm"})), true)
	f.Add(protobuf(f, payloadOf(0, 1, map[string]any{"service.instance.id": "\xff"})), false)
	f.Add([]byte{}, true)

	f.Fuzz(func(t *testing.T, data []byte, drop bool) {
		before, in := ptraceotlp.NewExportRequest(), ptraceotlp.NewExportRequest()
		if before.UnmarshalProto(data) != nil {
			return
		}
		if err := in.UnmarshalProto(data); err != nil {
			t.Fatal(err)
		}
		other := OtherSpansKeep
		if drop {
			other = OtherSpansDrop
		}
		sink := new(consumertest.TracesSink)
		s, err := newSpans(componenttest.NewNopTelemetrySettings(), other, sink)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ConsumeTraces(from(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)}), in.Traces()); err != nil {
			t.Fatal(err)
		}

		var want []ptrace.Span
		for _, span := range allSpans(before.Traces()) {
			if !drop || llmrequest.IsRequest(span) {
				want = append(want, span)
			}
		}
		got := allSpans(sink.AllTraces()...)
		if len(got) != len(want) {
			t.Fatalf("%d spans, want %d", len(got), len(want))
		}
		for i := range want {
			n := want[i].Attributes().Len()
			if got[i].Attributes().Len() < n {
				t.Fatalf("span %d lost attributes", i)
			}
			// what is added is added behind, so all else must be equal as it stands
			added := 0
			got[i].Attributes().RemoveIf(func(string, pcommon.Value) bool { added++; return added > n })
			if !equal(t, got[i], want[i]) {
				t.Fatalf("span %d changed", i)
			}
		}
	})
}

func equal(t *testing.T, a, b ptrace.Span) bool {
	encode := func(span ptrace.Span) string {
		td := ptrace.NewTraces()
		span.CopyTo(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
		return string(protobuf(t, td))
	}
	return encode(a) == encode(b)
}
