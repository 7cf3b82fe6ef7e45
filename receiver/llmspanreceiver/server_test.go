// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// The receiver as a server: what clients see of it, in the clear and secured.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadatatest"
)

func exportGRPC(ctx context.Context, conn *grpc.ClientConn, td ptrace.Traces, options ...grpc.CallOption) error {
	_, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(td), options...)
	return err
}

func TestTransports(t *testing.T) {
	td := payloadOf(0, 30, map[string]any{"service.name": "vllm"})
	json, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalJSON()
	require.NoError(t, err)
	sent := protobuf(t, td)

	httpPost := func(body []byte, headers ...string) func(*testing.T, *server) {
		return func(t *testing.T, s *server) {
			code, answer, err := post(httpClient(t, nil), "http://"+s.http+"/v1/traces", body, headers...)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
		}
	}
	for name, send := range map[string]func(*testing.T, *server){
		"gRPC": func(t *testing.T, s *server) { require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), td)) },
		"gRPC gzip": func(t *testing.T, s *server) {
			require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), td, grpc.UseCompressor(gzip.Name)))
		},
		"HTTP protobuf":       httpPost(sent, "Content-Type", "application/x-protobuf"),
		"HTTP protobuf, gzip": httpPost(gzipped(t, sent), "Content-Type", "application/x-protobuf", "Content-Encoding", "gzip"),
		"HTTP JSON":           httpPost(json, "Content-Type", "application/json"),
		"HTTP JSON, gzip":     httpPost(gzipped(t, json), "Content-Type", "application/json", "Content-Encoding", "gzip"),
	} {
		t.Run(name, func(t *testing.T) {
			sink := new(consumertest.TracesSink)
			s := start(t, anyPortConfig(), componenttest.NewNopHost(), sink, nil)
			send(t, s)
			require.Equal(t, spanIDs(td), spanIDs(sink.AllTraces()...))
			rs := sink.AllTraces()[0].ResourceSpans().At(0)
			assert.Equal(t, map[string]any{"service.name": "vllm", "network.peer.address": "127.0.0.1"}, rs.Resource().Attributes().AsRaw())
			provider, _ := rs.ScopeSpans().At(0).Spans().At(0).Attributes().Get("gen_ai.provider.name")
			assert.Equal(t, "vllm", provider.Str())
			metadatatest.AssertEqualReceiverLlmSpanRequests(t, s.telemetry, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 20)}, ignoring...)
		})
	}
}

// 16 spans forwarded in their order, of which 12 are requests.
func TestRecordingOverHTTPJSON(t *testing.T) {
	recorded := recordedTraces(t)
	require.Equal(t, 16, recorded.SpanCount())
	var requests []pcommon.SpanID
	for _, span := range allSpans(recorded) {
		if span.Name() == "llm_request" {
			requests = append(requests, span.SpanID())
		}
	}
	require.Len(t, requests, 12)

	for other, want := range map[OtherSpans]struct {
		ids     []pcommon.SpanID
		outcome string
	}{
		OtherSpansKeep: {spanIDs(recorded), "kept"},
		OtherSpansDrop: {requests, "dropped"},
	} {
		t.Run(string(other), func(t *testing.T) {
			sink := new(consumertest.TracesSink)
			cfg := anyPortConfig()
			cfg.OtherSpans = other
			s := start(t, cfg, componenttest.NewNopHost(), sink, nil)
			code, answer, err := post(httpClient(t, nil), "http://"+s.http+"/v1/traces", recording(t), "Content-Type", "application/json")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)

			assert.Equal(t, want.ids, spanIDs(sink.AllTraces()...))
			metadatatest.AssertEqualReceiverLlmSpanRequests(t, s.telemetry, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 12)}, ignoring...)
			metadatatest.AssertEqualReceiverLlmSpanOtherSpans(t, s.telemetry, othersCounted(want.outcome, 4), ignoring...)
		})
	}
}

func TestMetricsPassThroughUntouched(t *testing.T) {
	sink := new(consumertest.MetricsSink)
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), consumertest.NewNop(), sink)
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "vllm")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("vllm:num_requests_running")
	m.SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(3)
	request := pmetricotlp.NewExportRequestFromMetrics(md)

	_, err := pmetricotlp.NewGRPCClient(s.grpcClient(t, nil)).Export(t.Context(), request)
	require.NoError(t, err)
	body, err := request.MarshalProto()
	require.NoError(t, err)
	code, answer, err := post(httpClient(t, nil), "http://"+s.http+"/v1/metrics", body, "Content-Type", "application/x-protobuf")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, answer)

	require.Len(t, sink.AllMetrics(), 2)
	for _, got := range sink.AllMetrics() {
		gotBody, err := pmetricotlp.NewExportRequestFromMetrics(got).MarshalProto()
		require.NoError(t, err)
		assert.Equal(t, body, gotBody)
	}
}

