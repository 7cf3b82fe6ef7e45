// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Verdicts of simulated engines as a metric, and the report of them.

import (
	"encoding/json"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/history"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

func withSummary(c *Config) {
	id := component.MustNewID("serving_summary")
	c.Summary = &id
}

// verdictsInForce are the verdicts window by window, after a check that exactly one is in force.
func verdictsInForce(t *testing.T, collects []pmetric.Metrics) []string {
	t.Helper()
	points := windowPoints(collects, verdict.Name)
	require.Len(t, points, int(diagnosis.NumVerdicts))
	var all []string
	for i := range points[diagnosis.Healthy.String()] {
		var in []string
		for name, series := range points {
			if series[i].Flags().NoRecordedValue() {
				continue
			}
			if series[i].IntValue() == 1 {
				in = append(in, name)
			}
		}
		require.LessOrEqual(t, len(in), 1)
		all = append(all, in...)
	}
	return all
}

func TestVerdictMetric(t *testing.T) {
	collects, _, _, _ := simulated(t, "v0-hostbound", 0.5, 12*time.Minute, nil)
	verdicts := verdictsInForce(t, collects)
	require.Greater(t, len(verdicts), 50)
	assert.Equal(t, diagnosis.NoVerdict.String(), verdicts[0], "a window is not enough")
	right := 0
	for _, v := range verdicts[12:] {
		if v == diagnosis.HostBound.String() {
			right++
		}
	}
	assert.Greater(t, float64(right)/float64(len(verdicts[12:])), .9, "%v", verdicts)
}

// A recording that is caught up with at once has the verdicts of the live engine.
func TestVerdictsOfABacklog(t *testing.T) {
	live, result, _, _ := simulated(t, "v0-hostbound", 0.5, 12*time.Minute, nil)
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window, c.Engine.MaxNumSeqs = 10*time.Second, 256 })
	for _, export := range result.Exports {
		a.Record(export.Traces, false)
	}
	a.Close()
	assert.Equal(t, verdictsInForce(t, live), verdictsInForce(t, []pmetric.Metrics{tick(a, clock)}))
}

func TestReport(t *testing.T) {
	_, result, a, clock := simulated(t, "v0-default", 0.6, 12*time.Minute, func(c *Config) {
		withSummary(c)
		c.Engine.KVCacheTokens = 1 << 20
		c.SLO = SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond}
	})
	now := clock.clock().Wall()

	source := a.Source()
	assert.Positive(t, source.Spans)
	assert.Equal(t, source.Requests, source.Spans-source.Duplicates)
	assert.NotNil(t, source.LastSpan)
	assert.InDelta(t, 1, *source.Objectives.TTFT, 1e-9)
	assert.Nil(t, source.Objectives.E2E)
	assert.Equal(t, 256, source.MaxNumSeqs)
	assert.Equal(t, 1<<20, source.KVCacheTokens)

	engines := a.Engines(now)
	require.Len(t, engines, 1)
	e := engines[0]
	assert.Regexp(t, "^[0-9a-f]{16}$", e.Key)
	assert.Equal(t, "vllm", e.Kind)
	assert.Equal(t, "v0", e.Generation)
	assert.NotEmpty(t, e.Models)
	assert.NotEqual(t, diagnosis.NoVerdict.String(), e.Diagnosis.Verdict)
	assert.NotEmpty(t, e.Diagnosis.Sentence)
	require.NotNil(t, e.Figures.Utilization)
	assert.Equal(t, "device", e.Certainty.Tier)
	sum := 0.0
	for _, share := range e.Figures.States {
		sum += share
	}
	assert.InDelta(t, 1, sum, 1e-9)
	require.NotNil(t, e.Requests.TTFT)
	assert.Contains(t, e.Requests.Goodput, "ttft")
	assert.NotContains(t, e.Requests.Goodput, "e2e")
	require.NotNil(t, e.Figures.StepLaw)
	require.NotNil(t, e.Figures.StepLaw.BatchAtObjective)

	report, ok := a.Engine(e.Key, now)
	require.True(t, ok)
	assert.Equal(t, e, report.Engine)
	h := report.History
	require.NotEmpty(t, h.End)
	for name, column := range h.Figures {
		assert.Len(t, column, len(h.End), name)
	}
	for i := range h.End {
		sum := 0.0
		for _, column := range h.States {
			sum += column[i]
		}
		assert.InDelta(t, 1, sum, 1e-4)
	}
	assert.Len(t, h.Minutes.TTFTP99, len(h.Minutes.End))
	require.Len(t, report.Slowest, 10)
	slowest := 0.0
	for _, export := range result.Exports {
		for _, rs := range export.Traces.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					if v, ok := span.Attributes().Get("gen_ai.latency.e2e"); ok {
						slowest = max(slowest, v.Double())
					}
				}
			}
		}
	}
	assert.InEpsilon(t, slowest, report.Slowest[0].E2E, 1e-6)
	for i, slow := range report.Slowest {
		if i > 0 {
			assert.LessOrEqual(t, slow.E2E, report.Slowest[i-1].E2E)
		}
		assert.NotEmpty(t, slow.TraceID)
		parts := 0.0
		for _, part := range slow.Parts {
			parts += part
		}
		assert.InEpsilon(t, slow.E2E, parts, 1e-4)
	}
	_, ok = a.Engine("0123456789abcdef", now)
	assert.False(t, ok)

	// JSON has no NaN, and comes back as it was.
	text, err := json.Marshal(report)
	require.NoError(t, err)
	var back summary.EngineReport
	require.NoError(t, json.Unmarshal(text, &back))
	again, err := json.Marshal(back)
	require.NoError(t, err)
	assert.JSONEq(t, string(text), string(again))
}

