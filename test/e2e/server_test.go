// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The shipped configuration and the secured example as servers: health, both signals on one port, spans that
// are sent again, TLS and tokens.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	c := startCollector(t, shippedConfig, collectorOptions{})
	body, err := program.Fetch(t.Context(), c.healthURL())
	require.NoError(t, err)
	var status struct {
		Healthy bool
		Status  string
	}
	require.NoError(t, json.Unmarshal(body, &status), "%s", body)
	assert.True(t, status.Healthy)
	assert.Equal(t, "StatusOK", status.Status)
	assert.NotEmpty(t, c.scrapeSelf(t)["otelcol_process_uptime"], "own telemetry")
	// Nothing was received, and nothing is said about it.
	assert.Empty(t, c.scrape(t))
	c.terminate(t)
	_, err = program.Fetch(t.Context(), c.healthURL())
	assert.Error(t, err)
}

// TestSingleServer: one port takes spans and metrics, and metrics of others pass serving_metrics as they are.
func TestSingleServer(t *testing.T) {
	t.Parallel()
	traces := startSink(t)
	c := startCollector(t, shippedConfig, collectorOptions{
		env: []string{"TRACES_ENDPOINT=" + program.Address(traces.grpc)},
		set: []string{"processors.serving_metrics.interval=200ms"},
	})
	conn, err := grpc.NewClient(program.Address(c.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "power-meter")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.gpu.power")
	m.SetUnit("W")
	m.SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(312.5)
	_, err = pmetricotlp.NewGRPCClient(conn).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(md))
	require.NoError(t, err)

	c.replay(t, recordingV1)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		got := c.scrape(t)
		assert.Equal(ct, 312.5, got.sum("hw_gpu_power_watts", "job=power-meter"))
		assert.Equal(ct, 12.0, got.sum("llm_serving_request_count_total", "job=vllm"))
	}, patience, poll)
	self := c.scrapeSelf(t)
	assert.Equal(t, 1.0, self.sum("otelcol_receiver_accepted_metric_points"))
	assert.Equal(t, 16.0, self.sum("otelcol_receiver_accepted_spans"))
}

// TestResentSpansCountOnce: a client that got no answer sends again, maybe over the other protocol.
func TestResentSpansCountOnce(t *testing.T) {
	t.Parallel()
	s := startSink(t)
	c := startCollector(t, testConfig("processor.yaml"), collectorOptions{env: s.env(longInterval, "cumulative")})
	c.replay(t, recordingV1)
	c.replay(t, recordingV1)
	c.replayTo(t, program.Address(c.http), "--protocol", "http", recordingV1)
	self := c.scrapeSelf(t)
	assert.Equal(t, 12.0, self.sum("otelcol_serving_metrics_requests"))
	assert.Equal(t, 24.0, self.sum("otelcol_serving_metrics_requests_duplicate"))
	c.terminate(t)
	md := last(t, &s.grpcMetrics)
	assert.Equal(t, 12.0, total(md, "llm.serving.request.count", nil))
	assert.InEpsilon(t, addUpV1(t).e2e, total(md, "llm.serving.request.stage.time", nil), 1e-9)
	assert.Len(t, spansOf(s.grpcTraces.AllTraces()...), 3*16, "the tracing backend decides for itself")
}

// TestTLSExample: the secured example lets in who has a certificate and the token, and nobody else.
func TestTLSExample(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("s3cret"), 0o600))
	c := startCollector(t, example("secure.yaml"), collectorOptions{
		env: []string{
			"TLS_CERT=" + pki.serverCert, "TLS_KEY=" + pki.serverKey, "TLS_CLIENT_CA=" + pki.ca, "TOKEN_FILE=" + token,
		},
		set: []string{
			"service.extensions=[bearertokenauth, healthcheckv2]",
			"processors.serving_metrics.interval=200ms",
		},
	})
	endpoint := "https://" + program.Address(c.grpc)
	good := []string{"--ca-file", pki.ca, "--cert-file", pki.clientCert, "--key-file", pki.clientKey, "--header", "authorization=Bearer s3cret"}
	for name, flags := range map[string][]string{
		"no certificate": {"--ca-file", pki.ca, "--header", "authorization=Bearer s3cret"},
		"no token":       {"--ca-file", pki.ca, "--cert-file", pki.clientCert, "--key-file", pki.clientKey},
		"wrong token":    {"--ca-file", pki.ca, "--cert-file", pki.clientCert, "--key-file", pki.clientKey, "--header", "authorization=Bearer guess"},
		"unknown server": {"--cert-file", pki.clientCert, "--key-file", pki.clientKey, "--header", "authorization=Bearer s3cret"},
	} {
		args := append([]string{"replay", "--speed", "0", "--retry-time", "0", "--endpoint", endpoint}, append(flags, recordingV1)...)
		out, err := run(t, nil, servingctl(t), args...)
		assert.Error(t, err, "%s: %s", name, out)
	}
	assert.Empty(t, c.scrapeSelf(t)["otelcol_receiver_llm_span_requests"], "none of them got anything in")

	c.replayTo(t, endpoint, append(good, recordingV1)...)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		assert.Equal(ct, 12.0, c.scrape(t).sum("llm_serving_request_count_total"))
	}, patience, poll)
}

// pki are files: an authority, and a server's and a client's certificate by it.
type pki struct{ ca, serverCert, serverKey, clientCert, clientKey string }

func newPKI(t *testing.T) (p pki) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	var authority *x509.Certificate
	var authorityKey *ecdsa.PrivateKey
	issue := func(name string, isCA bool) (cert, key string) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
		require.NoError(t, err)
		template := &x509.Certificate{
			SerialNumber: serial, Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: isCA, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		parent, signer := authority, authorityKey
		if isCA {
			parent, signer = template, private
			authority, authorityKey = template, private
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
		require.NoError(t, err)
		pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
		require.NoError(t, err)
		return write(name+".crt", "CERTIFICATE", der), write(name+".key", "PRIVATE KEY", pkcs8)
	}
	p.ca, _ = issue("authority", true)
	p.serverCert, p.serverKey = issue("server", false)
	p.clientCert, p.clientKey = issue("client", false)
	return p
}
