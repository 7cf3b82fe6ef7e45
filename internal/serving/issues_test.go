// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Faults that users of other span-to-metrics components reported, and what happens here instead.
// contrib is open-telemetry/opentelemetry-collector-contrib, core opentelemetry-collector.
//
// A name without a package is a test of this one. "processor" and "emitter" stand for the tests of
// processor/servingmetricsprocessor, connector/servingmetricsconnector and internal/emitter, by theme.
//
//	Span metrics
//	contrib#27654                                TestContrib27654MemoryReturnsAfterExpiry
//	contrib#31683, #32210                        TestContrib31683ExemplarsAreOfOneInterval, TestHeapIsFlatOver1000Ticks
//	contrib#41679, #29242                        TestContrib41679ExemplarsAreCapped
//	contrib#20771                                TestContrib20771ExemplarsPointIntoTheirBucket
//	contrib#31009                                TestContrib31009ExemplarsChangeNoValue
//	contrib#21290                                TestRecordAllocatesNothing, BenchmarkRecord
//	grafana/alloy#3407, #4047                    TestAlloy3407ChurnIsBounded
//	contrib#27472, #30440, #21101, #40400,       TestContrib40400IdentityIsStable: a series is named after its engine, whose
//	  #41865, #23663, #14631, #9551              spans one collector is to have (docs/troubleshooting.md)
//	contrib#33136                                TestContrib33136SecondCollectRepeats
//	contrib#34126                                TestContrib34126Monotonic
//	contrib#33421                                TestContrib33421EndedSeriesComesBackAnew
//	contrib#29604, #30559, #44187, #30688,       TestContrib29604EachSeriesExpires, TestNothingExpiresUnsent,
//	  #17306                                       TestSeriesBegunDuringCollect
//	contrib#29711                                TestContrib29711IdentityOutlivesTheProcess
//	contrib#36613                                TestLateRequestsCount
//	contrib#38262                                TestContrib33421EndedSeriesComesBackAnew, TestStartTimesAreSet
//	contrib#42103                                TestContrib42103ResourceIsIdentityOnly
//	contrib#30678                                TestContrib30678ScopesAreOneSeries
//	contrib#31671, #31780, #7128, #23799         TestContrib31671DeltaStartsWhereThePreviousEnded
//	contrib#38990, #39645                        TestContrib39645OverflowKeepsSumsWhole
//	contrib#23151                                TestContrib23151InputIsNotChanged
//	contrib#24054, #33310, #9986, #10374,        TestContrib24054ReservedLabels; emitter: prometheus exposition
//	  #32484, #33118
//	contrib#33857, #20746, #30828, #29755,       TestContrib33857EverySpanCountsOnce
//	  #30908, #31713, #38904, #15720
//	contrib#11870                                TestContrib11870EnginesNeverShareAResource
//
//	Service graph
//	contrib#39160                                FuzzSeriesKey
//	contrib#47418                                TestContrib47418MissingDimension
//	contrib#34170                                TestContrib34126Monotonic
//	contrib#17490                                TestRecordings
//	contrib#16850                                TestContrib16850RecordTakeClose
//	contrib#31628, #32902                        processor: wirings
//
//	Count, signal to metrics, delta to cumulative
//	contrib#19931, #40232, #38602                TestStartTimesAreSet
//	contrib#28825                                TestContrib42103ResourceIsIdentityOnly
//	contrib#37617                                TestContrib29604EachSeriesExpires
//	contrib#28845                                TestDefinitions
//	contrib#36843                                processor: wirings
//	contrib#33014                                TestContrib33014LimitKeepsLiveSeries
//	contrib#31350                                TestContrib31671DeltaStartsWhereThePreviousEnded, with several points per series
//	contrib#32030, #32958                        TestLateRequestsCount
//
//	Datadog, Tempo, Jaeger, core
//	tempo#1537, #2507, #6587                     TestLateRequestsCount
//	tempo#1640, core#2315, core#5567,            TestWallClockSteps, TestContrib34126Monotonic; emitter: shutdown
//	  contrib#11438
//	tempo#5945                                   TestContrib33421EndedSeriesComesBackAnew: no zero points are made up
//	tempo#2514, #2106, #5777                     TestStats
//	tempo#5819 to #5822                          TestContrib24054ReservedLabels
//	tempo#2771, #3376                            TestContrib47418MissingDimension
//	tempo#1870, #1471, #5710, #6414              TestContrib39645OverflowKeepsSumsWhole, TestEngineLimit
//	jaeger#4345 and others on names and units    TestRecordings (golden files), TestDefinitions; emitter: prometheus exposition
//	k8s-monitoring-helm#2875                     TestDefaultConfig
//	elastic#463 and others                       TestContrib16850RecordTakeClose, TestFailedDeltaGoesOutLater
//
//	Found in peers, without an issue
//	1  shutdown right after ingest               TestNothingExpiresUnsent, TestContrib16850RecordTakeClose; emitter: shutdown
//	2  first collect agrees                      TestFirstCollectAgrees
//	3  restart twice                             TestContrib40400IdentityIsStable
//	4  overflow under expiry                     TestOverflowUnderExpiry
//	5  failed delta                              TestFailedDeltaGoesOutLater; emitter: fan-out retry
//	6  sibling fails, client resends             TestResentSpansCountOnce; processor: fan-out retry
//	7  payload reused                            TestPayloadMayBeReused
//	8  two metrics pipelines, none, two traces   processor: wirings
//	9  wall clock back one hour                  TestWallClockSteps
//	10 shutdown while the consumer blocks        emitter: shutdown
//	11 shutdown without start, twice             emitter: shutdown; TestCloseTwice
//	12 implausible values                        TestImplausibleValues; internal/llmrequest: TestRefuseImplausible; FuzzRecord
//
//	vLLM and other engines (what a component is to do about them)
//	vllm#7089, #9659, #14135                     TestRecordings: V0's three figures, in seconds; no share where one is missing
//	vllm#9952                                    TestRecordings: stage frontend
//	vllm#17794 and others on the generation      TestEngineInfoFollowsTheEngine
//	vllm#18357, #20272, #20374                   TestImplausibleValues, FuzzRecord: every attribute is optional
//	vllm#25352, #25645                           TestStats; llm.serving.engine.info ends with the engine
//	vllm#38672, #38678                           TestResentSpansCountOnce: one trace, many requests
//	vllm#32162                                   TestFailedRequests
//	vllm#56238, #6337, #13883                    TestImplausibleValues; internal/llmrequest: plausibility
//	vllm#18053, #21257, #22227, ascend#10049     TestContrib29711IdentityOutlivesTheProcess: several processes, one engine
//	vllm#47633, gateway-api#2950                 TestModelOfTheService, TestEngineLimit
//	vllm#44402 and others, LiteLLM#27418,        TestRecordings: loading spans and children are no requests
//	  semconv-genai#231
//	sglang: names and JSON lists                 TestContrib24054ReservedLabels: span names and request IDs are no labels
//	TensorRT-LLM#5897                            TestImplausibleValues, TestResentSpansCountOnce
//	dcgm-exporter#301 and others                 TestDefinitions: a share of requests is not called utilization
//	request IDs as labels                        TestContrib39645OverflowKeepsSumsWhole, TestContrib24054ReservedLabels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

func TestContrib27654MemoryReturnsAfterExpiry(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	before := heap()
	for n := range uint64(2000) {
		recordOne(a, fmt.Sprintf("engine-%d", n%100), n+1, func(span ptrace.Span) {
			span.Attributes().PutStr("gen_ai.response.model", fmt.Sprintf("model-%d", n))
		})
	}
	tick(a, clock)
	assert.EqualValues(t, 2000, a.Stats().Series)
	assert.EqualValues(t, 100, a.Stats().Engines)
	full := heap() - before
	assert.Greater(t, full, int64(2000*1000))

	clock.advance(31 * time.Minute)
	md := a.Take().Metrics("test")
	for name, points := range allPoints(md) {
		for _, p := range points {
			assert.True(t, p.ended, "%s of %s is over", name, p.key())
		}
	}
	assert.Zero(t, a.Stats().Series)
	assert.Zero(t, a.Stats().Engines)
	assert.Zero(t, tick(a, clock).ResourceMetrics().Len())
	assert.Less(t, heap()-before, full/10)
}

