// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

// What follows from one request alone: its shares, and its time split into stages and components.

import "math/bits"

// Running is the time from first schedule to last token, in s: e2e - queue.
func (r *Figures) Running() (float64, bool) {
	if !r.hasAll(1<<E2E | 1<<Queue) {
		return 0, false
	}
	running := r.values[E2E] - r.values[Queue]
	return running, running > 0
}

// TimePerOutputToken is the mean time between tokens after the first, in s:
// (e2e - time to first token) / (output tokens - 1), from 2 output tokens up. Absent when the
// tokens are those of several sequences.
func (r *Figures) TimePerOutputToken() (float64, bool) {
	if r.Sequences != 1 || !r.hasAll(1<<E2E|1<<TimeToFirstToken|1<<OutputTokens) || r.values[OutputTokens] < 2 {
		return 0, false
	}
	decode := r.values[E2E] - r.values[TimeToFirstToken]
	return decode / (r.values[OutputTokens] - 1), decode >= 0
}

// Share is a part of a request's time relative to another, in 1.
type Share uint8

// The shares, each with its formula. Those over the running time can exceed 1 on vLLM V0 with
// multi-step scheduling or pipeline parallelism. None of them is the utilisation of the device:
// requests share it.
const (
	// QueueShare is queue / e2e.
	QueueShare Share = iota
	// SchedulerShare is scheduler / (e2e - queue).
	SchedulerShare
	// ForwardShare is forward / (e2e - queue).
	ForwardShare
	// ExecuteShare is execute / (e2e - queue).
	ExecuteShare
	// ExecuteHostShare is (execute - forward) / (e2e - queue).
	ExecuteHostShare
	// PrefillShare is prefill / (prefill + decode), from the Stages.
	PrefillShare
	// FrontendShare is 1 - (queue + inference) / e2e, where inference is prefill + decode (vLLM V1).
	FrontendShare
	// NumShares is the number of shares.
	NumShares
)

// Shares are the shares of one request.
type Shares struct {
	present uint8
	values  [NumShares]float64
}

// Get is the share s, in 1, and whether the request has it.
func (s *Shares) Get(share Share) (float64, bool) {
	return s.values[share], s.present&(1<<share) != 0
}

// Len is how many shares the request has.
func (s *Shares) Len() int { return bits.OnesCount8(s.present) }

// maxShare is more than any request can have: the most pipeline stages or steps that are counted at once.
// A share is larger, up to infinity, where the time it is a part of is next to nothing and the
// part has the tolerance between two clocks.
const maxShare = maxStages

// share sets a share of d unless it cannot be true.
func (r *Request) share(d *Derived, share Share, v float64) {
	if v > maxShare {
		r.reject(NumFields, ReasonExceedsSpan)
		return
	}
	d.Shares.values[share] = v
	d.Shares.present |= 1 << share
}

// Stages splits the e2e time of a request, in s: Queue + Prefill + Decode + Frontend = e2e.
//
// vLLM V1 reports prefill and decode; Frontend is the rest, which the engine core did not see.
// Where only queue and first token are known (vLLM V0), Prefill is from the first schedule to
// the first token, Decode is what follows, and there is no Frontend to tell.
type Stages struct {
	Queue, Prefill, Decode, Frontend float64
	// HasFrontend is false where the front end's time cannot be told from the rest.
	HasFrontend bool
}

// Components splits the running time of a request, in s: Scheduler + Forward + ExecuteHost +
// Other = e2e - queue.
type Components struct {
	Scheduler, Forward float64
	// ExecuteHost is execute - forward: input preparation, logits, sampling, synchronisation.
	ExecuteHost float64
	// Other is the rest: output processing, detokenisation, the gaps between steps, and steps the
	// request was not scheduled in.
	Other float64
}

// Derived is everything that follows from one request alone.
type Derived struct {
	Shares     Shares
	Stages     Stages
	HasStages  bool
	Components Components
	// HasComponents is true where scheduler, forward and execute time are all known: with one of
	// them missing, Other would hide it.
	HasComponents bool
}

// Derive computes d from r. Contradictions between plausible values are added to r's rejections.
func (r *Request) Derive(d *Derived) {
	d.Shares.present, d.HasStages, d.HasComponents = 0, false, false

	if e2e, ok := r.Get(E2E); ok && e2e > 0 && r.Has(Queue) {
		r.share(d, QueueShare, r.values[Queue]/e2e)
	}
	if running, ok := r.Running(); ok {
		if v, ok := r.Get(Scheduler); ok {
			r.share(d, SchedulerShare, v/running)
		}
		if v, ok := r.Get(Forward); ok {
			r.share(d, ForwardShare, v/running)
		}
		if v, ok := r.Get(Execute); ok {
			r.share(d, ExecuteShare, v/running)
		}
		if r.hasAll(1<<Forward | 1<<Execute) {
			host := r.remainder(r.values[Execute], r.values[Forward])
			r.share(d, ExecuteHostShare, host/running)
			if r.Has(Scheduler) {
				d.Components = Components{
					Scheduler: r.values[Scheduler], Forward: r.values[Forward], ExecuteHost: host,
					Other: r.remainder(running, r.values[Scheduler]+r.values[Forward]+host),
				}
				d.HasComponents = true
			}
		}
	}
	r.deriveStages(d)
}

func (r *Request) deriveStages(d *Derived) {
	if !r.hasAll(1<<E2E | 1<<Queue) {
		return
	}
	e2e, queue := r.values[E2E], r.values[Queue]
	switch {
	case r.hasAll(1<<Prefill | 1<<Decode):
		prefill, decode := r.values[Prefill], r.values[Decode]
		d.Stages = Stages{
			Queue: queue, Prefill: prefill, Decode: decode,
			Frontend: r.remainder(e2e, queue+prefill+decode), HasFrontend: true,
		}
		if e2e > 0 {
			r.share(d, FrontendShare, d.Stages.Frontend/e2e)
		}
	case r.Has(Inference): // its parts were refused
		if e2e > 0 {
			r.share(d, FrontendShare, r.remainder(e2e, queue+r.values[Inference])/e2e)
		}
		return
	case r.Has(TimeToFirstToken):
		ttft := r.values[TimeToFirstToken]
		if queue > ttft || ttft > e2e {
			r.reject(NumFields, ReasonOutOfOrder)
			return
		}
		d.Stages = Stages{Queue: queue, Prefill: ttft - queue, Decode: e2e - ttft}
	default:
		return
	}
	d.HasStages = true
	if busy := d.Stages.Prefill + d.Stages.Decode; busy > 0 {
		r.share(d, PrefillShare, d.Stages.Prefill/busy)
	}
}

// remainder is whole - parts, or zero and a rejection where that is negative by more than
// rounding.
func (r *Request) remainder(whole, parts float64) float64 {
	rest := whole - parts
	if rest >= 0 {
		return rest
	}
	if rest < -1e-9 {
		r.reject(NumFields, ReasonNegativeRemainder)
	}
	return 0
}