func TestErrorsOfThePipelineReachTheClient(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		grpc codes.Code
		http int
	}{
		"retry":     {assert.AnError, codes.Unavailable, http.StatusServiceUnavailable},
		"permanent": {consumererror.NewPermanent(assert.AnError), codes.Internal, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, anyPortConfig(), componenttest.NewNopHost(), consumertest.NewErr(test.err), nil)
			td := payloadOf(0, 3, nil)
			assert.Equal(t, test.grpc, status.Code(exportGRPC(t.Context(), s.grpcClient(t, nil), td)))
			code, _, err := post(httpClient(t, nil), "http://"+s.http+"/v1/traces", protobuf(t, td), "Content-Type", "application/x-protobuf")
			require.NoError(t, err)
			assert.Equal(t, test.http, code)
		})
	}
}

func TestWhatIsNoOTLPIsRefusedAndTheServerGoesOn(t *testing.T) {
	sink := new(consumertest.TracesSink)
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), sink, nil)
	c, url := httpClient(t, nil), "http://"+s.http+"/v1/traces"
	for name, test := range map[string]struct {
		body    string
		headers []string
		code    int
	}{
		"broken protobuf": {"\x0a\xff\xff", []string{"Content-Type", "application/x-protobuf"}, http.StatusBadRequest},
		"broken JSON":     {`{"resourceSpans": [`, []string{"Content-Type", "application/json"}, http.StatusBadRequest},
		"broken gzip":     {"no gzip", []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}, http.StatusBadRequest},
		"no known type":   {"hello", []string{"Content-Type", "text/plain"}, http.StatusUnsupportedMediaType},
		"empty protobuf":  {"", []string{"Content-Type", "application/x-protobuf"}, http.StatusOK},
		"empty JSON":      {"{}", []string{"Content-Type", "application/json"}, http.StatusOK},
	} {
		code, answer, err := post(c, url, []byte(test.body), test.headers...)
		require.NoError(t, err, name)
		assert.Equal(t, test.code, code, "%s: %s", name, answer)
	}
	require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), ptrace.NewTraces()))
	assert.Empty(t, sink.AllTraces())

	code, answer, err := post(c, url, protobuf(t, payloadOf(0, 3, nil)), "Content-Type", "application/x-protobuf")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code, answer)
	assert.Equal(t, 3, sink.SpanCount())
}

// The otlp receiver's limit of 4 MiB a message holds, and can be raised.
func TestHugePayload(t *testing.T) {
	td := payloadOf(0, 30_000, nil)
	require.Greater(t, len(protobuf(t, td)), 4<<20)

	sink := new(consumertest.TracesSink)
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), sink, nil)
	conn := s.grpcClient(t, nil)
	assert.Equal(t, codes.ResourceExhausted, status.Code(exportGRPC(t.Context(), conn, td)))
	require.NoError(t, exportGRPC(t.Context(), conn, payloadOf(0, 3, nil)))
	assert.Equal(t, 3, sink.SpanCount())

	sink.Reset()
	cfg := anyPortConfig()
	cfg.OTLP.Protocols.GRPC.Get().MaxRecvMsgSizeMiB = 32
	s = start(t, cfg, componenttest.NewNopHost(), sink, nil)
	require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), td))
	assert.Equal(t, spanIDs(td), spanIDs(sink.AllTraces()...))
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, s.telemetry, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", 20_000)}, ignoring...)
}

