// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The traffic: a fleet of simulated engines, each of which is replaced by a new one after a while, and many short
// requests of ever new tenants and engines, beyond every limit.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
)

const (
	fleet    = 8                // simulated engines at a time
	lifetime = 50 * time.Second // of each, on average

	bulkEngines = 100 // at a time: more than the limit
	bulkTenants = 30  // at a time, of each engine some
	moveOn      = 5 * time.Second
	bulkBatch   = 50
)

type traffic struct {
	api          ptraceotlp.GRPCClient
	sent, failed atomic.Int64
	cancel       context.CancelFunc
	done         sync.WaitGroup
	next         atomic.Uint64
}

func startTraffic(ctx context.Context, address string, rate int) (*traffic, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{api: ptraceotlp.NewGRPCClient(conn), cancel: cancel}
	for i := range fleet {
		first, err := newPod(i, 0)
		if err != nil {
			cancel()
			return nil, err
		}
		t.done.Go(func() { t.pods(ctx, i, first) })
	}
	t.done.Go(func() { t.bulk(ctx, rate) })
	go func() {
		t.done.Wait()
		_ = conn.Close()
	}()
	return t, nil
}

func (t *traffic) stop() {
	t.cancel()
	t.done.Wait()
}

func (t *traffic) send(ctx context.Context, td ptrace.Traces) {
	attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	n := int64(td.SpanCount())
	if _, err := t.api.Export(attempt, ptraceotlp.NewExportRequestFromTraces(td)); err != nil {
		if ctx.Err() == nil {
			t.failed.Add(1)
		}
		return
	}
	t.sent.Add(n)
}

// pod is a simulated engine with a name of its own.
type pod struct {
	sim  *enginesim.Sim
	name string
	end  time.Time
}

func newPod(slot, generation int) (*pod, error) {
	preset := enginesim.Presets()[(slot+generation)%len(enginesim.Presets())]
	cfg, err := enginesim.Preset(preset)
	if err != nil {
		return nil, err
	}
	cfg.Start = time.Now()
	cfg.Seed = uint64(slot)<<32 | uint64(generation)
	sim, err := enginesim.New(cfg, enginesim.Workload{Lengths: enginesim.LengthsChat}, 4)
	if err != nil {
		return nil, err
	}
	life := time.Duration((0.5 + rand.Float64()) * float64(lifetime))
	return &pod{sim: sim, name: fmt.Sprintf("pod-%d-%d", slot, generation), end: cfg.Start.Add(life)}, nil
}

// pods lets one engine after the other live.
func (t *traffic) pods(ctx context.Context, slot int, p *pod) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for generation := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		exports := p.sim.Advance(now)
		p.sim.Forget(now)
		over := now.After(p.end)
		if over {
			exports = append(exports, p.sim.Close()...)
		}
		for _, x := range exports {
			for _, rs := range x.Traces.ResourceSpans().All() {
				rs.Resource().Attributes().PutStr("service.instance.id", p.name)
			}
			t.send(ctx, x.Traces)
		}
		if over {
			next, err := newPod(slot, generation)
			if err != nil { // not of what was good before
				panic(err)
			}
			p, generation = next, generation+1
		}
	}
}

// bulk sends batches at an even rate. Engines and tenants come from a range that moves on.
func (t *traffic) bulk(ctx context.Context, rate int) {
	ticker := time.NewTicker(time.Second * bulkBatch / time.Duration(max(rate, bulkBatch)))
	defer ticker.Stop()
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		moved := int(now.Sub(begin) / moveOn)
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "vllm")
		rs.Resource().Attributes().PutStr("service.instance.id", fmt.Sprintf("bulk-%d", 10*moved+rand.IntN(bulkEngines)))
		ss := rs.ScopeSpans().AppendEmpty()
		for i := range bulkBatch {
			id := rig.SpanID(t.next.Add(1))
			if i == 0 && id > 1 {
				id-- // sent again
			}
			span := ss.Spans().AppendEmpty()
			rig.PutRequest(span, id, now)
			span.Attributes().PutStr("tenant", fmt.Sprintf("tenant-%d", moved+rand.IntN(bulkTenants)))
		}
		t.send(ctx, td)
	}
}
