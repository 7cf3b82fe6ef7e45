// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// request is one of 2 s with a queue of 0.5 s and a first token after 1 s.
func request(end time.Time) *Request {
	var q llmrequest.Request
	q.Start = pcommon.NewTimestampFromTime(end.Add(-2 * time.Second))
	q.Sequences = 1
	q.Set(llmrequest.E2E, 2)
	q.Set(llmrequest.Queue, .5)
	q.Set(llmrequest.TimeToFirstToken, 1)
	q.Set(llmrequest.Scheduler, .15)
	q.Set(llmrequest.Forward, .6)
	q.Set(llmrequest.Execute, .9)
	q.Set(llmrequest.InputTokens, 100)
	q.Set(llmrequest.OutputTokens, 11)
	var d llmrequest.Derived
	q.Derive(&d)
	var r Request
	NewRequest(&q, &d, &r)
	return &r
}

func window(start time.Time, length time.Duration) *timeline.Window {
	w := &timeline.Window{Start: start, End: start.Add(length)}
	w.Set(timeline.StepLawA, .01)
	w.Set(timeline.StepLawB, .0002)
	return w
}

// live feeds one request a second and windows of 10 s, from start for d.
func live(h *History, start time.Time, d time.Duration) {
	for t := time.Duration(0); t < d; t += time.Second {
		h.AddRequest(request(start.Add(t)))
		if (t+time.Second)%(10*time.Second) == 0 {
			h.AddWindow(window(start.Add(t+time.Second-10*time.Second), 10*time.Second))
		}
	}
}

func TestPeriod(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Lag: 4 * time.Minute})
	live(h, noon, 20*time.Minute+30*time.Second)
	var in diagnosis.Input
	h.Period(&in)

	require.Len(t, in.Windows, 30)
	assert.Equal(t, noon.Add(15*time.Minute+30*time.Second), in.Windows[0].Start)
	assert.Equal(t, noon.Add(20*time.Minute+30*time.Second), in.Windows[29].End)
	r := in.Requests
	assert.EqualValues(t, 300, r.Count, "five whole minutes")
	assert.InDelta(t, 1, r.Rate, 1e-9)
	assert.InDelta(t, .25, r.QueueShare, 1e-6)
	assert.InDelta(t, .5, r.QueueTTFTShare, 1e-6)
	assert.InDelta(t, .5/1.5, r.PrefillShare, 1e-6)
	assert.InDelta(t, .1, r.SchedulerShare, 1e-6)
	assert.InDelta(t, .2, r.ExecuteHostShare, 1e-6)
	assert.True(t, math.IsNaN(r.FrontendShare), "V0 has no front end to tell")
	assert.InDelta(t, 1, r.TTFT.P99, .022)
	assert.InDelta(t, .1, r.TPOT.Mean, 1e-6)
	assert.InDelta(t, 0, r.TTFTSlope, 1e-9)
	assert.Nil(t, in.Before)
}

func TestPeriodOfTheFirstMinute(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Lag: 4 * time.Minute})
	var in diagnosis.Input
	h.Period(&in)
	assert.Empty(t, in.Windows)
	assert.True(t, math.IsNaN(in.Requests.Rate))

	live(h, noon, 40*time.Second)
	h.Period(&in)
	assert.Len(t, in.Windows, 4)
	assert.EqualValues(t, 40, in.Requests.Count)
	assert.True(t, math.IsNaN(in.Requests.Rate), "some of them finished after the windows")
}

func TestPeriodHasAWindowHoweverLong(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Lag: 4 * time.Minute})
	for i := range 10 {
		h.AddWindow(window(noon.Add(time.Duration(i)*time.Hour), time.Hour))
	}
	var in diagnosis.Input
	h.Period(&in)
	require.Len(t, in.Windows, 1)
	assert.Equal(t, noon.Add(10*time.Hour), in.Windows[0].End)
	assert.LessOrEqual(t, len(h.Points()), minPoints+1)
}

