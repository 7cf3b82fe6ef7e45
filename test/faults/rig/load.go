// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package rig

// The near side: clients that send request spans, as engines do, until each is acknowledged.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Load is what clients send and what became of it.
type Load struct {
	GRPC, HTTP string // addresses; clients of odd number use HTTP where it is not ""

	Clients int           // at once, each with an engine of its own
	Batch   int           // spans of a request to the collector
	Pause   time.Duration // of a client between two of them
	Copies  int           // times that each batch is sent although it was acknowledged; 0 is 1
	Padding int           // bytes that a span carries beside its figures
	Timeout time.Duration // of an attempt; 0 is 10 s, as SDKs have it
	// ClockOffset, if set, is what an engine's clock is off by.
	ClockOffset func() time.Duration

	next           atomic.Uint64
	attempts, fail atomic.Int64

	mu    sync.Mutex
	sent  []SpanID
	acked map[SpanID]time.Time

	stop     chan struct{}
	stopping sync.Once
	clients  sync.WaitGroup
}

// Start begins to send. ctx ends also what is not acknowledged yet.
func (l *Load) Start(ctx context.Context) error {
	l.acked = map[SpanID]time.Time{}
	l.stop = make(chan struct{})
	if l.Timeout == 0 {
		l.Timeout = 10 * time.Second
	}
	for i := range l.Clients {
		var c client
		if i%2 == 1 && l.HTTP != "" {
			c = &httpClient{url: "http://" + l.HTTP + "/v1/traces", client: http.Client{Transport: &http.Transport{}}}
		} else {
			conn, err := grpc.NewClient(l.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithConnectParams(grpc.ConnectParams{
					Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 300 * time.Millisecond},
					MinConnectTimeout: time.Second,
				}))
			if err != nil {
				return err
			}
			c = &grpcClient{conn: conn, api: ptraceotlp.NewGRPCClient(conn)}
		}
		l.clients.Go(func() {
			defer c.close()
			l.run(ctx, c, fmt.Sprintf("engine-%d", i))
		})
	}
	return nil
}

// Stop makes no more spans, and waits until all that were made are acknowledged or the context of Start is over.
func (l *Load) Stop() {
	if l.stop == nil {
		return // was never started
	}
	l.stopping.Do(func() { close(l.stop) })
	l.clients.Wait()
}

func (l *Load) run(ctx context.Context, c client, engine string) {
	for {
		select {
		case <-l.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(l.Pause):
		}
		td, ids := l.spans(engine)
		req := ptraceotlp.NewExportRequestFromTraces(td)
		body, err := req.MarshalProto()
		if err != nil { // not of what we made
			panic(err)
		}
		l.mu.Lock()
		l.sent = append(l.sent, ids...)
		l.mu.Unlock()
		for range max(l.Copies, 1) {
			if !l.deliver(ctx, c, req, body) {
				return
			}
		}
		now := time.Now()
		l.mu.Lock()
		for _, id := range ids {
			l.acked[id] = now
		}
		l.mu.Unlock()
	}
}

// deliver tries until the collector acknowledges.
func (l *Load) deliver(ctx context.Context, c client, req ptraceotlp.ExportRequest, body []byte) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 400*time.Millisecond) {
		l.attempts.Add(1)
		attempt, cancel := context.WithTimeout(ctx, l.Timeout)
		err := c.send(attempt, req, body)
		cancel()
		if err == nil {
			return true
		}
		l.fail.Add(1)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// spans makes a batch of vLLM V1's spans.
func (l *Load) spans(engine string) (ptrace.Traces, []SpanID) {
	now := time.Now()
	if l.ClockOffset != nil {
		now = now.Add(l.ClockOffset())
	}
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	rs.Resource().Attributes().PutStr("service.instance.id", engine)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	ids := make([]SpanID, l.Batch)
	for i := range ids {
		ids[i] = SpanID(l.next.Add(1))
		PutRequest(ss.Spans().AppendEmpty(), ids[i], now)
		if l.Padding > 0 {
			ss.Spans().At(i).Attributes().PutStr("padding", strings.Repeat("x", l.Padding))
		}
	}
	return td, ids
}

// PutRequest makes span a request that ended at end.
func PutRequest(span ptrace.Span, id SpanID, end time.Time) {
	var trace pcommon.TraceID
	var spanID pcommon.SpanID
	binary.BigEndian.PutUint64(trace[:], 1)
	binary.BigEndian.PutUint64(trace[8:], uint64(id)*0x9e3779b97f4a7c15+1)
	binary.BigEndian.PutUint64(spanID[:], uint64(id))
	span.SetTraceID(trace)
	span.SetSpanID(spanID)
	span.SetName("llm_request")
	span.SetKind(ptrace.SpanKindServer)
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-1010 * time.Millisecond)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	a := span.Attributes()
	a.PutDouble("gen_ai.latency.e2e", 1)
	a.PutDouble("gen_ai.latency.time_in_queue", 0.05)
	a.PutDouble("gen_ai.latency.time_to_first_token", 0.2)
	a.PutDouble("gen_ai.latency.time_in_model_prefill", 0.15)
	a.PutDouble("gen_ai.latency.time_in_model_decode", 0.79)
	a.PutDouble("gen_ai.latency.time_in_model_inference", 0.94)
	a.PutInt("gen_ai.usage.prompt_tokens", 512)
	a.PutInt("gen_ai.usage.completion_tokens", 64)
	a.PutStr("gen_ai.request.id", fmt.Sprintf("cmpl-%x", uint64(id)))
}

// Sent is how many spans were given to clients, Acknowledged those of them that the collector took.
func (l *Load) Sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.sent))
}

// Acknowledged is described at Sent.
func (l *Load) Acknowledged() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.acked))
}

// AcknowledgedBetween is how many spans were acknowledged in that time.
func (l *Load) AcknowledgedBetween(from, to time.Time) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.acked {
		if at.After(from) && !at.After(to) {
			n++
		}
	}
	return n
}

// Missing is how many acknowledged spans no backend has.
func (l *Load) Missing(backends ...*Backend) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.acked {
		found := false
		for _, b := range backends {
			found = found || b.Has(id)
		}
		if !found {
			n++
		}
	}
	return n
}

// Attempts are the requests to the collector, and how many of them failed.
func (l *Load) Attempts() (all, failed int64) { return l.attempts.Load(), l.fail.Load() }

// client sends one batch once, given in both forms.
type client interface {
	send(ctx context.Context, req ptraceotlp.ExportRequest, body []byte) error
	close()
}

type grpcClient struct {
	conn *grpc.ClientConn
	api  ptraceotlp.GRPCClient
}

func (c *grpcClient) send(ctx context.Context, req ptraceotlp.ExportRequest, _ []byte) error {
	resp, err := c.api.Export(ctx, req)
	if err == nil && resp.PartialSuccess().RejectedSpans() > 0 {
		err = errors.New("rejected in part: " + resp.PartialSuccess().ErrorMessage())
	}
	return err
}

func (c *grpcClient) close() { _ = c.conn.Close() }

type httpClient struct {
	url    string
	client http.Client
}

func (c *httpClient) send(ctx context.Context, _ ptraceotlp.ExportRequest, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

func (c *httpClient) close() { c.client.CloseIdleConnections() }
