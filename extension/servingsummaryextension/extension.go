// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingsummaryextension

// The extension: the registry that serving_metrics reports to, and the HTTP server in front of it.

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension"
	"go.uber.org/zap"

	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/registry"
	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/web"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// summaryExtension serves what is registered with it. Reporters may come before Start and go after Shutdown.
type summaryExtension struct {
	*registry.Registry
	config   *Config
	settings component.TelemetrySettings

	server   *http.Server
	listener net.Listener
	address  net.Addr
	done     sync.WaitGroup
}

var (
	_ extension.Extension = (*summaryExtension)(nil)
	_ summary.Registry    = (*summaryExtension)(nil)
)

func newExtension(cfg *Config, set extension.Settings) *summaryExtension {
	return &summaryExtension{
		Registry: registry.New(summary.Collector{Name: set.BuildInfo.Command, Version: set.BuildInfo.Version}),
		config:   cfg,
		settings: set.TelemetrySettings,
	}
}

// Start listens and serves.
func (e *summaryExtension) Start(ctx context.Context, host component.Host) error {
	listener, err := e.config.ToListener(ctx)
	if err != nil {
		return err
	}
	handler, err := web.New(e.Registry, web.Options{
		Title:        e.config.Title,
		TraceURL:     e.config.TraceURL,
		Refresh:      e.config.Refresh,
		LoopbackOnly: isLoopback(listener.Addr()),
		Now:          time.Now,
		Failed:       func(err error) { e.settings.Logger.Error("A page could not be made", zap.Error(err)) },
	})
	if err == nil {
		e.server, err = e.config.ToServer(ctx, host.GetExtensions(), e.settings, handler)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	e.listener, e.address = listener, listener.Addr()
	scheme := "http"
	if e.config.TLS.HasValue() {
		scheme = "https"
	}
	e.settings.Logger.Info("The serving summary is at "+scheme+"://"+e.address.String(), zap.Stringer("address", e.address))
	e.done.Go(func() {
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			componentstatus.ReportStatus(host, componentstatus.NewFatalErrorEvent(err))
		}
	})
	return nil
}

// Shutdown ends the server once the requests in flight are answered, or ctx is done.
func (e *summaryExtension) Shutdown(ctx context.Context) error {
	if e.server == nil {
		return nil
	}
	err := e.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, e.server.Close())
	}
	e.done.Wait()
	return err
}

// isLoopback tells whether only programs of this machine can reach the address.
func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
