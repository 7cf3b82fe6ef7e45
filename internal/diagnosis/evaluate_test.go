// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

func evaluateDefault(in *Input) Diagnosis {
	c := NewDefaultConfig()
	return Evaluate(&c, in)
}

// TestVerdicts has each verdict at its simplest, and how sure it is.
func TestVerdicts(t *testing.T) {
	queued := func(in *Input) *Input {
		in.Requests.QueueTTFTShare, in.Requests.QueueShare = .9, .5
		in.Requests.TTFT = quantilesOf(1500, 4)
		return in.with(figures{timeline.WaitingMean: 20, timeline.WaitingMax: 40})
	}
	for _, test := range []struct {
		name       string
		in         *Input
		verdict    Verdict
		confidence Confidence
		sentence   string
		cause      string
	}{
		{name: "healthy", in: healthyInput(), verdict: Healthy, confidence: High, sentence: "Nothing to do: a request runs 100 % of the time, 60 % of the capacity is used and no rule found a trouble."},
		{name: "healthy, V1", in: healthyInput().v1(), verdict: Healthy, confidence: Medium},
		{name: "idle by time", in: healthyInput().with(figures{timeline.Occupancy: .1, timeline.RunningMean: .2}), verdict: Idle, confidence: High, sentence: "A request runs only 10 % of the time."},
		{
			name: "idle by work", in: healthyInput().with(figures{timeline.OutputThroughput: 500}), verdict: Idle, confidence: High,
			sentence: "A request runs 100 % of the time, but only 10 % of the engine's capacity is used.",
		},
		{
			name: "admission", in: func() *Input {
				in := queued(healthyInput()).with(figures{timeline.RunningMean: 16, timeline.RunningMax: 16, timeline.OutputThroughput: 5000})
				in.MaxNumSeqs = 16
				return in
			}(), verdict: QueueBoundAdmission, confidence: Medium,
			sentence: "20 requests wait on average while 100 % of the 16 places in the batch are taken, and only 12 % of a step grows with the batch.",
		},
		{
			name: "memory or budget", in: queued(healthyInput()), verdict: QueueBoundKV, confidence: Medium,
			sentence: "20 requests wait on average though only 31 % of the 256 places in the batch are taken: room for tokens, or the tokens of a step, is the likely limit.",
		},
		{
			name: "host", in: healthyInput().with(figures{timeline.DeviceUtilization: .42, timeline.DeviceLower: .35, timeline.DeviceUpper: .5, timeline.StepDuration: .0117, timeline.HostGap: .0068}).
				states(map[timeline.State]float64{timeline.StatePrefill: .1, timeline.StateDecode: .32, timeline.StateExecuteHost: .1, timeline.StateScheduler: .4, timeline.StateHostOther: .08}),
			verdict: HostBound, confidence: High, cause: CauseScheduler,
			sentence: "The device waits for its host 58 % of the time there is work (6.8 ms of every 11.7 ms step); the scheduler takes 40 %.",
		},
		{
			name: "host, wide bracket", in: healthyInput().with(figures{timeline.DeviceUtilization: .42, timeline.DeviceLower: .2, timeline.DeviceUpper: .8}),
			verdict: HostBound, confidence: Medium,
		},
		{
			name: "host, at the threshold", in: healthyInput().with(figures{timeline.DeviceUtilization: .59, timeline.DeviceLower: .58, timeline.DeviceUpper: .595}),
			verdict: HostBound, confidence: Low,
		},
		{
			name: "overload", in: func() *Input {
				in := queued(healthyInput()).with(figures{timeline.RunningMean: 256, timeline.RunningMax: 256, timeline.OutputThroughput: 5000})
				for i := range in.Windows {
					in.Windows[i].Set(timeline.WaitingMean, 20+float64(5*i))
				}
				in.Requests.TTFTSlope, in.Requests.TTFTSlopeError = .1, .01
				in.TTFTObjective = 10 * time.Second
				return in
			}(), verdict: OverloadBuilding, confidence: Medium,
			sentence: "92.5 requests wait and 30 more do each minute; the time to first token grows by 6 s a minute. At that rate the mean passes the objective of 10 s in 60 s.",
		},
		{
			name: "full", in: healthyInput().with(figures{timeline.OutputThroughput: 5000, timeline.RunningMean: 240, timeline.RunningMax: 256}), verdict: DeviceBoundFull, confidence: High,
			sentence: "A request runs 100 % of the time and 100 % of the engine's capacity is used; 0.1 requests wait on average.",
		},
		{name: "full, V1", in: healthyInput().v1().with(figures{timeline.OutputThroughput: 5000, timeline.RunningMean: 240}), verdict: DeviceBoundFull, confidence: Medium},
		{
			name: "past the knee", in: func() *Input {
				in := healthyInput().with(figures{timeline.OutputThroughput: 3500, timeline.RunningMean: 200, timeline.RunningMax: 220})
				in.TPOTObjective = 30 * time.Millisecond
				in.Requests.TPOT = quantilesOf(1500, .04)
				return in
			}(), verdict: DeviceBoundPastKnee, confidence: Medium,
			sentence: "No queue, but a token takes 40 ms (95th percentile) against an objective of 30 ms: 63 % of a step grows with the batch of 200. A batch of 120 is the most that meets it.",
		},
		{
			name: "prompts", in: healthyInput().states(map[timeline.State]float64{timeline.StatePrefill: .6, timeline.StateDecode: .25, timeline.StateExecuteHost: .1, timeline.StateHostOther: .05}),
			verdict: PrefillHeavy, confidence: High, sentence: "Prompts take 71 % of the device's time (median prompt 200 tokens, median output 180).",
		},
		{name: "prompts, V1", in: healthyInput().v1().with(figures{timeline.InputThroughput: 30000}), verdict: PrefillHeavy, confidence: Medium},
		{
			name: "stalls", in: func() *Input {
				in := healthyInput().states(map[timeline.State]float64{timeline.StatePrefill: .38, timeline.StateDecode: .42, timeline.StateExecuteHost: .1, timeline.StateHostOther: .1})
				in.Requests.TPOT = Quantiles{Count: 1500, Mean: .02, P50: .02, P90: .04, P95: .06, P99: .5}
				return in
			}(), verdict: PrefillInterference, confidence: High,
			sentence: "For 38 % of the time there is work, decoding stops for the prompts of others: the slowest hundredth of requests makes a token in 500 ms, half of them in 20 ms.",
		},
		{
			name: "headroom", in: healthyInput().with(figures{timeline.OutputThroughput: 1700, timeline.RunningMean: 25, timeline.RunningMax: 35}), verdict: DecodeHeadroom, confidence: Medium,
			sentence: "A request runs 100 % of the time, but only 17 % of a step grows with the batch of 25, and 34 % of the capacity is used: more requests cost little.",
		},
		{
			name: "front end", in: func() *Input {
				in := healthyInput().v1()
				in.Requests.FrontendShare = .4
				return in
			}(), verdict: FrontendBound, confidence: High, sentence: "Requests spend 40 % of their time outside the engine core (1.6 s of 4 s on average), and under 1 % waiting in it.",
		},
		{
			name: "shift", in: func() *Input {
				in := healthyInput()
				in.Before = &Before{Hours: 24, Rate: 5, Input: quantilesOf(9000, 50), Output: quantilesOf(9000, 180), StepLawA: .015, StepLawB: .00013}
				return in
			}(), verdict: WorkloadShift, confidence: High,
			sentence: "The median prompt is 200 tokens, 50 in the day before (factor 4), while a step takes as long as then: the work changed, not the engine.",
		},
		{
			name: "imbalance", in: func() *Input {
				in := healthyInput()
				in.Peers = &Peers{Engines: 4, CapacityMin: .1, CapacityMax: .6}
				return in
			}(), verdict: Imbalance, confidence: High, sentence: "Of the 4 engines of this model one uses 60 % of its capacity and another 10 %.",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := evaluateDefault(test.in)
			require.Equal(t, test.verdict, d.Verdict, "%s %v", d.Sentence, d.Evidence)
			assert.Equal(t, test.confidence, d.Confidence, "%v %v", d.Evidence, d.Caveats)
			assert.Equal(t, test.cause, d.Cause)
			if test.sentence != "" {
				assert.Equal(t, test.sentence, d.Sentence)
			}
			assert.NotEmpty(t, d.Title)
			assert.NotEmpty(t, d.Evidence)
			if test.verdict != Healthy {
				assert.NotEmpty(t, d.Actions)
			}
			assert.Equal(t, test.in.Windows[len(test.in.Windows)-1].End, d.Time)
		})
	}
}

