// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// The thresholds, each with its reason, and what is enough data.

import (
	"fmt"
	"math"
	"time"
)

// Config is serving_metrics::diagnosis. Ratios are in [0, 1]. The reasons cite what is arithmetic, what is a published
// practice, and what is a choice; docs/diagnosis.md repeats them with their sources.
type Config struct {
	// Period is the time that a verdict is about. 5 min: thirty windows of 10 s, and the shorter of the two
	// windows of multi-window burn-rate alerts.
	Period time.Duration `mapstructure:"period"`
	// MinRequests is the least number of finished requests. 30: a mean of so few is within a third of its standard
	// deviation, and GuideLLM's over-saturation detection asks for as much time as that.
	MinRequests int64 `mapstructure:"min_requests"`
	// MinTime is the least time that closed windows cover. 1 min: six windows, the fewest in which a state that lasts
	// tells from one burst.
	MinTime time.Duration `mapstructure:"min_time"`
	// MinCompleteness is the least mean completeness of the windows. 0.8: below it more than a fifth of the running
	// time is a guess, as much as the margins of the rules.
	MinCompleteness float64 `mapstructure:"min_completeness"`
	// MinCoverage is the least share of the time between the first and the last window that windows cover. 0.8: the same
	// reason, for gaps.
	MinCoverage float64 `mapstructure:"min_coverage"`
	// SureRequests is the least number of requests, and SureTime the least time, for a confidence above low. 100
	// requests: a share of 30 % is then within 9 points at 95 %. 3 min: longer than the phases of bursty arrivals.
	SureRequests int64         `mapstructure:"sure_requests"`
	SureTime     time.Duration `mapstructure:"sure_time"`
	// Margin is how near to its threshold, relative to it, a figure makes a verdict one of low confidence. 0.1: the
	// errors published in docs/accuracy.md are below that.
	Margin float64 `mapstructure:"margin"`

	// IdleOccupancy is the occupancy below which an engine is idle. 0.3: three such engines fit on one device.
	IdleOccupancy float64 `mapstructure:"idle_occupancy"`
	// IdleCapacity is the capacity used below which an engine is idle although it is occupied. 0.25: two such engines
	// on one device leave half of it, and a decode step costs nearly the same for one request as for several, so that the
	// time in which the device is busy does not show it.
	IdleCapacity float64 `mapstructure:"idle_capacity"`
	// IdleBatch is the mean batch over max_num_seqs below which an engine is idle although it is occupied and no larger batch was
	// seen to tell the capacity by. 0.01: a step of a full batch takes ten to twenty times that of one request at most, so that 0.01 of the places is
	// at most a fifth of the capacity.
	IdleBatch float64 `mapstructure:"idle_batch"`
	// IdleWaiting is the mean number of waiting requests from which on no engine is idle. 0.5: requests wait for the
	// step that runs when they come, and nothing more.
	IdleWaiting float64 `mapstructure:"idle_waiting"`

	// QueueWaiting is the mean number of waiting requests that is a queue. 1: there is always one.
	QueueWaiting float64 `mapstructure:"queue_waiting"`
	// QueueTTFT is the queue's share of the time to first token that is a queue. 0.3: more than the wait for the
	// step that runs, which is up to a third of a prompt of one step.
	QueueTTFT float64 `mapstructure:"queue_ttft"`
	// QueueSteps is how many steps, or prompts if these take longer, a request must wait for on average for either to count. 3: one
	// step that runs and one of other prompts are no queue, but how continuous batching admits.
	QueueSteps float64 `mapstructure:"queue_steps"`
	// FullBatch is the mean batch over max_num_seqs from which on the batch is full. 0.9: a batch is refilled at the
	// step after a request ends, so that a full one is a little below.
	FullBatch float64 `mapstructure:"full_batch"`
	// AdmissionCapacity is the capacity used below which a full batch is not the engine's end. 0.8: a quarter more could be
	// had.
	AdmissionCapacity float64 `mapstructure:"admission_capacity"`
	// SmallLimit is the limit of requests in a batch up to which it is taken to bind before the device does where only full batches
	// were seen. 64: a quarter of vLLM's default; decoding that few reads weights most of the time.
	SmallLimit float64 `mapstructure:"small_limit"`
	// Knee is the marginal ratio from which on one request more lengthens the step as much as it adds. 0.5: there
	// a step takes twice its intercept; vLLM's "saturation batch".
	Knee float64 `mapstructure:"knee"`

	// HostOccupancy is the least occupancy of a host-bound engine. 0.5: below it, a faster host gains little.
	HostOccupancy float64 `mapstructure:"host_occupancy"`
	// HostWait is the share of the occupied time that the device waits from which on the host binds. 0.4: removing it
	// gives up to 1.67 x (Amdahl); vLLM v0.5.3 measured itself at 0.62.
	HostWait float64 `mapstructure:"host_wait"`
	// HostScheduler, HostExecute and HostOutside are the parts of the occupied time, spent in the scheduler, in model
	// execution without a forward pass, and outside of both, that are a cause. 0.15, 0.2, 0.2: half of HostWait, the
	// scheduler's less because a pass is pure overhead. vLLM's profile of v0.5.3 had 29 % and 33 %.
	HostScheduler float64 `mapstructure:"host_scheduler"`
	HostExecute   float64 `mapstructure:"host_execute"`
	HostOutside   float64 `mapstructure:"host_outside"`
	// SmallBatch is the mean batch below which the batch is small. 8: the gap is paid per step, whatever the batch.
	SmallBatch float64 `mapstructure:"small_batch"`

	// FullOccupancy is the least occupancy of a full engine. 0.9.
	FullOccupancy float64 `mapstructure:"full_occupancy"`
	// FullCapacity is the capacity used from which on an engine is full. 0.85: by the queueing formula
	// load/(1 - load) the wait at 0.85 is twice that at 0.75 and doubles again before 0.93.
	FullCapacity float64 `mapstructure:"full_capacity"`
	// KneeCapacity is the capacity used from which on an engine may be past the knee. 0.5.
	KneeCapacity float64 `mapstructure:"knee_capacity"`

	// PrefillShare is the share of the device's time for prompts from which on they are most of it. 0.5.
	PrefillShare float64 `mapstructure:"prefill_share"`
	// PrefillTokens is the same where prompts share steps with decoding: the tokens of prompts in an average step. 350: reading
	// the weights takes an H100 as long as the arithmetic of 295 tokens (989 TFLOP/s over 3.35 TB/s, two bytes a weight), and
	// decoding some more.
	PrefillTokens float64 `mapstructure:"prefill_tokens"`
	// InterferenceShare is the share of the occupied time that prompts take and stop decoding for. 0.25: a token takes a
	// third longer.
	InterferenceShare float64 `mapstructure:"interference_share"`
	// InterferenceSpread is the 99th percentile of the time per output token over the median. 3: the stalls are not
	// even; Sarathi-Serve calls them generation stalls.
	InterferenceSpread float64 `mapstructure:"interference_spread"`

	// HeadroomMarginal, HeadroomCapacity and HeadroomOccupancy bound an engine that could take more: marginal ratio
	// below 0.3 (ten requests more cost what three do), capacity used below 0.5 (it could do twice as much), occupancy
	// over 0.5 (else it is simply not used).
	HeadroomMarginal  float64 `mapstructure:"headroom_marginal"`
	HeadroomCapacity  float64 `mapstructure:"headroom_capacity"`
	HeadroomOccupancy float64 `mapstructure:"headroom_occupancy"`

	// FrontendShare is the share of the requests' time outside the engine core from which on the API server binds. 0.15:
	// that much more of a device would be noticed. FrontendQueue is the queue's share that must not be passed. 0.05: else the
	// engine binds.
	FrontendShare float64 `mapstructure:"frontend_share"`
	FrontendQueue float64 `mapstructure:"frontend_queue"`

	// ShiftRatio is by how much rate or median lengths must differ from the day before. 2. ShiftLaw is by how
	// much the step at the present batch may differ for the engine to be the same. 0.15. ShiftHours is how much of the day
	// before must be known. 6: a quarter of it, or the hour of the day explains the difference.
	ShiftRatio float64 `mapstructure:"shift_ratio"`
	ShiftLaw   float64 `mapstructure:"shift_law"`
	ShiftHours float64 `mapstructure:"shift_hours"`

	// ImbalanceRatio is the most used engine's capacity used over the least used one's. 2. ImbalanceCapacity is what the
	// most used one must use. 0.3: differences between idle engines do not matter.
	ImbalanceRatio    float64 `mapstructure:"imbalance_ratio"`
	ImbalanceCapacity float64 `mapstructure:"imbalance_capacity"`

	// TargetCapacity is the capacity used that sizing aims at. 0.7: room for the day's peak and for one replica of three to
	// fail.
	TargetCapacity float64 `mapstructure:"target_capacity"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// NewDefaultConfig is the configuration of an empty diagnosis.
func NewDefaultConfig() Config {
	return Config{
		Period: 5 * time.Minute, MinRequests: 30, MinTime: time.Minute, MinCompleteness: .8, MinCoverage: .8,
		SureRequests: 100, SureTime: 3 * time.Minute, Margin: .1,
		IdleOccupancy: .3, IdleCapacity: .25, IdleBatch: .01, IdleWaiting: .5,
		QueueWaiting: 1, QueueTTFT: .3, QueueSteps: 3, FullBatch: .9, AdmissionCapacity: .8, SmallLimit: 64, Knee: .5,
		HostOccupancy: .5, HostWait: .4, HostScheduler: .15, HostExecute: .2, HostOutside: .2, SmallBatch: 8,
		FullOccupancy: .9, FullCapacity: .85, KneeCapacity: .5,
		PrefillShare: .5, PrefillTokens: 350, InterferenceShare: .25, InterferenceSpread: 3,
		HeadroomMarginal: .3, HeadroomCapacity: .5, HeadroomOccupancy: .5,
		FrontendShare: .15, FrontendQueue: .05,
		ShiftRatio: 2, ShiftLaw: .15, ShiftHours: 6,
		ImbalanceRatio: 2, ImbalanceCapacity: .3, TargetCapacity: .7,
	}
}

// Faults is everything that is wrong. Messages start with the key. It is not called Validate, for the Collector would call that as well,
// and report the same once more under the names of fields that are no keys.
func (c *Config) Faults() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Period < time.Minute || c.Period > 24*time.Hour {
		fail("period: %v is out of range; use 1m to 24h, such as 5m", c.Period)
	}
	if c.MinRequests < 1 {
		fail("min_requests: %d is too few; use 1 or more, such as 30", c.MinRequests)
	}
	if c.SureRequests < c.MinRequests {
		fail("sure_requests: %d is below min_requests; use %d or more", c.SureRequests, c.MinRequests)
	}
	if c.MinTime <= 0 || c.MinTime > c.Period {
		fail("min_time: %v is out of range; use more than 0 and at most the period (%v), such as 1m", c.MinTime, c.Period)
	}
	if c.SureTime < c.MinTime || c.SureTime > c.Period {
		fail("sure_time: %v is out of range; use min_time (%v) to period (%v)", c.SureTime, c.MinTime, c.Period)
	}
	for _, r := range []struct {
		key string
		v   float64
	}{
		{"min_completeness", c.MinCompleteness},
		{"min_coverage", c.MinCoverage},
		{"margin", c.Margin},
		{"idle_occupancy", c.IdleOccupancy},
		{"idle_capacity", c.IdleCapacity},
		{"idle_batch", c.IdleBatch},
		{"queue_ttft", c.QueueTTFT},
		{"full_batch", c.FullBatch},
		{"admission_capacity", c.AdmissionCapacity},
		{"knee", c.Knee},
		{"host_occupancy", c.HostOccupancy},
		{"host_wait", c.HostWait},
		{"host_scheduler", c.HostScheduler},
		{"host_execute", c.HostExecute},
		{"host_outside", c.HostOutside},
		{"full_occupancy", c.FullOccupancy},
		{"full_capacity", c.FullCapacity},
		{"knee_capacity", c.KneeCapacity},
		{"prefill_share", c.PrefillShare},
		{"interference_share", c.InterferenceShare},
		{"headroom_marginal", c.HeadroomMarginal},
		{"headroom_capacity", c.HeadroomCapacity},
		{"headroom_occupancy", c.HeadroomOccupancy},
		{"frontend_share", c.FrontendShare},
		{"frontend_queue", c.FrontendQueue},
		{"shift_law", c.ShiftLaw},
		{"imbalance_capacity", c.ImbalanceCapacity},
	} {
		if !(r.v >= 0 && r.v <= 1) { // also not NaN
			fail("%s: %v is out of range; use 0 to 1", r.key, r.v)
		}
	}
	for _, r := range []struct {
		key   string
		v, lo float64
	}{
		{"idle_waiting", c.IdleWaiting, 0},
		{"queue_waiting", c.QueueWaiting, 0},
		{"queue_steps", c.QueueSteps, 0},
		{"small_limit", c.SmallLimit, 0},
		{"prefill_tokens", c.PrefillTokens, 1},
		{"small_batch", c.SmallBatch, 1},
		{"interference_spread", c.InterferenceSpread, 1},
		{"shift_ratio", c.ShiftRatio, 1},
		{"shift_hours", c.ShiftHours, 0},
		{"imbalance_ratio", c.ImbalanceRatio, 1},
	} {
		if !(r.v >= r.lo) || math.IsInf(r.v, 0) {
			fail("%s: %v is out of range; use %v or more", r.key, r.v, r.lo)
		}
	}
	if !(c.TargetCapacity > 0 && c.TargetCapacity <= 1) {
		fail("target_capacity: %v is out of range; use more than 0 and at most 1, such as 0.7", c.TargetCapacity)
	}
	if c.KneeCapacity > c.FullCapacity {
		fail("knee_capacity: %v is over full_capacity; use at most %v", c.KneeCapacity, c.FullCapacity)
	}
	return errs
}