// One client's payloads at the same time over one connection: each is whole and none is mixed
// with another.
func TestConcurrentPayloads(t *testing.T) {
	const clients, payloads, size = 8, 20, 9
	sink := new(consumertest.TracesSink)
	cfg := anyPortConfig()
	cfg.OtherSpans = OtherSpansDrop
	s := start(t, cfg, componenttest.NewNopHost(), sink, nil)
	conn, c := s.grpcClient(t, nil), httpClient(t, nil)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for i := range payloads {
				td := payloadOf((client*payloads+i)*size, size, map[string]any{"service.name": "vllm"})
				if client%2 == 0 {
					assert.NoError(t, exportGRPC(t.Context(), conn, td))
					continue
				}
				code, answer, err := post(c, "http://"+s.http+"/v1/traces", protobuf(t, td), "Content-Type", "application/x-protobuf")
				assert.NoError(t, err)
				assert.Equal(t, http.StatusOK, code, answer)
			}
		})
	}
	wg.Wait()

	require.Len(t, sink.AllTraces(), clients*payloads)
	seen := map[pcommon.SpanID]bool{}
	for _, td := range sink.AllTraces() {
		ids := spanIDs(td)
		require.Len(t, ids, 6)
		for i, offset := range []int{0, 1, 3, 4, 6, 7} {
			first := int(ids[0][7]) + int(ids[0][6])<<8 - 1
			assert.Equal(t, spanID(first+offset), ids[i])
			assert.False(t, seen[ids[i]])
			seen[ids[i]] = true
		}
	}
	metadatatest.AssertEqualReceiverLlmSpanRequests(t, s.telemetry, []metricdata.DataPoint[int64]{requestsCounted("vllm", "v1", clients*payloads*6)}, ignoring...)
	metadatatest.AssertEqualReceiverLlmSpanOtherSpans(t, s.telemetry, othersCounted("dropped", clients*payloads*3), ignoring...)
}

// The files that a deployment has: an authority each for servers and clients, and a certificate from each.
type pki struct {
	dir      string
	serverCA *x509.CertPool
	client   tls.Certificate // from the clients' authority
	stranger tls.Certificate // from an authority nobody trusts
}

func newPKI(t *testing.T) *pki {
	p := &pki{dir: t.TempDir(), serverCA: x509.NewCertPool()}
	write := func(name, kind string, der []byte) {
		data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), data, 0o600))
	}
	serial := int64(0)
	issue := func(parent *x509.Certificate, parentKey *ecdsa.PrivateKey, usage x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		serial++
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		}
		if parent == nil {
			template.IsCA, template.BasicConstraintsValid, template.KeyUsage, template.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
			parent, parentKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
		require.NoError(t, err)
		cert, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return cert, key
	}

	serverCA, serverCAKey := issue(nil, nil, 0)
	p.serverCA.AddCert(serverCA)
	server, serverKey := issue(serverCA, serverCAKey, x509.ExtKeyUsageServerAuth)
	write("server.crt", "CERTIFICATE", server.Raw)
	der, err := x509.MarshalECPrivateKey(serverKey)
	require.NoError(t, err)
	write("server.key", "EC PRIVATE KEY", der)

	clientsCA, clientsCAKey := issue(nil, nil, 0)
	write("clients-ca.crt", "CERTIFICATE", clientsCA.Raw)
	cert, key := issue(clientsCA, clientsCAKey, x509.ExtKeyUsageClientAuth)
	p.client = tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	strangersCA, strangersCAKey := issue(nil, nil, 0)
	cert, key = issue(strangersCA, strangersCAKey, x509.ExtKeyUsageClientAuth)
	p.stranger = tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	return p
}

// trusting is what a client needs that knows the server's authority.
func (p *pki) trusting(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{
		RootCAs: p.serverCA, ServerName: "localhost",
		// sent even if the server names other authorities, as an attacker would
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(certs) == 0 {
				return &tls.Certificate{}, nil
			}
			return &certs[0], nil
		},
	}
}

// example is the configuration of one of the README's examples, listening on ports that the system
// chooses and with its files taken from dir.
func example(t *testing.T, file, dir string) *Config {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "examples", file))
	require.NoError(t, err)
	for _, protocol := range []string{"grpc", "http"} {
		here := map[string]any{"endpoint": "localhost:0"}
		settings, _ := conf.Get("receivers::llm_span::protocols::" + protocol + "::tls").(map[string]any)
		require.NotEmpty(t, settings)
		files := map[string]any{}
		for key, path := range settings {
			files[key] = filepath.Join(dir, filepath.Base(path.(string)))
		}
		here["tls"] = files
		require.NoError(t, conf.Merge(confmap.NewFromStringMap(map[string]any{
			"receivers": map[string]any{"llm_span": map[string]any{"protocols": map[string]any{protocol: here}}},
		})))
	}
	sub, err := conf.Sub("receivers::llm_span")
	require.NoError(t, err)
	cfg := createDefaultConfig()
	require.NoError(t, sub.Unmarshal(&cfg))
	require.NoError(t, confmap.Validate(cfg))
	return cfg.(*Config)
}

