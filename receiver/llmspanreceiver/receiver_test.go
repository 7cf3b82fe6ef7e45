// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadatatest"
)

func requestsCounted(kind, generation string, n int64) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{Value: n, Attributes: attribute.NewSet(
		attribute.String("engine.kind", kind), attribute.String("engine.generation", generation))}
}

func othersCounted(outcome string, n int64) []metricdata.DataPoint[int64] {
	return []metricdata.DataPoint[int64]{{Value: n, Attributes: attribute.NewSet(attribute.String("outcome", outcome))}}
}

var ignoring = []metricdatatest.Option{metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars()}

func TestCapabilities(t *testing.T) {
	s, _ := newTestSpans(t, OtherSpansKeep, consumertest.NewNop())
	assert.True(t, s.Capabilities().MutatesData)
}

// A processor behind may annotate what it gets without a copy.
func TestPayloadPassedOnIsWritable(t *testing.T) {
	sink := new(consumertest.TracesSink)
	s, _ := newTestSpans(t, OtherSpansKeep, sink)
	require.NoError(t, s.ConsumeTraces(t.Context(), payloadOf(0, 3, nil)))
	assert.False(t, sink.AllTraces()[0].IsReadOnly())
}

func TestNothingLostReorderedOrRemoved(t *testing.T) {
	sink := new(consumertest.TracesSink)
	s, tel := newTestSpans(t, OtherSpansKeep, sink)
	in := payloadOf(0, 100, map[string]any{"service.instance.id": "a"})
	payloadOf(100, 50, nil).ResourceSpans().MoveAndAppendTo(in.ResourceSpans())
	in.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty() // empty ones stay as well
	before := ptrace.NewTraces()
	in.CopyTo(before)

	require.NoError(t, s.ConsumeTraces(t.Context(), in))

	require.Len(t, sink.AllTraces(), 1)
	after := sink.AllTraces()[0]
	assert.Equal(t, spanIDs(before), spanIDs(after))
	require.Equal(t, 3, after.ResourceSpans().Len())
	assert.Equal(t, 1, after.ResourceSpans().At(2).ScopeSpans().Len())
	got := allSpans(after)
	for i, span := range allSpans(before) {
		assert.Subset(t, got[i].Attributes().AsRaw(), span.Attributes().AsRaw())
		if span.Name() == "llm_request" {
			assert.Equal(t, "vllm", got[i].Attributes().AsRaw()["gen_ai.provider.name"])
			assert.Equal(t, int64(512), got[i].Attributes().AsRaw()["gen_ai.usage.input_tokens"])
			assert.Equal(t, int64(128), got[i].Attributes().AsRaw()["gen_ai.usage.output_tokens"])
		} else {
			assert.Equal(t, span.Attributes().AsRaw(), got[i].Attributes().AsRaw())
		}
	}
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, tel, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 101)}, ignoring...)
	metadatatest.AssertEqualReceiverLlmSpanOtherSpans(t, tel, othersCounted("kept", 49), ignoring...)
}

func TestDropOtherSpans(t *testing.T) {
	sink := new(consumertest.TracesSink)
	s, tel := newTestSpans(t, OtherSpansDrop, sink)
	in := ptrace.NewTraces()
	loading := in.ResourceSpans().AppendEmpty()
	loading.ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("Load weights")
	rs := in.ResourceSpans().AppendEmpty()
	rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("GET /v1/chat/completions")
	for i := range 4 {
		span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetSpanID(spanID(i))
		putRequest(span)
	}

	require.NoError(t, s.ConsumeTraces(t.Context(), in))

	require.Len(t, sink.AllTraces(), 1)
	out := sink.AllTraces()[0]
	assert.Equal(t, []pcommon.SpanID{spanID(0), spanID(1), spanID(2), spanID(3)}, spanIDs(out))
	assert.Equal(t, 1, out.ResourceSpans().Len(), "empty resources are gone")
	assert.Equal(t, 4, out.ResourceSpans().At(0).ScopeSpans().Len(), "empty scopes are gone")
	metadatatest.AssertEqualReceiverLlmSpanOtherSpans(t, tel, othersCounted("dropped", 2), ignoring...)
}

