// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The real extension, once per state, with reporters that tell a fixture as of now.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension"

	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
	"github.com/otelcol-serving/otelcol-serving/test/browser/fixtures"
)

func main() {
	port := flag.Int("port", 18700, "of the first state; the others follow")
	refresh := flag.Duration("refresh", 2*time.Second, "how often an open page fetches new figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *port, *refresh); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve prints the addresses by state as one line of JSON, and serves until ctx is done.
func serve(ctx context.Context, port int, refresh time.Duration) (err error) {
	addresses := map[string]string{}
	for i, state := range fixtures.States() {
		e, err := start(ctx, state, fmt.Sprintf("localhost:%d", port+i), refresh)
		if err != nil {
			return fmt.Errorf("%s: %w", state.Name, err)
		}
		defer func() { err = errors.Join(err, e.Shutdown(context.WithoutCancel(ctx))) }()
		addresses[state.Name] = fmt.Sprintf("http://localhost:%d/", port+i)
	}
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func start(ctx context.Context, state fixtures.State, endpoint string, refresh time.Duration) (extension.Extension, error) {
	factory := servingsummaryextension.NewFactory()
	cfg := factory.CreateDefaultConfig()
	err := confmap.NewFromStringMap(map[string]any{
		"endpoint":  endpoint,
		"refresh":   refresh.String(),
		"trace_url": "http://localhost:16686/trace/{trace_id}?uiFind={span_id}",
	}).Unmarshal(cfg)
	if err != nil {
		return nil, err
	}
	set := extension.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
		BuildInfo:         component.BuildInfo{Command: "otelcol-serving", Version: "0.1.0"},
	}
	e, err := factory.Create(ctx, set, cfg)
	if err != nil {
		return nil, err
	}
	registry := e.(summary.Registry)
	made := &maker{state: state}
	for i := range state.Make(time.Now()) {
		registry.Register(&moving{made, i})
	}
	return e, e.Start(ctx, componenttest.NewNopHost())
}

// maker makes a state's reporters anew every second.
type maker struct {
	state fixtures.State

	mu        sync.Mutex
	at        time.Time
	reporters []summary.Reporter
}

func (m *maker) make(now time.Time) []summary.Reporter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := now.Truncate(time.Second); !at.Equal(m.at) {
		m.at, m.reporters = at, m.state.Make(at)
	}
	return m.reporters
}

// moving is one reporter of a state, always as of now.
type moving struct {
	maker *maker
	index int
}

func (m *moving) at(now time.Time) summary.Reporter { return m.maker.make(now)[m.index] }

func (m *moving) Source() summary.Source                 { return m.at(time.Now()).Source() }
func (m *moving) Engines(now time.Time) []summary.Engine { return m.at(now).Engines(now) }
func (m *moving) Engine(key string, now time.Time) (summary.EngineReport, bool) {
	return m.at(now).Engine(key, now)
}
