// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	recordedV0 = "../../../../testdata/spans/vllm_v0_detailed.debug.log"
	recordedV1 = "../../../../testdata/spans/vllm_v1_concurrency8.otlp.json"
)

// serve starts a real OTLP receiver for consume and returns its gRPC and HTTP addresses.
func serve(t *testing.T, tls *configtls.ServerConfig, consume func(ptrace.Traces) error) (grpc, http string) {
	t.Helper()
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return l.Addr().String()
	}
	grpc, http = free(), free()
	f := otlpreceiver.NewFactory()
	cfg := f.CreateDefaultConfig().(*otlpreceiver.Config)
	g, h := cfg.Protocols.GRPC.GetOrInsertDefault(), cfg.Protocols.HTTP.GetOrInsertDefault()
	g.NetAddr.Endpoint, h.ServerConfig.NetAddr.Endpoint = grpc, http
	if tls != nil {
		g.TLS, h.ServerConfig.TLS = configoptional.Some(*tls), configoptional.Some(*tls)
	}
	next, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error { return consume(td) })
	require.NoError(t, err)
	r, err := f.CreateTraces(t.Context(), receivertest.NewNopSettings(f.Type()), cfg, next)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return grpc, http
}

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

func execute(ctx context.Context, in io.Reader, terminal bool, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, args, stdio{in: in, out: &out, err: &errs, terminal: terminal})
	return result{code, out.String(), errs.String()}
}

func accept(ptrace.Traces) error { return nil }

func TestReplay(t *testing.T) {
	spans := 0
	grpc, http := serve(t, nil, func(td ptrace.Traces) error { spans += td.SpanCount(); return nil })
	r := execute(t.Context(), nil, false, "replay", "--speed", "0", "--endpoint", grpc, recordedV0, recordedV1)
	assert.Equal(t, exitOK, r.code, r.err)
	assert.Empty(t, r.err)
	assert.Equal(t, 17, spans)
	assert.Regexp(t, `^files +2
payloads +2
spans +17
requests +13 \(spans with gen_ai\.latency\.\*\)
recorded time +\d+h\d+m[\d.]+s
sent +17 spans, 13 requests
failed +0 spans
duration +[\d.mµ]+s
$`, r.out)

	spans = 0
	in, err := os.Open(recordedV1)
	require.NoError(t, err)
	defer in.Close()
	r = execute(t.Context(), in, true, "replay", "--speed", "1e6", "--now", "--protocol", "http", "--endpoint", "http://"+http, "-")
	assert.Equal(t, exitOK, r.code, r.err)
	assert.Equal(t, 16, spans)
	assert.Contains(t, r.err, "spans", "a terminal gets a bar")
	assert.Contains(t, r.out, "sent            16 spans, 12 requests\n")
}

func TestReplayUsage(t *testing.T) {
	for name, tt := range map[string]struct {
		args    []string
		message string
	}{
		"no file":     {[]string{"replay"}, "requires at least 1 arg"},
		"command":     {[]string{"reply"}, `unknown command "reply"`},
		"flag":        {[]string{"replay", "--sped", "1", "x"}, "unknown flag: --sped"},
		"speed":       {[]string{"replay", "--speed", "-1", "x"}, "--speed must be 0 or more"},
		"speed NaN":   {[]string{"replay", "--speed", "NaN", "x"}, "--speed must be 0 or more"},
		"batch":       {[]string{"replay", "--batch", "0s", "x"}, "--batch must be more than 0"},
		"protocol":    {[]string{"replay", "--protocol", "udp", "x"}, "--protocol must be grpc or http"},
		"insecure":    {[]string{"replay", "--insecure", "--ca-file", "x", "x"}, "without TLS"},
		"absent":      {[]string{"replay", "absent.json"}, "open absent.json: no such file"},
		"not spans":   {[]string{"replay", "cli_test.go"}, "cli_test.go:"},
		"years apart": {[]string{"replay", recordedV0, recordedV1}, "more than a year"},
		"header":      {[]string{"replay", "--header", "x", recordedV0}, "key=value"},
		"timeout":     {[]string{"replay", "--timeout", "-1s", recordedV0}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t.Context(), nil, false, tt.args...)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.err, tt.message)
			assert.True(t, strings.HasPrefix(r.err, "servingctl: "))
			assert.Empty(t, r.out)
		})
	}
}

func TestReplayFailures(t *testing.T) {
	grpc, _ := serve(t, nil, func(ptrace.Traces) error { return status.Error(codes.InvalidArgument, "no such tenant") })
	r := execute(t.Context(), nil, true, "replay", "--speed", "0", "--endpoint", grpc, recordedV1)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "no such tenant")
	assert.Contains(t, r.err, "servingctl: 16 of 16 spans were not delivered\n")
	assert.Contains(t, r.out, "failed          16 spans\n")

	// Nobody there: the second batch is not tried.
	r = execute(t.Context(), nil, false, "replay", "--speed", "1e6", "--retry-time", "0", "--endpoint", "127.0.0.1:1", recordedV1)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "the peer cannot be reached")
	assert.Regexp(t, `not tried +\d+ spans`, r.out)
}

