// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// What goes in: the windows and the requests of one engine over some minutes.

import (
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Input is one engine over Config.Period.
type Input struct {
	// Windows are the last closed windows, oldest first. They may have gaps, and be fewer than the period holds.
	Windows []timeline.Window
	// Requests are those that finished in that time.
	Requests Requests
	// LastEnd is the time at which the last request that is known ended; zero: unknown.
	LastEnd time.Time
	// Before are the requests and the step law of the day before; nil: unknown.
	Before *Before
	// Peers are the engines that serve the same model, this one among them; nil: none is known.
	Peers *Peers

	// Kind is the engine's gen_ai.provider.name, as vllm; Generation v0, v1 or empty for unknown.
	Kind, Generation string
	// MaybeMixed: only a name that replicas share tells this engine from others.
	MaybeMixed bool
	// MaxNumSeqs is the limit of requests in a batch; 0: unknown.
	MaxNumSeqs int
	// Objectives are the limits that were set; 0: none.
	TTFTObjective, TPOTObjective, E2EObjective time.Duration
}

// Requests are the finished requests of a period. NaN: unknown.
type Requests struct {
	// Count of requests, Failed among them.
	Count, Failed int64
	// Rate is requests per second.
	Rate float64
	// Latencies, s.
	TTFT, TPOT, E2E Quantiles
	// Lengths, tokens.
	Input, Output Quantiles
	// Shares are ratios of sums over the requests that have both parts: queue over e2e, queue over time to first token, front
	// end (e2e - queue - inference) over e2e, prefill over prefill + decode, scheduler over running time,
	// execute - forward over running time.
	QueueShare, QueueTTFTShare, FrontendShare, PrefillShare, SchedulerShare, ExecuteHostShare float64
	// TTFTSlope is by how much the mean time to first token grows, s/s; TTFTSlopeError half of its 95 % interval.
	TTFTSlope, TTFTSlopeError float64
}

// Quantiles of one quantity, within 3 % of the value. Count 0: unknown, and the others are NaN.
type Quantiles struct {
	Count              int64
	Mean               float64
	P50, P90, P95, P99 float64
}

// Before is what the same engine did in the day before the period.
type Before struct {
	// Hours of it that are known.
	Hours float64
	// Rate is requests per second.
	Rate          float64
	Input, Output Quantiles
	// StepLawA and StepLawB are the means of the windows'; NaN: unknown.
	StepLawA, StepLawB float64
}

// Peers are the engines that serve one model.
type Peers struct {
	Engines int
	// CapacityMin and CapacityMax are the least and the most capacity used of them; NaN: unknown.
	CapacityMin, CapacityMax float64
	// AtLeast says that the capacity itself is known as a bracket only: they are shares of its upper end.
	AtLeast bool
}

// Figures are means over the windows of an Input, weighted by what they divide by. NaN: unknown.
type Figures struct {
	// Windows looked at, and the wall time they cover.
	Windows int
	Covered time.Duration
	// Requests that finished.
	Requests int64

	Occupancy, QueuePressure          float64 // share of the time
	Utilization, Lower, Upper         float64 // device, share of the time
	Wait                              float64 // share of the occupied time: 1 - utilization / occupancy
	States                            [timeline.NumStates]float64
	Running, RunningMax               float64 // requests
	RunningLower, RunningUpper        float64 // requests
	Waiting, WaitingMax               float64 // requests
	WaitingLower, WaitingUpper        float64 // requests
	WaitingSlope, WaitingSlopeError   float64 // requests per second, half of the 95 % interval
	Batch                             float64 // mean running requests while any runs
	Fill                              float64 // Batch / MaxNumSeqs
	FillWaiting                       float64 // mean running requests that a waiting request sees, over MaxNumSeqs
	Step, HostGap                     float64 // s
	CapacityFit, CapacityPeak         float64
	CapacityLeast, CapacityMost       float64 // the bracket of CapacityFit: share of the most and of the least that the capacity may be
	Capacity                          float64 // output tokens per second of a full batch
	StepLawA, StepLawB                float64
	Marginal                          float64
	InputThroughput, OutputThroughput float64 // tokens per second
	Completeness                      float64
	Mode                              timeline.Mode
	Flags                             timeline.Flags // any window's
	Guard                             timeline.Guard // the last window's
}

// CapacityUsed is the capacity used by fit where that is known, else the most that it may be: by the bracket, "bracket", or by the
// highest throughput seen, "peak".
func (f *Figures) CapacityUsed() (value float64, basis string) {
	if f.CapacityFit == f.CapacityFit { // not NaN
		return f.CapacityFit, "fit"
	}
	if f.CapacityMost == f.CapacityMost && !(f.CapacityPeak < f.CapacityMost) {
		return f.CapacityMost, "bracket"
	}
	return f.CapacityPeak, "peak"
}
