// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// The engines as a report for people: what the page shows and its JSON has.

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/history"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Source is what was received, for the report. The caller adds its ID.
func (a *Aggregator) Source() summary.Source {
	stats := a.Stats()
	s := summary.Source{
		Spans: stats.Spans, Duplicates: stats.Duplicates, Dropped: stats.Dropped, Overflow: stats.Overflow > 0,
		WindowSeconds: a.windows.Window.Seconds(), MaxNumSeqs: a.windows.MaxNumSeqs, KVCacheTokens: a.windows.KVCacheTokens,
	}
	for kind := range stats.Requests {
		for _, n := range stats.Requests[kind] {
			s.Requests += n
		}
	}
	for reason, n := range stats.Rejected {
		if n > 0 {
			if s.Rejected == nil {
				s.Rejected = map[string]int64{}
			}
			s.Rejected[llmrequest.Reason(reason).String()] = n //nolint:gosec // an index of the array
		}
	}
	if !stats.LastSpan.IsZero() {
		s.LastSpan = &stats.LastSpan
	}
	if o := a.objectives; o != nil {
		s.Objectives = summary.Objectives{TTFT: positive(o.ttft), TPOT: positive(o.tpot), E2E: positive(o.e2e)}
	}
	return s
}

// Engines are all engines but the one that stands for those over the limit, in no order.
func (a *Aggregator) Engines(now time.Time) []summary.Engine {
	var all []summary.Engine
	a.eachEngine(func(e *engine) bool {
		if e.windows != nil {
			all = append(all, e.report(a, now))
		}
		return true
	})
	return all
}

// Engine is the engine of key in full, and false if there is none.
func (a *Aggregator) Engine(key string, now time.Time) (report summary.EngineReport, found bool) {
	a.eachEngine(func(e *engine) bool {
		if e.windows == nil || engineURLKey(e.key) != key {
			return true
		}
		found = true
		report = summary.EngineReport{SchemaVersion: summary.SchemaVersion, Time: now, Engine: e.report(a, now)}
		e.windows.report(&report, a.windows.Window)
		return false
	})
	return report, found
}

// eachEngine walks the engines until f returns false.
func (a *Aggregator) eachEngine(f func(*engine) bool) {
	for i := range a.shards {
		shard := &a.shards[i]
		shard.mu.RLock()
		engines := make([]*engine, 0, len(shard.engines))
		for _, e := range shard.engines {
			engines = append(engines, e)
		}
		shard.mu.RUnlock()
		for _, e := range engines {
			if !f(e) {
				return
			}
		}
	}
}

// engineURLKey names an engine in a URL: 16 hexadecimal digits of the SHA-256 of its identity.
func engineURLKey(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(sum[:8])
}

// maxModels is how many models of an engine are listed.
const maxModels = 8

func (e *engine) report(a *Aggregator, now time.Time) summary.Engine {
	e.mu.Lock()
	resource, kind, generation, mayMix := e.resource, e.make.kind, e.make.generation, e.mayMix
	var models []string
	for _, s := range e.order[:min(len(e.order), 64)] {
		if m := legible(attributeText(s.attributes, attrModel)); m != "" && !slices.Contains(models, m) && len(models) < maxModels {
			models = append(models, m)
		}
	}
	requests := int64(0)
	for _, s := range e.order {
		requests += int64(s.live.requests) //nolint:gosec // far below
	}
	silent := a.clock.source.Elapsed() - e.lastSeen
	e.mu.Unlock()
	slices.Sort(models)

	out := summary.Engine{
		Key: engineURLKey(e.key), Kind: kind.String(), Models: models, KeySource: e.source, MayMix: mayMix,
		Service: legible(attributeText(resource, serviceName)), Namespace: legible(attributeText(resource, serviceNamespace)), Instance: legible(attributeText(resource, serviceInstanceID)),
		Attributes: otherAttributes(resource),
	}
	if generation != llmrequest.GenerationUnknown {
		out.Generation = generation.String()
	}
	e.windows.describe(&out, a, now, silent, requests)
	return out
}