// TestThresholds moves one figure of an engine across each threshold.
func TestThresholds(t *testing.T) {
	host := func(u float64) *Input {
		return healthyInput().with(figures{timeline.DeviceUtilization: u, timeline.DeviceLower: u, timeline.DeviceUpper: u})
	}
	assert.Equal(t, HostBound, evaluateDefault(host(.5999)).Verdict)
	assert.Equal(t, Healthy, evaluateDefault(host(.6001)).Verdict)

	full := func(out float64) *Input {
		return healthyInput().with(figures{timeline.OutputThroughput: out})
	}
	assert.Equal(t, DeviceBoundFull, evaluateDefault(full(4251)).Verdict)
	assert.Equal(t, Healthy, evaluateDefault(full(4249)).Verdict)

	idle := func(occ float64) *Input { return healthyInput().with(figures{timeline.Occupancy: occ}) }
	assert.Equal(t, Idle, evaluateDefault(idle(.299)).Verdict)
	assert.Equal(t, Healthy, evaluateDefault(idle(.301)).Verdict)
	missed := idle(.1)
	missed.TTFTObjective = 100 * time.Millisecond // 200 ms are needed
	assert.NotEqual(t, Idle, evaluateDefault(missed).Verdict, "an engine that misses its objective needs no less")
}

