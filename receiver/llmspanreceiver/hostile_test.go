// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// A client that means no good, at a started receiver: whatever it sends is passed on whole or refused with an error of
// the client's, and the next client is served.

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// nest puts a list in a list in a list.
func nest(v pcommon.Value, depth int) {
	for range depth {
		v = v.SetEmptySlice().AppendEmpty()
	}
	v.SetStr("deep")
}

func TestHostilePayloads(t *testing.T) {
	megabyte := strings.Repeat("x", 1<<20)
	for name, change := range map[string]func(resource pcommon.Map, span ptrace.Span){
		"ten thousand attributes": func(resource pcommon.Map, span ptrace.Span) {
			raw := span.Attributes().AsRaw()
			for i := range 10_000 {
				raw[fmt.Sprintf("attribute.%d", i)] = i
			}
			require.NoError(t, errors.Join(resource.FromRaw(raw), span.Attributes().FromRaw(raw)))
		},
		"a megabyte of text": func(resource pcommon.Map, span ptrace.Span) {
			resource.PutStr("service.instance.id", megabyte)
			span.Attributes().PutStr("gen_ai.prompt", megabyte)
			span.SetName(megabyte)
		},
		"invalid UTF-8": func(resource pcommon.Map, span ptrace.Span) {
			resource.PutStr("service.name", "a\xff")
			span.Attributes().PutStr("gen_ai.response.model", "\xc3\x28")
		},
		"lists where names belong": func(resource pcommon.Map, span ptrace.Span) {
			nest(resource.PutEmpty("service.instance.id"), 20)
			nest(span.Attributes().PutEmpty("gen_ai.latency.e2e"), 20)
		},
		"absurd times": func(_ pcommon.Map, span ptrace.Span) {
			span.SetStartTimestamp(1<<64 - 1)
			span.SetEndTimestamp(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sink := new(consumertest.TracesSink)
			s := start(t, anyPortConfig(), componenttest.NewNopHost(), sink, nil)
			td := payloadOf(0, 1, nil)
			change(td.ResourceSpans().At(0).Resource().Attributes(), td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0))
			before := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().AsRaw()

			require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), td))
			code, answer, err := post(httpClient(t, nil), "http://"+s.http+"/v1/traces", protobuf(t, td), "Content-Type", "application/x-protobuf")
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, code, answer)
			require.Equal(t, 2, sink.SpanCount())
			for _, span := range allSpans(sink.AllTraces()...) {
				assert.Subset(t, span.Attributes().AsRaw(), before)
			}
		})
	}
}

