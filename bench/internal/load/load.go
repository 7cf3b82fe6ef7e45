// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package load

// Connections that each wait for an answer before they send again.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
)

const (
	export = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	// history is how far back the spans begin: they must not run ahead of the wall clock however fast they are sent.
	history = 400 * 24 * time.Hour
	// answerTimeout ends a connection that gets no answer.
	answerTimeout = 20 * time.Second
)

// Config is what to send.
type Config struct {
	Port        int
	Kind        spans.Kind
	Batch       int // spans per export
	Connections int // each an engine of its own
	// Rate is how many requests an engine ends per second of span time, which decides how many windows there are. It is not how fast
	// spans are sent. 0: 10.
	Rate int
}

// Load is sending until it is stopped.
type Load struct {
	sent   atomic.Int64
	cancel context.CancelFunc
	wait   sync.WaitGroup
	errs   []error
}

// Start begins to send.
func Start(c Config) (*Load, error) {
	template, err := spans.New(c.Kind, c.Batch, false)
	if err != nil {
		return nil, err
	}
	if c.Rate == 0 {
		c.Rate = 10
	}
	step := uint64(time.Second) / uint64(c.Rate) //nolint:gosec // not negative
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cancel: cancel, errs: make([]error, c.Connections)}
	for i := range c.Connections {
		conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", c.Port), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Raw{})))
		if err != nil {
			cancel()
			return nil, errors.Join(err, l.Stop())
		}
		l.wait.Go(func() {
			l.errs[i] = errors.Join(l.send(ctx, conn, template.Clone(), i, step), conn.Close())
		})
	}
	return l, nil
}

// Sent is how many spans were taken so far.
func (l *Load) Sent() int64 { return l.sent.Load() }

// Stop waits for the last answers.
func (l *Load) Stop() error {
	l.cancel()
	l.wait.Wait()
	return errors.Join(l.errs...)
}

func (l *Load) send(ctx context.Context, conn *grpc.ClientConn, t *spans.Template, engine int, step uint64) error {
	begin := uint64(time.Now().Add(-history).UnixNano())
	for n := uint64(0); ctx.Err() == nil; n += uint64(t.Len()) {
		t.Set(spans.Export{FirstID: uint64(engine+1)<<56 | n, Engine: engine, End: begin + n*step, Step: step})
		var answer []byte
		call, done := context.WithTimeout(context.Background(), answerTimeout)
		err := conn.Invoke(call, export, t.Wire, &answer)
		done()
		if err != nil {
			return err
		}
		if len(answer) > 2 { // not even an empty partial_success
			return fmt.Errorf("spans were refused: %q", answer)
		}
		l.sent.Add(int64(t.Len()))
	}
	return nil
}

// Raw is the codec of messages that are bytes already: a []byte to send, a *[]byte to receive.
type Raw struct{}

var _ encoding.CodecV2 = Raw{}

// Marshal does not copy.
func (Raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal copies.
func (Raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name is that of the codec it stands in for.
func (Raw) Name() string { return "proto" }