func TestContrib31683ExemplarsAreOfOneInterval(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	recordOne(a, "e", 1, nil)
	first := find(tick(a, clock), durationName)
	require.Len(t, first, 1)
	assert.Equal(t, 1, first[0].exemplars.Len())

	for range 3 {
		again := find(tick(a, clock), durationName)
		assert.Zero(t, again[0].exemplars.Len())
		assert.EqualValues(t, 1, again[0].count)
	}

	recordOne(a, "e", 2, nil)
	second := find(tick(a, clock), durationName)
	require.Equal(t, 1, second[0].exemplars.Len())
	assert.NotEqual(t, first[0].exemplars.At(0).SpanID(), second[0].exemplars.At(0).SpanID())

	// The slowest of an interval is that of this interval.
	single, clock := newTestAggregator(t, func(c *Config) { c.Exemplars.MaxPerPoint = 1 })
	for i, e2e := range []float64{3.9, 0.5, 2} {
		recordOne(single, "e", uint64(i)+1, putDouble("gen_ai.latency.e2e", e2e))
		points := find(tick(single, clock), durationName)
		require.Equal(t, 1, points[0].exemplars.Len())
		assert.Equal(t, e2e, points[0].exemplars.At(0).DoubleValue())
	}
}

func TestHeapIsFlatOver1000Ticks(t *testing.T) {
	for _, temporality := range []Temporality{Cumulative, Delta} {
		t.Run(string(temporality), func(t *testing.T) {
			a, clock := newTestAggregator(t, func(c *Config) {
				c.Temporality = temporality
				c.Dedupe = DedupeConfig{Window: time.Minute, MaxEntries: 1000}
			})
			var n spanNumber
			run := func(ticks int) {
				for range ticks {
					for range 5 {
						recordOne(a, "e", n.next(), nil)
					}
					tick(a, clock)
				}
			}
			run(100)
			before := heap()
			run(1000)
			assert.Less(t, heap()-before, int64(128<<10))
		})
	}
}

func TestContrib41679ExemplarsAreCapped(t *testing.T) {
	assert.Equal(t, 4, NewDefaultConfig().Exemplars.MaxPerPoint)
	for _, limit := range []int{0, 1, 4} {
		a, clock := newTestAggregator(t, func(c *Config) { c.Exemplars.MaxPerPoint = limit })
		td, spans := payload("e")
		slowest := 0.0
		for n := range uint64(100) {
			e2e, _ := addV0(spans, n*37+1, "llama").Attributes().Get("gen_ai.latency.e2e")
			slowest = max(slowest, e2e.Double())
		}
		a.Record(td, false)
		md := tick(a, clock)
		for name, points := range allPoints(md) {
			for _, p := range points {
				if p.count > 0 {
					assert.Equal(t, limit, p.exemplars.Len(), name)
				}
			}
		}
		if limit > 0 {
			exemplars := find(md, durationName)[0].exemplars
			largest := 0.0
			for _, e := range exemplars.All() {
				largest = max(largest, e.DoubleValue())
			}
			assert.Equal(t, slowest, largest, "the slowest request is always among them")
		}
	}
}

func TestContrib20771ExemplarsPointIntoTheirBucket(t *testing.T) {
	for _, kind := range []HistogramType{Explicit, Exponential} {
		a, clock := newTestAggregator(t, func(c *Config) { c.Histograms.Type = kind; c.Exemplars.MaxPerPoint = 8 })
		td, spans := payload("e")
		byID := map[pcommon.SpanID]ptrace.Span{}
		for n := range uint64(6) {
			span := addV0(spans, n*151+1, "llama")
			byID[span.SpanID()] = span
		}
		a.Record(td, false)
		p := find(tick(a, clock), durationName)[0]
		require.Equal(t, 6, p.exemplars.Len())
		for _, e := range p.exemplars.All() {
			span, ok := byID[e.SpanID()]
			require.True(t, ok)
			assert.Equal(t, span.TraceID(), e.TraceID())
			assert.Equal(t, span.EndTimestamp(), e.Timestamp(), "the request's own time")
			e2e, _ := span.Attributes().Get("gen_ai.latency.e2e")
			assert.Equal(t, e2e.Double(), e.DoubleValue())
			if kind == Explicit {
				bounds := p.explicit.ExplicitBounds().AsRaw()
				i := linearBucket(bounds, e.DoubleValue())
				assert.Positive(t, p.explicit.BucketCounts().At(i))
			}
		}
	}
}

func TestContrib31009ExemplarsChangeNoValue(t *testing.T) {
	collect := func(limit int) pmetric.Metrics {
		a, clock := newTestAggregator(t, func(c *Config) { c.Exemplars.MaxPerPoint = limit })
		for n := range uint64(20) {
			recordOne(a, "e", n+1, nil)
		}
		return tick(a, clock)
	}
	with, without := allPoints(collect(4)), allPoints(collect(0))
	require.Len(t, without, len(with))
	for name := range with {
		for i := range with[name] {
			assert.Equal(t, with[name][i].value, without[name][i].value, name)
			assert.Equal(t, with[name][i].count, without[name][i].count, name)
		}
	}
}

func TestAlloy3407ChurnIsBounded(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Limits = LimitConfig{Series: 500, Engines: 20, SeriesExpiration: 2 * time.Minute}
		c.Dedupe = DedupeConfig{Window: time.Minute, MaxEntries: 1000}
	})
	var n spanNumber
	run := func(ticks int) {
		for range ticks {
			for range 20 {
				i := n.next()
				recordOne(a, fmt.Sprintf("pod-%d", i/300), i, func(span ptrace.Span) {
					span.Attributes().PutStr("gen_ai.response.model", fmt.Sprintf("model-%d", i))
				})
			}
			tick(a, clock)
			require.LessOrEqual(t, a.Stats().Series, int64(500))
			require.LessOrEqual(t, a.Stats().Engines, int64(20))
		}
	}
	run(100)
	before := heap()
	run(400)
	assert.Less(t, heap()-before, int64(512<<10))
	assert.Zero(t, a.Stats().Overflow, "what is gone makes room")
}

func TestContrib40400IdentityIsStable(t *testing.T) {
	var first map[string]any
	for run := range 3 {
		a, clock := newTestAggregator(t, nil)
		td, spans := payload("")
		resource := td.ResourceSpans().At(0).Resource().Attributes()
		resource.PutStr("host.name", "gpu-1")
		resource.PutInt("process.pid", int64(1000+run))
		addV0(spans, uint64(run)+1, "llama")
		a.Record(td, false)
		got := tick(a, clock).ResourceMetrics().At(0).Resource().Attributes().AsRaw()
		if run == 0 {
			first = got
			assert.Equal(t, map[string]any{"service.name": "vllm", "service.instance.id": "gpu-1/vllm", "host.name": "gpu-1"}, got)
		}
		assert.Equal(t, first, got)
	}
}

func TestContrib33136SecondCollectRepeats(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.SLO.E2E = time.Second; c.Compatibility = []string{"vllm"} })
	for n := range uint64(10) {
		recordOne(a, "e", n+1, nil)
	}
	first := allPoints(tick(a, clock))
	for range 3 {
		next := allPoints(tick(a, clock))
		require.Len(t, next, len(first))
		for name := range first {
			require.Len(t, next[name], len(first[name]))
			for i := range first[name] {
				assert.Equal(t, first[name][i].value, next[name][i].value, name)
				assert.Equal(t, first[name][i].count, next[name][i].count, name)
				assert.Equal(t, first[name][i].start, next[name][i].start, name)
				assert.Greater(t, next[name][i].time, first[name][i].time, name)
			}
		}
	}
}