func TestNothingLeftIsNotSentOn(t *testing.T) {
	s, tel := newTestSpans(t, OtherSpansDrop, consumertest.NewErr(errors.New("must not be called")))
	in := ptrace.NewTraces()
	in.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("Load weights")

	require.NoError(t, s.ConsumeTraces(t.Context(), in))
	require.NoError(t, s.ConsumeTraces(t.Context(), ptrace.NewTraces()))
	metadatatest.AssertEqualReceiverLlmSpanOtherSpans(t, tel, othersCounted("dropped", 1), ignoring...)
}

// The client sends a refused payload again: it counts when it gets through.
func TestRefusedPayloadIsNotCounted(t *testing.T) {
	refuse := errors.New("queue full")
	next, err := consumer.NewTraces(func(context.Context, ptrace.Traces) error { return refuse })
	require.NoError(t, err)
	s, tel := newTestSpans(t, OtherSpansKeep, next)

	require.ErrorIs(t, s.ConsumeTraces(t.Context(), payloadOf(0, 3, nil)), refuse)
	_, err = tel.GetMetric("otelcol_receiver_llm_span_requests")
	require.Error(t, err, "nothing was accepted, so there is no count")

	refuse = nil
	require.NoError(t, s.ConsumeTraces(t.Context(), payloadOf(0, 3, nil)))
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, tel, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 2)}, ignoring...)
}

func TestCountsByKindAndGeneration(t *testing.T) {
	s, tel := newTestSpans(t, OtherSpansKeep, consumertest.NewNop())
	td := payloadOf(0, 2, nil)
	v0 := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty()
	v0.Attributes().PutDouble("gen_ai.latency.e2e", 1)
	v0.Attributes().PutDouble("gen_ai.latency.time_in_model_forward", 0.5)
	unknown := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	unknown.Attributes().PutDouble("gen_ai.latency.e2e", 1)

	require.NoError(t, s.ConsumeTraces(t.Context(), td))
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, tel, []metricdata.DataPoint[int64]{
		requestsCounted("vllm", "v1", 2), requestsCounted("vllm", "v0", 1), requestsCounted("unknown", "unknown", 1),
	}, ignoring...)
}

