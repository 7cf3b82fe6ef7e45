// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What a request, a series, a remembered span and a collect cost.

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const spansPerPayload = 100

// load is payloads that are recorded again and again, their spans under new IDs each time: resent spans
// would cost less than new ones.
type load struct {
	payloads []ptrace.Traces
	spans    spanNumber
}

// newLoad spreads so many series, told apart by the model, over the engines. Every payload is of one engine.
func newLoad(generation string, engines, series int) *load {
	l := &load{}
	perEngine := series / engines
	for e := range engines {
		for done := 0; done < max(perEngine, spansPerPayload); done += spansPerPayload {
			td, spans := payload(fmt.Sprintf("engine-%d", e))
			for i := range spansPerPayload {
				n := l.spans.next()
				span := spanOf(generation, spans, n)
				if perEngine > 1 {
					span.Attributes().PutStr("gen_ai.response.model", fmt.Sprintf("org/model-%d", (done+i)%perEngine))
				}
			}
			l.payloads = append(l.payloads, td)
		}
	}
	return l
}

func spanOf(generation string, spans ptrace.SpanSlice, n uint64) ptrace.Span {
	if generation == "V0" {
		return addV0(spans, n, "meta-llama/Meta-Llama-3-70B")
	}
	return addV1(spans, n)
}

// next is the i-th payload, with IDs that were not used before.
func (l *load) next(i int) ptrace.Traces {
	td := l.payloads[i%len(l.payloads)]
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for j := range spans.Len() {
		setIDs(spans.At(j), l.spans.next())
	}
	return td
}

func newRealAggregator(tb testing.TB, change func(*Config)) *Aggregator {
	c := NewDefaultConfig()
	if change != nil {
		change(&c)
	}
	require.NoError(tb, c.Validate())
	a, err := New(&c, Settings{})
	require.NoError(tb, err)
	return a
}

func reportPerSpan(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*spansPerPayload), "ns/span")
}

// BenchmarkRecord includes about 3 ns per span for setting new IDs.
func BenchmarkRecord(b *testing.B) {
	for _, generation := range []string{"V0", "V1"} {
		for _, size := range []struct{ engines, series int }{{1, 1}, {100, 100}, {10, 1000}, {100, 20000}} {
			b.Run(fmt.Sprintf("%s/engines=%d/series=%d", generation, size.engines, size.series), func(b *testing.B) {
				benchmarkRecord(b, generation, size.engines, size.series, nil)
			})
		}
	}
	b.Run("V0/exponential", func(b *testing.B) {
		benchmarkRecord(b, "V0", 1, 1, func(c *Config) { c.Histograms.Type = Exponential })
	})
	b.Run("V0/no_dedupe", func(b *testing.B) {
		benchmarkRecord(b, "V0", 1, 1, func(c *Config) { c.Dedupe.Window = 0 })
	})
	b.Run("V1/no_dedupe", func(b *testing.B) {
		benchmarkRecord(b, "V1", 1, 1, func(c *Config) { c.Dedupe.Window = 0 })
	})
}

func benchmarkRecord(b *testing.B, generation string, engines, series int, change func(*Config)) {
	a := newRealAggregator(b, change)
	l := newLoad(generation, engines, series)
	i := 0
	// Until every series is there, and the memory of spans as full as under more than it can hold.
	for ; i < max(len(l.payloads), 1_200_000/spansPerPayload); i++ {
		a.Record(l.next(i), false)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.Record(l.next(i), false)
		i++
	}
	reportPerSpan(b)
	require.Zero(b, a.Stats().Duplicates)
}

// BenchmarkRecordParallel has every core record its own engine, as the receiver's streams do, and all one engine.
func BenchmarkRecordParallel(b *testing.B) {
	for _, generation := range []string{"V0", "V1"} {
		for _, shared := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/one_engine=%t", generation, shared), func(b *testing.B) {
				a := newRealAggregator(b, nil)
				var workers atomic.Uint64
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					worker := workers.Add(1)
					l := &load{spans: spanNumber(worker << 40)}
					engine := "engine-0"
					if !shared {
						engine = fmt.Sprintf("engine-%d", worker)
					}
					td, spans := payload(engine)
					for n := range uint64(spansPerPayload) {
						spanOf(generation, spans, n) // at the same time as the other workers' spans
					}
					l.payloads = []ptrace.Traces{td}
					for i := 0; pb.Next(); i++ {
						a.Record(l.next(i), false)
					}
				})
				b.StopTimer()
				reportPerSpan(b)
				require.Zero(b, a.Stats().Duplicates)
			})
		}
	}
}

// BenchmarkRecordBesideThePage is Record of 100 engines while nobody, or 50 people with the default refresh of 5 s, look at the page.
func BenchmarkRecordBesideThePage(b *testing.B) {
	for _, viewers := range []int{0, 50} {
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			a := newRealAggregator(b, withSummary)
			l := newLoad("V0", 100, 100)
			i := 0
			for ; i < 2000; i++ {
				a.Record(l.next(i), false)
			}
			a.Take()
			done := make(chan struct{})
			var page sync.WaitGroup
			if viewers > 0 {
				page.Go(func() {
					ticker := time.NewTicker(5 * time.Second / time.Duration(viewers))
					defer ticker.Stop()
					for {
						select {
						case <-done:
							return
						case <-ticker.C:
							all := a.Engines(time.Now())
							a.Engine(all[0].Key, time.Now())
						}
					}
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				a.Record(l.next(i), false)
				i++
			}
			b.StopTimer()
			close(done)
			page.Wait()
			reportPerSpan(b)
		})
	}
}

// BenchmarkTake is what Record may have to wait for, in short pieces; BenchmarkMetrics is done outside of all locks.
func BenchmarkTake(b *testing.B) {
	a := newRealAggregator(b, nil)
	l := newLoad("V0", 100, 20000)
	for i := range l.payloads {
		a.Record(l.next(i), false)
	}
	a.Take()
	b.ReportAllocs()
	for b.Loop() {
		a.Take()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*20000), "ns/series")
}

func BenchmarkMetrics(b *testing.B) {
	a := newRealAggregator(b, nil)
	l := newLoad("V0", 100, 20000)
	for i := range l.payloads {
		a.Record(l.next(i), false)
	}
	snapshot := a.Take()
	b.ReportAllocs()
	for b.Loop() {
		snapshot.Metrics("test")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*20000), "ns/series")
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkDedupe has a full memory, as under more spans than it can hold.
func BenchmarkDedupe(b *testing.B) {
	d := newDedupe(5*time.Minute, 1_000_000)
	var requests [batchSize]parsed
	n := uint64(0)
	run := func() {
		for i := range requests {
			requests[i].request.TraceID, requests[i].request.SpanID = ids(n)
			n++
		}
		d.seen(requests[:], time.Second)
	}
	for n < 2_000_000 {
		run()
	}
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batchSize), "ns/span")
}

// BenchmarkDecode is the measure of BenchmarkRecord: what it costs to decode the same spans from OTLP.
func BenchmarkDecode(b *testing.B) {
	for _, generation := range []string{"V0", "V1"} {
		b.Run(generation, func(b *testing.B) {
			l := newLoad(generation, 1, 1)
			data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(l.next(0))
			require.NoError(b, err)
			var unmarshaler ptrace.ProtoUnmarshaler
			for b.Loop() {
				_, err = unmarshaler.UnmarshalTraces(data)
			}
			require.NoError(b, err)
			reportPerSpan(b)
		})
	}
}