// monitor checks over many collects what holds of cumulative series.
type monitor struct {
	last map[string]found
}

func (m *monitor) check(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	if m.last == nil {
		m.last = map[string]found{}
	}
	for name, points := range allPoints(md) {
		if name == infoName {
			continue
		}
		seen := map[string]bool{}
		for _, p := range points {
			key := name + p.key()
			require.False(t, seen[key], "%s has two points in one collect", key)
			seen[key] = true
			require.Less(t, p.start, p.time, key)
			before, ok := m.last[key]
			if p.ended {
				require.True(t, ok, "%s ends without having been", key)
				delete(m.last, key)
				continue
			}
			m.last[key] = p
			if !ok {
				continue
			}
			require.Greater(t, p.time, before.time, key)
			if p.start == before.start {
				require.GreaterOrEqual(t, p.value, before.value, key)
				require.GreaterOrEqual(t, p.count, before.count, key)
			} else {
				require.GreaterOrEqual(t, p.start, before.time, "%s starts anew within its past", key)
			}
		}
	}
}

func TestContrib34126Monotonic(t *testing.T) {
	for _, kind := range []HistogramType{Explicit, Exponential} {
		rng := rand.New(rand.NewPCG(1, 2))
		a, clock := newTestAggregator(t, func(c *Config) {
			c.Histograms.Type = kind
			c.Limits = LimitConfig{Series: 12, Engines: 3, SeriesExpiration: time.Minute}
			c.SLO = SLOConfig{TTFT: 300 * time.Millisecond, E2E: 3500 * time.Millisecond}
		})
		var n spanNumber
		var m monitor
		for range 400 {
			for range rng.IntN(10) {
				recordOne(a, fmt.Sprintf("engine-%d", rng.IntN(5)), n.next(), func(span ptrace.Span) {
					span.Attributes().PutStr("gen_ai.response.model", fmt.Sprintf("model-%d", rng.IntN(8)))
				})
			}
			switch rng.IntN(10) {
			case 0:
				clock.advance(time.Duration(rng.IntN(90)) * time.Second)
			case 1:
				clock.step(time.Duration(rng.IntN(7200)-3600) * time.Second)
			}
			m.check(t, tick(a, clock))
		}
	}
}

func TestContrib33421EndedSeriesComesBackAnew(t *testing.T) {
	for _, kind := range []HistogramType{Explicit, Exponential} {
		a, clock := newTestAggregator(t, func(c *Config) {
			c.Histograms.Type = kind
			c.Limits.SeriesExpiration = time.Minute
			c.Compatibility = []string{"vllm"}
		})
		var n spanNumber
		model := func(name string) {
			recordOne(a, "e", n.next(), func(span ptrace.Span) { span.Attributes().PutStr("gen_ai.response.model", name) })
		}
		model("goes-1")
		model("goes-2")
		before := allPoints(tick(a, clock))
		var ended map[string][]found
		for range 5 {
			model("stays")
			ended = allPoints(tick(a, clock))
			if ended[countName][len(ended[countName])-1].ended {
				break
			}
		}
		for name, points := range ended {
			if name == infoName {
				require.Len(t, points, 1)
				continue
			}
			over := 0
			for _, p := range points {
				if p.ended {
					over++
					assert.Zero(t, p.count)
					assert.Zero(t, p.value)
				} else {
					assert.Zero(t, over, "%s: the prometheus exporter reads a metric up to the first point without a value", name)
				}
			}
			assert.Equal(t, len(before[name]), over, "%s: each series that was, ends", name)
		}

		after := find(tick(a, clock), countName)
		require.Len(t, after, 1, "an end is told once")
		model("goes-1")
		back := find(tick(a, clock), countName)
		require.Len(t, back, 2)
		assert.Equal(t, "goes-1", back[1].attributes[attrModel])
		assert.Equal(t, 1.0, back[1].value)
		assert.Greater(t, back[1].start, ended[countName][0].time, "a new start, after its end")
	}
}

// A call of Record and a collect that run at the same time agree on what is past.
func TestSeriesBegunDuringCollect(t *testing.T) {
	for _, temporality := range []Temporality{Cumulative, Delta} {
		a, clock := newTestAggregator(t, func(c *Config) { c.Temporality = temporality; c.Limits.SeriesExpiration = time.Minute })
		began := func(n uint64, model string) (finish func()) {
			td, spans := payload("e")
			addV0(spans, n, model)
			b := batches.New().(*batch)
			b.now, b.elapsed = a.clock.now()
			return func() { a.recordResource(b, td.ResourceSpans().At(0), false) }
		}
		began(1, "stays")()
		began(2, "goes")()
		tick(a, clock)
		clock.advance(50 * time.Second)
		began(3, "stays")()
		slow := began(4, "goes") // read, but not recorded yet
		ended := tick(a, clock)
		slow()
		back := find(tick(a, clock), countName)
		require.Len(t, back, map[Temporality]int{Cumulative: 2, Delta: 1}[temporality])
		last := back[len(back)-1]
		assert.Equal(t, "goes", last.attributes[attrModel])
		assert.Equal(t, find(ended, countName)[0].time, last.start, "not within its own past")

		// The other way round: a collect that has begun leaves what is newer to the next one.
		a, clock = newTestAggregator(t, func(c *Config) { c.Temporality = temporality })
		began(1, "stays")()
		clock.advance(time.Second)
		now, elapsed := a.clock.now()
		began(2, "new")()
		var e *engine
		for i := range a.shards {
			for _, e = range a.shards[i].engines {
				taken := e.take(a, now, elapsed, timeline.ModeUnknown)
				require.Len(t, taken.series, 1)
				assert.Equal(t, "stays", attributeText(taken.series[0].series.attributes, attrModel))
			}
		}
		next := find(tick(a, clock), countName)
		assert.Contains(t, values(next, attrModel), "new")
	}
}

func TestContrib29604EachSeriesExpires(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Limits.SeriesExpiration = time.Minute })
	var n spanNumber
	for range 10 {
		recordOne(a, "e", n.next(), nil)
		tick(a, clock)
	}
	recordOne(a, "e", n.next(), func(span ptrace.Span) { span.Attributes().PutStr("gen_ai.response.model", "once") })
	live := 0
	for range 8 {
		recordOne(a, "e", n.next(), nil)
		for _, p := range find(tick(a, clock), countName) {
			if p.attributes[attrModel] == "once" && !p.ended {
				live++
			}
		}
	}
	assert.Equal(t, 4, live, "60 s of points at an interval of 15 s")
	assert.EqualValues(t, 1, a.Stats().Series)
}

func TestNothingExpiresUnsent(t *testing.T) {
	for _, temporality := range []Temporality{Cumulative, Delta} {
		a, clock := newTestAggregator(t, func(c *Config) {
			c.Temporality = temporality
			c.Limits.SeriesExpiration = c.Interval
		})
		recordOne(a, "e", 1, nil)
		clock.advance(time.Hour) // a collect that comes late
		assert.Equal(t, 1.0, total(tick(a, clock), countName))
		recordOne(a, "e", 2, nil)
		clock.advance(time.Hour)
		assert.Equal(t, map[Temporality]float64{Cumulative: 2, Delta: 1}[temporality], total(tick(a, clock), countName))
		tick(a, clock)
		assert.Zero(t, a.Stats().Series)
	}
}

