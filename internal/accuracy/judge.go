// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// One run: an engine's spans into timelines as a collector would hand them over, and every window
// that comes out held against what the engine did.

import (
	"math"
	"slices"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// hostBound is the share of the occupied time below which "the device waits for its host" is the verdict.
const hostBound = 0.6

const (
	// bracketSlack is what a truth may lie outside of a bracket by: spans say durations in float64
	// seconds and a Timeline keeps them as float32.
	bracketSlack = 1e-4
	// capacitySlack is what the measured capacity may lie outside of its bracket by: with other seeds it is up to 5 % another, for the
	// lengths drawn in 10 min are.
	capacitySlack = 0.05
	// minOccupied is the share of a window with a running request from which on a verdict is asked for.
	minOccupied = 0.01
	// minSteps is the number of decode steps of a window from which on their mean duration is compared.
	minSteps = 20
	// minTokens is the number of output tokens of a window from which on their rate is compared.
	minTokens = 100
	// minRunning is the mean of running requests from which on a share of them is compared.
	minRunning = 0.1
	// minWaiting is the mean of waiting requests from which on the middle of their bracket is compared.
	minWaiting = 20
)

// mean is a running mean; of nothing it is NaN.
type mean struct {
	n   int
	sum float64
}

func (m *mean) add(x float64) { m.n, m.sum = m.n+1, m.sum+x }

func (m *mean) hit(ok bool) {
	x := 0.0
	if ok {
		x = 1
	}
	m.add(x)
}

func (m *mean) merge(o mean) { m.n, m.sum = m.n+o.n, m.sum+o.sum }

func (m mean) value() float64 { return m.sum / float64(m.n) }

// score is the comparison of some windows of one length.
type score struct {
	windows int // closed, after the warm-up

	given           mean // device utilisation is present
	deviceAbs, bias mean // its error
	inside, width   mean // the truth in the bracket; the bracket's width
	verdict         mean // "waits for host" is right
	states          [timeline.NumStates]mean

	running, runningTruth, runningGiven mean // error; truth of all windows; share of windows
	waiting, waitingTruth, waitingGiven mean // the same
	runningInside, waitingInside        mean // the truth in the bracket, as far as there is one
	waitingBounded, waitingMiddle       mean // share of windows with both ends; relative error of the middle
	step, stepBias                      mean // relative, of the windows given
	stepGiven                           mean // share of the windows with steps enough
	output                              mean // output tokens per second, relative
	capacity                            mean // relative, where the guard admits a figure
	admitted                            mean
	// Of the bracket of the capacity: share of windows with one, the truth in it, and half its width over its middle.
	capacityGiven, capacityInside, capacityWidth mean
	completeness                                 mean

	flags  map[timeline.Flags]int // windows, warm-up included
	closed int                    // windows, warm-up included
	late   int64                  // requests
}

func (s *score) merge(o *score) {
	s.windows += o.windows
	s.closed += o.closed
	s.late += o.late
	for i := range s.states {
		s.states[i].merge(o.states[i])
	}
	to, from := s.means(), o.means()
	for i := range to {
		to[i].merge(*from[i])
	}
	for f, n := range o.flags {
		s.flag(f, n)
	}
}

func (s *score) means() []*mean {
	return []*mean{
		&s.given, &s.deviceAbs, &s.bias, &s.inside, &s.width, &s.verdict, &s.running, &s.runningTruth, &s.runningGiven, &s.waiting, &s.waitingTruth, &s.waitingGiven,
		&s.runningInside, &s.waitingInside, &s.waitingBounded, &s.waitingMiddle,
		&s.step, &s.stepBias, &s.stepGiven, &s.output, &s.capacity, &s.admitted, &s.completeness, &s.capacityGiven, &s.capacityInside, &s.capacityWidth,
	}
}

func (s *score) flag(f timeline.Flags, n int) {
	if s.flags == nil {
		s.flags = map[timeline.Flags]int{}
	}
	s.flags[f] += n
}

// run is one engine under one key for a time.
type run struct {
	cfg      enginesim.Config
	w        enginesim.Workload
	rate     float64 // requests/s
	duration time.Duration
	settings []timeline.Config // one Timeline each
	// each is given every closed window, with the number of its Timeline and what had been received by then.
	each func(sim *enginesim.Sim, which int, in *received, w *timeline.Window)
}

// received is what a collector has been sent so far.
type received struct {
	requests int
	runs     []interval // of late, in order of arrival
}

// interval is the time in which a request ran, Unix ns.
type interval struct{ from, to int64 }

func (in *received) add(q *llmrequest.Request) {
	in.requests++
	to := int64(q.Start) + int64(q.Value(llmrequest.E2E)*1e9)     //nolint:gosec // a simulated moment
	from := int64(q.Start) + int64(q.Value(llmrequest.Queue)*1e9) //nolint:gosec // a simulated moment
	if inference, ok := q.Get(llmrequest.Inference); ok {
		from = to - int64(inference*1e9) // V1's engine core starts later than the request
	}
	in.runs = append(in.runs, interval{from, to})
}

// forget drops what ended before a moment.
func (in *received) forget(before int64) {
	in.runs = slices.DeleteFunc(in.runs, func(r interval) bool { return r.to < before })
}

// running is the mean number of running requests in [a, b), of those received that ended by a moment.
func (in *received) running(a, b, by int64) float64 {
	var sum int64
	for _, r := range in.runs {
		if r.to <= by {
			sum += max(0, min(r.to, b)-max(r.from, a))
		}
	}
	return float64(sum) / float64(b-a)
}

// stream simulates and feeds. Only what is closed while the engine still runs comes out, as of a
// collector that goes on; nothing is flushed.
func (r *run) stream() error {
	sim, err := enginesim.New(r.cfg, r.w, r.rate)
	if err != nil {
		return err
	}
	var timelines []*timeline.Timeline
	for _, c := range r.settings {
		timelines = append(timelines, timeline.New(c))
	}
	var request llmrequest.Request
	var in received
	end := r.cfg.Start.Add(r.duration)
	for now := r.cfg.Start.Add(tick); !now.After(end); now = now.Add(tick) {
		for _, export := range sim.Advance(now) {
			for _, rs := range export.Traces.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
					for _, span := range ss.Spans().All() {
						if !llmrequest.Read(span, &src, &request) {
							continue
						}
						in.add(&request)
						for _, t := range timelines {
							t.Add(&request)
						}
					}
				}
			}
		}
		for i, t := range timelines {
			t.Advance(now)
			t.Drain(func(w *timeline.Window) { r.each(sim, i, &in, w) })
		}
		in.forget(now.Add(-15 * time.Minute).UnixNano()) // longer ago than any window that is still open
	}
	return nil
}

