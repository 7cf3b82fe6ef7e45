// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The collector's own clock. A Go program asks the kernel for the time and not a library that could be replaced, so
// that the clock of the built binary cannot be set without that of the machine. This fault therefore runs what the
// binary runs, in this process, on a clock to turn.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
	"github.com/otelcol-serving/otelcol-serving/test/faults/rig"
)

// turned is a clock to turn.
type turned struct {
	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
}

func (t *turned) clock() serving.Clock {
	return serving.Clock{
		Wall:    func() time.Time { t.mu.Lock(); defer t.mu.Unlock(); return t.wall },
		Elapsed: func() time.Duration { t.mu.Lock(); defer t.mu.Unlock(); return t.elapsed },
	}
}

// pass lets time pass, and step turns the wall clock besides.
func (t *turned) pass(d, step time.Duration) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.elapsed += d
	t.wall = t.wall.Add(d + step)
	return t.wall
}

func ownClock(_ context.Context, x *trial) error {
	x.noBackend = true
	for _, temporality := range []serving.Temporality{serving.Cumulative, serving.Delta} {
		if err := x.ownClock(temporality); err != nil {
			return fmt.Errorf("%s: %w", temporality, err)
		}
	}
	x.settle()
	return nil
}

func (x *trial) ownClock(temporality serving.Temporality) error {
	config := serving.NewDefaultConfig()
	config.Temporality = temporality
	clock := &turned{wall: time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC)}
	aggregator, err := serving.New(&config, serving.Settings{Clock: clock.clock()})
	if err != nil {
		return err
	}
	const intervals, batch = 60, 50
	points := map[string]pcommon.Timestamp{} // the last of each series
	counted := int64(0)
	for i := range intervals {
		step := time.Duration(0)
		switch i {
		case intervals / 3:
			step = -time.Hour
		case 2 * intervals / 3:
			step = 24 * time.Hour
		}
		now := clock.pass(config.Interval, step)
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "vllm")
		rs.Resource().Attributes().PutStr("service.instance.id", "engine-0")
		ss := rs.ScopeSpans().AppendEmpty()
		for range batch {
			x.sent++
			rig.PutRequest(ss.Spans().AppendEmpty(), rig.SpanID(x.sent), now)
		}
		aggregator.Record(td, false)
		aggregator.Record(td, false) // sent again: the steps must not make it forget
		x.acknowledged += batch
		n, err := read(aggregator.Take().Metrics("test"), points)
		if err != nil {
			return fmt.Errorf("interval %d: %w", i, err)
		}
		if temporality == serving.Cumulative {
			counted = n
		} else {
			counted += n
		}
	}
	resent := aggregator.Stats().Duplicates
	if resent != intervals*batch {
		return fmt.Errorf("%d of %d resent spans recognised", resent, intervals*batch)
	}
	x.counted += counted
	x.evidence = fmt.Sprintf("run in-process, since a Go binary's clock is the machine's; %d resent spans recognised, times only grow", resent)
	return nil
}

// read is the request count in md; every series must be later than it was.
func read(md pmetric.Metrics, last map[string]pcommon.Timestamp) (counted int64, err error) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() != pmetric.MetricTypeSum || !strings.HasPrefix(m.Name(), "llm.serving.request.") {
					continue
				}
				for _, dp := range m.Sum().DataPoints().All() {
					key := fmt.Sprint(m.Name(), dp.Attributes().AsRaw())
					if dp.Timestamp() <= last[key] || dp.StartTimestamp() > dp.Timestamp() {
						return 0, fmt.Errorf("%s: point of %v to %v after one of %v", key, dp.StartTimestamp(), dp.Timestamp(), last[key])
					}
					last[key] = dp.Timestamp()
					if m.Name() == "llm.serving.request.count" {
						counted += dp.IntValue()
					}
				}
			}
		}
	}
	return counted, nil
}
