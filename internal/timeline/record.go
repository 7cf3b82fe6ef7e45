// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// One request, as windows are computed from it and as it is retained.

import (
	"math"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// Record is what a Timeline takes of a request: 48 bytes, without references. Making it and adding it can be done
// at different times: whoever receives requests need not wait for windows to be computed.
type Record struct{ record }

// NewRecord reads q. It reports false, and q says nothing about any window, where the request does
// not say when it ran.
func NewRecord(q *llmrequest.Request) (Record, bool) {
	r, ok := makeRecord(q)
	return Record{r}, ok
}

type record struct {
	rs, re int64 // first schedule and last token, Unix ns

	prefill   float32 // first schedule to first token, s
	queue     float32 // before the first schedule, s
	forward   float32
	execute   float32
	scheduler float32

	out, in uint32
	flags   uint16
	shift   uint8 // the record stands for 1<<shift requests
	_       uint8
}

const (
	hasFirst     uint16 = 1 << iota // prefill is known
	hasQueue                        // queue is known
	hasForward                      // forward is known and plausible
	hasExecute                      // execute is known and plausible
	hasScheduler                    // scheduler is known and plausible
	hasSteps                        // out - 1 is the number of decode steps
	hasIn
	hasOut
	stepClock // rs is stamped by the engine once a step (V0)
)

// maxRun is the longest running time believed, s.
const maxRun = 24 * 3600

// maxOut and maxIn are the most tokens of a request believed, several times those of the longest contexts there are: packed has so many bits
// for them.
const (
	outBits, inBits = 21, 23
	maxOut, maxIn   = 1<<outBits - 2, 1<<inBits - 2
)

const sec = 1e9

// first is the time of the first token, or rs where that is unknown.
func (r *record) first() int64 { return r.rs + int64(float64(r.prefill)*sec) }

func (r *record) arrival() int64 { return r.rs - int64(float64(r.queue)*sec) }

func (r *record) has(f uint16) bool { return r.flags&f == f }

func (r *record) weight() float64 { return float64(uint32(1) << r.shift) }

// makeRecord reads q; it fails where the request does not say when it ran.
//
// V1 durations between queue and last token are the engine core's, e2e is the front end's, so a
// V1 request ran for Inference before its last token; the difference lies before its queue.
func makeRecord(q *llmrequest.Request) (record, bool) {
	var r record
	start := int64(q.Start) //nolint:gosec // checked below
	if start <= 0 {
		return r, false
	}
	switch e2e, ok := q.Get(llmrequest.E2E); {
	case ok && e2e >= 0 && e2e <= maxRun:
		r.re = start + int64(e2e*sec)
	case !ok && q.End >= q.Start && uint64(q.End-q.Start) <= maxRun*sec:
		r.re = int64(q.End) //nolint:gosec // bounded by start
	default:
		return r, false
	}
	if r.re <= 0 || r.re > math.MaxInt64/2 {
		return r, false
	}
	queue, queued := q.Get(llmrequest.Queue)
	queued = queued && queue >= 0 && queue <= maxRun
	inference, inferred := q.Get(llmrequest.Inference)
	if !inferred && q.HasAll(llmrequest.Prefill, llmrequest.Decode) {
		inference, inferred = q.Value(llmrequest.Prefill)+q.Value(llmrequest.Decode), true
	}
	switch {
	case inferred && inference >= 0 && inference <= maxRun && start+int64(inference*sec) <= r.re+int64(sec/100):
		r.rs = r.re - int64(inference*sec)
	case queued:
		inferred = false
		r.rs = start + int64(queue*sec)
	default:
		inferred = false
		r.rs = start
	}
	r.rs = max(min(r.rs, r.re), 0)
	if queued {
		r.queue, r.flags = float32(queue), hasQueue
		if r.arrival() < 0 { // nothing waited before 1970
			r.queue, r.flags = 0, 0
		}
	}
	run := float64(r.re-r.rs) / sec

	if p, ok := q.Get(llmrequest.Prefill); inferred && ok && p >= 0 && p <= run+0.001 {
		r.prefill, r.flags = float32(min(p, run)), r.flags|hasFirst
	} else if ttft, ok := q.Get(llmrequest.TimeToFirstToken); ok && !inferred && ttft > 0 && ttft <= maxRun {
		if first := start + int64(ttft*sec); first >= r.rs && first <= r.re+int64(sec/1000) {
			r.prefill, r.flags = float32(float64(min(first, r.re)-r.rs)/sec), r.flags|hasFirst
		}
	}

	if e, ok := q.Get(llmrequest.Execute); ok && e >= 0 && e <= run*1.02+0.1 {
		r.execute, r.flags = float32(e), r.flags|hasExecute
	}
	if f, ok := q.Get(llmrequest.Forward); ok && f >= 0 && f <= run*1.02+0.001 &&
		(!r.has(hasExecute) || f <= float64(r.execute)*1.02+0.001) {
		r.forward, r.flags = float32(min(f, run)), r.flags|hasForward
	}
	if s, ok := q.Get(llmrequest.Scheduler); ok && s >= 0 && s <= run {
		r.scheduler, r.flags = float32(s), r.flags|hasScheduler
	}
	if n, ok := q.Get(llmrequest.OutputTokens); ok && n >= 0 && n <= maxOut {
		r.out, r.flags = uint32(n), r.flags|hasOut
		if q.Sequences <= 1 && n >= 1 && r.has(hasFirst) {
			r.flags |= hasSteps
		}
	}
	if n, ok := q.Get(llmrequest.InputTokens); ok && n >= 0 && n <= maxIn {
		r.in, r.flags = uint32(n), r.flags|hasIn
	}
	if q.Generation == llmrequest.GenerationV0 || r.has(hasForward) {
		r.flags |= stepClock
	}
	return r, true
}