func TestContrib29711IdentityOutlivesTheProcess(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	var n spanNumber
	record := func(pid int64, pod, region string) {
		td, spans := payload("engine-1")
		resource := td.ResourceSpans().At(0).Resource().Attributes()
		resource.PutInt("process.pid", pid)
		resource.PutStr("vllm.process_id", fmt.Sprint(pid))
		resource.PutStr("k8s.pod.name", pod)
		if region != "" {
			resource.PutStr("k8s.cluster.name", region)
		}
		addV0(spans, n.next(), "llama")
		a.Record(td, false)
	}
	record(1, "vllm-a", "eu")
	record(2, "vllm-a", "") // another API server of the same engine
	tick(a, clock)
	record(1, "vllm-b", "") // the pod was replaced
	md := tick(a, clock)
	require.Equal(t, 1, md.ResourceMetrics().Len(), "one writer per instance")
	assert.Equal(t, 3.0, total(md, countName))
	assert.Equal(t, map[string]any{
		"service.name": "vllm", "service.instance.id": "engine-1", "k8s.pod.name": "vllm-b", "k8s.cluster.name": "eu",
	}, md.ResourceMetrics().At(0).Resource().Attributes().AsRaw(), "the newest description, and what it lacks from the one before")
	assert.EqualValues(t, 1, a.Stats().Engines)
}

func TestLateRequestsCount(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	recordOne(a, "e", 1, nil)
	tick(a, clock)
	for i, end := range []time.Time{testEpoch.Add(-48 * time.Hour), testEpoch.Add(48 * time.Hour), time.Unix(1, 0)} {
		recordOne(a, "e", uint64(i)+2, func(span ptrace.Span) {
			span.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-4 * time.Second)))
			span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
		})
	}
	md := tick(a, clock)
	assert.Equal(t, 4.0, total(md, countName))
	assert.Equal(t, 4.0, total(md, durationName))
}

func TestStartTimesAreSet(t *testing.T) {
	for _, temporality := range []Temporality{Cumulative, Delta} {
		a, clock := newTestAggregator(t, func(c *Config) { c.Temporality = temporality; c.Compatibility = []string{"vllm"} })
		clock.advance(time.Minute)
		began := pcommon.NewTimestampFromTime(testEpoch.Add(time.Minute))
		recordOne(a, "e", 1, nil)
		for name, points := range allPoints(tick(a, clock)) {
			for _, p := range points {
				assert.Equal(t, began+pcommon.Timestamp(15*time.Second), p.time, name)
				if name != infoName {
					assert.Equal(t, began, p.start, name)
				}
			}
		}
	}
}

func TestContrib42103ResourceIsIdentityOnly(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Engine.ResourceAttributes = []string{"cloud.region", "host.name"} })
	td, spans := payload("engine-1")
	resource := td.ResourceSpans().At(0).Resource().Attributes()
	for name, value := range map[string]string{
		"cloud.region": "eu-1", "host.name": "gpu-1", "service.namespace": "llm", "service.version": "1", "telemetry.sdk.version": "1.30",
		"vllm.process_id": "17", "os.type": "linux", "k8s.pod.name": "", "k8s.node.name": "node-1",
	} {
		resource.PutStr(name, value)
	}
	resource.PutInt("k8s.cluster.name", 7)
	addV0(spans, 1, "llama")
	a.Record(td, false)
	assert.Equal(t, map[string]any{
		"service.name": "vllm", "service.namespace": "llm", "service.instance.id": "engine-1", "host.name": "gpu-1",
		"cloud.region": "eu-1", "k8s.node.name": "node-1", "k8s.cluster.name": "7",
	}, tick(a, clock).ResourceMetrics().At(0).Resource().Attributes().AsRaw())
}

func TestContrib30678ScopesAreOneSeries(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	td, spans := payload("e")
	addV0(spans, 1, "llama")
	ss := td.ResourceSpans().At(0).ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.tracing.otel")
	addV0(ss.Spans(), 2, "llama")
	a.Record(td, false)
	md := tick(a, clock)
	assert.Equal(t, 2.0, total(md, countName))
	require.Equal(t, 1, md.ResourceMetrics().At(0).ScopeMetrics().Len())
	assert.Equal(t, ScopeName, md.ResourceMetrics().At(0).ScopeMetrics().At(0).Scope().Name(), "not mislabelled as one of theirs")
	assert.Len(t, find(md, countName), 1)
}

// deltas checks over many sends that each series' points follow on each other, and adds them up.
type deltas struct {
	end   map[string]pcommon.Timestamp
	total map[string]float64
}

func (d *deltas) check(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	if d.end == nil {
		d.end, d.total = map[string]pcommon.Timestamp{}, map[string]float64{}
	}
	for name, points := range allPoints(md) {
		if name == infoName {
			continue
		}
		for _, p := range points {
			key := name + p.key()
			require.False(t, p.ended, key)
			require.Less(t, p.start, p.time, key)
			if end, ok := d.end[key]; ok {
				require.Equal(t, end, p.start, "%s: from the end of the point before", key)
			}
			d.end[key] = p.time
			d.total[name] += p.value
			d.total[name+" count"] += float64(p.count)
		}
	}
}

func TestContrib31671DeltaStartsWhereThePreviousEnded(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Temporality = Delta })
	var n spanNumber
	var d deltas
	for i := range 12 {
		recordOne(a, "engine-1", n.next(), nil)
		if i%3 == 0 { // another engine, same attributes, with silent intervals between its points
			recordOne(a, "engine-2", n.next(), nil)
		}
		md := tick(a, clock)
		d.check(t, md)
		assert.Len(t, find(md, countName), 1+(3-i%3)/3, "no point without requests")
	}
	assert.Equal(t, 16.0, d.total[countName])
	assert.Equal(t, 16.0, d.total[durationName+" count"])
	assert.Len(t, find(tick(a, clock), infoName), 2, "a gauge is sent at every interval")
}

func TestContrib39645OverflowKeepsSumsWhole(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Limits.Series = 10; c.Dimensions = []Dimension{{Name: "user"}} })
	var n spanNumber
	for i := range 1000 {
		recordOne(a, fmt.Sprintf("engine-%d", i%3), n.next(), func(span ptrace.Span) {
			span.Attributes().PutStr("user", fmt.Sprint("user-", i%100))
		})
	}
	md := tick(a, clock)
	assert.Equal(t, 1000.0, total(md, countName))
	assert.Equal(t, 1000.0, total(md, durationName))
	var inOverflow float64
	points := find(md, countName)
	for _, p := range points {
		if p.attributes[attrOverflow] == true {
			assert.Len(t, p.attributes, 1)
			inOverflow += p.value
		}
	}
	assert.Len(t, points, 10+3, "one overflow series per engine")
	assert.Equal(t, 960.0, inOverflow, "all but 4 requests of each of the 10 series")
	assert.EqualValues(t, 960, a.Stats().Overflow)
	assert.EqualValues(t, 10, a.Stats().Series)
}

func TestContrib33014LimitKeepsLiveSeries(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Limits.Series = 2 })
	var n spanNumber
	model := func(names ...string) {
		for _, name := range names {
			recordOne(a, "e", n.next(), func(span ptrace.Span) { span.Attributes().PutStr("gen_ai.response.model", name) })
		}
	}
	model("old-1", "old-2", "new-1", "new-2", "old-1")
	for range 3 {
		model("new-1", "old-2")
		tick(a, clock)
	}
	points := find(tick(a, clock), countName)
	require.Len(t, points, 3)
	assert.Equal(t, []any{"old-1", "old-2", nil}, values(points, attrModel))
	assert.Equal(t, []float64{2, 4, 5}, []float64{points[0].value, points[1].value, points[2].value})
}