func TestTTFTSlope(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Lag: 4 * time.Minute})
	for i := range 600 {
		r := request(noon.Add(time.Duration(i) * time.Second))
		r.TTFT = 1 + .01*float32(i)
		h.AddRequest(r)
		if behind := i - 200; behind >= 0 && behind%10 == 0 {
			h.AddWindow(window(noon.Add(time.Duration(behind)*time.Second), 10*time.Second))
		}
	}
	var in diagnosis.Input
	h.Period(&in)
	assert.InDelta(t, .01, in.Requests.TTFTSlope, 1e-6)
	assert.InDelta(t, 0, in.Requests.TTFTSlopeError, 1e-6)
}

func TestBefore(t *testing.T) {
	for _, hourly := range []bool{false, true} {
		h := New(Config{Period: 5 * time.Minute, Hour: hourly})
		live(h, noon, 4*time.Hour)
		var in diagnosis.Input
		h.Period(&in)
		require.NotNil(t, in.Before)
		assert.InDelta(t, 1, in.Before.Rate, .001)
		assert.InDelta(t, 100, in.Before.Input.P50, 2.2)
		assert.InDelta(t, .01, in.Before.StepLawA, 1e-6)
		assert.Greater(t, in.Before.Hours, 2.5)
		assert.Less(t, in.Before.Hours, 4.0)
	}
}

func TestHour(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Hour: true})
	live(h, noon, 2*time.Hour)
	h.SetVerdict(diagnosis.Healthy)
	require.Len(t, h.Points(), 360)
	assert.Equal(t, noon.Add(time.Hour), h.Points()[0].Start)
	assert.Equal(t, diagnosis.Healthy, h.Points()[359].Verdict)
	minutes := h.Minutes()
	require.Len(t, minutes, 60)
	assert.Equal(t, noon.Add(61*time.Minute), minutes[0].End)
	for _, m := range minutes {
		assert.EqualValues(t, 60, m.Count)
	}
	recent := h.Recent()
	assert.InDelta(t, .5, recent.Queue, 1e-6)
	assert.InDelta(t, .5, recent.Prefill, 1e-6)
	assert.InDelta(t, 1, recent.Decode, 1e-6)
	assert.True(t, math.IsNaN(recent.Frontend))
	assert.EqualValues(t, 300, recent.Count)
}

func TestIdleMinutesAreKnown(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Hour: true})
	live(h, noon, 2*time.Minute)
	for i := range 60 {
		h.AddWindow(window(noon.Add(2*time.Minute+time.Duration(i)*10*time.Second), 10*time.Second))
	}
	var in diagnosis.Input
	h.Period(&in)
	assert.Zero(t, in.Requests.Count)
	assert.Zero(t, in.Requests.Rate)
	require.Len(t, h.Minutes(), 12)
	assert.True(t, math.IsNaN(h.Minutes()[11].TTFT.P50))
}

// One absurd time costs one slot, and not the history.
func TestAbsurdTimes(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Hour: true})
	for i := range 10 * 60 {
		h.AddRequest(request(noon.Add(time.Duration(i) * time.Second)))
		if i%100 == 0 {
			h.AddRequest(request(noon.AddDate(1+i, 0, 0)))
			h.AddRequest(request(time.Unix(3, 0)))
		}
	}
	for i := range 60 {
		h.AddWindow(window(noon.Add(time.Duration(i)*10*time.Second), 10*time.Second))
	}
	var in diagnosis.Input
	h.Period(&in)
	assert.EqualValues(t, 300, in.Requests.Count)
	for i := range 10_000 {
		h.AddRequest(request(noon.Add(time.Duration(i*61) * time.Minute)))
		h.AddSlow(&Slow{Request: *request(noon.Add(time.Duration(i*61) * time.Minute))})
	}
	assert.LessOrEqual(t, len(h.minutes.all), 63)
	assert.LessOrEqual(t, len(h.hours.all), maxHours)
	assert.LessOrEqual(t, len(h.slowest.all), slowestSlots)
	h.AddRequest(&Request{End: 0})
	h.AddRequest(&Request{End: -5})
	h.AddRequest(&Request{End: math.MaxInt64})
}

