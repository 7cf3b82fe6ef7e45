// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

// What is remembered of a request, and how requests add up in minutes and hours.

import (
	"math"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Request is what is noted of a finished request: without references, so that it can be noted when it is received and
// added later. NaN: unknown. Durations in s.
type Request struct {
	End int64 // Unix ns; 0: unknown, and nothing is remembered

	E2E, TTFT, TPOT                  float32
	Queue, Prefill, Decode, Frontend float32
	Running, Scheduler, ExecuteHost  float32
	Input, Output                    float32 // tokens
	Failed                           bool
	Good                             uint8 // bit per objective: ttft, tpot, e2e, all
}

var nan = float32(math.NaN())

// NewRequest notes q and what follows from it.
func NewRequest(q *llmrequest.Request, d *llmrequest.Derived, r *Request) {
	*r = Request{
		E2E: nan, TTFT: nan, TPOT: nan, Queue: nan, Prefill: nan, Decode: nan, Frontend: nan,
		Running: nan, Scheduler: nan, ExecuteHost: nan, Input: nan, Output: nan, Failed: q.Failed,
	}
	set := func(to *float32, f llmrequest.Field) {
		if v, ok := q.Get(f); ok {
			*to = float32(v)
		}
	}
	set(&r.E2E, llmrequest.E2E)
	set(&r.Queue, llmrequest.Queue)
	set(&r.Scheduler, llmrequest.Scheduler)
	set(&r.Input, llmrequest.InputTokens)
	set(&r.Output, llmrequest.OutputTokens)
	if !q.Failed { // as the histograms of the conventions have it
		set(&r.TTFT, llmrequest.TimeToFirstToken)
		if v, ok := q.TimePerOutputToken(); ok {
			r.TPOT = float32(v)
		}
	}
	if v, ok := q.Running(); ok {
		r.Running = float32(v)
	}
	if q.HasAll(llmrequest.Execute, llmrequest.Forward) {
		r.ExecuteHost = float32(max(0, q.Value(llmrequest.Execute)-q.Value(llmrequest.Forward)))
	}
	if d.HasStages {
		r.Prefill, r.Decode = float32(d.Stages.Prefill), float32(d.Stages.Decode)
		if d.Stages.HasFrontend {
			r.Frontend = float32(d.Stages.Frontend)
		}
	}
	switch start, end := int64(q.Start), int64(q.End); { //nolint:gosec // a wrong one is not positive
	case start > 0 && r.E2E >= 0 && r.E2E < 1e9:
		r.End = start + int64(float64(r.E2E)*1e9)
	default:
		r.End = max(end, 0)
	}
}

// ratio adds up two parts of the requests that have both.
type ratio struct{ part, whole float64 }

func (r *ratio) add(part, whole float32) {
	if part >= 0 && whole > 0 { // and not NaN
		r.part += float64(part)
		r.whole += float64(whole)
	}
}

func (r ratio) value() float64 {
	if r.whole == 0 {
		return math.NaN()
	}
	return r.part / r.whole
}

// total adds up what the requests have.
type total struct {
	sum float64
	n   int64
}

func (t *total) add(v float32) {
	if v >= 0 { // and not NaN
		t.sum += float64(v)
		t.n++
	}
}

func (t *total) merge(o total) {
	t.sum += o.sum
	t.n += o.n
}

// mean is NaN where nothing was added.
func (t total) mean() float64 {
	if t.n == 0 {
		return math.NaN()
	}
	return t.sum / float64(t.n)
}

// The totals of a minute.
const (
	ttft = iota
	queueTime
	prefillTime
	decodeTime
	frontendTime
	numTotals
)

// The ratios of a minute.
const (
	queueOfE2E = iota
	queueOfTTFT
	frontendOfE2E
	prefillOfBusy
	schedulerOfRunning
	executeHostOfRunning
	numRatios
)

// minute is the requests that finished in a minute, or in several that were added up.
type minute struct {
	count, failed int64
	covered       float64 // s of windows that start in it
	lawA, lawB    total   // of them
	sums          [numTotals]total
	ratios        [numRatios]ratio
	good          [numObjectives]int64

	ttft, tpot, e2e, input, output spread
}

const numObjectives = 4 // ttft, tpot, e2e, all

func (m *minute) add(r *Request) {
	m.count++
	if r.Failed {
		m.failed++
	}
	m.sums[ttft].add(r.TTFT)
	m.sums[queueTime].add(r.Queue)
	m.sums[prefillTime].add(r.Prefill)
	m.sums[decodeTime].add(r.Decode)
	m.sums[frontendTime].add(r.Frontend)
	m.ratios[queueOfE2E].add(r.Queue, r.E2E)
	m.ratios[queueOfTTFT].add(r.Queue, r.TTFT)
	m.ratios[frontendOfE2E].add(r.Frontend, r.E2E)
	m.ratios[prefillOfBusy].add(r.Prefill, r.Prefill+r.Decode)
	m.ratios[schedulerOfRunning].add(r.Scheduler, r.Running)
	m.ratios[executeHostOfRunning].add(r.ExecuteHost, r.Running)
	for i := range m.good {
		if r.Good&(1<<i) != 0 {
			m.good[i]++
		}
	}
	m.ttft.add(r.TTFT)
	m.tpot.add(r.TPOT)
	m.e2e.add(r.E2E)
	m.input.add(r.Input)
	m.output.add(r.Output)
}

func (m *minute) merge(o *minute) {
	m.count += o.count
	m.failed += o.failed
	m.covered += o.covered
	m.lawA.merge(o.lawA)
	m.lawB.merge(o.lawB)
	for i := range m.sums {
		m.sums[i].merge(o.sums[i])
	}
	for i := range m.ratios {
		m.ratios[i].part += o.ratios[i].part
		m.ratios[i].whole += o.ratios[i].whole
	}
	for i := range m.good {
		m.good[i] += o.good[i]
	}
	m.ttft.merge(&o.ttft)
	m.tpot.merge(&o.tpot)
	m.e2e.merge(&o.e2e)
	m.input.merge(&o.input)
	m.output.merge(&o.output)
}

func (m *minute) reset() {
	m.ttft.reset()
	m.tpot.reset()
	m.e2e.reset()
	m.input.reset()
	m.output.reset()
	*m = minute{ttft: m.ttft, tpot: m.tpot, e2e: m.e2e, input: m.input, output: m.output}
}

func (m *minute) summary() diagnosis.Requests {
	r := diagnosis.Requests{
		Count: m.count, Failed: m.failed, Rate: math.NaN(),
		TTFT: m.ttft.quantiles(), TPOT: m.tpot.quantiles(), E2E: m.e2e.quantiles(), Input: m.input.quantiles(), Output: m.output.quantiles(),
		QueueShare: m.ratios[queueOfE2E].value(), QueueTTFTShare: m.ratios[queueOfTTFT].value(), FrontendShare: m.ratios[frontendOfE2E].value(),
		PrefillShare: m.ratios[prefillOfBusy].value(), SchedulerShare: m.ratios[schedulerOfRunning].value(), ExecuteHostShare: m.ratios[executeHostOfRunning].value(),
		TTFTSlope: math.NaN(), TTFTSlopeError: math.NaN(),
	}
	if m.covered > 0 {
		r.Rate = float64(m.count) / m.covered
	}
	return r
}

func noRequests() diagnosis.Requests { return new(minute).summary() }

// addWindow takes in a window that starts in the minute.
func (m *minute) addWindow(w *timeline.Window) {
	m.covered += w.End.Sub(w.Start).Seconds()
	a, hasA := w.Get(timeline.StepLawA)
	b, hasB := w.Get(timeline.StepLawB)
	if hasA && hasB {
		m.lawA.add(float32(a))
		m.lawB.add(float32(b))
	}
}

// hour is what is kept of minutes for a day.
type hour struct {
	requests      int64
	covered       float64 // s
	lawA, lawB    total
	input, output spread
}

func (o *hour) reset() {
	o.input.reset()
	o.output.reset()
	*o = hour{input: o.input, output: o.output}
}

func (o *hour) addMinute(m *minute) {
	o.merge(&hour{requests: m.count, covered: m.covered, lawA: m.lawA, lawB: m.lawB, input: m.input, output: m.output})
}

func (o *hour) merge(x *hour) {
	o.requests += x.requests
	o.covered += x.covered
	o.lawA.merge(x.lawA)
	o.lawB.merge(x.lawB)
	o.input.merge(&x.input)
	o.output.merge(&x.output)
}
