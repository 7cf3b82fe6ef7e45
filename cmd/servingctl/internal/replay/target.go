// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package replay

// The peer, reached through the Collector's own OTLP exporters.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Target is where spans are sent to, as a user says it.
type Target struct {
	// Protocol is "grpc" or "http".
	Protocol string
	// Endpoint is host:port or an http or https URL; "" is the protocol's port on localhost.
	Endpoint string
	// Insecure is whether to do without TLS; nil decides by the endpoint and the other TLS settings.
	Insecure *bool
	// The TLS settings; "" is the default of each.
	CAFile, CertFile, KeyFile, ServerName string
	SkipVerify                            bool
	// Headers are key=value.
	Headers []string
	// Timeout bounds one attempt, RetryTime all attempts of a request; 0 is a single attempt.
	Timeout, RetryTime time.Duration
	// UserAgentVersion is the version that the peer is told.
	UserAgentVersion string
}

// Exporter is a Sender over OTLP.
type Exporter struct {
	traces exporter.Traces
	log    *exporterLog
}

// Dial makes an Exporter. Nothing is sent yet, and a peer that does not answer is no error. warn is told of retries.
func (t Target) Dial(ctx context.Context, warn func(string)) (*Exporter, error) {
	where, err := t.resolve()
	if err != nil {
		return nil, err
	}
	headers, err := t.headers()
	if err != nil {
		return nil, err
	}
	factory, cfg := where.exporter(t, headers)
	if err := confmap.Validate(cfg); err != nil {
		return nil, err
	}
	log := &exporterLog{warn: warn}
	set := exporter.Settings{
		ID: component.NewID(factory.Type()),
		TelemetrySettings: component.TelemetrySettings{
			Logger:         zap.New(log),
			TracerProvider: tracenoop.NewTracerProvider(),
			MeterProvider:  metricnoop.NewMeterProvider(),
			Resource:       pcommon.NewResource(),
		},
		BuildInfo: component.BuildInfo{Command: "servingctl", Description: "servingctl", Version: t.UserAgentVersion},
	}
	traces, err := factory.CreateTraces(ctx, set, cfg)
	if err != nil {
		return nil, err
	}
	if err := traces.Start(ctx, host{}); err != nil {
		return nil, errors.Join(err, traces.Shutdown(ctx))
	}
	return &Exporter{traces: traces, log: log}, nil
}

// Send sends td and waits for the answer. Its error is permanent (consumererror.IsPermanent) if the peer refuses these
// spans; any other error means that retries are used up or that ctx is done.
func (e *Exporter) Send(ctx context.Context, td ptrace.Traces) (rejected int, err error) {
	e.log.rejected.Store(0)
	err = e.traces.ConsumeTraces(ctx, td)
	return int(e.log.rejected.Load()), err
}

// Close closes the connection.
func (e *Exporter) Close() error { return e.traces.Shutdown(context.Background()) }

// place is a resolved endpoint.
type place struct {
	http     bool
	address  string // host:port for gRPC, URL for HTTP
	isTraces bool   // the URL is that of the traces, not the base of it
	tls      configtls.ClientConfig
}