// otherAttributes are those of a resource that have no field of their own in the report.
func otherAttributes(resource pcommon.Map) map[string]string {
	var others map[string]string
	for name, value := range resource.All() {
		if name == serviceName || name == serviceNamespace || name == serviceInstanceID {
			continue
		}
		if others == nil {
			others = map[string]string{}
		}
		others[legible(name)] = legible(valueText(value))
	}
	return others
}

const (
	// idleAfter is how long no request came before an engine is called idle.
	idleAfter = 90 * time.Second
	// staleAfter is how long no window was closed, beyond its own length, before figures are called stale.
	staleAfter = 4 * time.Minute
)

// describe fills in what the windows say.
func (w *windows) describe(out *summary.Engine, a *Aggregator, now time.Time, silent time.Duration, requests int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	points := w.history.Points()
	if len(points) == 0 {
		out.Status = summary.StatusCollecting
		out.Diagnosis.Finding = summary.Finding{
			Verdict: diagnosis.NoVerdict.String(), Confidence: string(diagnosis.None), Title: "Collecting",
			Sentence: "The first window is not closed yet.",
		}
		out.Certainty = summary.Certainty{Mode: timeline.ModeUnknown.String(), Tier: tierOccupancy}
		out.Requests.Count = requests
		return
	}
	last := &points[len(points)-1]
	end := last.End.UTC()
	d := &w.diagnosis
	start := end.Add(-d.Figures.Covered)
	out.Start, out.End = &start, &end
	age := now.Sub(end).Seconds()
	out.AgeSeconds = &age
	switch {
	case now.Sub(w.closed) > staleAfter+a.windows.Window:
		out.Status = summary.StatusStale
	case silent > idleAfter && last.Value(timeline.Occupancy) == 0:
		out.Status = summary.StatusIdle
	default:
		out.Status = summary.StatusCurrent
	}
	out.Diagnosis = newDiagnosis(d)
	out.Figures = newFigures(&d.Figures, a.objectives)
	recent := w.history.Recent()
	out.Requests = newRequests(&recent, a.objectives)
	out.Certainty = newCertainty(a, &d.Figures, w.total.late, out.Generation)
}

// report fills in the history.
func (w *windows) report(out *summary.EngineReport, window time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.History = newHistory(w.history, window)
	out.Slowest = []summary.SlowRequest{}
	for _, slow := range w.history.Slowest() {
		out.Slowest = append(out.Slowest, newSlowRequest(&slow))
	}
}

func newDiagnosis(d *diagnosis.Diagnosis) summary.Diagnosis {
	out := summary.Diagnosis{Finding: newFinding(&d.Finding)}
	if !d.Since.IsZero() {
		since := d.Since.UTC()
		out.Since = &since
	}
	for i := range d.Also {
		out.Also = append(out.Also, newFinding(&d.Also[i]))
	}
	return out
}

func newFinding(f *diagnosis.Finding) summary.Finding {
	out := summary.Finding{
		Verdict: f.Verdict.String(), Confidence: string(f.Confidence), Cause: f.Cause, Title: f.Title, Sentence: f.Sentence,
		Caveats: f.Caveats,
	}
	for _, e := range f.Evidence {
		out.Evidence = append(out.Evidence, summary.Evidence(e))
	}
	if f.Gain != nil {
		gain := summary.Gain(*f.Gain)
		out.Gain = &gain
	}
	for _, a := range f.Actions {
		out.Actions = append(out.Actions, summary.Action(a))
	}
	return out
}

