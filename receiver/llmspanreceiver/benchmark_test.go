// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// What the receiver adds to the cost of decoding a payload.

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// BenchmarkConsumeTraces takes the time of decoding, which the otlp receiver does, and of what comes
// on top of it, in the same run. Payloads are as large as vLLM's exporter makes them at most.
func BenchmarkConsumeTraces(b *testing.B) {
	const size = 512
	td := payloadOf(0, size, map[string]any{"service.name": "vllm"})
	data := protobuf(b, td)
	ctx := from(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 40123})

	for _, other := range []OtherSpans{OtherSpansKeep, OtherSpansDrop} {
		b.Run(string(other), func(b *testing.B) {
			s, _ := newTestSpans(b, other, consumertest.NewNop())
			var decoding, consuming time.Duration
			for b.Loop() {
				start := time.Now()
				req := ptraceotlp.NewExportRequest()
				require.NoError(b, req.UnmarshalProto(data))
				decoded := time.Now()
				if err := s.ConsumeTraces(ctx, req.Traces()); err != nil {
					b.Fatal(err)
				}
				decoding += decoded.Sub(start)
				consuming += time.Since(decoded)
			}
			spans := float64(b.N) * size
			b.ReportMetric(float64(decoding.Nanoseconds())/spans, "decode-ns/span")
			b.ReportMetric(float64(consuming.Nanoseconds())/spans, "added-ns/span")
		})
	}
}

// Reading spans allocates nothing per span: what is left is the attributes that are added.
func TestAllocations(t *testing.T) {
	s, _ := newTestSpans(t, OtherSpansKeep, consumertest.NewNop())
	ctx := from(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)})
	allocations := func(spans int) float64 {
		td := payloadOf(0, spans, map[string]any{"service.name": "vllm"})
		return testing.AllocsPerRun(100, func() { // from the second run on nothing is to be added
			require.NoError(t, s.ConsumeTraces(ctx, td))
		})
	}
	require.InDelta(t, allocations(3), allocations(3000), 1)
}
