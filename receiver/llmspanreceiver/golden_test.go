// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// Whole payloads against files: what comes out of what goes in, attribute by attribute, and what
// was counted of it.

import (
	"flag"
	"net"
	"path/filepath"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadatatest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestGolden(t *testing.T) {
	input := func(name string) func(testing.TB) ptrace.Traces {
		return func(t testing.TB) ptrace.Traces {
			td, err := golden.ReadTraces(filepath.Join("testdata", "golden", name))
			require.NoError(t, err)
			return td
		}
	}
	recorded := []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 12)}
	mixed := []metricdata.DataPoint[int64]{requestsCounted("vllm", "v0", 1), requestsCounted("vllm", "v1", 1), requestsCounted("unknown", "unknown", 1)}
	for want, test := range map[string]struct {
		in       func(testing.TB) ptrace.Traces
		other    OtherSpans
		requests []metricdata.DataPoint[int64]
		others   []metricdata.DataPoint[int64]
	}{
		"vllm_v1_keep.yaml": {recordedTraces, OtherSpansKeep, recorded, othersCounted("kept", 4)},
		"vllm_v1_drop.yaml": {recordedTraces, OtherSpansDrop, recorded, othersCounted("dropped", 4)},
		"mixed_keep.yaml":   {input("mixed_in.yaml"), OtherSpansKeep, mixed, othersCounted("kept", 3)},
		"mixed_drop.yaml":   {input("mixed_in.yaml"), OtherSpansDrop, mixed, othersCounted("dropped", 3)},
	} {
		t.Run(want, func(t *testing.T) {
			sink := new(consumertest.TracesSink)
			s, tel := newTestSpans(t, test.other, sink)
			in := test.in(t)
			require.NoError(t, s.ConsumeTraces(from(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40123}), in))
			require.Len(t, sink.AllTraces(), 1)
			got := sink.AllTraces()[0]

			file := filepath.Join("testdata", "golden", want)
			if *update {
				require.NoError(t, golden.WriteTracesToFile(file, got))
			}
			expected, err := golden.ReadTraces(file)
			require.NoError(t, err)
			require.NoError(t, ptracetest.CompareTraces(expected, got)) // order included
			assert.Equal(t, spanIDs(expected), spanIDs(got))
			metadatatest.AssertEqualReceiverLlmSpanRequests(t, tel, test.requests, ignoring...)
			metadatatest.AssertEqualReceiverLlmSpanOtherSpans(t, tel, test.others, ignoring...)
		})
	}
}
