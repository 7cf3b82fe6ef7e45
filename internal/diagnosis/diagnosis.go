// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// What comes out: a verdict, why, how sure, and what to do.

import "time"

// Verdict is what an engine suffers from.
type Verdict uint8

// The verdicts, in the order in which they are looked for but for two: OverloadBuilding is looked for before DeviceBoundFull, and
// FrontendBound before DecodeHeadroom.
const (
	// NoVerdict: too few requests, too little of the time seen, several engines under one key, or sampled.
	NoVerdict Verdict = iota
	// Idle: little work for what is there; fewer or smaller devices would do.
	Idle
	// QueueBoundAdmission: requests wait although the device has room: the limit of requests in a batch binds.
	QueueBoundAdmission
	// QueueBoundKV: requests wait below that limit: memory for their tokens, or the token budget, binds.
	QueueBoundKV
	// HostBound: the device waits for its host.
	HostBound
	// DeviceBoundFull: the device does all it can.
	DeviceBoundFull
	// DeviceBoundPastKnee: no queue, but batches so large that tokens come too slowly.
	DeviceBoundPastKnee
	// PrefillHeavy: prompts take most of the device's time.
	PrefillHeavy
	// PrefillInterference: prompts of others hold up requests that make tokens.
	PrefillInterference
	// DecodeHeadroom: the device is busy reading memory, and more requests cost nearly nothing.
	DecodeHeadroom
	// FrontendBound: time goes before and after the engine core, in the API server.
	FrontendBound
	// OverloadBuilding: more requests come than are served, and the queue grows.
	OverloadBuilding
	// WorkloadShift: rate or lengths are far from those of the day before.
	WorkloadShift
	// Imbalance: engines of one model have uneven work.
	Imbalance
	// Healthy: none of these.
	Healthy

	// NumVerdicts is the number of verdicts.
	NumVerdicts
)

var verdictNames = [NumVerdicts]string{
	"no_verdict", "idle", "queue_bound_admission", "queue_bound_kv", "host_bound", "device_bound_full", "device_bound_past_knee",
	"prefill_heavy", "prefill_interference", "decode_headroom", "frontend_bound", "overload_building", "workload_shift", "imbalance", "healthy",
}

// String is the value of the attribute verdict.
func (v Verdict) String() string {
	if v < NumVerdicts {
		return verdictNames[v]
	}
	return verdictNames[NoVerdict]
}

// ParseVerdict is the verdict that String calls name.
func ParseVerdict(name string) (Verdict, bool) {
	for v, n := range verdictNames {
		if n == name {
			return Verdict(v), true //nolint:gosec // an index of the array
		}
	}
	return NoVerdict, false
}

// Confidence is how sure a verdict is.
type Confidence string

// The confidences.
const (
	// None is that of NoVerdict.
	None Confidence = "none"
	// Low: the data just suffice, or the figure is near its threshold.
	Low Confidence = "low"
	// Medium: an assumption is in it that the spans do not prove.
	Medium Confidence = "medium"
	// High: the bracket, and not only the estimate, lies beyond the threshold.
	High Confidence = "high"
)

// Diagnosis is what is known of one engine at the end of a window.
type Diagnosis struct {
	// Time is the end of the last window looked at, Since that of the window with which the verdict came into force.
	Time, Since time.Time
	// Finding is the first that holds.
	Finding
	// Also are the others that hold, in order.
	Also []Finding
	// Figures are what was looked at.
	Figures Figures
}

// Finding is one verdict that holds.
type Finding struct {
	Verdict    Verdict
	Confidence Confidence
	// Title is the verdict in a few words, Sentence in one sentence with its figures.
	Title, Sentence string
	// Cause narrows HostBound down: scheduler, execute, outside, small_batch; and NoVerdict: stopped. Empty else, and where nothing stands out.
	Cause string
	// Evidence are the figures that met the conditions, or for NoVerdict those that did not suffice.
	Evidence []Evidence
	// Gain is the bound of what a remedy can give; nil where no bound is known.
	Gain *Gain
	// Actions are what to do, the most promising first.
	Actions []Action
	// Caveats are what would make the verdict wrong.
	Caveats []string
}

// Evidence is one figure beside its threshold.
type Evidence struct {
	// Text says what the figure is, as "device waits for its host".
	Text string
	// Value in Unit ("1" for ratios, "s", "{request}", "{token}/s").
	Value float64
	Unit  string
	// Condition is the comparison that it met, as "> 0.4".
	Condition string
	// Metric is the metric that has the figure, Formula how it is computed.
	Metric, Formula string
}

// Gain bounds what a remedy can give.
type Gain struct {
	// Factor is the most by which Of can change: 1.7, or below 1 where less is better.
	Factor float64
	// AtLeast: Factor is the least there is room for, for the most is not known or is only that of a guess.
	AtLeast bool
	// Of is what changes, as "throughput".
	Of string
	// Formula is where the bound comes from.
	Formula string
}

// Action is something that the operator can do.
type Action struct {
	// Text says what to do, Why what that changes.
	Text, Why string
	// Setting is what to type, as "--max-num-seqs 512"; empty where there is nothing to copy.
	Setting string
	// Versions are the versions of the engine it holds for, as "vLLM >= 0.6.0, V0". Empty: all.
	Versions string
	// Source is the URL of the documentation or source that the setting was checked against.
	Source string
}