// TestWhatIsUnknown: no device figures, no host_bound; no law, no full; the most seen is no capacity.
func TestWhatIsUnknown(t *testing.T) {
	in := healthyInput().with(figures{timeline.DeviceUtilization: .3, timeline.DeviceLower: .2, timeline.DeviceUpper: .35}).v1()
	d := evaluateDefault(in)
	assert.Equal(t, Healthy, d.Verdict)
	assert.Contains(t, d.Caveats, noDevice+" vLLM V1 has no such time in its spans; a profiler or the device's own counters have.")
	assert.True(t, math.IsNaN(d.Figures.Wait))

	nan := math.NaN()
	in = healthyInput().with(figures{timeline.DeviceUtilization: nan, timeline.DeviceLower: nan, timeline.DeviceUpper: nan})
	assert.Contains(t, evaluateDefault(in).Caveats[0], "--collect-detailed-traces all")
	in.Kind = "sglang"
	assert.Contains(t, evaluateDefault(in).Caveats, noDevice)

	in = healthyInput().with(figures{timeline.Capacity: nan, timeline.CapacityFit: nan, timeline.CapacityPeak: 1})
	assert.Equal(t, Healthy, evaluateDefault(in).Verdict, "the highest throughput so far is not the highest there can be")
	assert.Equal(t, Medium, evaluateDefault(in).Confidence)

	// A queue, and nothing that tells why.
	in = healthyInput().with(figures{timeline.WaitingMean: 20})
	in.MaxNumSeqs = 0
	d = evaluateDefault(in)
	assert.Equal(t, NoVerdict, d.Verdict)
	assert.Equal(t, None, d.Confidence)
	assert.Contains(t, d.Actions[0].Setting, "max_num_seqs")
}

// TestQueueOfUnknownLength: the windows do not always know how many wait; the requests know that they did.
func TestQueueOfUnknownLength(t *testing.T) {
	in := healthyInput().with(figures{timeline.WaitingMean: math.NaN(), timeline.WaitingMax: math.NaN(), timeline.QueuePressure: .9, timeline.RunningMean: 16, timeline.RunningMax: 16})
	in.MaxNumSeqs = 16
	in.Requests.QueueTTFTShare, in.Requests.TTFT = .9, quantilesOf(1500, 4)
	d := evaluateDefault(in)
	assert.Equal(t, QueueBoundAdmission, d.Verdict)
	assert.Equal(t, "Requests spend 90 % of their time to the first token waiting while 100 % of the 16 places in the batch are taken, and only 12 % of a step grows with the batch.", d.Sentence)
}