// A request that comes late counts in its minute, and each request once in its hour.
func TestLateRequestsCountOnce(t *testing.T) {
	h := New(Config{Period: time.Minute})
	live(h, noon, 30*time.Minute)
	for range 7 {
		h.AddRequest(request(noon.Add(time.Minute)))
	}
	live(h, noon.Add(30*time.Minute), 2*time.Hour)
	requests := int64(0)
	h.hours.each(0, math.MaxInt64, func(_ int64, o *hour) { requests += o.requests })
	h.minutes.each(0, math.MaxInt64, func(_ int64, m *minute) { requests += m.count })
	assert.EqualValues(t, 150*60+7, requests)
}

// What is added up once is added up anew when a request comes late, and when a minute becomes part of the day before.
func TestPeriodIsNotOfYesterday(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Lag: 4 * time.Minute})
	live(h, noon, 10*time.Minute)
	var in diagnosis.Input
	h.Period(&in)
	require.EqualValues(t, 300, in.Requests.Count)
	h.AddRequest(request(noon.Add(8 * time.Minute)))
	h.Period(&in)
	assert.EqualValues(t, 301, in.Requests.Count)

	live(h, noon.Add(10*time.Minute), 2*time.Hour+20*time.Minute)
	h.Period(&in)
	require.NotNil(t, in.Before)
	hours := in.Before.Hours
	live(h, noon.Add(2*time.Hour+30*time.Minute), 20*time.Minute) // within the same hour
	h.Period(&in)
	assert.InDelta(t, hours+20./60, in.Before.Hours, 1e-6)
}

func TestSlowest(t *testing.T) {
	h := New(Config{Period: 5 * time.Minute, Hour: true})
	rng := rand.New(rand.NewPCG(1, 2))
	var all []float32
	for i := range 3600 {
		s := Slow{Request: *request(noon.Add(time.Duration(i) * time.Second)), SpanID: pcommon.SpanID{byte(i), byte(i >> 8)}}
		s.E2E = rng.Float32() * 100
		all = append(all, s.E2E)
		h.AddSlow(&s)
	}
	h.AddSlow(&Slow{Request: Request{End: noon.Add(-2 * time.Hour).UnixNano(), E2E: 1e6}})
	h.AddWindow(window(noon.Add(time.Hour-10*time.Second), 10*time.Second))
	slices.Sort(all)
	slices.Reverse(all)
	got := h.Slowest()
	require.Len(t, got, MaxSlowest)
	for i := range got {
		assert.Equal(t, all[i], got[i].E2E)
	}
}

func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, sigma := range []float64{.1, .5, .8} { // of the logarithm; the last spans a factor of about 500
		var s, half spread
		var all []float64
		for i := range 20_000 {
			v := float32(math.Exp(rng.NormFloat64() * sigma))
			all = append(all, float64(v))
			if i%2 == 0 {
				s.add(v)
			} else {
				half.add(v)
			}
		}
		s.merge(&half)
		slices.Sort(all)
		q := s.quantiles()
		assert.EqualValues(t, 20_000, q.Count)
		for _, x := range []struct{ p, got float64 }{{.5, q.P50}, {.9, q.P90}, {.95, q.P95}, {.99, q.P99}} {
			want := all[int(math.Ceil(x.p*20_000))-1]
			assert.InEpsilon(t, want, x.got, .022, "p%v at sigma %v", x.p, sigma)
		}
	}
}