// resolve decides on TLS. Flags that contradict each other are an error, not a guess.
func (t Target) resolve() (place, error) {
	var p place
	endpoint := t.Endpoint
	switch t.Protocol {
	case "grpc":
		if endpoint == "" {
			endpoint = "localhost:4317"
		}
	case "http":
		p.http = true
		if endpoint == "" {
			endpoint = "localhost:4318"
		}
	default:
		return p, fmt.Errorf("--protocol must be grpc or http, it is %q", t.Protocol)
	}
	scheme, rest, isURL := strings.Cut(endpoint, "://")
	if !isURL {
		scheme, rest = "", endpoint
	}
	if isURL && scheme != "http" && scheme != "https" {
		return p, fmt.Errorf("--endpoint must be host:port or an http or https URL, it is %q", t.Endpoint)
	}
	u, err := url.Parse("x://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return p, fmt.Errorf("--endpoint must be host:port or an http or https URL, it is %q", t.Endpoint)
	}
	if u.Port() == "" && (!isURL || !p.http) {
		return p, fmt.Errorf("--endpoint needs a port, such as %s", net.JoinHostPort(u.Hostname(), map[bool]string{false: "4317", true: "4318"}[p.http]))
	}
	if !p.http && strings.Trim(u.Path, "/") != "" {
		return p, fmt.Errorf("--endpoint of gRPC has no path, it is %q", t.Endpoint)
	}

	tlsFlag := t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "" || t.SkipVerify
	insecure := scheme == "http" || scheme == "" && isLoopback(u.Hostname()) && !tlsFlag
	if t.Insecure != nil {
		insecure = *t.Insecure
	}
	switch {
	case insecure && scheme == "https":
		return p, errors.New("--insecure contradicts the https endpoint")
	case !insecure && scheme == "http":
		return p, errors.New("--insecure=false contradicts the http endpoint")
	case insecure && tlsFlag:
		return p, errors.New("TLS settings are given for a connection without TLS: leave them out, or use an https endpoint")
	case (t.CertFile == "") != (t.KeyFile == ""):
		return p, errors.New("--cert-file and --key-file go together")
	}
	p.tls = configtls.NewDefaultClientConfig()
	p.tls.Insecure, p.tls.InsecureSkipVerify, p.tls.ServerName = insecure, t.SkipVerify, t.ServerName
	p.tls.CAFile, p.tls.CertFile, p.tls.KeyFile = t.CAFile, t.CertFile, t.KeyFile
	p.address = u.Host
	if p.http {
		u.Scheme = "https"
		if insecure {
			u.Scheme = "http"
		}
		p.isTraces = strings.HasSuffix(u.Path, "/v1/traces")
		p.address = u.String()
	}
	return p, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// headers never quotes a value in an error: it may be a secret.
func (t Target) headers() (configopaque.MapList, error) {
	var list configopaque.MapList
	for _, h := range t.Headers {
		key, value, ok := strings.Cut(h, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, errors.New("--header must be key=value")
		}
		list.Set(key, configopaque.String(value))
	}
	return list, nil
}

// exporter is the exporter's configuration without a queue: an answer is waited for, so that no span is lost unseen.
func (p place) exporter(t Target, headers configopaque.MapList) (exporter.Factory, component.Config) {
	retry := configretry.NewDefaultBackOffConfig()
	retry.Enabled = t.RetryTime > 0
	retry.MaxElapsedTime = t.RetryTime
	retry.InitialInterval = min(500*time.Millisecond, t.RetryTime)
	retry.MaxInterval = min(5*time.Second, t.RetryTime)
	if p.http {
		f := otlphttpexporter.NewFactory()
		cfg := f.CreateDefaultConfig().(*otlphttpexporter.Config)
		cfg.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
		cfg.RetryConfig = retry
		cfg.ClientConfig.Endpoint = p.address
		if p.isTraces {
			cfg.ClientConfig.Endpoint, cfg.TracesEndpoint = "", p.address
		}
		cfg.ClientConfig.TLS = p.tls
		cfg.ClientConfig.Timeout = t.Timeout
		cfg.ClientConfig.Headers = headers
		return f, cfg
	}
	f := otlpexporter.NewFactory()
	cfg := f.CreateDefaultConfig().(*otlpexporter.Config)
	cfg.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	cfg.RetryConfig = retry
	cfg.TimeoutConfig = exporterhelper.TimeoutConfig{Timeout: t.Timeout}
	cfg.ClientConfig.Endpoint = p.address
	cfg.ClientConfig.TLS = p.tls
	cfg.ClientConfig.Headers = headers
	return f, cfg
}

// host has no extensions.
type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }

// exporterLog is what the exporter says only to its log: that it retries, and how many spans the peer took a request
// without. The latter is no error to the exporter, but those spans are lost.
type exporterLog struct {
	warn     func(string)
	rejected atomic.Int64
}

func (l *exporterLog) Enabled(level zapcore.Level) bool  { return level >= zapcore.InfoLevel }
func (l *exporterLog) With([]zapcore.Field) zapcore.Core { return l }
func (l *exporterLog) Sync() error                       { return nil }

func (l *exporterLog) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(e.Level) {
		return c.AddCore(e, l)
	}
	return c
}

func (l *exporterLog) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	var reason, interval string
	for _, f := range fields {
		switch {
		case f.Key == "dropped_spans":
			l.rejected.Add(f.Integer)
		case f.Key == "interval":
			interval = f.String
		case f.Key == "error":
			if err, ok := f.Interface.(error); ok {
				reason = err.Error()
			}
		}
	}
	if interval != "" {
		l.warn(fmt.Sprintf("trying again in %s: %s", interval, reason))
	}
	return nil
}