// A limit that more run than is no limit: nothing rests on it.
func TestWrongLimit(t *testing.T) {
	in := healthyInput().with(figures{timeline.RunningMean: 45, timeline.RunningMax: 60, timeline.WaitingMean: 20, timeline.WaitingMax: 30, timeline.QueuePressure: .9})
	in.Requests.QueueTTFTShare, in.Requests.TTFT = .9, quantilesOf(1500, 4)
	in.MaxNumSeqs = 4
	d := evaluateDefault(in)
	assert.NotContains(t, d.Sentence, "places in the batch")
	assert.True(t, math.IsNaN(d.Figures.Fill))
	assert.Contains(t, strings.Join(d.Caveats, " "), "engine::max_num_seqs is 4, but 45 requests run at a time")
	in.MaxNumSeqs = 40
	assert.NotContains(t, strings.Join(evaluateDefault(in).Caveats, " "), "engine::max_num_seqs is 40")
}

// Where some may wait unseen the sentence says what is known.
func TestQueueOfRoughlyKnownLength(t *testing.T) {
	nan := math.NaN()
	in := healthyInput().with(figures{timeline.WaitingMean: nan, timeline.WaitingMax: nan, timeline.WaitingLower: 180, timeline.WaitingUpper: 220, timeline.QueuePressure: .9, timeline.RunningMean: 16, timeline.RunningMax: 16})
	in.MaxNumSeqs = 16
	d := evaluateDefault(in)
	assert.Equal(t, QueueBoundAdmission, d.Verdict)
	assert.Contains(t, d.Sentence, "180 to 220 requests wait on average while 100 % of the 16 places")
	in = in.with(figures{timeline.WaitingUpper: 201, timeline.WaitingLower: 199})
	assert.Contains(t, evaluateDefault(in).Sentence, "200 requests wait on average")
	in = in.with(figures{timeline.WaitingUpper: nan, timeline.WaitingLower: 50})
	d = evaluateDefault(in)
	assert.Equal(t, QueueBoundAdmission, d.Verdict)
	assert.Contains(t, d.Sentence, "At least 50 requests wait on average")
	in = in.with(figures{timeline.WaitingLower: .2})
	assert.NotContains(t, evaluateDefault(in).Sentence, "wait on average", "nothing is known of a queue that short")
}

// A queue that grew after windows in which hardly anybody waited, and is known from below only, is no less a queue.
func TestQueueThatGrewUnseen(t *testing.T) {
	in := healthyInput().with(figures{timeline.WaitingMean: 0, timeline.WaitingLower: 0, timeline.WaitingUpper: 0, timeline.QueuePressure: .9, timeline.RunningMean: 16, timeline.RunningMax: 16})
	in.MaxNumSeqs = 16
	require.NotEqual(t, QueueBoundAdmission, evaluateDefault(in).Verdict)
	for i := len(in.Windows) / 2; i < len(in.Windows); i++ {
		in.Windows[i].Unset(timeline.WaitingMean)
		in.Windows[i].Unset(timeline.WaitingUpper)
		in.Windows[i].Set(timeline.WaitingLower, 300)
	}
	d := evaluateDefault(in)
	assert.Equal(t, QueueBoundAdmission, d.Verdict)
	assert.Contains(t, d.Sentence, "At least 150 requests wait on average")

	full := healthyInput().with(figures{timeline.OutputThroughput: 5000, timeline.RunningMean: 240, timeline.RunningMax: 256, timeline.WaitingMean: math.NaN(), timeline.WaitingUpper: math.NaN(), timeline.WaitingLower: 40})
	d = evaluateDefault(full)
	assert.Equal(t, DeviceBoundFull, d.Verdict)
	assert.Contains(t, d.Sentence, "; at least 40 requests wait on average.")
}

func TestSmallWaitsAreNoQueue(t *testing.T) {
	// 1.2 requests wait, at 100 a second: 12 ms, half a step.
	in := healthyInput().with(figures{timeline.WaitingMean: 1.2})
	in.Requests.Rate = 100
	assert.Equal(t, Healthy, evaluateDefault(in).Verdict)
	in.Requests.Rate = 1
	assert.Equal(t, QueueBoundKV, evaluateDefault(in).Verdict)
}

