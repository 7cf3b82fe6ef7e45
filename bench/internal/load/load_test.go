// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
)

// server takes exports until it is to refuse them.
type server struct {
	ptraceotlp.UnimplementedGRPCServer
	mu     sync.Mutex
	ids    map[pcommon.TraceID]bool
	spans  int
	refuse bool
}

func (s *server) Export(_ context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse {
		return ptraceotlp.NewExportResponse(), errors.New("no")
	}
	for _, span := range request.Traces().ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.ids[span.TraceID()] = true
		s.spans++
	}
	return ptraceotlp.NewExportResponse(), nil
}

func listen(t *testing.T, s *server) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().(*net.TCPAddr).Port
}

func TestEverySpanIsSentOnce(t *testing.T) {
	s := &server{ids: map[pcommon.TraceID]bool{}}
	l, err := Start(Config{Port: listen(t, s), Kind: spans.V1, Batch: 10, Connections: 3})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.Sent() > 1000 }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Stop())
	assert.EqualValues(t, l.Sent(), s.spans)
	assert.Len(t, s.ids, s.spans)
}

func TestRefusalIsAnError(t *testing.T) {
	s := &server{refuse: true}
	l, err := Start(Config{Port: listen(t, s), Kind: spans.V1, Batch: 10, Connections: 1})
	require.NoError(t, err)
	l.wait.Wait()
	assert.Error(t, l.Stop())
	assert.Zero(t, l.Sent())
}
