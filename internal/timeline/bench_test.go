// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What it costs.

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func timestampOf(n int) pcommon.Timestamp { return pcommon.Timestamp(n) }

// loaded is one engine's requests at a load, repeated in time by BenchmarkAdd.
func loaded(tb testing.TB, name string, w workload, load float64) []llmrequest.Request {
	tb.Helper()
	m := modelOf(name)
	c, _ := capacityOf(m, w)
	return m.spans(m.run(3, w, c*load, 600, 1e9), 3, 5, 0)
}

// anHour is an hour of requests, made once: shorter runs repeated would overlap, like two engines, for much of the time.
func anHour(name string, w workload, load float64) []llmrequest.Request {
	key := fmt.Sprint(name, w, load)
	if hours[key] == nil {
		m := modelOf(name)
		c, _ := capacityOf(m, w)
		hours[key] = m.spans(m.run(3, w, c*load, 3600, 1e9), 3, 5, 0)
	}
	return hours[key]
}

var hours = map[string][]llmrequest.Request{}

func benchmarkAdd(b *testing.B, name string, w workload, load float64) {
	reqs := anHour(name, w, load)
	span := reqs[len(reqs)-1].Start - reqs[0].Start
	t := New(Config{MaxNumSeqs: 128})
	round, windows := 0, 0
	count := func(*Window) { windows++ }
	add := func(i int) {
		r := reqs[i%len(reqs)]
		r.Start += span * timestampOf(round)
		r.End += span * timestampOf(round)
		t.Add(&r)
		t.Drain(count)
	}
	for i := range reqs {
		add(i)
	}
	round, windows = 1, 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if i > 0 && i%len(reqs) == 0 {
			round++
		}
		add(i)
	}
	b.StopTimer()
	total, requests := t.Memory()
	b.ReportMetric(float64(t.Retained()), "retained")
	b.ReportMetric(float64(requests), "B-requests")
	b.ReportMetric(float64(total-requests), "B-fixed")
	b.ReportMetric(float64(b.N)/float64(max(windows, 1)), "req/window")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(windows, 1)), "ns/window")
}

func BenchmarkAdd(b *testing.B) {
	for _, name := range []string{"default", "async", "chunked", "v1"} {
		for _, load := range []float64{0.2, 0.8, 1.0} {
			b.Run(name+"/chat/"+map[float64]string{0.2: "20%", 0.8: "80%", 1.0: "100%"}[load], func(b *testing.B) {
				benchmarkAdd(b, name, chat, load)
			})
		}
		b.Run(name+"/long/80%", func(b *testing.B) { benchmarkAdd(b, name, long, 0.8) })
	}
}

// BenchmarkWindow is what a window costs by itself: one with a single request, and one with none.
func BenchmarkWindow(b *testing.B) {
	for _, name := range []string{"idle", "one request"} {
		b.Run(name, func(b *testing.B) {
			t := New(Config{MaxNumSeqs: 128})
			reqs := loaded(b, "default", chat, 0.05)
			// One in every window, or in every hundredth.
			every := 10.0
			if name == "idle" {
				every = 500
			}
			windows := 0
			add := func(i int) {
				r := reqs[i%len(reqs)]
				length := r.End - r.Start
				r.Start = timestampOf(int(simEpoch.UnixNano()) + int(float64(i)*every*sec))
				r.End = r.Start + length
				t.Add(&r)
				// Others confirm that time goes on.
				for range confirm {
					t.Add(&r)
				}
				t.Drain(func(*Window) { windows++ })
			}
			for i := range 64 {
				add(i)
			}
			windows = 0
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				add(64 + i)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(windows, 1)), "ns/window")
		})
	}
}

func TestNoAllocationPerRequest(t *testing.T) {
	reqs := loaded(t, "default", chat, 0.8)
	tl := New(Config{})
	i := 0
	next := func() {
		r := reqs[i%len(reqs)]
		shift := timestampOf(i/len(reqs)) * 700e9
		r.Start, r.End = r.Start+shift, r.End+shift
		tl.Add(&r)
		i++
	}
	drop := func(*Window) {}
	for i < 2*len(reqs) {
		next()
		tl.Drain(drop)
	}
	perRequest := testing.AllocsPerRun(len(reqs), func() {
		next()
		tl.Drain(drop)
	})
	assert.Less(t, perRequest, 0.02)
}

// Once an engine's requests are known, what is held for them is little more than they are.
func TestBytesPerRequest(t *testing.T) {
	for _, name := range []string{"default", "v1"} {
		for _, load := range []float64{0.2, 0.5, 0.8} {
			reqs := loaded(t, name, chat, load)
			tl := New(Config{})
			peak, most := 0, 0
			for i := range 4 * len(reqs) { // 40 minutes
				r := reqs[i%len(reqs)]
				shift := timestampOf(i/len(reqs)) * 700e9
				r.Start, r.End = r.Start+shift, r.End+shift
				tl.Add(&r)
				if i >= 2*len(reqs) {
					peak = max(peak, tl.Retained())
				}
				tl.Drain(func(*Window) {
					if i >= 2*len(reqs) {
						_, bytes := tl.Memory()
						most = max(most, bytes)
					}
				})
			}
			t.Logf("%s %v: %d requests, %.1f bytes of each", name, load, peak, float64(most)/float64(peak))
			assert.LessOrEqual(t, most, 64*peak, "%s %v", name, load)
		}
	}
}