func TestEngineLimit(t *testing.T) {
	c := NewDefaultConfig()
	c.Limits.Engines = 2
	clock := newFakeClock()
	var news []EngineInfo
	var a *Aggregator
	a, err := New(&c, Settings{Clock: clock.clock(), OnNewEngine: func(e EngineInfo) {
		news = append(news, e)
		a.Stats() // it may call the aggregator
		a.Take()
	}})
	require.NoError(t, err)
	for n := range uint64(50) {
		recordOne(a, fmt.Sprintf("engine-%d", n%5), n+1, nil)
	}
	md := tick(a, clock)
	assert.Equal(t, 50.0, total(md, countName))
	require.Equal(t, 3, md.ResourceMetrics().Len())
	assert.Equal(t, map[string]any{"service.instance.id": "overflow", "otel.metric.overflow": true},
		md.ResourceMetrics().At(0).Resource().Attributes().AsRaw())
	assert.EqualValues(t, 30, a.Stats().Overflow)
	assert.EqualValues(t, 2, a.Stats().Engines)
	assert.Len(t, find(md, infoName), 2, "no info on many engines at once")
	assert.Equal(t, []EngineInfo{
		{Service: "vllm", Name: "engine-0", Source: "service.instance.id"},
		{Service: "vllm", Name: "engine-1", Source: "service.instance.id"},
		{Name: "overflow", Source: "none", Overflow: true},
	}, news)

	// Those that are gone make room.
	clock.advance(time.Hour)
	tick(a, clock)
	tick(a, clock)
	assert.Zero(t, a.Stats().Engines)
	recordOne(a, "engine-4", 100, nil)
	assert.Equal(t, "engine-4", find(tick(a, clock), countName)[0].instance)
}

func TestContrib23151InputIsNotChanged(t *testing.T) {
	td, spans := payload("e")
	for n := range uint64(40) {
		addV0(spans, n+1, "llama")
	}
	td.MarkReadOnly()
	before := ptrace.NewTraces()
	td.CopyTo(before)
	a, clock := newTestAggregator(t, nil)
	require.NotPanics(t, func() { a.Record(td, false) })
	assert.Equal(t, before, copyOf(td))
	assert.Equal(t, 40.0, total(tick(a, clock), countName))

	// Annotation is what the processor asks for, on data of its own; a resent span has it too.
	for range 2 {
		own := copyOf(td)
		a.Record(own, true)
		annotated := ptrace.NewTraces()
		td.CopyTo(annotated)
		Annotate(annotated)
		assert.Equal(t, annotated, own)
		attributes := own.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes()
		assert.Equal(t, 15+6, attributes.Len())
		share, ok := attributes.Get("llm.serving.request.queue.share")
		require.True(t, ok)
		assert.InEpsilon(t, 0.0121/3.001, share.Double(), 1e-12)
		_, ok = attributes.Get("llm.serving.request.frontend.share")
		assert.False(t, ok, "V0 cannot tell")
	}
	assert.EqualValues(t, 80, a.Stats().Duplicates)
}

func copyOf(td ptrace.Traces) ptrace.Traces {
	out := ptrace.NewTraces()
	td.CopyTo(out)
	return out
}

func TestContrib24054ReservedLabels(t *testing.T) {
	for _, name := range []string{
		"job", "instance", "le", "quantile", "__name__", "otel.metric.overflow", "otel_scope_name", "error.type", "error_type",
		"gen_ai.response.model", "gen_ai.provider.name", "stage", "slo", "component", "gen_ai.token.type", "model_name",
		"gen_ai.request.id", "rid", "gen_ai.latency.e2e", "gen_ai.usage.prompt_tokens", "llm.serving.request.queue.share",
	} {
		c := NewDefaultConfig()
		c.Dimensions = []Dimension{{Name: name}}
		require.ErrorContains(t, c.Validate(), "dimensions::0::name", name)
	}
	c := NewDefaultConfig()
	c.Dimensions = []Dimension{{Name: "tenant.id"}, {Name: "tenant_id"}}
	require.ErrorContains(t, c.Validate(), "dimensions::1::name", "one label in Prometheus")

	a, clock := newTestAggregator(t, func(c *Config) { c.Compatibility = []string{"vllm"}; c.SLO.E2E = time.Second })
	recordOne(a, "e", 1, nil)
	for name, points := range allPoints(tick(a, clock)) {
		for _, p := range points {
			for label := range p.attributes {
				assert.NotContains(t, []string{"job", "instance", "le", "span.name", "gen_ai.request.id"}, label, name)
			}
		}
	}
}

func TestContrib33857EverySpanCountsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Limits = LimitConfig{Series: 20, Engines: 4, SeriesExpiration: time.Hour}
	})
	var n spanNumber
	var sent []ptrace.Traces
	requests, duplicates, others := 0, 0, 0
	for range 300 {
		if len(sent) > 0 && rng.IntN(4) == 0 {
			td := sent[rng.IntN(len(sent))] // the client resends
			for _, rs := range td.ResourceSpans().All() {
				for _, span := range rs.ScopeSpans().At(0).Spans().All() {
					if llmrequest.IsRequest(span) {
						duplicates++
					}
				}
			}
			a.Record(td, false)
			continue
		}
		td := ptrace.NewTraces()
		for range 1 + rng.IntN(3) {
			one, spans := payload(fmt.Sprintf("engine-%d", rng.IntN(6)))
			for range rng.IntN(40) {
				switch rng.IntN(5) {
				case 0:
					span := startSpan(spans, n.next(), time.Second)
					span.SetName("Load model")
					others++
				case 1:
					addV1(spans, n.next())
					requests++
				default:
					addV0(spans, n.next(), fmt.Sprintf("model-%d", rng.IntN(10)))
					requests++
				}
			}
			one.ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
		}
		sent = append(sent, td)
		a.Record(td, false)
		if rng.IntN(10) == 0 {
			tick(a, newFakeClock())
		}
	}
	a.Close()
	late, spans := payload("engine-0")
	addV0(spans, n.next(), "llama")
	a.Record(late, false)

	stats := a.Stats()
	md := tick(a, clock)
	assert.Positive(t, others)
	assert.Positive(t, duplicates)
	assert.EqualValues(t, duplicates, stats.Duplicates)
	assert.EqualValues(t, 1, stats.Dropped)
	accepted := requests + duplicates + 1
	assert.EqualValues(t, accepted-duplicates-1, total(md, countName))
	assert.EqualValues(t, requests, total(md, durationName))
	recorded := int64(0)
	for _, generations := range stats.Requests {
		for _, count := range generations {
			recorded += count
		}
	}
	assert.EqualValues(t, requests, recorded)
}

func TestContrib11870EnginesNeverShareAResource(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	recordOne(a, "engine-1", 1, nil)
	recordOne(a, "engine-2", 2, nil)
	recordOne(a, "engine-2", 3, nil)
	md := tick(a, clock)
	require.Equal(t, 2, md.ResourceMetrics().Len())
	points := find(md, countName)
	require.Len(t, points, 2)
	assert.Equal(t, []string{"engine-1", "engine-2"}, []string{points[0].instance, points[1].instance})
	assert.Equal(t, []float64{1, 2}, []float64{points[0].value, points[1].value})
}

func TestContrib47418MissingDimension(t *testing.T) {
	absent := "none"
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Dimensions = []Dimension{{Name: "tenant"}, {Name: "llmisvc.name", Default: &absent}}
	})
	var n spanNumber
	record := func(onSpan, onResource map[string]any) {
		td, spans := payload("e")
		require.NoError(t, addV0(spans, n.next(), "llama").Attributes().FromRaw(merged(spans.At(0).Attributes().AsRaw(), onSpan)))
		for name, value := range onResource {
			td.ResourceSpans().At(0).Resource().Attributes().PutStr(name, value.(string))
		}
		a.Record(td, false)
	}
	record(nil, nil)
	record(map[string]any{"tenant": ""}, map[string]any{"llmisvc.name": ""}) // as good as missing: Prometheus knows no difference
	record(map[string]any{"tenant": "a"}, map[string]any{"tenant": "b", "llmisvc.name": "svc"})
	record(map[string]any{"tenant": ""}, map[string]any{"tenant": "b"})
	record(map[string]any{"tenant": int64(1)}, nil)
	record(map[string]any{"tenant": "1"}, nil)
	points := find(tick(a, clock), countName)
	assert.Equal(t, []any{nil, "a", "b", "1"}, values(points, "tenant"))
	assert.Equal(t, []any{"none", "svc", "none", "none"}, values(points, "llmisvc.name"))
	assert.Equal(t, []float64{2, 1, 1, 2}, []float64{points[0].value, points[1].value, points[2].value, points[3].value})
}

