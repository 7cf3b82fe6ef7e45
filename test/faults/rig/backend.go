// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package rig

// The far side: a tracing and metrics backend that refuses, hangs and dies on demand.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // which exporters use unless told otherwise
	"google.golang.org/grpc/status"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// Mode is what a backend does with what it is sent.
type Mode int

// The modes.
const (
	Accept Mode = iota
	Refuse      // Unavailable, at once
	Hang        // no answer until the caller gives up
)

// SpanID is a span's ID as a number; the rig gives each span one of its own.
type SpanID uint64

// Backend is an OTLP gRPC server for spans and metrics. It keeps the IDs of spans and the request counts.
type Backend struct {
	Address string
	// Discard takes spans and forgets them. Set it before there is any.
	Discard bool

	mu      sync.Mutex
	server  *grpc.Server // nil: down
	mode    Mode
	changed chan struct{} // closed when mode changes
	spans   map[SpanID]int
	refused int64 // calls, also those left hanging
	calls   int64

	cumulative map[string]int64 // by series and start
	delta      int64
}

// requestCount is the metric that counts every request once.
const requestCount = "llm.serving.request.count"

// NewBackend starts a backend on a free port.
func NewBackend() (*Backend, error) {
	b := &Backend{Address: program.Address(program.FreePort()), changed: make(chan struct{}), spans: map[SpanID]int{}, cumulative: map[string]int64{}}
	return b, b.Up()
}

// Up begins to listen, on the same port as before.
func (b *Backend) Up() error {
	l, err := net.Listen("tcp", b.Address)
	if err != nil {
		return err
	}
	// Down waits for calls under way: what arrives after it has come before it.
	server := grpc.NewServer(grpc.MaxRecvMsgSize(256<<20), grpc.WaitForHandlers(true))
	ptraceotlp.RegisterGRPCServer(server, &traceService{b: b})
	pmetricotlp.RegisterGRPCServer(server, &metricService{b: b})
	b.mu.Lock()
	b.server = server
	b.mu.Unlock()
	go func() { _ = server.Serve(l) }()
	return nil
}

// Down cuts all connections and listens no more.
func (b *Backend) Down() {
	b.mu.Lock()
	server := b.server
	b.server = nil
	b.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Set changes what the backend does from here on; calls that hang are answered.
func (b *Backend) Set(m Mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = m
	close(b.changed)
	b.changed = make(chan struct{})
}

// admit waits or refuses as the mode says.
func (b *Backend) admit(ctx context.Context) error {
	b.mu.Lock()
	mode, changed := b.mode, b.changed
	b.calls++
	if mode != Accept {
		b.refused++
	}
	b.mu.Unlock()
	switch mode {
	case Hang:
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-changed: // too late for who asked
		}
		fallthrough
	case Refuse:
		return status.Error(codes.Unavailable, "the backend is made to fail")
	}
	return nil
}

type traceService struct {
	ptraceotlp.UnimplementedGRPCServer
	b *Backend
}

func (s *traceService) Export(ctx context.Context, req ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	if err := s.b.admit(ctx); err != nil {
		return ptraceotlp.NewExportResponse(), err
	}
	if s.b.Discard {
		return ptraceotlp.NewExportResponse(), nil
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for _, rs := range req.Traces().ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				id := span.SpanID()
				s.b.spans[SpanID(binary.BigEndian.Uint64(id[:]))]++
			}
		}
	}
	return ptraceotlp.NewExportResponse(), nil
}

type metricService struct {
	pmetricotlp.UnimplementedGRPCServer
	b *Backend
}

func (s *metricService) Export(ctx context.Context, req pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	if err := s.b.admit(ctx); err != nil {
		return pmetricotlp.NewExportResponse(), err
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for _, rm := range req.Metrics().ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != requestCount || m.Type() != pmetric.MetricTypeSum {
					continue
				}
				for _, dp := range m.Sum().DataPoints().All() {
					if m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta {
						s.b.delta += dp.IntValue()
						continue
					}
					// A start time of its own is a life of its own: a restart counts from zero.
					key := seriesKey(rm.Resource().Attributes(), dp)
					s.b.cumulative[key] = max(s.b.cumulative[key], dp.IntValue())
				}
			}
		}
	}
	return pmetricotlp.NewExportResponse(), nil
}

func seriesKey(resource pcommon.Map, dp pmetric.NumberDataPoint) string {
	key, err := json.Marshal([]any{resource.AsRaw(), dp.Attributes().AsRaw(), dp.StartTimestamp()})
	if err != nil { // not with values that came over the wire
		panic(err)
	}
	return string(key)
}

// Counted is the sum of all request counts: over all series, and over all lives of the collector.
func (b *Backend) Counted() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.delta
	for _, n := range b.cumulative {
		sum += n
	}
	return sum
}

// Refused is how many calls were refused or left hanging, of all that came.
func (b *Backend) Refused() (refused, of int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused, b.calls
}

// Spans is how many different spans came, and how many more times than once.
func (b *Backend) Spans() (unique, again int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.spans {
		again += int64(n - 1)
	}
	return int64(len(b.spans)), again
}

// Has reports whether the span came.
func (b *Backend) Has(id SpanID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spans[id] > 0
}