func TestPeerAddressNamesTheEngine(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 40123} }
	for name, test := range map[string]struct {
		resource map[string]any
		addr     net.Addr
		peer     string // "" for no attribute
		engine   string
	}{
		"service.name only":      {map[string]any{"service.name": "vllm"}, tcp("10.0.0.7"), "10.0.0.7", "vllm/10.0.0.7"},
		"over HTTP":              {map[string]any{"service.name": "vllm"}, &net.IPAddr{IP: net.ParseIP("10.0.0.7")}, "10.0.0.7", "vllm/10.0.0.7"},
		"mapped IPv4":            {map[string]any{"service.name": "vllm"}, tcp("::ffff:10.0.0.7"), "10.0.0.7", "vllm/10.0.0.7"},
		"IPv6":                   {map[string]any{"service.name": "vllm"}, tcp("fd00::7"), "fd00::7", "vllm/fd00::7"},
		"IPv6 with zone":         {map[string]any{"service.name": "vllm"}, &net.TCPAddr{IP: net.ParseIP("fe80::7"), Zone: "eth0"}, "fe80::7%eth0", "vllm/fe80::7%eth0"},
		"another transport":      {map[string]any{"service.name": "vllm"}, &net.UDPAddr{IP: net.ParseIP("10.0.0.7"), Port: 9}, "10.0.0.7", "vllm/10.0.0.7"},
		"no resource":            {nil, tcp("10.0.0.7"), "10.0.0.7", "unknown"},
		"named":                  {map[string]any{"service.name": "vllm", "service.instance.id": "a"}, tcp("10.0.0.7"), "", "a"},
		"host and service":       {map[string]any{"service.name": "vllm", "host.name": "gpu1"}, tcp("10.0.0.7"), "", "gpu1/vllm"},
		"address from elsewhere": {map[string]any{"service.name": "vllm", "network.peer.address": "10.9.9.9"}, tcp("10.0.0.7"), "10.9.9.9", "vllm/10.9.9.9"},
		"address but no service": {map[string]any{"network.peer.address": "10.9.9.9"}, tcp("10.0.0.7"), "10.9.9.9", "unknown"},
		"Unix socket":            {map[string]any{"service.name": "vllm"}, &net.UnixAddr{Name: "@", Net: "unix"}, "", "vllm"},
		"no address":             {map[string]any{"service.name": "vllm"}, nil, "", "vllm"},
		"broken address":         {map[string]any{"service.name": "vllm"}, &net.TCPAddr{IP: net.IP{1, 2}}, "", "vllm"},
	} {
		t.Run(name, func(t *testing.T) {
			var got client.Info
			sink := new(consumertest.TracesSink)
			next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
				got = client.FromContext(ctx)
				return sink.ConsumeTraces(ctx, td)
			})
			require.NoError(t, err)
			s, _ := newTestSpans(t, OtherSpansKeep, next)

			require.NoError(t, s.ConsumeTraces(from(test.addr), payloadOf(0, 1, test.resource)))

			want := map[string]any{}
			for k, v := range test.resource {
				want[k] = v
			}
			if test.peer != "" {
				want["network.peer.address"] = test.peer
			}
			assert.Equal(t, want, sink.AllTraces()[0].ResourceSpans().At(0).Resource().Attributes().AsRaw())
			assert.Equal(t, []string{test.engine}, got.Metadata.Get(EngineMetadataKey))
			assert.Equal(t, test.addr, got.Addr)
		})
	}
}

// A resource without requests is no engine, be it the same process's.
func TestResourceWithoutRequestsIsLeftAlone(t *testing.T) {
	var got context.Context
	sink := new(consumertest.TracesSink)
	next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		got = ctx
		return sink.ConsumeTraces(ctx, td)
	})
	require.NoError(t, err)
	s, _ := newTestSpans(t, OtherSpansKeep, next)
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "web")
	rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	ctx := from(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)})

	require.NoError(t, s.ConsumeTraces(ctx, td))
	assert.Equal(t, map[string]any{"service.name": "web"}, sink.AllTraces()[0].ResourceSpans().At(0).Resource().Attributes().AsRaw())
	assert.Equal(t, ctx, got)
}

type auth struct{}

func (auth) GetAttribute(string) any     { return "subject" }
func (auth) GetAttributeNames() []string { return []string{"subject"} }