// compare adds a window to the score. capacity is the engine's, in output tokens per second.
func (s *score) compare(truth *enginesim.Truth, in *received, begin time.Time, capacity float64, w *timeline.Window) {
	s.closed++
	s.late += w.Late
	for f := timeline.Flags(1); f != 0 && f <= timeline.Contradiction; f <<= 1 {
		if w.Flags.Has(f) {
			s.flag(f, 1)
		}
	}
	if w.Start.Before(begin.Add(warmUp)) {
		return
	}
	s.windows++
	a, b := w.Start.UnixNano(), w.End.UnixNano()
	times := truth.Times(a, b)
	length := w.End.Sub(w.Start).Seconds()
	busy, occupied := times.Share(), truth.Occupied(a, b).Seconds()/length

	u, ok := w.Get(timeline.DeviceUtilization)
	s.given.hit(ok)
	if ok {
		s.deviceAbs.add(math.Abs(u - busy))
		s.bias.add(u - busy)
		lo, hi := w.Value(timeline.DeviceLower), w.Value(timeline.DeviceUpper)
		s.inside.hit(busy >= lo-bracketSlack && busy <= hi+bracketSlack)
		s.width.add(hi - lo)
		if occupied >= minOccupied {
			wait, said := w.Get(timeline.DeviceWaitRatio)
			s.verdict.hit(said && (busy/occupied < hostBound) == (wait > 1-hostBound))
		}
		for state, d := range trueStates(times) {
			s.states[state].add(math.Abs((w.States[state] - d).Seconds()) / length)
		}
	}

	running, _ := truth.Running(a, b)
	waiting, _ := truth.Waiting(a, b)
	s.runningTruth.add(running)
	v, ok := w.Get(timeline.RunningMean)
	s.runningGiven.hit(ok)
	if ok {
		s.running.add(math.Abs(v - running))
	}
	s.runningInside.hit(within(w, timeline.RunningLower, timeline.RunningUpper, running, 1+maxRunning*running))
	if c, ok := w.Get(timeline.Completeness); ok && running >= minRunning {
		s.completeness.add(math.Abs(c - min(in.running(a, b, math.MaxInt64)/running, 1)))
	}
	s.waitingTruth.add(waiting)
	v, ok = w.Get(timeline.WaitingMean)
	s.waitingGiven.hit(ok)
	if ok {
		s.waiting.add(math.Abs(v - waiting))
	}
	s.waitingInside.hit(within(w, timeline.WaitingLower, timeline.WaitingUpper, waiting, 1))
	s.waitingBounded.hit(w.Has(timeline.WaitingUpper))
	if v, ok := w.Waiting(); ok && waiting >= minWaiting {
		s.waitingMiddle.add(math.Abs(v/waiting - 1))
	}
	if steps := truth.StepStats(a, b); steps.DecodingSteps >= minSteps {
		step := steps.StepDuration.Seconds()
		v, ok := w.Get(timeline.StepDuration)
		s.stepGiven.hit(ok)
		if ok {
			s.step.add(math.Abs(v/step - 1))
			s.stepBias.add(v/step - 1)
		}
	}
	if tokens := float64(truth.OutputTokens(a, b)); tokens >= minTokens {
		if v, ok := w.Get(timeline.OutputThroughput); ok {
			s.output.add(math.Abs(v*length/tokens - 1))
		}
	}
	s.compareCapacity(capacity, w)
}

