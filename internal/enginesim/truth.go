// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// The ground truth of one engine: what it did at every nanosecond, queryable for any window.

import (
	"sort"
	"time"
)

// State is what an engine does at one moment. Every moment is in exactly one state.
type State uint8

// The states. While a forward pass runs the device is busy, whatever the host does meanwhile.
const (
	// Idle: nothing to do.
	Idle State = iota
	// ForwardPrefill, ForwardDecode and ForwardMixed: the device runs a forward pass over prompts
	// only, decoding sequences only, or both.
	ForwardPrefill
	ForwardDecode
	ForwardMixed
	// ExecuteHost is model execution outside the forward pass: input preparation, logits, sampling,
	// synchronisation.
	ExecuteHost
	// Scheduler is the scheduler's pass.
	Scheduler
	// HostOther is the rest of the engine's loop: output processing, detokenisation, and an API server
	// that shares the process.
	HostOther
	// NumStates is the number of states.
	NumStates
)

// Times is the time spent in each state.
type Times [NumStates]time.Duration

// Forward is the time in which the device ran a forward pass.
func (t Times) Forward() time.Duration { return t[ForwardPrefill] + t[ForwardDecode] + t[ForwardMixed] }

// Total is the sum of all states: exactly the length of the window.
func (t Times) Total() time.Duration {
	var sum time.Duration
	for _, d := range t {
		sum += d
	}
	return sum
}

// Share is the forward time's share of the window, in [0,1]: the true device utilisation.
func (t Times) Share() float64 { return float64(t.Forward()) / float64(t.Total()) }

// Step is one iteration of an engine's loop.
type Step struct {
	// Start is the start of the scheduler's pass and End the moment the next one could start; Unix
	// nanoseconds, as all moments here.
	Start, End int64
	// ForwardStart and ForwardEnd bound the forward pass.
	ForwardStart, ForwardEnd int64
	// PromptTokens is the number of prompt tokens computed, recomputation after preemption included.
	PromptTokens int32
	// Prefills and Decodes count the requests scheduled. With asynchronous output processing a
	// finished request takes part in one decode in vain.
	Prefills, Decodes int32
}

// StepStats sums up the steps that start in a window.
type StepStats struct {
	Steps, DecodeSteps int
	// DecodeStep and DecodeGap are means over decode-only steps that are followed at once by another
	// step: from pass to pass, and what of it is outside the forward pass.
	DecodeStep, DecodeGap time.Duration
	// Batch is the mean number of sequences of those steps.
	Batch float64
	// DecodingSteps decode, prompts beside it or not, and are followed at once by another; StepDuration is their mean, which
	// llm.serving.engine.step.duration estimates.
	DecodingSteps int
	StepDuration  time.Duration
	// PromptTokens is what the window's steps computed.
	PromptTokens int64
}