func merged(a, b map[string]any) map[string]any {
	for name, value := range b {
		a[name] = value
	}
	return a
}

func TestContrib16850RecordTakeClose(t *testing.T) {
	for _, temporality := range []Temporality{Cumulative, Delta} {
		t.Run(string(temporality), func(t *testing.T) {
			const workers, payloads, perPayload = 6, 60, 20
			c := NewDefaultConfig()
			c.Temporality = temporality
			c.Limits = LimitConfig{Series: 8, Engines: 3, SeriesExpiration: time.Hour}
			a, err := New(&c, Settings{})
			require.NoError(t, err)
			var recording sync.WaitGroup
			for worker := range workers {
				recording.Go(func() {
					for i := range payloads {
						td, spans := payload(fmt.Sprintf("engine-%d", (worker+i)%5))
						for j := range perPayload {
							n := uint64(worker*payloads*perPayload + i*perPayload + j + 1)
							addV0(spans, n, fmt.Sprintf("model-%d", j%6))
						}
						a.Record(td, i%2 == 0)
						a.Record(td, false) // resent
						a.Stats()
					}
				})
			}
			done := make(chan struct{})
			go func() { recording.Wait(); close(done) }()
			sum := 0.0
			var m monitor
			var d deltas
			collect := func() {
				md := a.Take().Metrics("test")
				removeWindows(md) // which have several points at once
				if temporality == Delta {
					d.check(t, md)
					sum += total(md, countName)
				} else {
					m.check(t, md)
					sum = total(md, countName)
				}
			}
			for running := true; running; {
				select {
				case <-done:
					running = false
				default:
					collect()
				}
			}
			a.Close()
			collect()
			assert.EqualValues(t, workers*payloads*perPayload, sum)
			assert.EqualValues(t, workers*payloads*perPayload, a.Stats().Duplicates)
			assert.EqualValues(t, 8, a.Stats().Series)
			assert.EqualValues(t, 3, a.Stats().Engines)
		})
	}
}

// What comes while Close closes is either in the final collect or counted as dropped.
func TestCloseLosesNothingSilently(t *testing.T) {
	a := newRealAggregator(t, nil)
	const workers, each = 4, 200
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range each {
				recordOne(a, "e", uint64(worker*each+i+1), nil)
				if worker == 0 && i == each/2 {
					a.Close()
				}
			}
		})
	}
	wg.Wait()
	md := a.Take().Metrics("test")
	assert.EqualValues(t, workers*each, total(md, countName)+float64(a.Stats().Dropped))
	assert.Positive(t, a.Stats().Dropped)
}

func TestCloseTwice(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	recordOne(a, "e", 1, nil)
	a.Close()
	a.Close()
	recordOne(a, "e", 2, nil)
	recordOne(a, "e", 1, nil)
	assert.Equal(t, 1.0, total(tick(a, clock), countName), "what was recorded before still comes out")
	assert.EqualValues(t, 2, a.Stats().Dropped)
	assert.Zero(t, a.Stats().Duplicates)
}

func TestFirstCollectAgrees(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	for n := range uint64(10) {
		recordOne(a, "e", n+1, nil)
	}
	for range 2 {
		md := tick(a, clock)
		assert.Equal(t, 10.0, total(md, countName))
		assert.Equal(t, 10.0, total(md, durationName))
		assert.Equal(t, 10*(2106.0+256), total(md, "llm.serving.token.count"))
	}
}

func TestOverflowUnderExpiry(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Limits = LimitConfig{Series: 1, Engines: 1, SeriesExpiration: time.Minute}
	})
	var n spanNumber
	var m monitor
	last, starts := 0.0, map[pcommon.Timestamp]bool{}
	for range 40 {
		for _, engine := range []string{"engine-1", "engine-2"} {
			for _, model := range []string{"a", "b", "c"} {
				recordOne(a, engine, n.next(), func(span ptrace.Span) { span.Attributes().PutStr("gen_ai.response.model", model) })
			}
		}
		md := tick(a, clock)
		m.check(t, md)
		for _, p := range find(md, countName) {
			if p.attributes[attrOverflow] == true && p.instance == "engine-1" {
				assert.Equal(t, last+2, p.value)
				last = p.value
				starts[p.start] = true
			}
		}
		assert.EqualValues(t, uint64(n), total(md, countName))
	}
	assert.Len(t, starts, 1, "not reset while it is used")
	for range 3 {
		for _, p := range find(tick(a, clock), countName) {
			assert.False(t, p.ended, "and refreshed by each request")
		}
	}
	clock.advance(time.Hour)
	for name, points := range allPoints(a.Take().Metrics("test")) {
		for _, p := range points {
			assert.True(t, p.ended, name)
		}
	}
	assert.Zero(t, tick(a, clock).ResourceMetrics().Len(), "and expires like any other")
	assert.Zero(t, a.Stats().Series)
	assert.Zero(t, a.Stats().Engines)
}

func TestFailedDeltaGoesOutLater(t *testing.T) {
	for _, kind := range []HistogramType{Explicit, Exponential} {
		a, clock := newTestAggregator(t, func(c *Config) {
			c.Temporality = Delta
			c.Histograms.Type = kind
			c.SLO.E2E = 3500 * time.Millisecond
		})
		reference, _ := newTestAggregator(t, func(c *Config) { c.Histograms.Type = kind; c.SLO.E2E = 3500 * time.Millisecond })
		rng := rand.New(rand.NewPCG(5, 6))
		var n spanNumber
		var d deltas
		var pending *Snapshot
		for i := range 60 {
			for range rng.IntN(4) {
				td, spans := payload(fmt.Sprintf("engine-%d", rng.IntN(4)))
				if rng.IntN(2) == 0 {
					addV1(spans, n.next())
				} else {
					addV0(spans, n.next(), fmt.Sprintf("model-%d", rng.IntN(2)))
				}
				a.Record(td, false)
				reference.Record(td, false)
			}
			clock.advance(15 * time.Second)
			snapshot := a.Take()
			whole := snapshot
			if pending != nil {
				whole = snapshot.Merge(pending)
			}
			assert.Equal(t, snapshot.Time, whole.Time)
			if i < 59 && rng.IntN(3) > 0 { // the send fails
				if pending = whole; whole == snapshot {
					pending = snapshot.Detach()
				}
				continue
			}
			pending = nil
			d.check(t, whole.Metrics("test"))
		}
		want := map[string]float64{}
		for name, points := range allPoints(reference.Take().Metrics("test")) {
			for _, p := range points {
				want[name] += p.value
				want[name+" count"] += float64(p.count)
			}
		}
		delete(want, infoName)
		delete(want, infoName+" count")
		require.Len(t, d.total, len(want))
		for name := range want {
			assert.InDelta(t, want[name], d.total[name], 1e-9*want[name], name)
		}
	}
}