func TestQuantilesOfFewValues(t *testing.T) {
	var s spread
	assert.True(t, math.IsNaN(s.quantiles().P50))
	s.add(nan)
	s.add(-1)
	assert.Zero(t, s.quantiles().Count)
	s.add(0)
	assert.Zero(t, s.quantiles().P99)
	s.add(3)
	q := s.quantiles()
	assert.Zero(t, q.P50)
	assert.InDelta(t, 3, q.P99, 1e-6, "within the extremes")
}

// What is noted of a failed request says nothing about its tokens.
func TestNewRequestOfAFailure(t *testing.T) {
	var q llmrequest.Request
	q.Start, q.End, q.Failed = 5e9, 7e9, true
	q.Set(llmrequest.TimeToFirstToken, 1)
	var r Request
	NewRequest(&q, &llmrequest.Derived{}, &r)
	assert.EqualValues(t, 7e9, r.End)
	assert.True(t, math.IsNaN(float64(r.TTFT)))
	assert.True(t, math.IsNaN(float64(r.E2E)))
	q.Start, q.End = 0, math.MaxUint64
	NewRequest(&q, &llmrequest.Derived{}, &r)
	assert.Zero(t, r.End)
}

func BenchmarkAddRequest(b *testing.B) {
	h := New(Config{Period: 5 * time.Minute, Hour: true})
	rng := rand.New(rand.NewPCG(1, 2))
	requests := make([]Request, 1024)
	for i := range requests {
		requests[i] = *request(noon.Add(time.Duration(i) * 10 * time.Millisecond))
		requests[i].E2E *= rng.Float32() * 2
		requests[i].TTFT *= rng.Float32() * 2
		requests[i].TPOT *= rng.Float32() * 2
		requests[i].Input *= rng.Float32() * 2
		requests[i].Output *= rng.Float32() * 2
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.AddRequest(&requests[i%len(requests)])
	}
}

func BenchmarkPeriod(b *testing.B) {
	h := New(Config{Period: 5 * time.Minute, Hour: true})
	live(h, noon, 20*time.Minute)
	var in diagnosis.Input
	b.ReportAllocs()
	for b.Loop() {
		h.Period(&in)
	}
}

// The day before is added up in two parts, one of which is kept: that makes no difference to the last bit.
func TestDayBeforeInParts(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	h := New(Config{Period: 2 * time.Minute})
	now, known := noon, 0
	for range 4000 {
		switch r.IntN(150) {
		case 0:
			now = now.Add(time.Duration(r.IntN(10)) * time.Hour)
		case 1:
			now = now.Add(-time.Duration(r.IntN(8)) * time.Hour) // the clock was set back
		}
		for range r.IntN(20) {
			q := *request(now.Add(time.Duration(r.IntN(60)) * time.Second))
			q.Input, q.Output = float32(1000*r.ExpFloat64()), float32(300*r.ExpFloat64())
			if r.IntN(50) == 0 {
				q.End -= int64(r.IntN(30)) * int64(time.Hour)
			}
			h.AddRequest(&q)
		}
		w := window(now, time.Minute)
		w.Set(timeline.StepLawA, r.Float64())
		h.AddWindow(w)
		now = now.Add(time.Minute)
		var in diagnosis.Input
		h.Period(&in)

		var all hour
		h.hours.each(now.Add(-24*time.Hour).UnixNano(), now.UnixNano(), func(_ int64, o *hour) { all.merge(o) })
		h.day.hour = 0 // hours that drop out of it in between do so at the turn of the hour
		h.Period(&in)
		if all.covered < 3600 {
			require.Nil(t, in.Before)
			continue
		}
		known++
		require.Equal(t, &diagnosis.Before{
			Hours: all.covered / 3600, Rate: float64(all.requests) / all.covered,
			Input: all.input.quantiles(), Output: all.output.quantiles(),
			StepLawA: all.lawA.mean(), StepLawB: all.lawB.mean(),
		}, in.Before)
	}
	require.Greater(t, known, 1000)
}