func TestReportOfV1(t *testing.T) {
	_, _, a, clock := simulated(t, "v1", 0.6, 8*time.Minute, withSummary)
	engines := a.Engines(clock.clock().Wall())
	require.Len(t, engines, 1)
	e := engines[0]
	assert.Nil(t, e.Figures.Utilization)
	assert.Equal(t, "occupancy", e.Certainty.Tier)
	require.NotEmpty(t, e.Certainty.Missing)
	assert.Equal(t, "Device utilization", e.Certainty.Missing[0].What)
	assert.Contains(t, e.Requests.Parts, "frontend")
	assert.Positive(t, e.Figures.States["occupied"])
}

func TestReportStatuses(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second; withSummary(c) })
	status := func() summary.Engine {
		engines := a.Engines(clock.clock().Wall())
		require.Len(t, engines, 1)
		return engines[0]
	}
	assert.Empty(t, a.Engines(clock.clock().Wall()))
	a.Record(requestAt(clock.clock().Wall()), false)
	e := status()
	assert.Equal(t, summary.StatusCollecting, e.Status)
	assert.Equal(t, "no_verdict", e.Diagnosis.Verdict)
	assert.Nil(t, e.End)

	pass := func(d time.Duration) {
		for range d / (15 * time.Second) {
			clock.advance(15 * time.Second)
			a.Take()
		}
	}
	for range 8 {
		pass(15 * time.Second)
		a.Record(requestAt(clock.clock().Wall()), false)
	}
	e = status()
	assert.Equal(t, summary.StatusCurrent, e.Status)
	require.NotNil(t, e.AgeSeconds)
	assert.Less(t, *e.AgeSeconds, 200.)

	pass(10 * time.Minute)
	e = status()
	assert.Equal(t, summary.StatusIdle, e.Status)
	assert.Equal(t, "idle", e.Diagnosis.Verdict, e.Diagnosis.Sentence)

	clock.advance(10 * time.Minute) // and nobody collects
	assert.Equal(t, summary.StatusStale, status().Status)
}

// An engine with a queue that stops is not idle, and not too little seen either.
func TestReportOfAStoppedEngine(t *testing.T) {
	_, _, a, clock := simulated(t, "v1", 1.3, 12*time.Minute, withSummary)
	for range 6 * 60 / 15 {
		clock.advance(15 * time.Second)
		a.Take()
	}
	engines := a.Engines(clock.clock().Wall())
	require.Len(t, engines, 1)
	d := &engines[0].Diagnosis
	assert.Equal(t, diagnosis.NoVerdict.String(), d.Verdict)
	assert.Equal(t, diagnosis.CauseStopped, d.Cause, d.Sentence)
	assert.Regexp(t, `^No request has finished since \d\d:\d\d:\d\d UTC, when about 25\d ran and \d{3,} waited: `, d.Sentence)
}