// TestUnusedDevice: an operator must see a device that nobody uses, though no request says so.
func TestUnusedDevice(t *testing.T) {
	unused := func(windows int) *Input {
		return &Input{
			Windows:  windowsOf(windows, figures{timeline.Occupancy: 0, timeline.RunningMean: 0, timeline.WaitingMean: 0, timeline.Completeness: 1, timeline.OutputThroughput: 0, timeline.Capacity: 5000, timeline.CapacityFit: 0}, nil, timeline.ModeUnknown),
			Requests: unknownRequests(0), Kind: "vllm", Generation: "v0", MaxNumSeqs: 256,
		}
	}
	d := evaluateDefault(unused(30))
	assert.Equal(t, Idle, d.Verdict)
	assert.Equal(t, Medium, d.Confidence, "an engine that hangs looks the same")
	assert.Equal(t, "No request ran in the last 5 min.", d.Sentence)
	assert.Contains(t, d.Actions[0].Text, "scale to zero")
	assert.Empty(t, d.Also)

	assert.Equal(t, Idle, evaluateDefault(unused(24)).Verdict, "four fifths of the period")
	assert.Equal(t, NoVerdict, evaluateDefault(unused(23)).Verdict, "a pause is no idle engine")

	few := unused(30).with(figures{timeline.Occupancy: .2, timeline.RunningMean: .2})
	few.Requests = requestsOf(10)
	assert.Equal(t, Idle, evaluateDefault(few).Verdict)
	few.with(figures{timeline.Occupancy: .5})
	d = evaluateDefault(few)
	assert.Equal(t, NoVerdict, d.Verdict, "ten requests say nothing more")
	assert.Equal(t, "10 requests finished in the last 5 min; 30 are needed.", d.Sentence)
	unseen := unused(30).with(figures{timeline.Completeness: .5})
	assert.Equal(t, NoVerdict, evaluateDefault(unseen).Verdict, "what runs may not have been seen")
}

func TestNoVerdict(t *testing.T) {
	flag := func(f timeline.Flags, windows int) *Input {
		in := healthyInput()
		for i := range windows {
			in.Windows[i].Flags |= f
		}
		return in
	}
	maybe := func(windows int) *Input {
		in := flag(timeline.Contradiction, windows)
		in.MaybeMixed = true
		return in
	}
	gaps := healthyInput()
	gaps.Windows = append(gaps.Windows[:8:8], gaps.Windows[20:]...)
	short := healthyInput()
	short.Windows = short.Windows[25:]
	few := healthyInput()
	few.Requests.Count = 29
	for _, test := range []struct {
		name, title string
		in          *Input
	}{
		{"nothing", "No window yet", &Input{}},
		{"mixed", "Several engines under one name", flag(timeline.MixedEngines, 1)},
		{"sampled", "Only a part of the requests", flag(timeline.Sampled, 1)},
		{"maybe mixed and contradictory", "Several engines under one name", maybe(7)},
		{"gaps", "Gaps", gaps},
		{"50 s", "Too little time", short},
		{"29 requests", "Too few requests", few},
		{"incomplete", "Too little seen yet", healthyInput().with(figures{timeline.Completeness: .79})},
		{"completeness unknown", "Too little seen yet", healthyInput().with(figures{timeline.Completeness: math.NaN()})},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := evaluateDefault(test.in)
			assert.Equal(t, NoVerdict, d.Verdict)
			assert.Equal(t, None, d.Confidence)
			assert.Equal(t, test.title, d.Title)
			assert.NotEmpty(t, d.Sentence)
			assert.Empty(t, d.Also)
		})
	}
	assert.Equal(t, Healthy, evaluateDefault(maybe(6)).Verdict, "single engines contradict themselves now and then")
	assert.Equal(t, Medium, evaluateDefault(maybe(6)).Confidence)
	assert.Equal(t, Healthy, evaluateDefault(flag(timeline.Contradiction, 30)).Verdict, "an engine with a name of its own")
}

