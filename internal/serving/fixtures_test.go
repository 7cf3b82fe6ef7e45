// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What the tests share: a clock to turn, spans as vLLM sends them, and points found again in what came out.

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testEpoch = time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC)

// fakeClock stands still until it is turned.
type fakeClock struct {
	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
}

func newFakeClock() *fakeClock { return &fakeClock{wall: testEpoch} }

func (c *fakeClock) clock() Clock {
	return Clock{
		Wall:    func() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.wall },
		Elapsed: func() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return c.elapsed },
	}
}

// advance lets time pass, step turns only the wall clock.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.elapsed = c.wall.Add(d), c.elapsed+d
}

func (c *fakeClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// newTestAggregator makes an aggregator of the default configuration as changed.
func newTestAggregator(tb testing.TB, change func(*Config)) (*Aggregator, *fakeClock) {
	tb.Helper()
	c := NewDefaultConfig()
	c.Timeline.Window = 0 // windows_test.go turns it on
	if change != nil {
		change(&c)
	}
	require.NoError(tb, c.Validate())
	clock := newFakeClock()
	a, err := New(&c, Settings{Clock: clock.clock()})
	require.NoError(tb, err)
	return a, clock
}

// tick lets an interval pass and collects.
func tick(a *Aggregator, clock *fakeClock) pmetric.Metrics {
	clock.advance(15 * time.Second)
	return a.Take().Metrics("test")
}

// spanNumber gives every span of a test run IDs of its own.
type spanNumber uint64

func (n *spanNumber) next() uint64 { *n++; return uint64(*n) }

func setIDs(span ptrace.Span, n uint64) {
	var trace pcommon.TraceID
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(trace[:], 0x5e47_0000_0000_0000|n)
	binary.BigEndian.PutUint64(trace[8:], n*0x9e3779b97f4a7c15+1)
	binary.BigEndian.PutUint64(id[:], n)
	span.SetTraceID(trace)
	span.SetSpanID(id)
}

// payload is one resource with one scope of spans of an engine.
func payload(engine string) (ptrace.Traces, ptrace.SpanSlice) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	if engine != "" {
		rs.Resource().Attributes().PutStr("service.instance.id", engine)
	}
	rs.Resource().Attributes().PutStr("telemetry.sdk.language", "python")
	rs.Resource().Attributes().PutStr("process.pid", "4242")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	return td, ss.Spans()
}

func startSpan(spans ptrace.SpanSlice, n uint64, e2e time.Duration) ptrace.Span {
	span := spans.AppendEmpty()
	span.SetName("llm_request")
	span.SetKind(ptrace.SpanKindServer)
	setIDs(span, n)
	end := testEpoch.Add(time.Duration(n) * time.Millisecond)
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-e2e - time.Millisecond)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	return span
}

// addV0 adds a request as vLLM V0 reports it, with all details; addV1 one of V1. Their figures vary with n.
func addV0(spans ptrace.SpanSlice, n uint64, model string) ptrace.Span {
	span := startSpan(spans, n, 4*time.Second)
	vary := float64(n%1000) / 1000
	a := span.Attributes()
	a.PutStr("gen_ai.response.model", model)
	a.PutStr("gen_ai.request.id", fmt.Sprintf("cmpl-%032x-0", n))
	a.PutDouble("gen_ai.request.temperature", 0)
	a.PutDouble("gen_ai.request.top_p", 1)
	a.PutInt("gen_ai.request.max_tokens", 256)
	a.PutInt("gen_ai.request.n", 1)
	a.PutInt("gen_ai.usage.num_sequences", 1)
	a.PutInt("gen_ai.usage.prompt_tokens", 2106)
	a.PutInt("gen_ai.usage.completion_tokens", 256)
	a.PutDouble("gen_ai.latency.time_in_queue", 0.012+vary/10)
	a.PutDouble("gen_ai.latency.time_to_first_token", 0.23+vary/5)
	a.PutDouble("gen_ai.latency.e2e", 3.0+vary)
	a.PutDouble("gen_ai.latency.time_in_scheduler", 0.0175+vary/100)
	a.PutDouble("gen_ai.latency.time_in_model_forward", 2.3+vary/3)
	a.PutDouble("gen_ai.latency.time_in_model_execute", 2.6+vary/3)
	return span
}