// Names are whatever a sender wrote: what drives a terminal or turns letters around does not get into the report.
func TestReportIsLegible(t *testing.T) {
	a, clock := newTestAggregator(t, withSummaryAndWindows)
	td := requestAt(clock.clock().Wall())
	attributes := td.ResourceSpans().At(0).Resource().Attributes()
	attributes.PutStr("service.name", "esc\x1bc\u009b31m\n")
	attributes.PutStr("service.instance.id", "fake\u202elive")
	attributes.PutStr("host.name", "bell\a")
	a.Record(td, false)
	e := a.Engines(clock.clock().Wall())[0]
	assert.Equal(t, "esc\ufffdc\ufffd31m\ufffd", e.Service)
	assert.Equal(t, "fake\ufffdlive", e.Instance)
	assert.Equal(t, "bell\ufffd", e.Attributes["host.name"])
	assert.EqualValues(t, 1, e.Requests.Count, "requests so far, while the first window is open")
}

// An objective for a figure that no request has is not missed, but not known.
func TestGoodputOfWhatIsNotReported(t *testing.T) {
	o := newObjectives(&SLOConfig{TTFT: time.Second, TPOT: time.Second})
	recent := history.Recent{Requests: diagnosis.Requests{Count: 5, TTFT: diagnosis.Quantiles{Count: 5}}, Good: [4]int64{5, 0, 0, 0}}
	assert.Equal(t, map[string]float64{"ttft": 1}, newRequests(&recent, o).Goodput)
	recent.TPOT.Count, recent.Good = 5, [4]int64{5, 4, 0, 4}
	assert.Equal(t, map[string]float64{"ttft": 1, "tpot": .8, "all": .8}, newRequests(&recent, o).Goodput)
}

// requestAt is one request of an instance that ended at t.
func requestAt(t time.Time) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	rs.Resource().Attributes().PutStr("service.instance.id", "a")
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("llm_request")
	span.SetTraceID(pcommon.TraceID{byte(t.Unix()), byte(t.Unix() >> 8), 1})
	span.SetSpanID(pcommon.SpanID{byte(t.Unix()), byte(t.Unix() >> 8), 1})
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(t.Add(-2 * time.Second)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(t))
	span.Attributes().PutDouble("gen_ai.latency.e2e", 2)
	span.Attributes().PutDouble("gen_ai.latency.time_in_queue", .1)
	span.Attributes().PutDouble("gen_ai.latency.time_to_first_token", .3)
	return td
}

func TestSourceCountsOtherSpans(t *testing.T) {
	a, _ := newTestAggregator(t, withSummaryAndWindows)
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for range 412 {
		spans.AppendEmpty().SetName("GET /health")
	}
	a.Record(td, false)
	s := a.Source()
	assert.EqualValues(t, 412, s.Spans)
	assert.Zero(t, s.Requests)
}

func withSummaryAndWindows(c *Config) { c.Timeline.Window = 10 * time.Second; withSummary(c) }

// The page may be read at any time.
func TestReportWhileRecording(t *testing.T) {
	a, clock := newTestAggregator(t, withSummaryAndWindows)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 200 {
				a.Record(requestAt(clock.clock().Wall()), false)
				clock.advance(time.Second)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			a.Take()
		}
	})
	for range 100 {
		for _, e := range a.Engines(clock.clock().Wall()) {
			a.Engine(e.Key, clock.clock().Wall())
		}
		a.Source()
	}
	wg.Wait()
}

func TestFleets(t *testing.T) {
	a, clock := newTestAggregator(t, withSummaryAndWindows)
	a.Record(requestAt(clock.clock().Wall()), false)
	second := requestAt(clock.clock().Wall().Add(time.Second))
	second.ResourceSpans().At(0).Resource().Attributes().PutStr("service.instance.id", "b")
	a.Record(second, false)
	a.Take()
	resource := pcommon.NewMap()
	resource.PutStr("service.name", "vllm")
	peers := a.fleets.peers(resource)
	require.NotNil(t, peers)
	assert.Equal(t, 2, peers.Engines)
	resource.PutStr("service.name", "other")
	assert.Nil(t, a.fleets.peers(resource))
}