func TestConfidenceOfFewData(t *testing.T) {
	for _, n := range []int64{30, 99} {
		in := healthyInput()
		in.Requests.Count = n
		assert.Equal(t, Low, evaluateDefault(in).Confidence, n)
	}
	in := healthyInput()
	in.Windows = in.Windows[:17] // 2 min 50 s
	assert.Equal(t, Low, evaluateDefault(in).Confidence)
	in = healthyInput().with(figures{timeline.Completeness: .9})
	assert.Equal(t, Medium, evaluateDefault(in).Confidence)
	in = healthyInput()
	in.MaybeMixed = true
	assert.Equal(t, Medium, evaluateDefault(in).Confidence)
}

// TestAlso: the others that hold come after the first, in order.
func TestAlso(t *testing.T) {
	in := healthyInput().with(figures{timeline.DeviceUtilization: .4, timeline.DeviceLower: .3, timeline.DeviceUpper: .5}).
		states(map[timeline.State]float64{timeline.StatePrefill: .25, timeline.StateDecode: .15, timeline.StateExecuteHost: .4, timeline.StateHostOther: .2})
	in.Peers = &Peers{Engines: 2, CapacityMin: .2, CapacityMax: .6}
	in.Before = &Before{Hours: 24, Rate: 1, Input: quantilesOf(9000, 200), Output: quantilesOf(9000, 180), StepLawA: .015, StepLawB: .000125}
	d := evaluateDefault(in)
	assert.Equal(t, HostBound, d.Verdict)
	assert.Equal(t, CauseExecute, d.Cause)
	var also []Verdict
	for _, f := range d.Also {
		also = append(also, f.Verdict)
	}
	assert.Equal(t, []Verdict{PrefillHeavy, WorkloadShift, Imbalance}, also)
	require.NotNil(t, d.Gain)
	assert.InDelta(t, 2.5, d.Gain.Factor, 1e-9)
	assert.Equal(t, "throughput", d.Gain.Of)
}

func TestShiftNeedsAnUnchangedEngine(t *testing.T) {
	in := healthyInput()
	in.Before = &Before{Hours: 24, Rate: 1, Input: quantilesOf(9000, 200), Output: quantilesOf(9000, 180), StepLawA: .015, StepLawB: .000125}
	require.Equal(t, WorkloadShift, evaluateDefault(in).Verdict)
	in.Before.StepLawA = .03
	assert.Equal(t, Healthy, evaluateDefault(in).Verdict)
	in.Before.StepLawA, in.Before.Hours = .015, 5
	assert.Equal(t, Healthy, evaluateDefault(in).Verdict)
	in.Before = &Before{Hours: 24, Rate: math.NaN(), Input: unknownQuantiles(), Output: unknownQuantiles(), StepLawA: math.NaN(), StepLawB: math.NaN()}
	assert.Equal(t, Healthy, evaluateDefault(in).Verdict)
}

func TestMissedObjectiveWithoutCause(t *testing.T) {
	in := healthyInput()
	in.E2EObjective = time.Second
	d := evaluateDefault(in)
	assert.Equal(t, Healthy, d.Verdict)
	assert.Equal(t, Low, d.Confidence)
	assert.Equal(t, "No cause found", d.Title)
	assert.Contains(t, d.Sentence, "request duration")
}

