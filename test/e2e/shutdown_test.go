// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// SIGTERM, as service managers send it: what was acknowledged must be in the metrics that come out last.

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

func TestSIGTERMKeepsLastMetrics(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		config := "processor.yaml"
		if i%5 == 4 {
			config = "connector.yaml"
		}
		t.Run(strconv.Itoa(i)+" "+config, func(t *testing.T) {
			s := startSink(t)
			c := startCollector(t, testConfig(config), collectorOptions{env: s.env(longInterval, "cumulative")})
			c.replay(t, recordingV0, recordingV1)
			// So that what comes out is the final collect.
			require.Empty(t, s.grpcMetrics.AllMetrics())
			c.terminate(t)
			for protocol, metrics := range map[string]*consumertest.MetricsSink{"grpc": &s.grpcMetrics, "http": &s.httpMetrics} {
				require.Len(t, metrics.AllMetrics(), 1, protocol)
				md := last(t, metrics)
				assert.Equal(t, 13.0, total(md, "llm.serving.request.count", nil), protocol)
				assert.InEpsilon(t, v0E2E+addUpV1(t).e2e, total(md, "llm.serving.request.stage.time", nil), 1e-9, protocol)
			}
			assert.Len(t, spansOf(s.grpcTraces.AllTraces()...), 17)
			assert.Len(t, spansOf(s.httpTraces.AllTraces()...), 17)
		})
	}
}

// TestSIGTERMUnderLoad ends the collector while clients send: every acknowledged request is counted, once,
// by the final collect or by those before it.
func TestSIGTERMUnderLoad(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		interval := longInterval
		if i%2 == 1 {
			interval = "100ms"
		}
		t.Run(strconv.Itoa(i)+" interval "+interval, func(t *testing.T) {
			s := startSink(t)
			c := startCollector(t, testConfig("processor.yaml"), collectorOptions{env: s.env(interval, "delta")})
			sent, acknowledged := c.loadUntilTerminated(t, 500)
			for protocol, metrics := range map[string]*consumertest.MetricsSink{"grpc": &s.grpcMetrics, "http": &s.httpMetrics} {
				counted := 0.0
				for _, md := range metrics.AllMetrics() {
					counted += total(md, "llm.serving.request.count", nil)
				}
				t.Logf("%s: %d sent, %d acknowledged, %v counted in %d collects", protocol, sent, acknowledged, counted, len(metrics.AllMetrics()))
				assert.GreaterOrEqual(t, counted, float64(acknowledged), protocol)
				assert.LessOrEqual(t, counted, float64(sent), protocol)
			}
			assert.GreaterOrEqual(t, len(spansOf(s.grpcTraces.AllTraces()...)), acknowledged, "spans")
		})
	}
}

// loadUntilTerminated has clients send one request after the other, and ends the collector when it has
// acknowledged some.
func (c *collector) loadUntilTerminated(t *testing.T, some int64) (sent, acknowledged int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var nSent, nAcknowledged atomic.Int64
	enough := make(chan struct{})
	var clients sync.WaitGroup
	for client := range uint32(4) {
		conn, err := grpc.NewClient(program.Address(c.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		traces := ptraceotlp.NewGRPCClient(conn)
		clients.Go(func() {
			for i := uint32(0); ; i++ {
				nSent.Add(1)
				if _, err := traces.Export(ctx, oneRequest(client, i)); err != nil {
					return // the collector is gone
				}
				if nAcknowledged.Add(1) == some {
					close(enough)
				}
			}
		})
	}
	select {
	case <-enough:
	case <-ctx.Done():
		require.FailNow(t, "the clients do not get on")
	}
	c.terminate(t)
	clients.Wait()
	require.NoError(t, ctx.Err(), "the clients did not see the collector go")
	return int(nSent.Load()), int(nAcknowledged.Load())
}

// oneRequest is a payload with one request span that no other has.
func oneRequest(client, i uint32) ptraceotlp.ExportRequest {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "load")
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("llm_request")
	span.SetTraceID(pcommon.TraceID{1})
	var id pcommon.SpanID
	binary.BigEndian.PutUint32(id[:4], client+1)
	binary.BigEndian.PutUint32(id[4:], i)
	span.SetSpanID(id)
	end := time.Now()
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-time.Second)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	span.Attributes().PutDouble("gen_ai.latency.e2e", 1)
	span.Attributes().PutDouble("gen_ai.latency.time_in_queue", 0.25)
	return ptraceotlp.NewExportRequestFromTraces(td)
}