// The capacity of one engine is the measure of all of its service.
func TestFleetsAreMeasuredByTheHighestCapacity(t *testing.T) {
	nan := math.NaN()
	bracketOf := func(name string, output, full, upto float64) engineSnapshot {
		w := &windows{}
		w.diagnosis.Time = testEpoch
		w.diagnosis.Figures = diagnosis.Figures{OutputThroughput: output, Capacity: full, CapacityLeast: output / upto}
		resource := pcommon.NewMap()
		resource.PutStr("service.name", name)
		return engineSnapshot{engine: &engine{windows: w}, resource: resource}
	}
	engineOf := func(name string, output, full float64) engineSnapshot { return bracketOf(name, output, full, nan) }
	var f fleets
	f.renew([]engineSnapshot{engineOf("a", 100, nan), engineOf("a", 900, 1000), engineOf("a", nan, nan), engineOf("b", 5, nan), engineOf("b", 7, nan)})
	resource := pcommon.NewMap()
	resource.PutStr("service.name", "a")
	assert.Equal(t, &diagnosis.Peers{Engines: 3, CapacityMin: .1, CapacityMax: .9}, f.peers(resource))
	resource.PutStr("service.name", "b")
	assert.True(t, math.IsNaN(f.peers(resource).CapacityMax))

	// Where it is known as a bracket only, its upper end.
	f.renew([]engineSnapshot{bracketOf("b", 100, nan, 1500), bracketOf("b", 800, nan, 2000), engineOf("b", 600, nan)})
	assert.Equal(t, &diagnosis.Peers{Engines: 3, CapacityMin: .05, CapacityMax: .4, AtLeast: true}, f.peers(resource))
	f.renew([]engineSnapshot{bracketOf("b", 100, nan, 1500), bracketOf("b", 800, 1000, 1100)})
	assert.Equal(t, &diagnosis.Peers{Engines: 2, CapacityMin: .1, CapacityMax: .8}, f.peers(resource))
}

// Requests that nobody collects are bounded over all engines, and none of them is lost to the windows.
func TestNotesAreBounded(t *testing.T) {
	a, clock := newTestAggregator(t, withSummaryAndWindows)
	a.noted.Store(maxNotedTotal - 10) // as if other engines had noted so many
	for i := range 3 * chunkSize {
		a.Record(requestAt(clock.clock().Wall().Add(time.Duration(i)*time.Second)), false)
	}
	var noted int
	a.eachEngine(func(e *engine) bool { noted = e.noted.len(); return true })
	assert.Less(t, noted, 2*chunkSize, "given to the windows by who recorded them")
	a.Close()
	a.Take()
	e := a.Engines(clock.clock().Wall())[0]
	require.NotNil(t, e.Requests.Rate)
	assert.InDelta(t, 1, *e.Requests.Rate, .02)
}

// Memory of notes goes back when fewer are made.
func TestChunkPool(t *testing.T) {
	var p chunkPool
	var taken []*chunk
	for range 10 {
		taken = append(taken, p.get())
	}
	p.put(taken)
	p.trim()
	assert.Len(t, p.free, 10)
	assert.Same(t, taken[9], p.get())
	p.put(taken[9:])
	p.trim()
	assert.Len(t, p.free, 1, "one was used since")
}

// Closed windows that nobody takes are bounded; the sums over them are whole.
func TestWaitingWindowsAreBounded(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = time.Second })
	w := newWindows(a)
	var all notes
	const seconds = 3 * maxPendingWindows
	for i := range seconds {
		var q llmrequest.Request
		q.Start = pcommon.NewTimestampFromTime(clock.clock().Wall().Add(time.Duration(i) * time.Second))
		q.Set(llmrequest.E2E, .5)
		all.next(&a.chunks).Figures = q.Figures
	}
	w.add(all, about{}, &a.stats)
	assert.InDelta(t, seconds, int64(len(w.waiting))+a.stats.skipped.Load(), 60, "what is left out is counted")
	assert.LessOrEqual(t, len(w.waiting), maxPendingWindows)
	last := w.waiting[len(w.waiting)-1]
	total := time.Duration(0)
	for _, d := range last.total.states {
		total += d
	}
	assert.Equal(t, last.End.Sub(last.total.start), total)
}
