// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// Payloads, and a started receiver with clients, for the tests of this package.

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadatatest"
)

// recording has 12 requests of one vLLM V1 and 4 spans that are none.
func recording(t testing.TB) []byte {
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "spans", "vllm_v1_concurrency8.otlp.json"))
	require.NoError(t, err)
	return data
}

func recordedTraces(t testing.TB) ptrace.Traces {
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(recording(t))
	require.NoError(t, err)
	return td
}

// payloadOf makes a payload of one resource whose spans have the IDs from first on, with every
// third span no request.
func payloadOf(first, n int, resource map[string]any) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	_ = rs.Resource().Attributes().FromRaw(resource)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.tracing.otel")
	for i := range n {
		span := ss.Spans().AppendEmpty()
		span.SetSpanID(spanID(first + i))
		if i%3 == 2 {
			span.SetName("Load model")
			continue
		}
		putRequest(span)
	}
	return td
}

func spanID(i int) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], uint64(i)+1)
	return id
}

// putRequest makes span a request as vLLM V1 reports it.
func putRequest(span ptrace.Span) {
	span.SetName("llm_request")
	span.SetStartTimestamp(1_790_960_617_000_000_000)
	span.SetEndTimestamp(1_790_960_618_000_000_000)
	a := span.Attributes()
	a.PutDouble("gen_ai.latency.time_to_first_token", 0.1)
	a.PutDouble("gen_ai.latency.e2e", 0.9)
	a.PutDouble("gen_ai.latency.time_in_queue", 0.01)
	a.PutInt("gen_ai.usage.prompt_tokens", 512)
	a.PutInt("gen_ai.usage.completion_tokens", 128)
	a.PutDouble("gen_ai.latency.time_in_model_prefill", 0.08)
	a.PutDouble("gen_ai.latency.time_in_model_decode", 0.8)
	a.PutDouble("gen_ai.latency.time_in_model_inference", 0.88)
	a.PutStr("gen_ai.request.id", "cmpl-0")
	a.PutDouble("gen_ai.request.temperature", 0)
	a.PutInt("gen_ai.request.max_tokens", 128)
}

func allSpans(payloads ...ptrace.Traces) (spans []ptrace.Span) {
	for _, td := range payloads {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					spans = append(spans, span)
				}
			}
		}
	}
	return spans
}

func spanIDs(payloads ...ptrace.Traces) (ids []pcommon.SpanID) {
	for _, span := range allSpans(payloads...) {
		ids = append(ids, span.SpanID())
	}
	return ids
}

// from is the context of a payload that came from addr.
func from(addr net.Addr) context.Context {
	return client.NewContext(context.Background(), client.Info{Addr: addr})
}

// newTestSpans is the consumer alone, with its telemetry.
func newTestSpans(t testing.TB, other OtherSpans, next consumer.Traces) (*spans, *componenttest.Telemetry) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	s, err := newSpans(metadatatest.NewSettings(tel).TelemetrySettings, other, next)
	require.NoError(t, err)
	return s, tel
}

// server is a started receiver. It listens on ports that the system chose.
type server struct {
	traces     receiver.Traces
	metrics    receiver.Metrics
	telemetry  *componenttest.Telemetry
	grpc, http string // addresses
	listeners  int
}

// anyPortConfig is the default configuration but for its ports.
func anyPortConfig() *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint = "localhost:0"
	cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint = "localhost:0"
	return cfg
}

// start starts both nodes, as the Collector does when the receiver is in a traces and in a metrics pipeline.
func start(t testing.TB, cfg *Config, host component.Host, traces consumer.Traces, metrics consumer.Metrics) *server {
	core, logs := observer.New(zap.InfoLevel)
	s := &server{telemetry: componenttest.NewTelemetry()}
	set := metadatatest.NewSettings(s.telemetry)
	set.Logger = zap.New(core)
	if metrics == nil {
		metrics = consumertest.NewNop()
	}

	var err error
	s.traces, err = NewFactory().CreateTraces(t.Context(), set, cfg, traces)
	require.NoError(t, err)
	s.metrics, err = NewFactory().CreateMetrics(t.Context(), set, cfg, metrics)
	require.NoError(t, err)
	require.NoError(t, s.metrics.Start(t.Context(), host))
	require.NoError(t, s.traces.Start(t.Context(), host))
	t.Cleanup(func() {
		require.NoError(t, s.traces.Shutdown(context.Background()))
		require.NoError(t, s.metrics.Shutdown(context.Background()))
		require.NoError(t, s.telemetry.Shutdown(context.Background()))
	})

	for _, entry := range logs.All() {
		endpoint, _ := entry.ContextMap()["endpoint"].(string)
		switch entry.Message {
		case "Starting GRPC server":
			s.grpc = endpoint
			s.listeners++
		case "Starting HTTP server":
			s.http = endpoint
			s.listeners++
		}
	}
	return s
}

func (s *server) grpcClient(t testing.TB, tlsConfig *tls.Config, options ...grpc.DialOption) *grpc.ClientConn {
	creds := insecure.NewCredentials()
	if tlsConfig != nil {
		creds = credentials.NewTLS(tlsConfig)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.grpc, append(options, grpc.WithTransportCredentials(creds))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func httpClient(t testing.TB, tlsConfig *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// post sends body and returns status and answer. headers are pairs.
func post(c *http.Client, url string, body []byte, headers ...string) (int, string, error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

func protobuf(t testing.TB, td ptrace.Traces) []byte {
	data, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	require.NoError(t, err)
	return data
}

func gzipped(t testing.TB, data []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}
