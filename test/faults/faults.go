// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The faults.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
	"github.com/otelcol-serving/otelcol-serving/test/program"
)

var faults = []fault{
	{name: "none", title: "nothing fails", run: nothing},
	{name: "backend-refuses", title: "the tracing backend refuses", run: backendFails(rig.Refuse)},
	{name: "backend-hangs", title: "the tracing backend hangs", run: backendFails(rig.Hang)},
	{name: "backend-dies", title: "the tracing backend dies and comes back", run: backendDies},
	{name: "sibling-fails", title: "one of two exporters, without a queue, refuses and hangs; clients send again", run: siblingFails},
	{name: "metrics-refused", title: "the metrics backend refuses (delta temporality, no queue)", run: metricsRefused},
	{name: "duplicates", title: "every batch is sent three times", run: duplicates},
	{name: "sigterm", title: "SIGTERM under load, and a new start", run: sigterm},
	{name: "reload", title: "SIGHUP under load, four times, with changes of processor, receiver and exporter", run: reload},
	{name: "reload-receiver", title: "SIGHUP under load, three times, with changes of the receiver only and `service.partialReload` on", run: reloadReceiver},
	{name: "reload-resending", title: "SIGHUP while clients send again, since an exporter without a queue refuses", run: reloadResending},
	{name: "reload-disk-queue", title: "SIGHUP with the queue on disk while the backend is away", run: stopAway(true, true)},
	{name: "sigterm-disk-queue", title: "SIGTERM with the queue on disk while the backend is away, and a new start", run: stopAway(true, false)},
	{name: "sigterm-memory-queue", title: "SIGTERM with the queue in memory while the backend is away, and a new start", run: stopAway(false, false), mayLose: unbound},
	{name: "kill-disk-queue", title: "`kill -9` with the queue on disk while the backend is away, and a new start", run: kill(true)},
	{name: "kill-memory-queue", title: "`kill -9` with the queue in memory while the backend is away, and a new start", run: kill(false), mayLose: unbound},
	{name: "memory-limiter", title: "memory_limiter refuses, since the backend hangs", run: memoryLimiter},
	{name: "disk-queue-full", title: "the queue on disk is full, limited to less than its disk", run: diskFull(true)},
	{name: "disk-full", title: "the disk of the queue is full", run: diskFull(false), mayLose: unbound},
	{name: "engine-clocks", title: "clocks of the engines step back an hour, then forward a day", run: engineClocks},
	{name: "own-clock", title: "clock of the collector steps back an hour, then forward a day", run: ownClock},
	{name: "two-collectors", title: "two collectors behind a balancer, one of which gets SIGTERM", run: twoCollectors},
}

func nothing(ctx context.Context, x *trial) error {
	c, err := x.start(ctx, nil)
	if err != nil {
		return err
	}
	x.during(ctx)
	err = x.finish(c)
	_, failed := x.load.Attempts()
	x.evidence = fmt.Sprintf("%d attempts failed", failed)
	return err
}

func backendFails(mode rig.Mode) func(context.Context, *trial) error {
	return func(ctx context.Context, x *trial) error {
		c, err := x.start(ctx, nil)
		if err != nil {
			return err
		}
		x.calm(ctx)
		x.traces.Set(mode)
		x.during(ctx)
		_ = program.Await(20*time.Second, func() bool { n, _ := x.traces.Refused(); return n > 0 })
		x.traces.Set(rig.Accept)
		x.calm(ctx)
		if n, _ := x.traces.Refused(); n > 0 {
			x.evidence = fmt.Sprintf("%d exports failed", n)
		}
		return x.finish(c)
	}
}

func backendDies(ctx context.Context, x *trial) error {
	c, err := x.start(ctx, nil)
	if err != nil {
		return err
	}
	x.calm(ctx)
	x.traces.Down()
	before, _ := x.traces.Spans()
	taken := x.load.Acknowledged()
	x.during(ctx)
	_ = program.Await(20*time.Second, func() bool { return x.load.Acknowledged() > taken })
	after, _ := x.traces.Spans()
	taken = x.load.Acknowledged() - taken
	if err := x.traces.Up(); err != nil {
		return err
	}
	if before == after && taken > 0 {
		x.evidence = fmt.Sprintf("%d spans taken meanwhile", taken)
	}
	x.calm(ctx)
	return x.finish(c)
}