func newFigures(f *diagnosis.Figures, o *objectives) summary.Figures {
	out := summary.Figures{
		Utilization: known(f.Utilization), UtilizationLower: known(f.Lower), UtilizationUpper: known(f.Upper), WaitRatio: known(f.Wait),
		Occupancy: known(f.Occupancy), QueuePressure: known(f.QueuePressure),
		Running: known(f.Running), RunningMax: known(f.RunningMax), Waiting: known(f.Waiting), WaitingMax: known(f.WaitingMax),
		RunningLower: known(f.RunningLower), RunningUpper: known(f.RunningUpper), WaitingLower: known(f.WaitingLower), WaitingUpper: known(f.WaitingUpper),
		Batch: known(f.Batch), BatchUtilization: known(f.Fill), Step: known(f.Step), HostGap: known(f.HostGap),
		CapacityFit: known(f.CapacityFit), CapacityPeak: known(f.CapacityPeak), Capacity: known(f.Capacity),
		CapacityLower: known(f.CapacityLeast), CapacityUpper: known(f.CapacityMost), Marginal: known(f.Marginal),
		InputThroughput: known(f.InputThroughput), OutputThroughput: known(f.OutputThroughput),
		States: map[string]float64{},
	}
	for state := range timeline.NumStates {
		if v := f.States[state]; v > 0 {
			out.States[state.String()] = v
		}
	}
	if law := (summary.StepLaw{A: f.StepLawA, B: f.StepLawB}); !math.IsNaN(law.A) && !math.IsNaN(law.B) {
		law.Extrapolates = f.Guard == timeline.GuardOK
		if o != nil && o.tpot > 0 && law.B > 0 {
			law.BatchAtObjective = known(math.Max(0, math.Floor((o.tpot-law.A)/law.B)))
		}
		out.StepLaw = &law
	}
	return out
}

func newRequests(r *history.Recent, o *objectives) summary.Requests {
	out := summary.Requests{
		Count: r.Count, Failed: r.Failed, Rate: known(r.Rate),
		TTFT: newSpread(&r.TTFT), TPOT: newSpread(&r.TPOT), E2E: newSpread(&r.E2E), Input: newSpread(&r.Input), Output: newSpread(&r.Output),
	}
	out.Parts = parts(r.Queue, r.Prefill, r.Decode, r.Frontend)
	if r.Count > 0 {
		unknown := o.unknown(r)
		for i, configured := range o.configured() {
			if !configured || unknown[i] {
				continue
			}
			if out.Goodput == nil {
				out.Goodput = map[string]float64{}
			}
			out.Goodput[sloNames[i]] = float64(r.Good[i]) / float64(r.Count)
		}
	}
	if b := r.Before; b != nil {
		out.Before = &summary.Workload{Hours: b.Hours, Rate: known(b.Rate), Input: newSpread(&b.Input), Output: newSpread(&b.Output)}
	}
	return out
}

// unknown reports the objectives that no request has a figure for: they are not missed, but not known. So is meeting all
// of them, where one is.
func (o *objectives) unknown(r *history.Recent) (unknown [len(sloNames)]bool) {
	if o == nil {
		return unknown
	}
	unknown[0] = o.ttft > 0 && r.TTFT.Count == 0
	unknown[1] = o.tpot > 0 && r.TPOT.Count == 0
	unknown[2] = o.e2e > 0 && r.E2E.Count == 0
	unknown[3] = unknown[0] || unknown[1] || unknown[2]
	return unknown
}

// legible replaces what could drive a terminal or turn the order of letters: names are whatever a sender wrote, and the report is
// read by people.
func legible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// The tiers: what an engine's spans support.
const (
	tierDevice    = "device"
	tierHost      = "host"
	tierOccupancy = "occupancy"
)