// TestGains: the bounds by hand.
func TestGains(t *testing.T) {
	queued := func(in *Input) *Input {
		in.Requests.QueueTTFTShare, in.Requests.TTFT = .9, quantilesOf(1500, 4)
		return in.with(figures{timeline.WaitingMean: 20, timeline.WaitingMax: 40})
	}
	admission := queued(healthyInput()).with(figures{timeline.RunningMean: 16, timeline.RunningMax: 16})
	admission.MaxNumSeqs = 16
	knee := healthyInput().with(figures{timeline.OutputThroughput: 3500, timeline.RunningMean: 200, timeline.RunningMax: 220})
	knee.TPOTObjective, knee.Requests.TPOT = 30*time.Millisecond, quantilesOf(1500, .04)
	frontend := healthyInput().v1()
	frontend.Requests.FrontendShare = .4
	for _, test := range []struct {
		in     *Input
		want   Verdict
		factor float64
	}{
		{healthyInput().with(figures{timeline.OutputThroughput: 500}), Idle, 10},
		{admission, QueueBoundAdmission, (.015 + .000125*16) / (.000125 * 16)},
		{queued(healthyInput()), QueueBoundKV, 256 / (.015 + .000125*256) / (80 / (.015 + .000125*80))},
		{healthyInput().with(figures{timeline.DeviceUtilization: .25}), HostBound, 4},
		{knee, DeviceBoundPastKnee, .03 / .04},
		{healthyInput().states(map[timeline.State]float64{timeline.StatePrefill: .6, timeline.StateDecode: .2}), PrefillHeavy, 4},
		{healthyInput().with(figures{timeline.OutputThroughput: 2000, timeline.RunningMean: 25}), DecodeHeadroom, 2.5},
		{frontend, FrontendBound, .6},
	} {
		d := evaluateDefault(test.in)
		require.Equal(t, test.want, d.Verdict)
		require.NotNil(t, d.Gain, test.want)
		assert.InDelta(t, test.factor, d.Gain.Factor, 1e-9, test.want)
	}
	assert.Nil(t, gain(math.NaN(), "", ""))
	assert.Nil(t, gain(math.Inf(1), "", ""))
	assert.Nil(t, gain(.9, "", ""))
	assert.Nil(t, saving(1, "", ""))
	assert.Nil(t, saving(math.NaN(), "", ""))
}

// TestTheSurestWayCounts: two conditions for one verdict, and only the second beyond doubt.
func TestTheSurestWayCounts(t *testing.T) {
	d := evaluateDefault(healthyInput().with(figures{timeline.Occupancy: .29, timeline.OutputThroughput: 100}))
	assert.Equal(t, Idle, d.Verdict)
	assert.Equal(t, High, d.Confidence)
	d = evaluateDefault(healthyInput().with(figures{timeline.Occupancy: .29}))
	assert.Equal(t, Low, d.Confidence)
}

// TestSizing: replicas = ceil(N used / 0.7).
func TestSizing(t *testing.T) {
	in := healthyInput().with(figures{timeline.OutputThroughput: 5000})
	assert.Equal(t, "This engine's load needs 2 replicas.", evaluateDefault(in).Actions[0].Text)
	in.Peers = &Peers{Engines: 10, CapacityMin: .9, CapacityMax: 1}
	assert.Equal(t, "10 engines loaded like this one need 15 replicas.", evaluateDefault(in).Actions[0].Text)
	in = healthyInput().with(figures{timeline.OutputThroughput: 500})
	in.Peers = &Peers{Engines: 10, CapacityMin: .09, CapacityMax: .1}
	assert.Equal(t, "10 engines loaded like this one need 2 replicas.", evaluateDefault(in).Actions[0].Text)
}

func TestHostCauses(t *testing.T) {
	for _, test := range []struct {
		cause                     string
		scheduler, execute, other float64
		batch                     float64
		wantAction, wantSetting   string
	}{
		{cause: CauseScheduler, scheduler: .3, execute: .1, other: .1, batch: 80, wantSetting: "--num-scheduler-steps 8"},
		{cause: CauseExecute, scheduler: .16, execute: .3, other: .1, batch: 80, wantAction: "Do not pass --enforce-eager: CUDA graphs launch a step's kernels at once."},
		{cause: CauseOutside, scheduler: .1, execute: .1, other: .3, batch: 80, wantAction: "Upgrade to vLLM 0.6.0 or newer: its API server has a process of its own, and output is processed during the next step."},
		{cause: CauseSmallBatch, scheduler: .14, execute: .19, other: .17, batch: 4, wantAction: "Serve the traffic from fewer replicas."},
		{cause: "", scheduler: .14, execute: .19, other: .17, batch: 80, wantAction: "Profile the engine's host process."},
	} {
		u := 1 - test.scheduler - test.execute - test.other
		in := healthyInput().with(figures{timeline.DeviceUtilization: u, timeline.DeviceLower: u, timeline.DeviceUpper: u, timeline.RunningMean: test.batch, timeline.RunningMax: test.batch}).
			states(map[timeline.State]float64{timeline.StateDecode: u, timeline.StateScheduler: test.scheduler, timeline.StateExecuteHost: test.execute, timeline.StateHostOther: test.other})
		d := evaluateDefault(in)
		require.Equal(t, HostBound, d.Verdict, test.cause)
		assert.Equal(t, test.cause, d.Cause)
		found := false
		for _, a := range d.Actions {
			found = found || test.wantAction != "" && a.Text == test.wantAction || test.wantSetting != "" && a.Setting == test.wantSetting
		}
		assert.True(t, found, "%s: %v", test.cause, d.Actions)
	}
}

