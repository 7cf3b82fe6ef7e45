// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// What the faults have in common: a collector between clients and backends, and the end of each trial.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// fault is one thing that happens in production.
type fault struct {
	name  string
	title string // in the table
	run   func(ctx context.Context, x *trial) error
	// What is not promised, in spans: docs/reliability.md says why.
	mayLose, mayMiss, mayRepeat int64
}

// trial is one fault being tried.
type trial struct {
	*result
	binary, dir string
	length      time.Duration // that the fault lasts
	settling    time.Duration // that the queues may take to empty once nothing fails any more
	cancel      context.CancelFunc

	traces, metrics *rig.Backend
	load            *rig.Load
	collectors      []*rig.Collector
	backends        []*rig.Backend
	atEnd           []func()
}

// unbound: as many as there are.
const unbound = 1 << 62

// backend starts one more backend.
func (x *trial) backend() (*rig.Backend, error) {
	b, err := rig.NewBackend()
	if b != nil {
		x.backends = append(x.backends, b)
	}
	return b, err
}

// prepare makes the usual set-up, with nothing started but the backends.
func (x *trial) prepare() (*rig.Collector, error) {
	var err1, err2 error
	x.traces, err1 = x.backend()
	x.metrics, err2 = x.backend()
	c := rig.NewCollector(x.binary, x.dir, x.traces, x.metrics)
	x.collectors = append(x.collectors, c)
	x.load = &rig.Load{GRPC: c.GRPC, HTTP: c.HTTP, Clients: 6, Batch: 10, Pause: 15 * time.Millisecond}
	return c, errors.Join(err1, err2)
}

// start makes and starts the usual set-up, as changed by configure, and puts it under load.
func (x *trial) start(ctx context.Context, configure func(c *rig.Collector)) (*rig.Collector, error) {
	c, err := x.prepare()
	if err != nil {
		return nil, err
	}
	if configure != nil {
		configure(c)
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	return c, x.load.Start(ctx)
}

// during lasts as long as the fault does, under load.
func (x *trial) during(ctx context.Context) { wait(ctx, x.length) }

// calm is a time under load in which nothing fails.
func (x *trial) calm(ctx context.Context) { wait(ctx, x.length/3) }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// finish ends the load, waits for the queues, stops the collectors in order, and draws the balance.
func (x *trial) finish(collectors ...*rig.Collector) error {
	x.load.Stop()
	// Looked at again and again, so that it ends when they are empty. If it takes longer, the balance will say what is missing.
	_ = program.Await(x.settling, func() bool { return x.load.Missing(x.traces) == 0 })
	var errs []error
	for _, c := range collectors {
		errs = append(errs, c.Terminate())
	}
	x.draw()
	return errors.Join(errs...)
}

func (x *trial) draw() {
	x.sent, x.acknowledged = x.load.Sent(), x.load.Acknowledged()
	x.forwarded, x.again = x.traces.Spans()
	x.lost = x.load.Missing(x.traces)
	x.counted = x.metrics.Counted()
	x.settle()
}

// end stops all that runs.
func (x *trial) end() {
	x.cancel() // or clients would go on trying
	if x.load != nil {
		x.load.Stop()
	}
	for _, c := range x.collectors {
		if c.Process != nil {
			c.Kill()
		}
	}
	for _, b := range x.backends {
		b.Down()
	}
	for i := len(x.atEnd) - 1; i >= 0; i-- {
		x.atEnd[i]()
	}
}

// logs are the last words of the collectors.
func (x *trial) logs() string {
	var b strings.Builder
	for _, c := range x.collectors {
		if c.Process == nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(c.Output()), "\n")
		fmt.Fprintf(&b, "--- the collector's last lines:\n%s\n", strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
	return b.String()
}