// TestHostileEncodings: what is small on the wire and large in memory is refused before it is.
func TestHostileEncodings(t *testing.T) {
	sink := new(consumertest.TracesSink)
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), sink, nil)
	c, url := httpClient(t, nil), "http://"+s.http+"/v1/traces"

	zipped := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	nestedJSON := func(depth int) string {
		return `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x","attributes":[{"key":"k","value":` +
			strings.Repeat(`{"arrayValue":{"values":[`, depth) + `{"stringValue":"x"}` + strings.Repeat(`]}}`, depth) + `}]}]}]}]}`
	}
	td := payloadOf(0, 1, nil)
	nest(td.ResourceSpans().At(0).Resource().Attributes().PutEmpty("service.name"), 500)
	deep := protobuf(t, td)

	// Each is refused as the client's fault, or taken; and never is it the server's.
	for name, test := range map[string]struct {
		body     []byte
		kind     string
		encoding string
		refused  bool
	}{
		"gzip of 32 MiB":         {zipped(strings.Repeat(" ", 32<<20) + "{}"), "application/json", "gzip", true},
		"protobuf nested deeply": {deep, "application/x-protobuf", "", true},
		"JSON nested deeply":     {[]byte(nestedJSON(10_000)), "application/json", "", false},
		"JSON without an end":    {[]byte(strings.Repeat(`{"resourceSpans":[`, 10_000)), "application/json", "", true},
		"a length that lies":     {[]byte("\x0a\xff\xff\xff\xff\x0f"), "application/x-protobuf", "", true},
		"a negative length":      {[]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "application/x-protobuf", "", true},
		"a key without a value":  {[]byte(`{"resourceSpans":[{"resource":{"attributes":[{}]},"scopeSpans":[{"spans":[{"attributes":[{"key":null,"value":null}]}]}]}]}`), "application/json", "", false},
	} {
		headers := []string{"Content-Type", test.kind}
		if test.encoding != "" {
			headers = append(headers, "Content-Encoding", test.encoding)
		}
		code, answer, err := post(c, url, test.body, headers...)
		require.NoError(t, err, name)
		assert.Less(t, code, 500, "%s: %.200s", name, answer)
		if test.refused {
			assert.GreaterOrEqual(t, code, 400, "%s: %.200s", name, answer)
		}
		assert.Less(t, len(answer), 1000, "%s: an answer does not repeat what it refuses", name)

		sink.Reset()
		code, answer, err = post(c, url, protobuf(t, payloadOf(0, 3, nil)), "Content-Type", "application/x-protobuf")
		require.NoError(t, err, name)
		assert.Equal(t, http.StatusOK, code, "the next one, after %s: %s", name, answer)
		assert.Equal(t, 3, sink.SpanCount(), "the next one, after %s", name)
	}
}

// TestHostileEngineNames: the client metadata, which becomes message keys and headers, holds each name once and cut, and
// nothing else of a client's word.
func TestHostileEngineNames(t *testing.T) {
	var names []string
	next := &metadataKeeper{keep: func(info client.Info) { names = info.Metadata.Get(EngineMetadataKey) }}
	s, _ := newTestSpans(t, OtherSpansKeep, next)
	td := ptrace.NewTraces()
	const engines = 2000
	for i := range 2 * engines {
		payloadOf(i, 1, map[string]any{"service.instance.id": fmt.Sprintf("%0300d\xff", i%engines)}).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	}
	ctx := client.NewContext(t.Context(), client.Info{
		Addr:     &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)},
		Metadata: client.NewMetadata(map[string][]string{EngineMetadataKey: {"forged"}}),
	})
	require.NoError(t, s.ConsumeTraces(ctx, td))
	// They differ only beyond what is kept, so they are one.
	require.Len(t, names, 1)
	assert.LessOrEqual(t, len(names[0]), maxEngineMetadata)
	assert.NotContains(t, names, "forged")
}

// TestDefaultsAreClosed: without configuration nobody but this machine is listened to, and with TLS nothing older than 1.2
// is spoken.
func TestDefaultsAreClosed(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	for protocol, endpoint := range map[string]string{
		"grpc": cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint, "http": cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint,
	} {
		host, _, err := net.SplitHostPort(endpoint)
		require.NoError(t, err, protocol)
		assert.Equal(t, "localhost", host, protocol)
	}

	p := newPKI(t)
	s := start(t, example(t, "tls.yaml", p.dir), componenttest.NewNopHost(), consumertest.NewNop(), nil)
	for version, accepted := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		for _, address := range []string{s.grpc, s.http} {
			config := p.trusting()
			config.MinVersion, config.MaxVersion = version, version
			config.NextProtos = []string{"h2"}
			conn, err := tls.Dial("tcp", address, config)
			if accepted {
				require.NoError(t, err, tls.VersionName(version))
				require.NoError(t, conn.Close())
			} else {
				assert.Error(t, err, tls.VersionName(version))
			}
		}
	}
}

// metadataKeeper is a consumer that looks at whom a payload comes from.
type metadataKeeper struct {
	consumertest.TracesSink
	keep func(client.Info)
}

func (m *metadataKeeper) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	m.keep(client.FromContext(ctx))
	return m.TracesSink.ConsumeTraces(ctx, td)
}
