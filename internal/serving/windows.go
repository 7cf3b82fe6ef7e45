// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What an engine did over time: the windows of its timeline as metrics.

import (
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/history"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// windows are the windows of one engine. Requests are only noted when they are recorded; the windows that they
// close are computed and diagnosed by Take, so that nobody who sends spans waits for it.
type windows struct {
	objectives *objectives // as the aggregator's

	mu        sync.Mutex
	timeline  *timeline.Timeline
	history   *history.History
	tracker   *diagnosis.Tracker
	diagnosis diagnosis.Diagnosis // as of the last window
	total     windowTotals
	shown     uint32 // bit per windowGauges: the last point had a value; and stateSets
	mode      timeline.Mode
	counted   timeline.Stats   // what is in the aggregator's statistics
	closed    time.Time        // the wall time at which the last window was closed; zero: none was
	waiting   []windowSnapshot // closed windows that were not taken yet
}

// stateSets is the bit of windows.shown that says that any window was closed, and so all points of the state sets were shown.
const stateSets = 1 << 31

// windowTotals are the sums over all windows of an engine.
type windowTotals struct {
	start  time.Time
	states [timeline.NumStates]time.Duration
	late   int64
}

// windowSnapshot is one window with the sums up to its end.
type windowSnapshot struct {
	timeline.Window
	total   windowTotals
	verdict diagnosis.Verdict
	// vanished: gauges that had a value in the window before and have none in this one.
	vanished uint32
}

// windowGauge is a figure of a window as a point of a gauge; the ends of a capacity as what is used of them.
type windowGauge struct {
	definition *Definition
	figure     timeline.Figure
	attribute  string // value of the definition's attribute
}

var (
	deviceUtilization = Definition{Name: "llm.serving.device.utilization", Unit: "1", Description: "Share of the window in which the device runs a forward pass.", Kind: "gauge"}
	deviceLower       = Definition{Name: "llm.serving.device.utilization.lower", Unit: "1", Description: "Least device utilization that the requests allow.", Kind: "gauge"}
	deviceUpper       = Definition{Name: "llm.serving.device.utilization.upper", Unit: "1", Description: "Most device utilization that the requests allow.", Kind: "gauge"}
	deviceWait        = Definition{Name: "llm.serving.device.wait.ratio", Unit: "1", Description: "Share of the occupied time in which the device waits for the host.", Kind: "gauge"}
	occupancy         = Definition{Name: "llm.serving.engine.occupancy", Unit: "1", Description: "Share of the window with a running request.", Kind: "gauge"}
	queuePressure     = Definition{Name: "llm.serving.engine.queue.pressure", Unit: "1", Description: "Share of the window with a waiting request.", Kind: "gauge"}
	requestsRunning   = Definition{Name: "llm.serving.engine.requests.running", Unit: "{request}", Description: "Requests between first schedule and last token.", Kind: "gauge", Attributes: []string{attrStat}}
	requestsWaiting   = Definition{Name: "llm.serving.engine.requests.waiting", Unit: "{request}", Description: "Requests before their first schedule; absent while more than one may not have been seen yet.", Kind: "gauge", Attributes: []string{attrStat}}
	runningLower      = Definition{Name: "llm.serving.engine.requests.running.lower", Unit: "{request}", Description: "Lower end of the mean of the running requests: those seen.", Kind: "gauge"}
	runningUpper      = Definition{Name: "llm.serving.engine.requests.running.upper", Unit: "{request}", Description: "Upper end of the mean of the running requests, with those not seen yet.", Kind: "gauge"}
	waitingLower      = Definition{Name: "llm.serving.engine.requests.waiting.lower", Unit: "{request}", Description: "Lower end of the mean of the waiting requests, with those not seen yet.", Kind: "gauge"}
	waitingUpper      = Definition{Name: "llm.serving.engine.requests.waiting.upper", Unit: "{request}", Description: "Upper end of the mean of the waiting requests, with those not seen yet.", Kind: "gauge"}
	stepDuration      = Definition{Name: "llm.serving.engine.step.duration", Unit: "s", Description: "Mean duration of a decode step.", Kind: "gauge"}
	stepHostGap       = Definition{Name: "llm.serving.engine.step.host_gap", Unit: "s", Description: "Part of a decode step in which the device runs no forward pass.", Kind: "gauge"}
	batchUtilization  = Definition{Name: "llm.serving.engine.batch.utilization", Unit: "1", Description: "Mean running requests while any runs, over engine::max_num_seqs.", Kind: "gauge"}
	capacityUsed      = Definition{Name: "llm.serving.engine.capacity.utilization", Unit: "1", Description: "Output token throughput over the engine's capacity.", Kind: "gauge", Attributes: []string{attrBasis}}
	capacityLower     = Definition{Name: "llm.serving.engine.capacity.utilization.lower", Unit: "1", Description: "Output token throughput over the most that the engine's capacity may be.", Kind: "gauge"}
	capacityUpper     = Definition{Name: "llm.serving.engine.capacity.utilization.upper", Unit: "1", Description: "Output token throughput over the least that the engine's capacity may be.", Kind: "gauge"}
	tokenThroughput   = Definition{Name: "llm.serving.engine.token.throughput", Unit: "{token}/s", Description: "Tokens per second, spread over the time they were read or made in.", Kind: "gauge", Attributes: []string{attrTokenType}}
	completeness      = Definition{Name: "llm.serving.estimate.completeness", Unit: "1", Description: "Expected share of the window's running time that had been seen when it was closed.", Kind: "gauge"}
	finding           = Definition{Name: "llm.serving.estimate.finding", Unit: "1", Description: "1 for what was found about the requests of the window, 0 for what was not.", Kind: "gauge", Attributes: []string{attrFinding}}

	verdict = Definition{Name: "llm.serving.engine.verdict", Unit: "1", Description: "1 for the verdict in force, 0 for the others.", Kind: "gauge", Attributes: []string{attrVerdict}}

	engineTime   = Definition{Name: "llm.serving.engine.time", Unit: "s", Description: "Wall time of the engine by what it did; the states add up to wall time.", Kind: "counter", Attributes: []string{attrState}}
	lateRequests = Definition{Name: "llm.serving.estimate.late_requests", Unit: "{request}", Description: "Requests that came after a window they belong to was closed.", Kind: "counter"}
)

var windowGauges = [...]windowGauge{
	{&deviceUtilization, timeline.DeviceUtilization, ""},
	{&deviceLower, timeline.DeviceLower, ""},
	{&deviceUpper, timeline.DeviceUpper, ""},
	{&deviceWait, timeline.DeviceWaitRatio, ""},
	{&occupancy, timeline.Occupancy, ""},
	{&queuePressure, timeline.QueuePressure, ""},
	{&requestsRunning, timeline.RunningMean, "mean"},
	{&requestsRunning, timeline.RunningMax, "max"},
	{&runningLower, timeline.RunningLower, ""},
	{&runningUpper, timeline.RunningUpper, ""},
	{&requestsWaiting, timeline.WaitingMean, "mean"},
	{&requestsWaiting, timeline.WaitingMax, "max"},
	{&waitingLower, timeline.WaitingLower, ""},
	{&waitingUpper, timeline.WaitingUpper, ""},
	{&stepDuration, timeline.StepDuration, ""},
	{&stepHostGap, timeline.HostGap, ""},
	{&batchUtilization, timeline.BatchUtilization, ""},
	{&capacityUsed, timeline.CapacityFit, "fit"},
	{&capacityUsed, timeline.CapacityPeak, "peak"},
	{&capacityLower, timeline.CapacityUpper, ""},
	{&capacityUpper, timeline.CapacityLower, ""},
	{&tokenThroughput, timeline.InputThroughput, "input"},
	{&tokenThroughput, timeline.OutputThroughput, "output"},
	{&completeness, timeline.Completeness, ""},
}

// value is that of the point, and whether there is one.
func (g *windowGauge) value(w *timeline.Window) (v float64, ok bool) {
	switch g.figure {
	case timeline.CapacityUpper:
		v, _, ok = w.CapacityUsed()
	case timeline.CapacityLower:
		_, v, ok = w.CapacityUsed()
	default:
		v, ok = w.Get(g.figure)
	}
	return v, ok
}

// findings are the flags of a window by name.
var findings = [...]struct {
	flag timeline.Flags
	name string
}{
	{timeline.MixedEngines, "mixed_engines"},
	{timeline.Sampled, "sampled"},
	{timeline.RoundedTimestamps, "rounded_timestamps"},
	{timeline.SpeculativeDecoding, "speculative_decoding"},
	{timeline.AsyncOutput, "async_output"},
	{timeline.Thinned, "thinned"},
	{timeline.Contradiction, "contradiction"},
}

// windowDefinitions lists the metrics of windows in the order of emission.
func windowDefinitions() []Definition {
	all := []Definition{engineTime}
	for i := range windowGauges {
		if d := windowGauges[i].definition; d.Name != all[len(all)-1].Name {
			all = append(all, *d)
		}
	}
	return append(all, finding, verdict, lateRequests)
}

// newWindows is nil where the configuration wants no windows.
func newWindows(a *Aggregator) *windows {
	if a.windows.Window == 0 {
		return nil
	}
	return &windows{
		objectives: a.objectives,
		timeline:   timeline.New(a.windows),
		history:    history.New(history.Config{Period: a.diagnose.Period, Lag: a.lag(), Hour: a.remember}),
		tracker:    diagnosis.NewTracker(&a.diagnose),
	}
}

// lag is how far windows are behind requests at most: the longest grace, the disorder allowed for, and two collects.
func (a *Aggregator) lag() time.Duration {
	return max(a.windows.Grace, 3*time.Minute) + time.Minute
}

// spareWindows are the windows of all engines that are computed from one collect to the next beyond one for each request and those that
// passed meanwhile: some days of idle engines in a backlog, and a second or two of one core.
const spareWindows = 20_000

// timelineConfig is what the configuration says of windows.
func timelineConfig(c *Config) timeline.Config {
	return timeline.Config{
		Window: c.Timeline.Window, Grace: time.Duration(c.Timeline.Grace), MaxNumSeqs: c.Engine.MaxNumSeqs, KVCacheTokens: c.Engine.KVCacheTokens,
		// An engine is reported as idle for as long as its series are.
		IdleTimeout: c.Limits.SeriesExpiration,
	}
}

// add gives noted requests to the timeline and the history.
func (w *windows) add(noted notes, about about, stats *statistics) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addNotes(noted, &about, stats)
}

