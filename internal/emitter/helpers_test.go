// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// A consumer to hold in the hand, and an emitter that sends to it.

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/emitter/internal/reload"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

var testID = component.MustNewIDWithName("serving_metrics", "x")

// fixture is an emitter with what it writes about itself.
type fixture struct {
	*Emitter
	telemetry *componenttest.Telemetry
	logs      *observer.ObservedLogs
}

func newFixture(t testing.TB, configure ...func(*serving.Config)) *fixture {
	reload.Forget()
	c := serving.NewDefaultConfig()
	for _, f := range configure {
		f(&c)
	}
	require.NoError(t, c.Validate())
	core, logs := observer.New(zapcore.InfoLevel)
	tel := componenttest.NewTelemetry()
	set := tel.NewTelemetrySettings()
	set.Logger = zap.New(core)
	e, err := New(&c, set, component.NewDefaultBuildInfo(), "processor", testID)
	require.NoError(t, err)
	t.Cleanup(func() {
		e.Close()
		require.NoError(t, tel.Shutdown(context.Background()))
	})
	return &fixture{e, tel, logs}
}

func delta(c *serving.Config) { c.Temporality = serving.Delta }

// record records n requests of engine a with span IDs from first on.
func (f *fixture) record(first, n int) { f.Record(collectortest.Requests("a", first, n), false) }

// downstream is a consumer. What it is sent is kept if it is taken.
type downstream struct {
	mu        sync.Mutex
	taken     []pmetric.Metrics
	at        []time.Time
	deadlines []time.Duration // of every call, from then on
	// answer, if set, decides; it may block.
	answer func(ctx context.Context, call int) error
	calls  int
}

var _ consumer.Metrics = (*downstream)(nil)

func (*downstream) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (d *downstream) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	d.mu.Lock()
	call := d.calls
	d.calls++
	if deadline, ok := ctx.Deadline(); ok {
		d.deadlines = append(d.deadlines, time.Until(deadline))
	}
	answer := d.answer
	d.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, call); err != nil {
			// A consumer owns what it is given, also if it then refuses it.
			md.ResourceMetrics().RemoveIf(func(pmetric.ResourceMetrics) bool { return true })
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = append(d.taken, md)
	d.at = append(d.at, time.Now())
	return nil
}

func (d *downstream) metrics() []pmetric.Metrics {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]pmetric.Metrics(nil), d.taken...)
}

// counted is the sum of the request counts of all that was taken.
func (d *downstream) counted() int64 {
	return collectortest.Sum(collectortest.RequestCount, d.metrics()...)
}

// counts are the values and times of the request count, in the order of arrival.
type count struct {
	start, end, value int64
}

func (d *downstream) counts() (counts []count) {
	for _, dp := range collectortest.Points(collectortest.RequestCount, d.metrics()...) {
		counts = append(counts, count{int64(dp.StartTimestamp()), int64(dp.Timestamp()), dp.IntValue()})
	}
	return counts
}

// host keeps the status events.
type host struct {
	mu     sync.Mutex
	events []*componentstatus.Event
}

func (*host) GetExtensions() map[component.ID]component.Component { return nil }

func (h *host) Report(event *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event)
}

func (h *host) statuses() (statuses []componentstatus.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		statuses = append(statuses, e.Status())
	}
	return statuses
}