// sendBoth sends a payload over each protocol and reports what went wrong with it.
func (s *server) sendBoth(t *testing.T, clientTLS *tls.Config, headers ...string) (code int, grpcErr, httpErr error) {
	td := payloadOf(0, 3, nil)
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(headers...))
	grpcErr = exportGRPC(ctx, s.grpcClient(t, clientTLS), td)
	scheme := "http://"
	if clientTLS != nil {
		scheme = "https://"
	}
	code, _, httpErr = post(httpClient(t, clientTLS), scheme+s.http+"/v1/traces", protobuf(t, td),
		append([]string{"Content-Type", "application/x-protobuf"}, headers...)...)
	return code, grpcErr, httpErr
}

func TestTLS(t *testing.T) {
	p := newPKI(t)
	sink := new(consumertest.TracesSink)
	s := start(t, example(t, "tls.yaml", p.dir), componenttest.NewNopHost(), sink, nil)

	code, grpcErr, httpErr := s.sendBoth(t, p.trusting())
	require.NoError(t, grpcErr)
	require.NoError(t, httpErr)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, 6, sink.SpanCount())
	sink.Reset()

	code, grpcErr, httpErr = s.sendBoth(t, nil)
	assert.Equal(t, codes.Unavailable, status.Code(grpcErr), "in the clear")
	assert.True(t, httpErr != nil || code == http.StatusBadRequest, "in the clear: %v %d", httpErr, code)
	_, grpcErr, httpErr = s.sendBoth(t, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"})
	assert.ErrorContains(t, grpcErr, "unknown authority")
	assert.ErrorContains(t, httpErr, "unknown authority")
	assert.Empty(t, sink.AllTraces())
}

func TestMutualTLS(t *testing.T) {
	p := newPKI(t)
	sink := new(consumertest.TracesSink)
	s := start(t, example(t, "mtls.yaml", p.dir), componenttest.NewNopHost(), sink, nil)

	code, grpcErr, httpErr := s.sendBoth(t, p.trusting(p.client))
	require.NoError(t, grpcErr)
	require.NoError(t, httpErr)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, 6, sink.SpanCount())
	sink.Reset()

	for name, certs := range map[string][]tls.Certificate{"no certificate": nil, "a stranger's": {p.stranger}} {
		_, grpcErr, httpErr = s.sendBoth(t, p.trusting(certs...))
		assert.Equal(t, codes.Unavailable, status.Code(grpcErr), name)
		assert.Error(t, httpErr, name)
	}
	assert.Empty(t, sink.AllTraces())
}

type hostWith map[component.ID]component.Component

func (h hostWith) GetExtensions() map[component.ID]component.Component { return h }

func TestBearerToken(t *testing.T) {
	p := newPKI(t)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "token"), []byte("s3cret"), 0o600))
	factory := bearertokenauthextension.NewFactory()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "examples", "bearer_token.yaml"))
	require.NoError(t, err)
	sub, err := conf.Sub("extensions::bearertokenauth")
	require.NoError(t, err)
	extensionConfig := factory.CreateDefaultConfig().(*bearertokenauthextension.Config)
	require.NoError(t, sub.Unmarshal(extensionConfig))
	require.NoError(t, confmap.Validate(extensionConfig))
	extensionConfig.Filename = filepath.Join(p.dir, filepath.Base(extensionConfig.Filename))
	extension, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), extensionConfig)
	require.NoError(t, err)
	host := hostWith{component.NewID(factory.Type()): extension}
	require.NoError(t, extension.Start(t.Context(), host))
	t.Cleanup(func() { require.NoError(t, extension.Shutdown(context.Background())) })

	sink := new(consumertest.TracesSink)
	s := start(t, example(t, "bearer_token.yaml", p.dir), host, sink, nil)

	code, grpcErr, httpErr := s.sendBoth(t, p.trusting(), "authorization", "Bearer s3cret")
	require.NoError(t, grpcErr)
	require.NoError(t, httpErr)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, 6, sink.SpanCount())
	sink.Reset()

	for name, headers := range map[string][]string{"none": nil, "wrong": {"authorization", "Bearer guess"}} {
		code, grpcErr, httpErr = s.sendBoth(t, p.trusting(), headers...)
		assert.Equal(t, codes.Unauthenticated, status.Code(grpcErr), name)
		require.NoError(t, httpErr, name)
		assert.Equal(t, http.StatusUnauthorized, code, name)
	}
	assert.Empty(t, sink.AllTraces())
}
