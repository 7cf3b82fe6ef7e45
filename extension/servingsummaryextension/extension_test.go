// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingsummaryextension

// The extension from Start to Shutdown, over real connections.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/metadata"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
	"github.com/otelcol-serving/otelcol-serving/test/browser/fixtures"
)

func newForTest(t *testing.T, settings map[string]any) *summaryExtension {
	cfg := createDefaultConfig()
	all := map[string]any{"endpoint": "localhost:0"}
	for k, v := range settings {
		all[k] = v
	}
	require.NoError(t, confmap.NewFromStringMap(all).Unmarshal(cfg))
	e, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	return e.(*summaryExtension)
}

func started(t *testing.T, settings map[string]any) *summaryExtension {
	e := newForTest(t, settings)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { assert.NoError(t, e.Shutdown(context.Background())) })
	return e
}

func get(t *testing.T, client *http.Client, url string, headers ...string) (int, string) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func client(t *testing.T) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a self-signed certificate
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestReportersComeAndGo(t *testing.T) {
	e := newForTest(t, nil)
	state, ok := fixtures.Named("fleet")
	require.True(t, ok)
	var leave []func()
	for _, r := range state.Make(fixtures.Epoch) { // before Start, as the Collector starts extensions first, but orders may change
		leave = append(leave, e.Register(r))
	}
	require.Len(t, leave, 2)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	url := "http://" + e.address.String() + "/"
	_, body := get(t, client(t), url)
	assert.Contains(t, body, "3 of 8 engines need attention")
	leave[0]()
	leave[0]()
	_, body = get(t, client(t), url)
	assert.NotContains(t, body, "processor/serving_metrics")
	assert.Contains(t, body, "connector/serving_metrics")
	leave[1]()
	_, body = get(t, client(t), url)
	assert.Contains(t, body, "No component reports here yet")
	require.NoError(t, e.Shutdown(t.Context()))
	require.NoError(t, e.Shutdown(t.Context()), "twice")
	e.Register(state.Make(fixtures.Epoch)[0])() // after Shutdown
}

// A foreign host name is refused on a loopback listener only.
func TestHostOnLoopback(t *testing.T) {
	status, _ := get(t, client(t), "http://"+started(t, nil).address.String()+"/", "Host", "evil.example.com")
	assert.Equal(t, http.StatusMisdirectedRequest, status)
	e := started(t, map[string]any{"endpoint": "0.0.0.0:0"})
	_, port, err := net.SplitHostPort(e.address.String())
	require.NoError(t, err)
	status, _ = get(t, client(t), "http://127.0.0.1:"+port+"/", "Host", "summary.example.com")
	assert.Equal(t, http.StatusOK, status)
}

func TestPortInUse(t *testing.T) {
	first := started(t, nil)
	second := newForTest(t, map[string]any{"endpoint": first.address.String()})
	require.ErrorContains(t, second.Start(t.Context(), componenttest.NewNopHost()), "address already in use")
	require.NoError(t, second.Shutdown(t.Context()))
}

// A start that fails lets go of the port.
func TestUnknownAuthenticator(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	e := newForTest(t, map[string]any{"endpoint": address, "auth": map[string]any{"authenticator": "nobody"}})
	require.ErrorContains(t, e.Start(t.Context(), componenttest.NewNopHost()), "nobody")
	require.NoError(t, e.Shutdown(t.Context()))
	started(t, map[string]any{"endpoint": address})
}

type authHost struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h authHost) GetExtensions() map[component.ID]component.Component { return h.extensions }

type tokenAuth struct {
	component.StartFunc
	component.ShutdownFunc
}

func (tokenAuth) Authenticate(ctx context.Context, headers map[string][]string) (context.Context, error) {
	if http.Header(headers).Get("Authorization") != "Bearer right" {
		return ctx, errors.New("wrong token")
	}
	return ctx, nil
}

var _ extension.Extension = tokenAuth{}

func selfSigned(t *testing.T) (certificate, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

func TestAuthAndTLS(t *testing.T) {
	certificate, key := selfSigned(t)
	e := newForTest(t, map[string]any{
		"auth": map[string]any{"authenticator": "token"},
		"tls":  map[string]any{"cert_pem": certificate, "key_pem": key},
	})
	host := authHost{componenttest.NewNopHost(), map[component.ID]component.Component{component.MustNewID("token"): tokenAuth{}}}
	require.NoError(t, e.Start(t.Context(), host))
	t.Cleanup(func() { assert.NoError(t, e.Shutdown(context.Background())) })
	for _, path := range []string{"/", "/api/v1/summary", "/api/v1/schema"} {
		status, body := get(t, client(t), "https://"+e.address.String()+path)
		assert.Equal(t, http.StatusUnauthorized, status, path)
		assert.NotContains(t, body, "schema_version", path)
		status, _ = get(t, client(t), "https://"+e.address.String()+path, "Authorization", "Bearer right")
		assert.Equal(t, http.StatusOK, status, path)
	}
}

// Shutdown lets an answer be finished, and gives up with its context.
func TestShutdownDuringRequest(t *testing.T) {
	e := newForTest(t, nil)
	slow := &slowReporter{entered: make(chan struct{}), leave: make(chan struct{})}
	e.Register(slow)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	var wait sync.WaitGroup
	c := client(t)
	wait.Go(func() {
		status, _ := get(t, c, "http://"+e.address.String()+"/api/v1/summary")
		assert.Equal(t, http.StatusOK, status)
	})
	<-slow.entered
	wait.Go(func() { assert.NoError(t, e.Shutdown(context.Background())) })
	close(slow.leave)
	wait.Wait()
}

type slowReporter struct{ entered, leave chan struct{} }

func (r *slowReporter) Source() summary.Source { return summary.Source{ID: "slow"} }

func (r *slowReporter) Engines(time.Time) []summary.Engine {
	close(r.entered)
	<-r.leave
	return nil
}

func (*slowReporter) Engine(string, time.Time) (summary.EngineReport, bool) {
	return summary.EngineReport{}, false
}

// A server that ends by itself is reported, and does not hang Shutdown.
func TestListenerLost(t *testing.T) {
	e := newForTest(t, nil)
	host := &statusHost{Host: componenttest.NewNopHost(), events: make(chan *componentstatus.Event, 1)}
	require.NoError(t, e.Start(t.Context(), host))
	require.NoError(t, e.listener.Close())
	assert.Equal(t, componentstatus.StatusFatalError, (<-host.events).Status())
	require.NoError(t, e.Shutdown(t.Context()))
}

type statusHost struct {
	component.Host
	events chan *componentstatus.Event
}

func (h *statusHost) Report(event *componentstatus.Event) { h.events <- event }