func TestMergeLeavesSnapshotsAlone(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Temporality = Delta })
	recordOne(a, "e", 1, nil)
	clock.advance(time.Second)
	first := a.Take()
	pendingA, pendingB := first.Detach(), first.Detach() // two outputs failed
	recordOne(a, "e", 2, nil)
	recordOne(a, "f", 3, nil)
	clock.advance(time.Second)
	second := a.Take()
	alone := second.Metrics("test")
	mergedA, mergedB := second.Merge(pendingA), second.Merge(pendingB)
	assert.Equal(t, 3.0, total(mergedA.Metrics("test"), countName))
	assert.Equal(t, mergedA.Metrics("test"), mergedB.Metrics("test"))
	assert.Equal(t, alone, second.Metrics("test"))
	recordOne(a, "e", 4, nil)
	clock.advance(time.Second)
	a.Take()
	assert.Equal(t, 3.0, total(mergedA.Metrics("test"), countName), "a later collect changes it no more")
	assert.Equal(t, 4, find(mergedA.Metrics("test"), durationName)[0].exemplars.Len()+3, "exemplars are the newest ones")
}

// A backend that is away for days must not fill the memory while series come and go.
func TestPendingDeltaIsBounded(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Temporality = Delta
		c.Limits = LimitConfig{Series: 10, Engines: 5, SeriesExpiration: time.Minute}
	})
	var n spanNumber
	var pending *Snapshot
	sum := func(s *Snapshot) float64 { return total(s.Metrics("test"), countName) }
	for i := range 500 {
		recordOne(a, fmt.Sprintf("engine-%d", i/20), n.next(), func(span ptrace.Span) {
			span.Attributes().PutStr("gen_ai.response.model", fmt.Sprintf("model-%d", i/2))
		})
		clock.advance(15 * time.Second)
		snapshot := a.Take()
		if pending == nil {
			pending = snapshot.Detach()
		} else {
			pending = snapshot.Merge(pending)
		}
		require.EqualValues(t, i+1, sum(pending)+float64(a.Stats().Lost), "nothing goes without being counted")
		points := len(find(pending.Metrics("test"), countName))
		require.LessOrEqual(t, points, 2*10+5+1)
		require.LessOrEqual(t, len(pending.engines), 2*10+5)
	}
	assert.Positive(t, a.Stats().Lost)
	assert.GreaterOrEqual(t, sum(pending), 20.0, "what is kept is what came last")
}

func TestEngineThatComesBackIsMergedIntoItself(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Temporality = Delta; c.Limits.SeriesExpiration = time.Minute })
	recordOne(a, "e", 1, nil)
	clock.advance(15 * time.Second)
	pending := a.Take().Detach()
	for range 6 {
		clock.advance(15 * time.Second)
		pending = a.Take().Merge(pending)
	}
	assert.Zero(t, a.Stats().Engines)
	recordOne(a, "e", 2, nil)
	clock.advance(15 * time.Second)
	md := a.Take().Merge(pending).Metrics("test")
	require.Equal(t, 1, md.ResourceMetrics().Len())
	points := find(md, countName)
	require.Len(t, points, 2)
	assert.Less(t, points[0].time, points[1].start)
	info := find(md, infoName)
	require.Len(t, info, 1)
	assert.False(t, info[0].ended)
}

func TestResentSpansCountOnce(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	td, spans := payload("e")
	for n := range uint64(50) {
		span := addV0(spans, n+1, "llama")
		span.SetTraceID([16]byte{1}) // all of one trace: only with its own ID a span is the same
	}
	for range 4 { // a sibling fails, the client resends three times
		a.Record(td, false)
		clock.advance(time.Minute)
	}
	assert.Equal(t, 50.0, total(tick(a, clock), countName))
	assert.EqualValues(t, 150, a.Stats().Duplicates)

	clock.advance(10 * time.Minute)
	a.Record(td, false)
	assert.Equal(t, 100.0, total(tick(a, clock), countName), "beyond the window it counts again")

	off, _ := newTestAggregator(t, func(c *Config) { c.Dedupe.Window = 0 })
	off.Record(td, false)
	off.Record(td, false)
	assert.Equal(t, 100.0, total(tick(off, clock), countName))

	nameless, _ := newTestAggregator(t, nil)
	for range 2 {
		recordOne(nameless, "e", 1, func(span ptrace.Span) { span.SetSpanID(pcommon.SpanID{}) })
		recordOne(nameless, "e", 1, func(span ptrace.Span) { span.SetTraceID(pcommon.TraceID{}) })
	}
	assert.Equal(t, 4.0, total(tick(nameless, clock), countName), "spans without an ID are never the same")
}

func TestPayloadMayBeReused(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Dimensions = []Dimension{{Name: "tenant"}, {Name: "zone"}} })
	var memory [][]byte
	text := func(s string) string { // of memory that belongs to a pool
		b := []byte(s)
		memory = append(memory, b)
		return unsafe.String(&b[0], len(b))
	}
	td, spans := payload("")
	resource := td.ResourceSpans().At(0).Resource().Attributes()
	resource.PutStr("service.name", text("vllm"))
	resource.PutStr("service.instance.id", text("engine-1"))
	resource.PutStr("host.name", text("gpu-1"))
	resource.PutStr("zone", text("b"))
	span := addV0(spans, 1, text("llama"))
	span.Attributes().PutStr("gen_ai.operation.name", text("chat"))
	span.Attributes().PutStr("error.type", text("timeout"))
	span.Attributes().PutStr("tenant", text("a"))
	a.Record(td, false)
	for _, b := range memory {
		for i := range b {
			b[i] = 'X'
		}
	}
	md := tick(a, clock)
	assert.Equal(t, map[string]any{"service.name": "vllm", "service.instance.id": "engine-1", "host.name": "gpu-1"},
		md.ResourceMetrics().At(0).Resource().Attributes().AsRaw())
	assert.Equal(t, map[string]any{
		"gen_ai.provider.name": "vllm", "gen_ai.response.model": "llama", "gen_ai.operation.name": "chat", "error.type": "timeout",
		"tenant": "a", "zone": "b",
	}, find(md, countName)[0].attributes)
	assert.Equal(t, "service.instance.id", find(md, infoName)[0].attributes[attrEngineKey])

	// What a batch keeps in its pool.
	b := &batch{}
	other := startSpan(spans, 2, time.Second)
	other.Attributes().PutStr("error.type", "no request, yet read")
	a.recordResource(b, td.ResourceSpans().At(0), false)
	for i := range b.requests {
		assert.Empty(t, b.requests[i].request.Model+b.requests[i].request.Operation+b.requests[i].request.ErrorType)
	}
	assert.Empty(t, b.engine.id.Name)
}

func TestWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, 24 * time.Hour, -24 * time.Hour} {
		for _, temporality := range []Temporality{Cumulative, Delta} {
			a, clock := newTestAggregator(t, func(c *Config) { c.Temporality = temporality })
			var n spanNumber
			var m monitor
			var d deltas
			var last pcommon.Timestamp
			for i := range 20 {
				if i == 7 {
					clock.step(step)
				}
				recordOne(a, "e", n.next(), nil)
				md := tick(a, clock)
				if temporality == Delta {
					d.check(t, md)
				} else {
					m.check(t, md)
				}
				p := find(md, countName)
				require.Len(t, p, 1, "nothing expires because of the clock on the wall")
				require.Greater(t, p[0].time, last)
				last = p[0].time
			}
			assert.EqualValues(t, 1, a.Stats().Series)
		}
	}

	// A clock that was ahead is caught up with.
	a, clock := newTestAggregator(t, nil)
	clock.step(time.Hour)
	a.Take()
	clock.step(-time.Hour)
	for range 3 * 60 {
		clock.advance(time.Minute)
		a.Take()
	}
	assert.Equal(t, pcommon.NewTimestampFromTime(clock.clock().Wall()), a.Take().Time-1)
}