// addNotes closes windows as it goes: a backlog of hours is diagnosed as the live hours would have been.
func (w *windows) addNotes(noted notes, about *about, stats *statistics) {
	var (
		derived    llmrequest.Derived
		remembered history.Request
	)
	noted.each(func(n *note) {
		request := llmrequest.Request{Figures: n.Figures}
		request.Derive(&derived)
		history.NewRequest(&request, &derived, &remembered)
		remembered.Good = w.objectives.met(&n.Figures)
		w.history.AddRequest(&remembered)
		record, timed := timeline.NewRecord(&request)
		if !timed {
			stats.outlying.Add(1)
			return
		}
		w.timeline.AddRecord(record)
		w.drain(about, stats)
	})
}

// take takes the windows that were closed, and what the last of them had. With last, those that are open too.
func (w *windows) take(noted notes, slow []history.Slow, about about, now time.Time, last bool, stats *statistics) (taken []windowSnapshot, shown uint32, mode timeline.Mode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addNotes(noted, &about, stats)
	for i := range slow {
		w.history.AddSlow(&slow[i])
	}
	w.timeline.Advance(now)
	if last {
		w.timeline.Flush(false)
	}
	w.drain(&about, stats)
	taken = w.waiting
	w.waiting = nil
	if len(taken) > 0 {
		w.closed = now
	}
	counted := w.timeline.Stats()
	stats.late.Add(counted.Late - w.counted.Late)
	stats.outlying.Add(counted.Outliers - w.counted.Outliers)
	stats.skipped.Add(counted.SkippedWindows - w.counted.SkippedWindows)
	w.counted = counted
	return taken, w.shown, w.mode
}