func newCertainty(a *Aggregator, f *diagnosis.Figures, late int64, generation string) summary.Certainty {
	out := summary.Certainty{Completeness: known(f.Completeness), Late: late, Mode: f.Mode.String(), Tier: tierOccupancy}
	for _, x := range findings {
		if f.Flags.Has(x.flag) {
			out.Findings = append(out.Findings, x.name)
		}
	}
	withheld := f.Flags.Has(timeline.MixedEngines) || f.Flags.Has(timeline.Sampled) || f.Flags.Has(timeline.Thinned)
	v0, v1 := generation == llmrequest.GenerationV0.String(), generation == llmrequest.GenerationV1.String()
	switch {
	case !math.IsNaN(f.Utilization):
		out.Tier = tierDevice
	case f.States[timeline.StateScheduler] > 0:
		out.Tier = tierHost
	}
	switch {
	case out.Tier == tierDevice || f.Occupancy == 0:
	case withheld:
		out.Missing = append(out.Missing, summary.Missing{
			What: "Device utilization", Why: "The requests are not all those of one engine, so no figure of a device follows from them.",
			Remedy: "Give each replica its own service.instance.id, and derive metrics before any sampler.",
		})
	case v0:
		out.Missing = append(out.Missing, summary.Missing{
			What: "Device utilization", Why: "The spans have no forward time.",
			Remedy: "Start vLLM with --collect-detailed-traces all. It makes the engine wait for its device, which costs some throughput.",
		})
	case v1:
		out.Missing = append(out.Missing, summary.Missing{
			What: "Device utilization", Why: "vLLM V1 reports no forward time, so spans cannot tell a busy device from one that waits for its host.",
			Remedy: "Use DCGM's DCGM_FI_PROF_GR_ENGINE_ACTIVE of the same GPU beside this page.",
		})
	default:
		out.Missing = append(out.Missing, summary.Missing{What: "Device utilization", Why: "The spans have no forward time."})
	}
	if math.IsNaN(f.CapacityFit) && f.Occupancy > 0 {
		m := summary.Missing{What: "Capacity as one figure", Why: "The batches seen were too few or too small to tell it within a tenth."}
		switch {
		case a.windows.MaxNumSeqs == 0 && a.windows.KVCacheTokens == 0:
			m = summary.Missing{What: "Capacity, and how full batches are", Why: "The engine's limit of requests in a batch is not known.", Remedy: "Set engine::max_num_seqs to the engine's --max-num-seqs, and engine::kv_cache_tokens to what it logs when it starts."}
		case a.windows.KVCacheTokens == 0:
			m.Why = "The batches seen were too few or too small to tell it within a tenth, and the KV cache may hold fewer requests than max_num_seqs."
			m.Remedy = "Set engine::kv_cache_tokens to what the engine logs when it starts."
		}
		out.Missing = append(out.Missing, m)
	}
	return out
}

func newHistory(h *history.History, window time.Duration) summary.History {
	points := h.Points()
	n := len(points)
	out := summary.History{
		WindowSeconds: window.Seconds(), End: make([]int64, 0, n), Verdicts: make([]string, 0, n),
		States: map[string][]float64{}, Figures: map[string][]*float64{},
	}
	for state := range timeline.NumStates {
		var used bool
		column := make([]float64, n)
		for i := range points {
			column[i] = round(points[i].States[state].Seconds() / points[i].End.Sub(points[i].Start).Seconds())
			used = used || column[i] > 0
		}
		if used {
			out.States[state.String()] = column
		}
	}
	for _, f := range historyFigures {
		var used bool
		column := make([]*float64, n)
		for i := range points {
			if v, ok := points[i].Get(f.figure); ok {
				v = round(v)
				column[i], used = &v, true
			}
		}
		if used {
			out.Figures[f.name] = column
		}
	}
	for i := range points {
		out.End = append(out.End, points[i].End.Unix())
		out.Verdicts = append(out.Verdicts, points[i].Verdict.String())
	}
	out.Minutes = newMinutes(h)
	return out
}