// compareCapacity adds what a window says of the capacity.
func (s *score) compareCapacity(capacity float64, w *timeline.Window) {
	c, ok := w.Get(timeline.Capacity)
	s.admitted.hit(ok)
	if ok {
		s.capacity.add(math.Abs(c/capacity - 1))
	}
	lower, ok := w.Get(timeline.CapacityLower)
	s.capacityGiven.hit(ok)
	if ok {
		upper := w.Value(timeline.CapacityUpper)
		s.capacityInside.hit(capacity >= lower*(1-capacitySlack) && capacity <= upper*(1+capacitySlack))
		s.capacityWidth.add((upper - lower) / (upper + lower))
	}
}

// within reports whether a truth is in a bracket, or outside by no more than slack.
func within(w *timeline.Window, lower, upper timeline.Figure, truth, slack float64) bool {
	lo, ok := w.Get(lower)
	hi, bounded := w.Get(upper)
	return ok && truth >= lo-slack && (!bounded || truth <= hi+slack)
}

// comparedStates are those in which the truth is known as well; a forward pass over prompts and decodes
// counts as decode.
var comparedStates = []timeline.State{
	timeline.StatePrefill, timeline.StateDecode, timeline.StateExecuteHost, timeline.StateScheduler, timeline.StateHostOther, timeline.StateIdle,
}

func trueStates(t enginesim.Times) map[timeline.State]time.Duration {
	return map[timeline.State]time.Duration{
		timeline.StatePrefill:     t[enginesim.ForwardPrefill],
		timeline.StateDecode:      t[enginesim.ForwardDecode] + t[enginesim.ForwardMixed],
		timeline.StateExecuteHost: t[enginesim.ExecuteHost],
		timeline.StateScheduler:   t[enginesim.Scheduler],
		timeline.StateHostOther:   t[enginesim.HostOther],
		timeline.StateIdle:        t[enginesim.Idle],
	}
}