// A few requests that run all the time are little to do as well, though no batch was ever there to tell the capacity by.
func TestIdleBySmallBatch(t *testing.T) {
	in := healthyInput().with(figures{timeline.RunningMean: 1.2, timeline.RunningMax: 3, timeline.WaitingMean: 0, timeline.CapacityFit: math.NaN(), timeline.Capacity: math.NaN(), timeline.CapacityPeak: math.NaN()})
	d := evaluateDefault(in)
	assert.Equal(t, Idle, d.Verdict)
	assert.Contains(t, d.Sentence, "of the 256 places in the batch are taken")
	in = healthyInput().with(figures{timeline.RunningMean: 12, timeline.RunningMax: 30, timeline.WaitingMean: 0, timeline.CapacityFit: math.NaN(), timeline.Capacity: math.NaN(), timeline.CapacityPeak: math.NaN()})
	assert.NotEqual(t, Idle, evaluateDefault(in).Verdict)
}

// A capacity that is known as a bracket decides where both of its ends do.
func TestCapacityBracket(t *testing.T) {
	nan := math.NaN()
	bracket := func(in *Input, least, most float64) *Input {
		out := in.Windows[0].Value(timeline.OutputThroughput)
		return in.with(figures{
			timeline.Capacity: nan, timeline.CapacityFit: nan, timeline.CapacityPeak: 1, timeline.CapacityUpper: out / least, timeline.CapacityLower: out / most,
		})
	}
	busy := func() *Input {
		return healthyInput().with(figures{timeline.OutputThroughput: 5000, timeline.RunningMean: 240, timeline.RunningMax: 256})
	}
	d := evaluateDefault(bracket(busy(), .97, 1.1))
	assert.Equal(t, DeviceBoundFull, d.Verdict)
	assert.Equal(t, "A request runs 100 % of the time and between 97 % and 110 % of the engine's capacity is used; 0.1 requests wait on average.", d.Sentence)
	assert.Equal(t, High, d.Confidence)
	d = evaluateDefault(bracket(busy(), .8, 1.1))
	assert.Equal(t, Healthy, d.Verdict, "it may be full, and it may not")
	assert.Contains(t, d.Sentence, "between 80 % and 110 % of the capacity is used")
	assert.NotEqual(t, High, d.Confidence)
	assert.Contains(t, strings.Join(d.Caveats, "\n"), "Whether the engine is full is not known")

	free := func() *Input {
		return healthyInput().with(figures{timeline.OutputThroughput: 1700, timeline.RunningMean: 25, timeline.RunningMax: 35})
	}
	d = evaluateDefault(bracket(free(), .26, .45))
	assert.Equal(t, DecodeHeadroom, d.Verdict)
	require.NotNil(t, d.Gain)
	assert.InDelta(t, 1/.45, d.Gain.Factor, 1e-9, "at least")
	assert.Equal(t, Healthy, evaluateDefault(bracket(free(), .26, .55)).Verdict)
	assert.Equal(t, Idle, evaluateDefault(bracket(free(), .15, .2)).Verdict)
	assert.NotEqual(t, Idle, evaluateDefault(bracket(free(), .15, .3)).Verdict)

	// With a figure its bracket is how sure that is.
	in := busy().with(figures{timeline.OutputThroughput: 4750, timeline.CapacityUpper: 5100, timeline.CapacityLower: 4900})
	d = evaluateDefault(in)
	assert.Equal(t, DeviceBoundFull, d.Verdict)
	assert.Equal(t, High, d.Confidence)
	assert.Equal(t, Medium, evaluateDefault(in.with(figures{timeline.CapacityUpper: 5700})).Confidence)
}