func TestFailedRequests(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.SLO.E2E = time.Hour })
	recordOne(a, "e", 1, nil)
	recordOne(a, "e", 2, func(span ptrace.Span) { span.Status().SetCode(ptrace.StatusCodeError) })
	recordOne(a, "e", 3, func(span ptrace.Span) { span.Attributes().PutStr("error.type", "timeout") })
	md := tick(a, clock)
	assert.Equal(t, []any{nil, "_OTHER", "timeout"}, values(find(md, durationName), "error.type"))
	assert.Len(t, find(md, "gen_ai.server.time_to_first_token"), 1, "of successful responses only")
	assert.Len(t, find(md, "gen_ai.server.time_per_output_token"), 1)
	assert.Equal(t, 2.0, total(md, "llm.serving.request.goodput"), "e2e and all, of the one that succeeded")
}

func TestModelOfTheService(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Engine.Models = map[string]string{"vllm": "org/model"} })
	td, spans := payload("e")
	addV1(spans, 1)
	addV0(spans, 2, "own")
	a.Record(td, false)
	other, spans := payload("f")
	other.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", "unknown_service")
	addV1(spans, 3)
	a.Record(other, false)
	named, spans := payload("g")
	named.ResourceSpans().At(0).Resource().Attributes().PutStr("llmisvc.name", "svc")
	addV1(spans, 4)
	a.Record(named, false)
	assert.ElementsMatch(t, []any{"org/model", "own", nil, "svc"}, values(find(tick(a, clock), countName), attrModel))
}

func TestEngineInfoFollowsTheEngine(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	info := func() []found { return find(tick(a, clock), infoName) }
	recordOne(a, "e", 1, nil)
	require.Len(t, info(), 1)
	assert.Equal(t, map[string]any{
		"gen_ai.provider.name": "vllm", "llm.serving.engine.generation": "v0", "llm.serving.engine.key": "service.instance.id",
		"llm.serving.engine.may_mix_replicas": false, "llm.serving.engine.step_mode": "unknown",
	}, info()[0].attributes)

	td, spans := payload("e") // a request that ended too early to say more
	span := startSpan(spans, 2, time.Second)
	span.Attributes().PutDouble("gen_ai.latency.e2e", 0.5)
	a.Record(td, false)
	assert.Equal(t, []any{"v0"}, values(info(), attrEngineGeneration))

	td, spans = payload("e") // it was updated
	addV1(spans, 3)
	a.Record(td, false)
	changed := info()
	assert.Equal(t, []any{"v1", "v0"}, values(changed, attrEngineGeneration))
	assert.Equal(t, []bool{false, true}, []bool{changed[0].ended, changed[1].ended})
	assert.Equal(t, []float64{1, 0}, []float64{changed[0].value, changed[1].value})
	assert.Equal(t, []any{"v1"}, values(info(), attrEngineGeneration))

	mixed, spans := payload("")
	mixed.ResourceSpans().At(0).Resource().Attributes().Remove("process.pid")
	addV1(spans, 4)
	a.Record(mixed, false)
	assert.Contains(t, values(info(), attrEngineMayMix), true)

	clock.advance(time.Hour)
	last := info()
	require.Len(t, last, 2)
	assert.True(t, last[0].ended && last[1].ended)
	assert.Empty(t, info())
}

func TestImplausibleValues(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(ptrace.Span)
		absent []string
		reason llmrequest.Reason
	}{
		{"end before start", func(s ptrace.Span) { s.SetEndTimestamp(s.StartTimestamp() - 1) }, nil, llmrequest.ReasonEndBeforeStart},
		{"zero timestamps", func(s ptrace.Span) { s.SetStartTimestamp(0); s.SetEndTimestamp(0) }, nil, llmrequest.ReasonNoTimestamp},
		{"NaN", putDouble("gen_ai.latency.e2e", math.NaN()), []string{durationName, "llm.serving.request.stage.time"}, llmrequest.ReasonNotFinite},
		{"infinite", putDouble("gen_ai.latency.time_in_queue", math.Inf(1)), []string{"llm.serving.request.time_in_queue", "llm.serving.request.queue.share", "llm.serving.request.component.time"}, llmrequest.ReasonNotFinite},
		{"negative", putDouble("gen_ai.latency.time_in_queue", -48), []string{"llm.serving.request.time_in_queue", "llm.serving.request.scheduler.share"}, llmrequest.ReasonNegative},
		{"sentinel", putDouble("gen_ai.latency.time_in_scheduler", -1), []string{"llm.serving.request.time_in_scheduler", "llm.serving.request.component.time"}, llmrequest.ReasonSentinel},
		{"wrong type", func(s ptrace.Span) { s.Attributes().PutStr("gen_ai.latency.e2e", "0.5") }, []string{durationName}, llmrequest.ReasonWrongType},
		{"zero ttft", putDouble("gen_ai.latency.time_to_first_token", 0), []string{"gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"}, llmrequest.ReasonZeroTimeToFirstToken},
		{"infinite share", func(s ptrace.Span) {
			s.Attributes().PutDouble("gen_ai.latency.e2e", 5e-324)
			s.Attributes().PutDouble("gen_ai.latency.time_in_queue", 0)
		}, []string{"llm.serving.request.scheduler.share"}, llmrequest.ReasonExceedsSpan},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range []HistogramType{Explicit, Exponential} {
				a, clock := newTestAggregator(t, func(c *Config) { c.Histograms.Type = kind })
				recordOne(a, "e", 1, test.change)
				all := allPoints(tick(a, clock))
				require.Len(t, all[countName], 1, "the rest of the request counts")
				assert.Equal(t, 1.0, all[countName][0].value)
				assert.NotEmpty(t, all["llm.serving.token.count"])
				for _, name := range test.absent {
					assert.Empty(t, all[name], "%s is absent, not zero", name)
				}
				assert.Positive(t, a.Stats().Rejected[test.reason])
				for name, points := range all {
					for _, p := range points {
						assert.False(t, math.IsNaN(p.value) || math.IsInf(p.value, 0) || p.value < 0, name)
						if p.exemplars != (pmetric.ExemplarSlice{}) {
							for _, e := range p.exemplars.All() {
								assert.NotZero(t, e.Timestamp(), name)
							}
						}
					}
				}
			}
		})
	}

	a, clock := newTestAggregator(t, nil)
	a.Record(ptrace.NewTraces(), true)
	assert.Zero(t, tick(a, clock).ResourceMetrics().Len())
	recordOne(a, "e", 1, putDouble("gen_ai.latency.time_in_queue", math.Copysign(0, -1)))
	queue := find(tick(a, clock), "llm.serving.request.time_in_queue")
	require.Len(t, queue, 1)
	assert.EqualValues(t, 1, queue[0].explicit.BucketCounts().At(0), "a zero with a sign is a zero")
	assert.False(t, math.Signbit(queue[0].explicit.Min()))
}

func putDouble(name string, v float64) func(ptrace.Span) {
	return func(span ptrace.Span) { span.Attributes().PutDouble(name, v) }
}

// With all series taken, what goes into the overflow series is not left out when metrics are refused for a while.
func TestMergeKeepsTheOverflowSeries(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Temporality, c.Limits.Series = Delta, 2
		c.Dimensions = []Dimension{{Name: "tenant"}}
	})
	record := func(first, n int) {
		td, spans := payload("a")
		for i := range n {
			span := spanOf("V1", spans, uint64(first+i))
			span.Attributes().PutStr("tenant", fmt.Sprint(first+i))
		}
		a.Record(td, false)
		clock.advance(15 * time.Second)
	}
	var pending *Snapshot
	for round := range 4 {
		if round != 2 { // a quiet interval
			record(100*round, 10)
		}
		next := a.Take()
		if pending == nil {
			pending = next.Detach()
		} else {
			pending = next.Merge(pending)
		}
	}
	total := int64(0)
	for _, rm := range pending.Metrics("test").ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == requestCount.Name {
				for _, dp := range m.Sum().DataPoints().All() {
					total += dp.IntValue()
				}
			}
		}
	}
	assert.EqualValues(t, 30, total)
	assert.Zero(t, a.Stats().Lost)
}