func TestEngineMetadata(t *testing.T) {
	var got client.Info
	next, err := consumer.NewTraces(func(ctx context.Context, _ ptrace.Traces) error {
		got = client.FromContext(ctx)
		return nil
	})
	require.NoError(t, err)
	s, _ := newTestSpans(t, OtherSpansKeep, next)

	td := ptrace.NewTraces()
	for _, engine := range []string{"b", "b", "a", "b", "c", "a"} {
		payloadOf(0, 2, map[string]any{"service.instance.id": engine}).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	}
	given := client.NewMetadata(map[string][]string{
		"X-Tenant":        {"t1", "t2"},
		"Host":            {"collector:4318"},
		EngineMetadataKey: {"what a client says"},
	})
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)}
	ctx := client.NewContext(t.Context(), client.Info{Addr: addr, Auth: auth{}, Metadata: given})

	require.NoError(t, s.ConsumeTraces(ctx, td))

	assert.Equal(t, []string{"b", "a", "c"}, got.Metadata.Get(EngineMetadataKey))
	assert.Equal(t, []string{"t1", "t2"}, got.Metadata.Get("x-tenant"))
	assert.Equal(t, []string{"collector:4318"}, got.Metadata.Get(client.MetadataHostName))
	assert.Equal(t, addr, got.Addr)
	assert.Equal(t, auth{}, got.Auth)
	assert.Equal(t, []string{"what a client says"}, given.Get(EngineMetadataKey), "the caller's metadata is not changed")

	// The name is the payload's, and outlives it.
	payload := payloadOf(0, 1, map[string]any{"service.instance.id": strings.Repeat("é", 200)})
	require.NoError(t, s.ConsumeTraces(t.Context(), payload))
	assert.Equal(t, []string{strings.Repeat("é", 128)}, got.Metadata.Get(EngineMetadataKey))
	require.NoError(t, s.ConsumeTraces(t.Context(), payloadOf(0, 1, map[string]any{"service.instance.id": "a" + strings.Repeat("é", 200)})))
	assert.Equal(t, []string{"a" + strings.Repeat("é", 127)}, got.Metadata.Get(EngineMetadataKey), "cut between letters")
}

// One payload of very many engines, as a gateway may send, is not quadratic.
func TestManyEnginesInOnePayload(t *testing.T) {
	const engines = 20_000
	var got []string
	next, err := consumer.NewTraces(func(ctx context.Context, _ ptrace.Traces) error {
		got = client.FromContext(ctx).Metadata.Get(EngineMetadataKey)
		return nil
	})
	require.NoError(t, err)
	s, tel := newTestSpans(t, OtherSpansKeep, next)
	td := ptrace.NewTraces()
	for range 2 {
		for i := range engines {
			payloadOf(i, 1, map[string]any{"service.instance.id": fmt.Sprint(i)}).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
		}
	}
	require.NoError(t, s.ConsumeTraces(t.Context(), td))
	assert.Len(t, got, engines)
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, tel, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 2*engines)}, ignoring...)
}

// Spans whose figures are nonsense, whose IDs are zero or whose text is no UTF-8 go through with the rest.
func TestBadSpansDoNotFailThePayload(t *testing.T) {
	sink := new(consumertest.TracesSink)
	s, tel := newTestSpans(t, OtherSpansDrop, sink)
	td := payloadOf(0, 2, map[string]any{"service.instance.id": "bad \xff\xfe"})
	ss := td.ResourceSpans().At(0).ScopeSpans().At(0)
	putRequest(ss.Spans().AppendEmpty()) // trace and span ID zero
	text := ss.Spans().AppendEmpty()
	text.SetName("\xff\xfe")
	text.Attributes().PutStr("gen_ai.latency.e2e", "0.5")
	text.Attributes().PutStr("gen_ai.response.model", "\xc3\x28")
	backwards := ss.Spans().AppendEmpty()
	putRequest(backwards)
	backwards.SetEndTimestamp(1)
	list := ss.Spans().AppendEmpty()
	list.Attributes().PutEmptySlice("gen_ai.latency.e2e").AppendEmpty()
	list.Attributes().PutEmpty("gen_ai.usage.prompt_tokens")

	data := protobuf(t, td)
	req := ptraceotlp.NewExportRequest()
	require.NoError(t, req.UnmarshalProto(data))
	require.NoError(t, s.ConsumeTraces(t.Context(), req.Traces()))

	require.Len(t, sink.AllTraces(), 1)
	assert.Equal(t, spanIDs(td), spanIDs(sink.AllTraces()...))
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, tel, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 4), requestsCounted("vllm", "unknown", 2)}, ignoring...)
	for i, span := range allSpans(td) {
		assert.Subset(t, allSpans(sink.AllTraces()...)[i].Attributes().AsRaw(), span.Attributes().AsRaw())
	}
}