// siblingFails: clients get an error for spans that the other exporter and serving_metrics have taken.
func siblingFails(ctx context.Context, x *trial) error {
	sibling, err := x.backend()
	if err != nil {
		return err
	}
	c, err := x.start(ctx, func(c *rig.Collector) { addSibling(c, sibling) })
	if err != nil {
		return err
	}
	x.calm(ctx)
	sibling.Set(rig.Refuse)
	wait(ctx, x.length/2)
	_ = program.Await(20*time.Second, func() bool { n, _ := sibling.Refused(); return n > 0 })
	sibling.Set(rig.Hang)
	wait(ctx, x.length/2)
	sibling.Set(rig.Accept)
	x.calm(ctx)
	x.load.Stop()
	resent, err := c.Own("otelcol_serving_metrics_requests_duplicate")
	if err != nil {
		return err
	}
	if resent > 0 {
		x.evidence = fmt.Sprintf("%.0f resent spans recognised", resent)
	}
	err = x.finish(c)
	if missing := x.load.Missing(sibling); missing > 0 {
		err = errors.Join(err, fmt.Errorf("%d acknowledged spans are not at the sibling's backend", missing))
	}
	return err
}

// addSibling has a second exporter take every span, which hands its errors to the client.
func addSibling(c *rig.Collector, to *rig.Backend) {
	exporter := rig.Exporter(to, rig.Section{"enabled": false})
	exporter["retry_on_failure"] = rig.Section{"enabled": false}
	c.At("exporters")["otlp_grpc/sibling"] = exporter
	c.At("service", "pipelines", "traces")["exporters"] = []string{"otlp_grpc/traces", "otlp_grpc/sibling"}
}

func metricsRefused(ctx context.Context, x *trial) error {
	c, err := x.start(ctx, func(c *rig.Collector) {
		c.At("processors", "serving_metrics")["temporality"] = "delta"
		exporter := c.At("exporters", "otlp_grpc/metrics")
		exporter["sending_queue"] = rig.Section{"enabled": false}
		exporter["retry_on_failure"] = rig.Section{"enabled": false}
	})
	if err != nil {
		return err
	}
	x.calm(ctx)
	x.metrics.Set(rig.Refuse)
	x.during(ctx)
	_ = program.Await(20*time.Second, func() bool { n, _ := x.metrics.Refused(); return n > 0 })
	x.metrics.Set(rig.Accept)
	x.calm(ctx)
	if n, _ := x.metrics.Refused(); n > 0 {
		x.evidence = fmt.Sprintf("%d exports failed", n)
	}
	return x.finish(c)
}

func duplicates(ctx context.Context, x *trial) error {
	c, err := x.prepare()
	if err != nil {
		return err
	}
	x.load.Copies = 3
	if err := errors.Join(c.Start(ctx), x.load.Start(ctx)); err != nil {
		return err
	}
	x.during(ctx)
	x.load.Stop()
	resent, err := c.Own("otelcol_serving_metrics_requests_duplicate")
	if err != nil {
		return err
	}
	if resent >= 2*float64(x.load.Sent()) {
		x.evidence = fmt.Sprintf("%.0f resent spans recognised", resent)
	}
	return x.finish(c)
}

func sigterm(ctx context.Context, x *trial) error {
	c, err := x.start(ctx, nil)
	if err != nil {
		return err
	}
	x.during(ctx)
	_, before := x.load.Attempts()
	if err := c.Terminate(); err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	x.calm(ctx)
	if _, after := x.load.Attempts(); after > before {
		x.evidence = fmt.Sprintf("%d attempts failed meanwhile", after-before)
	}
	return x.finish(c)
}