// drain takes the closed windows out of the timeline and diagnoses each.
func (w *windows) drain(about *about, stats *statistics) {
	w.timeline.Drain(func(window *timeline.Window) {
		t := &w.total
		if t.start.IsZero() {
			t.start = window.Start
		}
		for state, d := range window.States {
			t.states[state] += d
		}
		t.late += window.Late
		shown := uint32(stateSets)
		for i := range windowGauges {
			if _, ok := windowGauges[i].value(window); ok {
				shown |= 1 << i
			}
		}
		w.diagnose(window, about)
		if len(w.waiting) >= maxPendingWindows {
			stats.skipped.Add(maxPendingWindows / 4)
			w.waiting = append(w.waiting[:0], w.waiting[maxPendingWindows/4:]...)
		}
		w.waiting = append(w.waiting, windowSnapshot{Window: *window, total: *t, vanished: w.shown &^ shown, verdict: w.diagnosis.Verdict})
		w.shown, w.mode = shown, window.Mode
	})
}

// windows adds the metrics of the engine's windows: a point of each per window, at the window's end.
func (b *builder) windows() {
	all := b.engine.windows
	if len(all) == 0 && b.engine.shown == 0 {
		return
	}
	b.engineTime(all)
	for i := 0; i < len(windowGauges); {
		end := i + 1
		for end < len(windowGauges) && windowGauges[end].definition == windowGauges[i].definition {
			end++
		}
		b.windowGauge(i, end)
		i = end
	}
	b.stateSet(&finding, len(findings), func(i int) string { return findings[i].name }, func(w *windowSnapshot, i int) bool { return w.Flags.Has(findings[i].flag) })
	b.stateSet(&verdict, int(diagnosis.NumVerdicts), func(i int) string { return diagnosis.Verdict(i).String() }, func(w *windowSnapshot, i int) bool { return int(w.verdict) == i }) //nolint:gosec // few
	if len(all) == 0 {
		return
	}
	sum := b.sum(&lateRequests)
	for i := range all {
		w := &all[i]
		dp := sum.AppendEmpty()
		b.windowTimes(dp, w)
		dp.SetIntValue(w.total.late)
		if b.snapshot.a.delta {
			dp.SetIntValue(w.Late)
		}
	}
}