// historyFigures are the columns of a History, by the names that the report has for them.
var historyFigures = []struct {
	name   string
	figure timeline.Figure
}{
	{"device_utilization", timeline.DeviceUtilization},
	{"device_utilization_lower", timeline.DeviceLower},
	{"device_utilization_upper", timeline.DeviceUpper},
	{"device_wait_ratio", timeline.DeviceWaitRatio},
	{"occupancy", timeline.Occupancy},
	{"queue_pressure", timeline.QueuePressure},
	{"requests_running_mean", timeline.RunningMean},
	{"requests_running_max", timeline.RunningMax},
	{"requests_running_lower", timeline.RunningLower},
	{"requests_running_upper", timeline.RunningUpper},
	{"requests_waiting_mean", timeline.WaitingMean},
	{"requests_waiting_max", timeline.WaitingMax},
	{"requests_waiting_lower", timeline.WaitingLower},
	{"requests_waiting_upper", timeline.WaitingUpper},
	{"batch_utilization", timeline.BatchUtilization},
	{"step_duration", timeline.StepDuration},
	{"step_host_gap", timeline.HostGap},
	{"capacity_utilization_fit", timeline.CapacityFit},
	{"capacity_utilization_peak", timeline.CapacityPeak},
	{"input_throughput", timeline.InputThroughput},
	{"output_throughput", timeline.OutputThroughput},
	{"completeness", timeline.Completeness},
}

func newMinutes(h *history.History) summary.Minutes {
	out := summary.Minutes{
		End: []int64{}, Count: []int64{},
		TTFTP50: []*float64{}, TTFTP95: []*float64{}, TTFTP99: []*float64{},
		TPOTP50: []*float64{}, TPOTP95: []*float64{}, TPOTP99: []*float64{},
		E2EP50: []*float64{}, E2EP95: []*float64{}, E2EP99: []*float64{},
	}
	for _, m := range h.Minutes() {
		out.End = append(out.End, m.End.Unix())
		out.Count = append(out.Count, m.Count)
		add := func(q *diagnosis.Quantiles, p50, p95, p99 *[]*float64) {
			*p50 = append(*p50, known(round(q.P50)))
			*p95 = append(*p95, known(round(q.P95)))
			*p99 = append(*p99, known(round(q.P99)))
		}
		add(&m.TTFT, &out.TTFTP50, &out.TTFTP95, &out.TTFTP99)
		add(&m.TPOT, &out.TPOTP50, &out.TPOTP95, &out.TPOTP99)
		add(&m.E2E, &out.E2EP50, &out.E2EP95, &out.E2EP99)
	}
	return out
}

func newSlowRequest(s *history.Slow) summary.SlowRequest {
	out := summary.SlowRequest{
		End: time.Unix(0, s.End).UTC(), TraceID: s.TraceID.String(), SpanID: s.SpanID.String(), Model: legible(s.Model), Error: legible(s.Error), E2E: float64(s.E2E),
		TTFT: known(float64(s.TTFT)), TPOT: known(float64(s.TPOT)),
		Parts: parts(float64(s.Queue), float64(s.Prefill), float64(s.Decode), float64(s.Frontend)),
	}
	count := func(v float32) *int64 {
		if !(v >= 0) {
			return nil
		}
		n := int64(v)
		return &n
	}
	out.InputTokens, out.OutputTokens = count(s.Input), count(s.Output)
	return out
}

// parts are the times of a request by stage; those that are not known are left out.
func parts(queue, prefill, decode, frontend float64) map[string]float64 {
	out := map[string]float64{}
	for i, v := range [...]float64{queue, prefill, decode, frontend} {
		if !math.IsNaN(v) {
			out[stageNames[i]] = v
		}
	}
	return out
}

func newSpread(q *diagnosis.Quantiles) *summary.Spread {
	if q.Count == 0 {
		return nil
	}
	return &summary.Spread{Count: q.Count, Mean: q.Mean, P50: q.P50, P90: q.P90, P95: q.P95, P99: q.P99}
}

// known is nil for NaN.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// round keeps five significant digits: an hour of figures is read by eyes and plots.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(v))))
	if math.IsInf(scale, 0) || scale == 0 {
		return v
	}
	return math.Round(v*scale) / scale
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