// Window is the truth of one window as plain figures: seconds, shares of the window in [0,1], means.
type Window struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Seconds by state.
	Idle        float64 `json:"idle"`
	Prefill     float64 `json:"prefill"`
	Decode      float64 `json:"decode"`
	Mixed       float64 `json:"mixed"`
	ExecuteHost float64 `json:"execute_host"`
	Scheduler   float64 `json:"scheduler"`
	HostOther   float64 `json:"host_other"`
	// DeviceUtilization and Occupancy are shares of the window.
	DeviceUtilization float64 `json:"device_utilization"`
	Occupancy         float64 `json:"occupancy"`
	RunningMean       float64 `json:"running_mean"`
	RunningMax        int     `json:"running_max"`
	WaitingMean       float64 `json:"waiting_mean"`
	WaitingMax        int     `json:"waiting_max"`
	Steps             int     `json:"steps"`
	// DecodeStep and HostGap are seconds, of steps that compute no prompt; nil where none was followed by another.
	DecodeStep *float64 `json:"decode_step,omitempty"`
	HostGap    *float64 `json:"host_gap,omitempty"`
	// StepDuration is the mean of DecodingSteps, which may compute prompts as well; seconds, nil where there is none.
	StepDuration  *float64 `json:"step_duration,omitempty"`
	DecodingSteps int      `json:"decoding_steps"`
	// PromptTokens and OutputTokens were computed and made in the window.
	PromptTokens int64 `json:"prompt_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Preemptions  int   `json:"preemptions"`
}

// Window gives all figures of a window.
func (t *Truth) Window(a, b int64) Window {
	times, steps := t.Times(a, b), t.StepStats(a, b)
	w := Window{
		Start: time.Unix(0, a).UTC(), End: time.Unix(0, b).UTC(),
		Idle: times[Idle].Seconds(), Prefill: times[ForwardPrefill].Seconds(), Decode: times[ForwardDecode].Seconds(),
		Mixed: times[ForwardMixed].Seconds(), ExecuteHost: times[ExecuteHost].Seconds(),
		Scheduler: times[Scheduler].Seconds(), HostOther: times[HostOther].Seconds(),
		Steps: steps.Steps, DecodingSteps: steps.DecodingSteps, PromptTokens: steps.PromptTokens, OutputTokens: t.OutputTokens(a, b), Preemptions: t.Preemptions(a, b),
	}
	if d := times.Total(); d > 0 {
		w.DeviceUtilization = times.Share()
		w.Occupancy = float64(t.Occupied(a, b)) / float64(d)
	}
	w.RunningMean, w.RunningMax = t.Running(a, b)
	w.WaitingMean, w.WaitingMax = t.Waiting(a, b)
	if steps.DecodeStep > 0 {
		step, gap := steps.DecodeStep.Seconds(), steps.DecodeGap.Seconds()
		w.DecodeStep, w.HostGap = &step, &gap
	}
	if steps.DecodingSteps > 0 {
		step := steps.StepDuration.Seconds()
		w.StepDuration = &step
	}
	return w
}

// Truth is what one engine did between Begin and End. Windows are [a,b) in Unix nanoseconds and are cut
// to that range.
type Truth struct {
	states   stateLog
	running  levelLog
	waiting  levelLog
	steps    []Step
	preempts []int64 // moments
	tokens   []int64 // moments at which a step's outputs were processed
	nTokens  []int64 // output tokens up to and with that moment
}

func newTruth(begin int64) *Truth {
	t := &Truth{}
	t.states.end = begin
	t.running.init(begin)
	t.waiting.init(begin)
	return t
}

// Begin is the start of what is known.
func (t *Truth) Begin() int64 { return t.states.begin() }

// End is the end of what is known.
func (t *Truth) End() int64 { return t.states.end }

// Times is the time in each state.
func (t *Truth) Times(a, b int64) Times {
	va, vb := t.states.at(a), t.states.at(b)
	for i := range vb {
		vb[i] -= va[i]
	}
	return vb
}

// Occupied is the time in which at least one request was running: scheduled at least once, not finished
// and not preempted. It counts host time between steps, and leaves out the first scheduler pass of a
// busy period (vLLM V0 stamps the first schedule after it).
func (t *Truth) Occupied(a, b int64) time.Duration {
	_, occA := t.running.at(t.clip(a))
	_, occB := t.running.at(t.clip(b))
	return time.Duration(occB - occA)
}

// Running is the mean and the greatest number of running requests.
func (t *Truth) Running(a, b int64) (mean float64, greatest int) {
	return t.running.window(t.clip(a), t.clip(b))
}

// Waiting is the mean and the greatest number of waiting requests, preempted ones included. vLLM V0 waits
// from arrival; V1 from the moment the engine core took the request, as vllm:num_requests_waiting counts.
func (t *Truth) Waiting(a, b int64) (mean float64, greatest int) {
	return t.waiting.window(t.clip(a), t.clip(b))
}

// Steps are the steps that start in the window. The slice is valid until the simulation goes on.
func (t *Truth) Steps(a, b int64) []Step {
	i := sort.Search(len(t.steps), func(i int) bool { return t.steps[i].Start >= a })
	j := sort.Search(len(t.steps), func(i int) bool { return t.steps[i].Start >= b })
	return t.steps[i:max(i, j)]
}

// StepStats sums up the steps that start in the window.
func (t *Truth) StepStats(a, b int64) StepStats {
	var s StepStats
	var dur, gap, seqs, n, decoding int64
	steps := t.Steps(a, b)
	for i, st := range steps {
		s.Steps++
		s.PromptTokens += int64(st.PromptTokens)
		followed := i+1 < len(steps) && steps[i+1].Start == st.End
		if followed && st.Decodes > 0 {
			s.DecodingSteps++
			decoding += st.End - st.Start
		}
		if st.Prefills > 0 {
			continue
		}
		s.DecodeSteps++
		if followed {
			n++
			dur += st.End - st.Start
			gap += st.End - st.Start - (st.ForwardEnd - st.ForwardStart)
			seqs += int64(st.Decodes)
		}
	}
	if n > 0 {
		s.DecodeStep, s.DecodeGap, s.Batch = time.Duration(dur/n), time.Duration(gap/n), float64(seqs)/float64(n)
	}
	if s.DecodingSteps > 0 {
		s.StepDuration = time.Duration(decoding / int64(s.DecodingSteps))
	}
	return s
}

// Preemptions is the number of preemptions.
func (t *Truth) Preemptions(a, b int64) int {
	i := sort.Search(len(t.preempts), func(i int) bool { return t.preempts[i] >= a })
	j := sort.Search(len(t.preempts), func(i int) bool { return t.preempts[i] >= b })
	return max(0, j-i)
}

// OutputTokens is the number of tokens generated, tokens of aborted requests included.
func (t *Truth) OutputTokens(a, b int64) int64 { return t.tokensBefore(b) - t.tokensBefore(a) }

func (t *Truth) tokensBefore(at int64) int64 {
	i := sort.Search(len(t.tokens), func(i int) bool { return t.tokens[i] >= at })
	if i == 0 {
		return 0
	}
	return t.nTokens[i-1]
}

func (t *Truth) addTokens(at int64, n int) {
	if n == 0 {
		return
	}
	total := int64(n)
	if l := len(t.nTokens); l > 0 {
		total += t.nTokens[l-1]
	}
	t.tokens, t.nTokens = append(t.tokens, at), append(t.nTokens, total)
}

// forget drops what lies before at, so that a long simulation needs bounded memory.
func (t *Truth) forget(at int64) {
	t.states.forget(at)
	t.running.forget(at)
	t.waiting.forget(at)
	i := sort.Search(len(t.steps), func(i int) bool { return t.steps[i].Start >= at })
	t.steps = append(t.steps[:0], t.steps[i:]...)
	i = sort.Search(len(t.preempts), func(i int) bool { return t.preempts[i] >= at })
	t.preempts = append(t.preempts[:0], t.preempts[i:]...)
	i = sort.Search(len(t.tokens), func(i int) bool { return t.tokens[i] >= at })
	i = max(0, i-1) // the one before carries the count
	t.tokens, t.nTokens = append(t.tokens[:0], t.tokens[i:]...), append(t.nTokens[:0], t.nTokens[i:]...)
}

func (t *Truth) clip(at int64) int64 { return min(max(at, t.Begin()), t.End()) }

// stateLog is a gapless sequence of states with a running total every stateBlock entries.
type stateLog struct {
	start []int64
	state []State
	sums  []Times // sums[i] is the total before entry i*stateBlock
	total Times
	end   int64
}

const stateBlock = 32

func (l *stateLog) begin() int64 {
	if len(l.start) == 0 {
		return l.end
	}
	return l.start[0]
}

// until extends the log to at in state s.
func (l *stateLog) until(at int64, s State) {
	if at <= l.end {
		return
	}
	if n := len(l.state); n == 0 || l.state[n-1] != s {
		if n%stateBlock == 0 {
			l.sums = append(l.sums, l.total)
		}
		l.start, l.state = append(l.start, l.end), append(l.state, s)
	}
	l.total[s] += time.Duration(at - l.end)
	l.end = at
}

// at is the total of every state before at.
func (l *stateLog) at(at int64) Times {
	if len(l.start) == 0 {
		return Times{}
	}
	at = min(max(at, l.start[0]), l.end)
	i := sort.Search(len(l.start), func(i int) bool { return l.start[i] > at }) - 1
	v := l.sums[i/stateBlock]
	for k := i / stateBlock * stateBlock; k < i; k++ {
		v[l.state[k]] += time.Duration(l.start[k+1] - l.start[k])
	}
	v[l.state[i]] += time.Duration(at - l.start[i])
	return v
}

func (l *stateLog) forget(at int64) {
	i := sort.Search(len(l.start), func(i int) bool { return l.start[i] > at }) - 1
	if b := i / stateBlock; b > 0 {
		l.start = append(l.start[:0], l.start[b*stateBlock:]...)
		l.state = append(l.state[:0], l.state[b*stateBlock:]...)
		l.sums = append(l.sums[:0], l.sums[b:]...)
	}
}

// levelLog is a step function of a count with its integral.
type levelLog struct {
	times []int64
	level []int32
	area  []int64 // integral before times, count·ns
	above []int64 // time with a count over zero before times, ns
}

func (l *levelLog) init(begin int64) {
	l.times, l.level, l.area, l.above = []int64{begin}, []int32{0}, []int64{0}, []int64{0}
}

func (l *levelLog) last() int32 { return l.level[len(l.level)-1] }

// set makes the count n from at on. Moments never decrease.
func (l *levelLog) set(at int64, n int) {
	i := len(l.times) - 1
	if int(l.level[i]) == n {
		return
	}
	if at <= l.times[i] {
		l.level[i] = int32(n)
		return
	}
	area, above := l.at(at)
	l.times, l.level = append(l.times, at), append(l.level, int32(n))
	l.area, l.above = append(l.area, area), append(l.above, above)
}

func (l *levelLog) index(at int64) int {
	if n := len(l.times) - 1; at >= l.times[n] {
		return n
	}
	return max(0, sort.Search(len(l.times), func(i int) bool { return l.times[i] > at })-1)
}

func (l *levelLog) at(at int64) (area, above int64) {
	i := l.index(at)
	d := at - l.times[i]
	area = l.area[i] + int64(l.level[i])*d
	above = l.above[i]
	if l.level[i] > 0 {
		above += d
	}
	return area, above
}

func (l *levelLog) window(a, b int64) (mean float64, greatest int) {
	if b <= a {
		return 0, 0
	}
	areaA, _ := l.at(a)
	areaB, _ := l.at(b)
	for i := l.index(a); i < len(l.times) && l.times[i] < b; i++ {
		greatest = max(greatest, int(l.level[i]))
	}
	return float64(areaB-areaA) / float64(b-a), greatest
}

func (l *levelLog) forget(at int64) {
	if i := l.index(at); i > 0 {
		l.times, l.level = append(l.times[:0], l.times[i:]...), append(l.level[:0], l.level[i:]...)
		l.area, l.above = append(l.area[:0], l.area[i:]...), append(l.above[:0], l.above[i:]...)
	}
}
