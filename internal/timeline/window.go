// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What a Timeline hands out: windows as plain values.

import "time"

// Window is what the finished requests say about one engine between Start and End. It holds no
// references; a figure that the requests cannot support is absent.
type Window struct {
	Start, End time.Time

	// States is the wall time by state. The states sum to End - Start exactly.
	States [NumStates]time.Duration

	// Requests is the number of requests that ended in the window, Late the number of requests
	// that came too late for a window they belonged to since the window before was closed.
	Requests, Late int64

	// Mode is how the engine batches prompts, as far as its forward times tell.
	Mode Mode
	// Flags are findings about the input.
	Flags Flags
	// Guard says whether the capacity of a full engine is known.
	Guard Guard

	present uint64
	values  [NumFigures]float64
}

// Figure names one figure of a Window.
type Figure uint8

// The figures. Ratios are in [0, 1] unless said.
const (
	// RunningMean and RunningMax are the requests between first schedule and last token, the
	// mean over the window divided by the completeness, and not over MaxNumSeqs unless more were seen. Absent where requests wait at a
	// batch that is not full and the engine began too lately for its longest requests to be known, and below a completeness of 0.3.
	RunningMean Figure = iota
	RunningMax
	// RunningLower and RunningUpper bracket the mean: those seen, and as many as there are where running times have grown by 30 %, but not
	// over MaxNumSeqs unless more were seen. RunningUpper is absent where neither is known.
	RunningLower
	RunningUpper
	// WaitingMean and WaitingMax are the requests before their first schedule; absent where more than about one
	// of them may not have been seen yet, and where requests stopped coming while others waited.
	WaitingMean
	WaitingMax
	// WaitingLower and WaitingUpper bracket the mean: with those who wait unseen, as many as the rate of arrivals and the running times
	// make likely. WaitingLower is what was seen where neither is known yet, and WaitingUpper is absent then.
	WaitingLower
	WaitingUpper
	// Occupancy is the share of the window with a running request, QueuePressure with a waiting one.
	Occupancy
	QueuePressure
	// DeviceUtilization is the share of the window in which the device runs a forward pass.
	// DeviceLower and DeviceUpper bracket it with nothing but what the spans prove.
	DeviceUtilization
	DeviceLower
	DeviceUpper
	// DeviceWaitRatio is the share of the occupied time in which the device runs no forward pass.
	DeviceWaitRatio
	// StepDuration is the mean duration of a decode step, HostGap the part of it without a
	// forward pass, in seconds. With SpeculativeDecoding it is the time per accepted token. Absent
	// where hardly a step was made, and where the step is to be expected to be off by more than 3 %: its requests contradict
	// each other, or prompts leave little time for it and it contradicts earlier windows.
	StepDuration
	HostGap
	// BatchUtilization is the mean number of running requests while any runs over MaxNumSeqs.
	BatchUtilization
	// CapacityFit is output token throughput over Capacity; CapacityPeak is the same over the
	// highest throughput seen. Both may pass 1 a little.
	CapacityFit
	CapacityPeak
	// Capacity is the output token throughput of a full engine, in tokens per second: measured where
	// requests waited for it all the time, else that of the largest batch by the law of decoding
	// and the prompts that come with as many tokens. Absent unless CapacityLower and CapacityUpper are within 10 % of it.
	Capacity
	// CapacityLower and CapacityUpper bracket it: by the largest batch that was seen and the largest that the configuration
	// allows, and by what the law and that batch may be off.
	CapacityLower
	CapacityUpper
	// StepLawA and StepLawB are the step law's intercept (s) and slope (s per running request).
	// Its step is wall time per output token in a lasting load, prompts included. Capacity is about M/(a + b M)
	// unless it was measured; where prompts have steps of their own a full engine reads them in fewer.
	StepLawA
	StepLawB
	// MarginalRatio is b B/(a + b B): the part of a step that grows with the batch.
	MarginalRatio
	// InputThroughput and OutputThroughput are tokens per second, spread over the time the
	// tokens were read and made.
	InputThroughput
	OutputThroughput
	// Completeness is the expected share of the window's running time that had been seen when
	// the window was closed.
	Completeness

	// NumFigures is the number of figures.
	NumFigures
)

// Has reports whether f is present.
func (w *Window) Has(f Figure) bool { return w.present&(1<<f) != 0 }

// Get is the value of f and whether it is present.
func (w *Window) Get(f Figure) (float64, bool) { return w.values[f], w.Has(f) }

// Value is the value of f, and meaningless unless Has(f).
func (w *Window) Value(f Figure) float64 { return w.values[f] }

