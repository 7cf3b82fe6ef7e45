// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// One series: all metrics of the requests with the same attributes on one engine. They are kept
// together so that one look-up serves all of them.

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// series is guarded by its engine's lock, but for attributes, which do not change.
type series struct {
	key        string
	attributes pcommon.Map
	// start of the points that come next: when the series began or, for delta, the end of the point before.
	start    pcommon.Timestamp
	lastSeen time.Duration
	live     *accumulators
	// spare takes turns with live, so that taking what was recorded costs a copy or swap under the lock and no
	// memory.
	spare *accumulators
}

// untaken reports whether there is anything that no snapshot has had yet.
func (s *series) untaken(delta bool) bool {
	if delta {
		return s.live.requests > 0
	}
	return s.spare == nil || s.spare.requests != s.live.requests
}

// accumulators are the values of a series. What no request has had stays absent.
type accumulators struct {
	histograms []histogram // by histogramID

	requests   uint64
	stages     [len(stageNames)]float64 // s
	hasStages  uint8                    // bit per stage
	components [len(componentNames)]float64
	hasParts   bool
	tokens     [len(tokenTypeNames)]uint64
	hasTokens  uint8
	good       [len(sloNames)]uint64
}

// durationHistograms are the durations that are recorded as reported.
var durationHistograms = [...]struct {
	id    histogramID
	field llmrequest.Field
}{
	{histDuration, llmrequest.E2E},
	{histQueue, llmrequest.Queue},
	{histScheduler, llmrequest.Scheduler},
	{histForward, llmrequest.Forward},
	{histExecute, llmrequest.Execute},
	{histPrefill, llmrequest.Prefill},
	{histDecode, llmrequest.Decode},
	{histInference, llmrequest.Inference},
}

func newAccumulators(histograms int) *accumulators {
	return &accumulators{histograms: make([]histogram, histograms)}
}

// record adds one request.
func (a *accumulators) record(shapes []histogramShape, met uint8, r *llmrequest.Request, d *llmrequest.Derived, now pcommon.Timestamp) {
	a.requests++
	e := exemplar{time: exemplarTime(r, now), traceID: r.TraceID, spanID: r.SpanID}

	for _, h := range durationHistograms {
		if v, ok := r.Get(h.field); ok {
			a.histograms[h.id].record(&shapes[h.id], v, &e)
		}
	}
	tpot, hasTPOT := r.TimePerOutputToken()
	if !r.Failed { // the conventions define these two for successful responses
		if v, ok := r.Get(llmrequest.TimeToFirstToken); ok {
			a.histograms[histTTFT].record(&shapes[histTTFT], v, &e)
		}
		if hasTPOT {
			a.histograms[histTPOT].record(&shapes[histTPOT], tpot, &e)
		}
	}
	for share := range llmrequest.NumShares {
		if v, ok := d.Shares.Get(share); ok {
			id := histShares + histogramID(share)
			a.histograms[id].record(&shapes[id], v, &e)
		}
	}
	for i, field := range [...]llmrequest.Field{llmrequest.InputTokens, llmrequest.OutputTokens} {
		if v, ok := r.Get(field); ok {
			id := histInputTokens + histogramID(i)
			a.histograms[id].record(&shapes[id], v, &e)
			a.tokens[i] += uint64(v)
			a.hasTokens |= 1 << i
		}
	}
	if d.HasStages {
		s := &d.Stages
		a.stages[0] += s.Queue
		a.stages[1] += s.Prefill
		a.stages[2] += s.Decode
		a.hasStages |= 1<<0 | 1<<1 | 1<<2
		if s.HasFrontend {
			a.stages[3] += s.Frontend
			a.hasStages |= 1 << 3
		}
	}
	if d.HasComponents {
		c := &d.Components
		a.components[0] += c.Scheduler
		a.components[1] += c.Forward
		a.components[2] += c.ExecuteHost
		a.components[3] += c.Other
		a.hasParts = true
	}
	for i := range a.good {
		a.good[i] += uint64(met >> i & 1)
	}
	if len(shapes) == int(numHistograms) {
		a.recordVLLM(shapes, r, &e)
	}
}

// exemplarTime is when the request ended or, if its span does not say, began or came.
func exemplarTime(r *llmrequest.Request, now pcommon.Timestamp) pcommon.Timestamp {
	switch {
	case r.End != 0:
		return r.End
	case r.Start != 0:
		return r.Start
	}
	return now
}

// take makes a a copy of from, whose exemplars it takes away.
func (a *accumulators) take(from *accumulators, shapes []histogramShape) {
	histograms := a.histograms
	for i := range histograms {
		histograms[i].take(&from.histograms[i], &shapes[i])
	}
	*a = *from
	a.histograms = histograms
}

// merge adds what from has.
func (a *accumulators) merge(from *accumulators, shapes []histogramShape) {
	for i := range a.histograms {
		a.histograms[i].merge(&from.histograms[i], &shapes[i])
	}
	a.requests += from.requests
	for i := range a.stages {
		a.stages[i] += from.stages[i]
	}
	for i := range a.components {
		a.components[i] += from.components[i]
	}
	for i := range a.tokens {
		a.tokens[i] += from.tokens[i]
	}
	for i := range a.good {
		a.good[i] += from.good[i]
	}
	a.hasStages |= from.hasStages
	a.hasParts = a.hasParts || from.hasParts
	a.hasTokens |= from.hasTokens
}

func (a *accumulators) reset() {
	histograms := a.histograms
	for i := range histograms {
		histograms[i].reset()
	}
	*a = accumulators{histograms: histograms}
}

// objectives are the configured objectives in s, 0 for none.
type objectives struct {
	ttft, tpot, e2e float64
}

func newObjectives(c *SLOConfig) *objectives {
	if *c == (SLOConfig{}) {
		return nil
	}
	return &objectives{c.TTFT.Seconds(), c.TPOT.Seconds(), c.E2E.Seconds()}
}

// configured reports which of sloNames are objectives.
func (o *objectives) configured() [len(sloNames)]bool {
	if o == nil {
		return [len(sloNames)]bool{}
	}
	return [...]bool{o.ttft > 0, o.tpot > 0, o.e2e > 0, true}
}

// met has a bit for each of sloNames that r met. Failed requests meet none. A time per output token is no objective of a
// request with fewer than two tokens; any other figure that is missing is not met.
func (o *objectives) met(r *llmrequest.Figures) uint8 {
	if o == nil || r.Failed {
		return 0
	}
	var met uint8
	all := true
	check := func(i int, objective, v float64, ok, applies bool) {
		switch {
		case objective == 0 || !applies:
		case ok && v <= objective:
			met |= 1 << i
		default:
			all = false
		}
	}
	ttft, hasTTFT := r.Get(llmrequest.TimeToFirstToken)
	tpot, hasTPOT := r.TimePerOutputToken()
	e2e, hasE2E := r.Get(llmrequest.E2E)
	single := r.Has(llmrequest.OutputTokens) && r.Value(llmrequest.OutputTokens) < 2
	check(0, o.ttft, ttft, hasTTFT, true)
	check(1, o.tpot, tpot, hasTPOT, !single)
	check(2, o.e2e, e2e, hasE2E, true)
	if all {
		met |= 1 << 3
	}
	return met
}