// A stopped replay ends with the summary and the signal's exit code.
func TestReplayStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	grpc, _ := serve(t, nil, func(ptrace.Traces) error {
		cancel(&signalError{syscall.SIGTERM})
		return nil
	})
	r := execute(ctx, nil, true, "replay", "--loop", "--speed", "0", "--batch", "1ms", "--endpoint", grpc, recordedV1)
	assert.Equal(t, 143, r.code)
	assert.Contains(t, r.err, "the passes of a loop faster than recorded lie over each other")
	assert.Contains(t, r.err, "servingctl: stopped by terminated\n")
	assert.Contains(t, r.out, "sent            16 spans, 12 requests\n")

	r = execute(ctx, nil, false, "replay", "--endpoint", grpc, recordedV1)
	assert.Equal(t, 143, r.code, "while reading, too")
	assert.Empty(t, r.out)
	assert.Equal(t, exitFailed, (&signalError{}).code())
}

// The whole process: a signal while it waits for the next span.
func TestMainStopped(t *testing.T) {
	first := make(chan struct{}, 1)
	grpc, _ := serve(t, nil, func(ptrace.Traces) error {
		first <- struct{}{}
		return nil
	})
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = out, out
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	code := make(chan int)
	go func() {
		// One batch at once, the next one in years.
		code <- Main([]string{"replay", "--speed", "1e-9", "--batch", "1s", "--endpoint", grpc, twoSpans(t)})
	}()
	<-first
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	assert.Equal(t, 130, <-code)
	require.NoError(t, out.Close())
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	assert.Regexp(t, `sent +1 spans, 0 requests\nfailed +0 spans\nnot tried +1 spans`, string(text))
	assert.Contains(t, string(text), "stopped by interrupt")
}

// twoSpans is a recording whose first span ends at once and whose second one a minute later.
func twoSpans(t *testing.T) string {
	t.Helper()
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, seconds := range []int{0, 60} {
		s := spans.AppendEmpty()
		s.SetStartTimestamp(1_700_000_000_000_000_000)
		s.SetEndTimestamp(s.StartTimestamp() + pcommon.Timestamp(seconds)*1e9)
	}
	doc, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "two.json")
	require.NoError(t, os.WriteFile(path, doc, 0o600))
	return path
}

// certificate is a certificate for 127.0.0.1 that signs itself, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"collector"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	return cert, key
}

func TestReplayTLS(t *testing.T) {
	cert, key := certificate(t)
	server := &configtls.ServerConfig{Config: configtls.Config{CertFile: cert, KeyFile: key}, ClientCAFile: cert}
	grpc, http := serve(t, server, accept)
	for protocol, endpoint := range map[string]string{"grpc": grpc, "http": http} {
		common := []string{"replay", "--speed", "0", "--retry-time", "0", "--protocol", protocol, "--endpoint", endpoint}
		client := []string{"--cert-file", cert, "--key-file", key}
		r := execute(t.Context(), nil, false, append(append(common, client...), "--ca-file", cert, "--server-name", "collector", recordedV0)...)
		assert.Equal(t, exitOK, r.code, r.err)
		r = execute(t.Context(), nil, false, append(append(common, client...), "--insecure-skip-verify", recordedV0)...)
		assert.Equal(t, exitOK, r.code, r.err)
		r = execute(t.Context(), nil, false, append(append(common, client...), recordedV0)...)
		assert.Equal(t, exitFailed, r.code, "an unknown authority")
		r = execute(t.Context(), nil, false, append(common, "--ca-file", cert, recordedV0)...)
		assert.Equal(t, exitFailed, r.code, "no client certificate")
	}
}

func TestHelpAndVersion(t *testing.T) {
	r := execute(t.Context(), nil, false, "--version")
	assert.Equal(t, exitOK, r.code)
	assert.Contains(t, r.out, "servingctl version ")
	r = execute(t.Context(), nil, false, "replay", "--help")
	assert.Equal(t, exitOK, r.code)
	assert.Contains(t, r.out, "--speed float")
}

// Every command of the README and of the help is one that the tool takes, and every flag is in the README.
func TestDocumentedCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^\s*(?:[a-z].*\| )?servingctl (replay .*)$`).FindAllStringSubmatch(string(readme)+"\n"+replayExample, -1)
	require.GreaterOrEqual(t, len(commands), 8)
	words := regexp.MustCompile(`"[^"]*"|\S+`)
	for _, c := range commands {
		args := words.FindAllString(c[1], -1)
		cmd, rest, err := newRoot(stdio{}).Find(args)
		require.NoError(t, err)
		require.NoError(t, cmd.ParseFlags(rest), c[1])
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), c[1])
	}
	for _, line := range strings.Split(newReplay(stdio{}).Flags().FlagUsages(), "\n") {
		if name := regexp.MustCompile(`--[a-z-]+`).FindString(line); name != "" {
			assert.Contains(t, string(readme), "`"+name, "a flag the README does not explain")
		}
	}
}