func addV1(spans ptrace.SpanSlice, n uint64) ptrace.Span {
	span := startSpan(spans, n, 2*time.Second)
	vary := float64(n%1000) / 1000
	prefill, decode := 0.02+vary/50, 0.4+vary/2
	queue := 3.4e-5 + vary/1000
	a := span.Attributes()
	a.PutDouble("gen_ai.latency.time_to_first_token", 0.012+queue+prefill)
	a.PutDouble("gen_ai.latency.e2e", 0.013+queue+prefill+decode)
	a.PutDouble("gen_ai.latency.time_in_queue", queue)
	a.PutInt("gen_ai.usage.prompt_tokens", 512)
	a.PutInt("gen_ai.usage.completion_tokens", 128)
	a.PutDouble("gen_ai.latency.time_in_model_prefill", prefill)
	a.PutDouble("gen_ai.latency.time_in_model_decode", decode)
	a.PutDouble("gen_ai.latency.time_in_model_inference", prefill+decode)
	a.PutStr("gen_ai.request.id", fmt.Sprintf("cmpl-%032x-0", n))
	a.PutDouble("gen_ai.request.top_p", 1)
	a.PutInt("gen_ai.request.max_tokens", 128)
	a.PutInt("gen_ai.request.n", 1)
	return span
}

// record records one payload of a single span.
func recordOne(a *Aggregator, engine string, n uint64, change func(ptrace.Span)) {
	td, spans := payload(engine)
	span := addV0(spans, n, "llama")
	if change != nil {
		change(span)
	}
	a.Record(td, false)
}

// found is one point with what stands around it.
type found struct {
	instance    string // service.instance.id
	attributes  map[string]any
	start, time pcommon.Timestamp
	ended       bool // NoRecordedValue
	value       float64
	count       uint64
	explicit    pmetric.HistogramDataPoint
	exponential pmetric.ExponentialHistogramDataPoint
	exemplars   pmetric.ExemplarSlice
}

// key tells series apart.
func (f *found) key() string { return fmt.Sprint(f.instance, f.attributes) }

// find has all points of a metric, in order.
func find(md pmetric.Metrics, name string) []found {
	var all []found
	for _, rm := range md.ResourceMetrics().All() {
		instance := attributeText(rm.Resource().Attributes(), serviceInstanceID)
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() == name {
					all = append(all, pointsOf(m, instance)...)
				}
			}
		}
	}
	return all
}

func pointsOf(m pmetric.Metric, instance string) []found {
	var all []found
	add := func(p interface {
		Attributes() pcommon.Map
		StartTimestamp() pcommon.Timestamp
		Timestamp() pcommon.Timestamp
		Flags() pmetric.DataPointFlags
	},
	) *found {
		all = append(all, found{
			instance: instance, attributes: p.Attributes().AsRaw(), start: p.StartTimestamp(), time: p.Timestamp(), ended: p.Flags().NoRecordedValue(),
		})
		return &all[len(all)-1]
	}
	numbers := func(points pmetric.NumberDataPointSlice) {
		for _, dp := range points.All() {
			f := add(dp)
			f.value = dp.DoubleValue()
			if dp.ValueType() == pmetric.NumberDataPointValueTypeInt {
				f.value = float64(dp.IntValue())
			}
		}
	}
	switch m.Type() {
	case pmetric.MetricTypeSum:
		numbers(m.Sum().DataPoints())
	case pmetric.MetricTypeGauge:
		numbers(m.Gauge().DataPoints())
	case pmetric.MetricTypeHistogram:
		for _, dp := range m.Histogram().DataPoints().All() {
			f := add(dp)
			f.explicit, f.count, f.value, f.exemplars = dp, dp.Count(), dp.Sum(), dp.Exemplars()
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, dp := range m.ExponentialHistogram().DataPoints().All() {
			f := add(dp)
			f.exponential, f.count, f.value, f.exemplars = dp, dp.Count(), dp.Sum(), dp.Exemplars()
		}
	}
	return all
}

// allPoints are the points of all metrics, by metric.
func allPoints(md pmetric.Metrics) map[string][]found {
	all := map[string][]found{}
	for _, rm := range md.ResourceMetrics().All() {
		instance := attributeText(rm.Resource().Attributes(), serviceInstanceID)
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				all[m.Name()] = append(all[m.Name()], pointsOf(m, instance)...)
			}
		}
	}
	return all
}

// total adds up the values of a counter, or the counts of a histogram, over all series that have not ended.
func total(md pmetric.Metrics, name string) float64 {
	sum := 0.0
	for _, f := range find(md, name) {
		if f.ended {
			continue
		}
		if f.explicit != (pmetric.HistogramDataPoint{}) || f.exponential != (pmetric.ExponentialHistogramDataPoint{}) {
			sum += float64(f.count)
		} else {
			sum += f.value
		}
	}
	return sum
}

const (
	countName    = "llm.serving.request.count"
	durationName = "gen_ai.server.request.duration"
	infoName     = "llm.serving.engine.info"
)

// values are the values of one attribute of some points, in order.
func values(points []found, attribute string) []any {
	out := make([]any, 0, len(points))
	for i := range points {
		out = append(out, points[i].attributes[attribute])
	}
	return out
}