func reload(ctx context.Context, x *trial) error {
	c, err := x.start(ctx, nil)
	if err != nil {
		return err
	}
	for i, change := range []func(){
		func() { c.At("processors", "serving_metrics")["interval"] = "400ms" },
		func() { c.At("receivers", "llm_span", "protocols", "grpc")["max_recv_msg_size_mib"] = 32 },
		func() { c.At("exporters", "otlp_grpc/traces")["timeout"] = "2s" },
		func() {
			c.At("receivers", "llm_span")["other_spans"] = "drop"
			c.At("processors", "serving_metrics")["interval"] = "300ms"
		},
	} {
		x.calm(ctx)
		change()
		before := strings.Count(c.Output(), ready)
		taken := x.load.Acknowledged()
		if err := c.Reload(); err != nil {
			return err
		}
		err := program.Await(20*time.Second, func() bool {
			return c.Ended() || strings.Count(c.Output(), ready) > before && x.load.Acknowledged() > taken+600
		})
		if err != nil || c.Ended() {
			return fmt.Errorf("reload %d: ended %v, %w", i+1, c.Ended(), err)
		}
	}
	if n := strings.Count(c.Output(), ready); n == 5 { // the start, and four reloads
		_, failed := x.load.Attempts()
		x.evidence = fmt.Sprintf("%d reloads, %d attempts failed meanwhile", n-1, failed)
	}
	return x.finish(c)
}

// reloadReceiver: the feature gate leaves all but the receiver as it is.
func reloadReceiver(ctx context.Context, x *trial) error {
	c, err := x.prepare()
	if err != nil {
		return err
	}
	c.Args = []string{"--feature-gates=service.partialReload"}
	if err := errors.Join(c.Start(ctx), x.load.Start(ctx)); err != nil {
		return err
	}
	const listening = "Starting GRPC server"
	for i := range 3 {
		x.calm(ctx)
		c.At("receivers", "llm_span", "protocols", "grpc")["max_recv_msg_size_mib"] = 16 + i
		before, taken := strings.Count(c.Output(), listening), x.load.Acknowledged()
		if err := c.Reload(); err != nil {
			return err
		}
		err := program.Await(20*time.Second, func() bool {
			return c.Ended() || strings.Count(c.Output(), listening) > before && x.load.Acknowledged() > taken+600
		})
		if err != nil || c.Ended() {
			return fmt.Errorf("reload %d: ended %v, %w", i+1, c.Ended(), err)
		}
	}
	if log := c.Output(); strings.Count(log, ready) == 1 && strings.Count(log, listening) == 4 {
		_, failed := x.load.Attempts()
		x.evidence = fmt.Sprintf("3 reloads of the receiver alone, %d attempts failed meanwhile", failed)
	}
	return x.finish(c)
}

// ready is what the Collector logs after each start and each reload.
const ready = "Everything is ready"

// reloadResending: what clients hold when serving_metrics starts anew was counted by the one before.
func reloadResending(ctx context.Context, x *trial) error {
	sibling, err := x.backend()
	if err != nil {
		return err
	}
	c, err := x.start(ctx, func(c *rig.Collector) { addSibling(c, sibling) })
	if err != nil {
		return err
	}
	x.calm(ctx)
	sibling.Set(rig.Refuse)
	wait(ctx, x.length/2)
	c.At("processors", "serving_metrics")["interval"] = "400ms"
	before := strings.Count(c.Output(), ready)
	if err := c.Reload(); err != nil {
		return err
	}
	if err := program.Await(20*time.Second, func() bool { return strings.Count(c.Output(), ready) > before }); err != nil {
		return err
	}
	wait(ctx, x.length/2)
	sibling.Set(rig.Accept)
	x.calm(ctx)
	if n, _ := sibling.Refused(); n > 0 {
		x.evidence = fmt.Sprintf("%d exports failed; clients held %d spans", n, x.load.Clients*x.load.Batch)
	}
	return x.finish(c)
}