// engineTime adds the wall time by state. States that the engine never was in are left out.
func (b *builder) engineTime(all []windowSnapshot) {
	if len(all) == 0 {
		return
	}
	points := b.sum(&engineTime)
	for i := range all {
		w := &all[i]
		for state := range timeline.NumStates {
			if w.total.states[state] == 0 {
				continue
			}
			dp := points.AppendEmpty()
			b.windowTimes(dp, w)
			dp.Attributes().PutStr(attrState, state.String())
			value := w.total.states[state]
			if b.snapshot.a.delta {
				value = w.States[state]
			}
			dp.SetDoubleValue(value.Seconds())
		}
	}
}

// windowTimes are those of a point of a sum over windows.
func (b *builder) windowTimes(dp pmetric.NumberDataPoint, w *windowSnapshot) {
	start := w.total.start
	if b.snapshot.a.delta {
		start = w.Start
	}
	dp.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	dp.SetTimestamp(pcommon.NewTimestampFromTime(w.End))
}

// windowGauge adds the gauge of windowGauges from i up to end. A figure that a window lacks and the one before had ends
// with a point without value: an old value would pass for a new one.
func (b *builder) windowGauge(i, end int) {
	var points pmetric.NumberDataPointSlice
	started := false
	add := func(g *windowGauge, at time.Time) pmetric.NumberDataPoint {
		if !started {
			started = true
			points = b.metric(g.definition).SetEmptyGauge().DataPoints()
		}
		dp := points.AppendEmpty()
		dp.SetTimestamp(pcommon.NewTimestampFromTime(at))
		if g.attribute != "" {
			dp.Attributes().PutStr(g.definition.Attributes[0], g.attribute)
		}
		return dp
	}
	each := func(what func(g *windowGauge, bit uint32)) {
		for j := i; j < end; j++ {
			what(&windowGauges[j], 1<<j)
		}
	}
	for k := range b.engine.windows {
		w := &b.engine.windows[k]
		each(func(g *windowGauge, _ uint32) {
			if v, ok := g.value(&w.Window); ok {
				add(g, w.End).SetDoubleValue(v)
			}
		})
		each(func(g *windowGauge, bit uint32) {
			if w.vanished&bit != 0 {
				add(g, w.End).SetFlags(noRecordedValue)
			}
		})
	}
	if b.engine.gone {
		each(func(g *windowGauge, bit uint32) {
			if b.engine.shown&bit != 0 {
				add(g, b.snapshot.Time.AsTime()).SetFlags(noRecordedValue)
			}
		})
	}
}

// stateSet adds a gauge with a point per window and state, 1 for those that are in force. They end with the engine: what it suffered
// from would pass for what it suffers from.
func (b *builder) stateSet(d *Definition, states int, name func(int) string, in func(*windowSnapshot, int) bool) {
	ends := b.engine.gone && b.engine.shown&stateSets != 0
	if len(b.engine.windows) == 0 && !ends {
		return
	}
	points := b.metric(d).SetEmptyGauge().DataPoints()
	add := func(state int, at pcommon.Timestamp) pmetric.NumberDataPoint {
		dp := points.AppendEmpty()
		dp.SetTimestamp(at)
		dp.Attributes().PutStr(d.Attributes[0], name(state))
		return dp
	}
	for k := range b.engine.windows {
		w := &b.engine.windows[k]
		for state := range states {
			dp := add(state, pcommon.NewTimestampFromTime(w.End))
			dp.SetIntValue(0)
			if in(w, state) {
				dp.SetIntValue(1)
			}
		}
	}
	if ends {
		for state := range states {
			add(state, b.snapshot.Time).SetFlags(noRecordedValue)
		}
	}
}

// sum adds an empty monotonic sum.
func (b *builder) sum(d *Definition) pmetric.NumberDataPointSlice {
	sum := b.metric(d).SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(b.temporality())
	return sum.DataPoints()
}
