// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

// Which values cannot be true. Each rule refuses one value, with its reason, and leaves the rest of
// the request as it is. Every rule stands for a fault that real engines have: docs/engines.md.

// Reason names the rule that refused a value.
type Reason uint8

// The reasons.
const (
	_ Reason = iota
	// ReasonWrongType: the attribute is text, a boolean, a list or a fraction of a thing.
	ReasonWrongType
	// ReasonNotFinite: NaN or infinite.
	ReasonNotFinite
	// ReasonSentinel: exactly -1, which TensorRT-LLM sends for "unknown".
	ReasonSentinel
	// ReasonNegative: a duration or count below zero, as vLLM's queue time of streaming-input sessions.
	ReasonNegative
	// ReasonTooLarge: a duration over 7 days or a count over 2^31.
	ReasonTooLarge
	// ReasonMilliseconds: as seconds it exceeds its bound at least ten times, as milliseconds it fits.
	ReasonMilliseconds
	// ReasonExceedsSpan: longer than the request itself, as the prefill time of vLLM V1's aborted
	// requests, which is the uptime of the host.
	ReasonExceedsSpan
	// ReasonXPUUnit: a forward time a thousandth of what the execute time says: vLLM V0 on Intel XPU.
	ReasonXPUUnit
	// ReasonEndBeforeStart: the span ends before it starts; its end is not used.
	ReasonEndBeforeStart
	// ReasonNoTimestamp: the span has no start or no end.
	ReasonNoTimestamp
	// ReasonNoOutput: a time to first token of a request that made no token.
	ReasonNoOutput
	// ReasonZeroTimeToFirstToken: a time to first token of exactly zero, though tokens were made.
	ReasonZeroTimeToFirstToken
	// ReasonDuplicateAttribute: a second value for a figure, different from the first.
	ReasonDuplicateAttribute
	// ReasonOutOfOrder: queue, time to first token and e2e do not follow in this order, so that the
	// stages of the request cannot be told.
	ReasonOutOfOrder
	// ReasonNegativeRemainder: the parts of a request add up to more than the whole; the part that
	// is the remainder counts as zero.
	ReasonNegativeRemainder
	// NumReasons is one more than the last reason.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"", "wrong_type", "not_finite", "sentinel", "negative", "too_large", "milliseconds", "exceeds_span", "xpu_unit",
	"end_before_start", "no_timestamp", "no_output", "zero_time_to_first_token", "duplicate_attribute", "out_of_order",
	"negative_remainder",
}

// String is the value of the reason attribute on the counter of refused values.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return ""
}

// Rejection is one refused value. Field is NumFields where the value is no field's but the
// span's or a derived one.
type Rejection struct {
	Field  Field
	Reason Reason
}

// maxRejections bounds the rejections kept per request.
const maxRejections = 16

const (
	// Clocks differ within one request (vLLM V1 takes e2e from the wall clock of the front end and the
	// phases from the monotonic one of the engine core), so a part may exceed the whole a little.
	boundFactor  = 1.05
	boundSlack   = 0.1 // s
	maxDuration  = 7 * 24 * 3600.0
	maxCount     = 1 << 31
	msFactor     = 1000
	overMsFactor = 10 // a value this many times over its bound is suspected of being milliseconds
	// Multi-step scheduling and pipeline stages that are summed up make execute and forward time of
	// V0 exceed the residency by as much as their number; 64 is beyond any deployment.
	maxStages = 64
	// vLLM divides seconds by 1000 on XPU. Below this ratio of forward to execute no real device is.
	xpuRatio = 0.002
)

func (r *Request) refuseImplausible() {
	r.refuseTimestamps()
	for f := InputTokens; f < NumFields; f++ {
		if r.Has(f) && r.values[f] > maxCount {
			r.refuse(f, ReasonTooLarge)
		}
	}

	// The longest that any part of the request can have taken: e2e, itself bounded by the span.
	bound := maxDuration
	if r.Start != 0 && r.End != 0 {
		bound = min(float64(r.End-r.Start)/1e9, maxDuration)
	}
	r.refuseOver(E2E, bound, 1)
	if e2e, ok := r.Get(E2E); ok {
		bound = e2e
	}
	for f := TimeToFirstToken; f < numDurations; f++ {
		if r.values[f] <= bound {
			continue // as nearly always, and if it is absent it does not matter
		}
		if f == Forward || f == Execute {
			r.refuseOver(f, bound, maxStages)
		} else {
			r.refuseOver(f, bound, 1)
		}
	}
	if r.hasAll(1<<Forward | 1<<Execute) {
		forward, execute := r.values[Forward], r.values[Execute]
		switch {
		case execute > 0 && forward > overMsFactor*execute && forward <= execute*boundFactor*msFactor:
			r.refuse(Forward, ReasonMilliseconds)
		case forward > 0 && forward < xpuRatio*execute && forward*msFactor <= execute*boundFactor:
			r.refuse(Forward, ReasonXPUUnit)
		}
	}
	if r.hasAll(1<<TimeToFirstToken | 1<<OutputTokens) {
		switch {
		case r.values[OutputTokens] == 0:
			r.refuse(TimeToFirstToken, ReasonNoOutput)
		case r.values[TimeToFirstToken] == 0:
			r.refuse(TimeToFirstToken, ReasonZeroTimeToFirstToken)
		}
	}
}

func (r *Request) refuseTimestamps() {
	switch {
	case r.Start == 0 || r.End == 0:
		r.reject(NumFields, ReasonNoTimestamp)
	case r.End < r.Start:
		r.End = 0
		r.reject(NumFields, ReasonEndBeforeStart)
	}
}

// refuseOver refuses f if it is longer than times the bound, in seconds.
func (r *Request) refuseOver(f Field, bound float64, times int) {
	v, ok := r.Get(f)
	if !ok || v <= bound*boundFactor+boundSlack {
		return
	}
	switch {
	case bound == maxDuration:
		r.refuse(f, ReasonTooLarge)
	case v > overMsFactor*bound && v <= (bound*boundFactor+boundSlack)*msFactor:
		r.refuse(f, ReasonMilliseconds)
	case v > bound*boundFactor*float64(times)+boundSlack:
		r.refuse(f, ReasonExceedsSpan)
	}
}

// refuse makes f absent and says why.
func (r *Request) refuse(f Field, reason Reason) {
	r.Unset(f)
	r.reject(f, reason)
}