// stopAway: a stop in good order, at which nobody takes what is in the queue.
func stopAway(onDisk, byReload bool) func(context.Context, *trial) error {
	return func(ctx context.Context, x *trial) error {
		c, err := x.start(ctx, func(c *rig.Collector) {
			if onDisk {
				storeQueue(c, x.dir)
			}
		})
		if err != nil {
			return err
		}
		x.calm(ctx)
		x.traces.Set(rig.Refuse)
		wait(ctx, x.length/2)
		_ = program.Await(20*time.Second, func() bool { return x.load.Missing(x.traces) > 0 })
		waiting := x.load.Missing(x.traces)
		if byReload {
			c.At("processors", "serving_metrics")["interval"] = "400ms"
			before := strings.Count(c.Output(), ready)
			if err := c.Reload(); err != nil {
				return err
			}
			err = program.Await(20*time.Second, func() bool { return strings.Count(c.Output(), ready) > before })
		} else if err = c.Terminate(); err == nil {
			err = c.Start(ctx)
		}
		if err != nil {
			return err
		}
		if waiting > 0 {
			x.evidence = fmt.Sprintf("%d acknowledged spans in the queue at that moment", waiting)
		}
		x.calm(ctx)
		x.traces.Set(rig.Accept)
		return x.finishLosing(onDisk, c)
	}
}

// finishLosing waits for the queue only if it was kept: what is lost does not come.
func (x *trial) finishLosing(kept bool, c *rig.Collector) error {
	if !kept {
		x.settling = 2 * time.Second
	}
	return x.finish(c)
}

// kill: with a queue on disk all that was acknowledged is there after the new start.
func kill(onDisk bool) func(context.Context, *trial) error {
	return func(ctx context.Context, x *trial) error {
		c, err := x.start(ctx, func(c *rig.Collector) {
			if onDisk {
				storeQueue(c, x.dir)
			}
		})
		if err != nil {
			return err
		}
		x.calm(ctx)
		x.traces.Set(rig.Refuse)
		x.during(ctx)
		_ = program.Await(20*time.Second, func() bool { return x.load.Missing(x.traces) > 0 })
		c.Kill()
		killed := time.Now()
		// What the metrics backend had not got yet: up to an interval of 0.5 s, and what was on its way, which on a
		// busy machine is more.
		x.fault.mayMiss = max(x.load.AcknowledgedBetween(killed.Add(-time.Second), killed), x.load.Acknowledged()-x.metrics.Counted())
		// What was recorded and not acknowledged is sent again, to a process that knows nothing of it.
		x.fault.mayRepeat = int64(x.load.Clients * x.load.Batch)
		x.traces.Set(rig.Accept)
		waiting := x.load.Missing(x.traces)
		if err := c.Start(ctx); err != nil {
			return err
		}
		if waiting > 0 {
			x.evidence = fmt.Sprintf("%d acknowledged spans in the queue at that moment", waiting)
		}
		x.calm(ctx)
		return x.finishLosing(onDisk, c)
	}
}

// storeQueue keeps the queue of spans in a folder.
func storeQueue(c *rig.Collector, dir string) {
	c.At("extensions")["file_storage"] = rig.Section{"directory": dir}
	c.At("service")["extensions"] = []string{"file_storage"}
	c.At("exporters", "otlp_grpc/traces", "sending_queue")["storage"] = "file_storage"
}

func memoryLimiter(ctx context.Context, x *trial) error {
	c, err := x.prepare()
	if err != nil {
		return err
	}
	x.load.Padding = 20_000
	c.At("processors")["memory_limiter"] = rig.Section{"check_interval": "100ms", "limit_mib": 150, "spike_limit_mib": 50}
	for _, signal := range []string{"traces", "metrics"} {
		c.At("service", "pipelines", signal)["processors"] = []string{"memory_limiter", "serving_metrics"}
	}
	if err := errors.Join(c.Start(ctx), x.load.Start(ctx)); err != nil {
		return err
	}
	x.traces.Set(rig.Hang)
	err = program.Await(20*time.Second, func() bool { return c.Ended() || strings.Contains(c.Output(), "Refusing data") })
	if err != nil || c.Ended() {
		return fmt.Errorf("never refuses: ended %v, %w", c.Ended(), err)
	}
	x.during(ctx)
	x.traces.Set(rig.Accept)
	x.load.Stop()
	if _, failed := x.load.Attempts(); failed > 0 {
		x.evidence = fmt.Sprintf("%d attempts refused", failed)
	}
	return x.finish(c)
}