// Running is the mean of the running requests: RunningMean, or the middle of its bracket where only that is known.
func (w *Window) Running() (float64, bool) {
	return w.estimate(RunningMean, RunningLower, RunningUpper)
}

// Waiting is the mean of the waiting requests: WaitingMean, or the middle of its bracket where only that is known.
func (w *Window) Waiting() (float64, bool) {
	return w.estimate(WaitingMean, WaitingLower, WaitingUpper)
}

func (w *Window) estimate(point, lower, upper Figure) (float64, bool) {
	if !w.Has(point) && w.Has(lower) && w.Has(upper) {
		return (w.values[lower] + w.values[upper]) / 2, true
	}
	return w.Get(point)
}

// Set gives f a value.
func (w *Window) Set(f Figure, v float64) {
	w.values[f] = v
	w.present |= 1 << f
}

// CapacityUsed brackets the share of the capacity that is used: output token throughput over CapacityUpper and over
// CapacityLower. Both may pass 1 a little.
func (w *Window) CapacityUsed() (lower, upper float64, ok bool) {
	if !w.Has(OutputThroughput) || !(w.Value(CapacityLower) > 0) || !(w.Value(CapacityUpper) > 0) {
		return 0, 0, false
	}
	out := w.Value(OutputThroughput)
	return out / w.Value(CapacityUpper), out / w.Value(CapacityLower), true
}

// Unset makes f absent.
func (w *Window) Unset(f Figure) {
	w.values[f] = 0
	w.present &^= 1 << f
}

// State is what an engine does at a moment, as far as spans tell.
type State uint8

// The states of an engine. Every moment of a window belongs to exactly one.
const (
	// StatePrefill and StateDecode are forward passes.
	StatePrefill State = iota
	StateDecode
	// StateExecuteHost is time in the model executor without a forward pass, StateScheduler time
	// in the scheduler, StateHostOther the other time in which a request runs and the device does not.
	StateExecuteHost
	StateScheduler
	StateHostOther
	// StateOccupied: a request ran and the spans say no more.
	StateOccupied
	// StateIdle: no request ran.
	StateIdle
	// StateUnknown: withheld, for too little was seen or the requests are not one engine's.
	StateUnknown
	// NumStates is the number of states.
	NumStates
)

var stateNames = [NumStates]string{
	"prefill", "decode", "execute_host", "scheduler", "host_other", "occupied", "idle", "unknown",
}

// String is the value of the attribute state.
func (s State) String() string {
	if s < NumStates {
		return stateNames[s]
	}
	return stateNames[StateUnknown]
}

// Mode is how an engine's steps combine prompts and decoding.
type Mode uint8

// The modes.
const (
	// ModeUnknown: there are no forward times to tell it from.
	ModeUnknown Mode = iota
	// ModeMasked: a step is prefill or decode, and a prompt stops the others' decoding.
	ModeMasked
	// ModeMixed: prompts in chunks share steps with decoding.
	ModeMixed
)

// String is masked, mixed or unknown.
func (m Mode) String() string {
	switch m {
	case ModeMasked:
		return "masked"
	case ModeMixed:
		return "mixed"
	default:
		return "unknown"
	}
}

// Guard is whether a capacity is known.
type Guard uint8

// The states of the guard.
const (
	// GuardUnknown: neither MaxNumSeqs nor KVCacheTokens is known, or there is no step to fit.
	GuardUnknown Guard = iota
	// GuardNarrow: the engine was not full for long, and the batches seen and what is known of the largest one leave more than
	// 10 % on either side open, or prompts take most of the time; one figure would be a guess. There may be a bracket.
	GuardNarrow
	// GuardOK: the engine was full for long enough, or the law and the limits of the batch leave no more than that open.
	GuardOK
)

// Flags are findings about the requests of a window.
type Flags uint8

// The findings.
const (
	// MixedEngines: the requests are of more than one engine; device figures are withheld.
	MixedEngines Flags = 1 << iota
	// Sampled: only a part of the requests gets here; what that breaks is withheld.
	Sampled
	// RoundedTimestamps: something rounded the durations; masked mode cannot be had.
	RoundedTimestamps
	// SpeculativeDecoding: steps yield several tokens (or are several steps in one).
	SpeculativeDecoding
	// AsyncOutput: prefill windows overlap in part, as asynchronous output processing makes them.
	AsyncOutput
	// Thinned: more requests than MaxRequests; counts are scaled and device figures withheld.
	Thinned
	// Contradiction: the forward times of the window's requests cannot all be true of one device.
	Contradiction
)

// Has reports whether all of x are set.
func (f Flags) Has(x Flags) bool { return f&x == x }