// diskFull needs a file system of its own. A queue with a limit in bytes well below its disk refuses before the disk does.
func diskFull(limit bool) func(context.Context, *trial) error {
	return func(ctx context.Context, x *trial) error {
		c, err := x.prepare()
		if err != nil {
			return err
		}
		queue := filepath.Join(x.dir, "queue")
		if err := os.Mkdir(queue, 0o700); err != nil {
			return err
		}
		unmount, err := mountSmall(queue)
		if err != nil {
			return err
		}
		x.atEnd = append(x.atEnd, unmount)
		x.load.Padding = 3000
		storeQueue(c, queue)
		full, why := "no space left on device", fmt.Sprintf("for lack of space (tmpfs of %d MiB)", smallDisk>>20)
		if limit {
			settings := c.At("exporters", "otlp_grpc/traces", "sending_queue")
			settings["sizer"], settings["queue_size"] = "bytes", smallDisk/8
			full, why = "sending queue is full", fmt.Sprintf("by a queue of %d KiB on a disk of %d MiB", smallDisk/8>>10, smallDisk>>20)
		}
		if err := errors.Join(c.Start(ctx), x.load.Start(ctx)); err != nil {
			return err
		}
		x.traces.Set(rig.Refuse)
		err = program.Await(20*time.Second, func() bool { return c.Ended() || strings.Contains(c.Output(), full) })
		if err != nil || c.Ended() {
			return fmt.Errorf("never fills the disk: ended %v, %w", c.Ended(), err)
		}
		x.during(ctx)
		refused, err := c.Own("otelcol_exporter_enqueue_failed_spans")
		if err != nil {
			return err
		}
		x.traces.Set(rig.Accept)
		x.calm(ctx)
		if refused > 0 {
			x.evidence = fmt.Sprintf("%.0f spans refused %s", refused, why)
		}
		return x.finishLosing(limit, c)
	}
}

func engineClocks(ctx context.Context, x *trial) error {
	c, err := x.prepare()
	if err != nil {
		return err
	}
	var offset atomic.Int64
	x.load.ClockOffset = func() time.Duration { return time.Duration(offset.Load()) }
	if err := errors.Join(c.Start(ctx), x.load.Start(ctx)); err != nil {
		return err
	}
	x.calm(ctx)
	before := x.load.Sent()
	offset.Store(int64(-time.Hour))
	wait(ctx, x.length/2)
	offset.Store(int64(24 * time.Hour))
	wait(ctx, x.length/2)
	offset.Store(0)
	if n := x.load.Sent() - before; n > 0 {
		x.evidence = fmt.Sprintf("%d spans with such times", n)
	}
	x.calm(ctx)
	return x.finish(c)
}

// twoCollectors: each counts what it saw, and what one had not acknowledged when it stopped goes to the other.
func twoCollectors(ctx context.Context, x *trial) error {
	first, err := x.prepare()
	if err != nil {
		return err
	}
	secondMetrics, err := x.backend()
	if err != nil {
		return err
	}
	dir := filepath.Join(x.dir, "second")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	second := rig.NewCollector(x.binary, dir, x.traces, secondMetrics)
	x.collectors = append(x.collectors, second)
	balancer, err := rig.NewBalancer(first.GRPC, second.GRPC)
	if err != nil {
		return err
	}
	x.atEnd = append(x.atEnd, balancer.Close)
	x.load.GRPC, x.load.HTTP = balancer.Address, ""
	if err := errors.Join(first.Start(ctx), second.Start(ctx), x.load.Start(ctx)); err != nil {
		return err
	}
	x.during(ctx)
	if err := first.Terminate(); err != nil {
		return err
	}
	x.calm(ctx)
	if err := first.Start(ctx); err != nil {
		return err
	}
	x.calm(ctx)
	err = x.finish(first, second)
	ofFirst, ofSecond := x.metrics.Counted(), secondMetrics.Counted()
	x.counted = ofFirst + ofSecond
	x.settle()
	if ofFirst > 0 && ofSecond > 0 {
		x.evidence = fmt.Sprintf("%d counted by one, %d by the other", ofFirst, ofSecond)
	}
	return err
}
