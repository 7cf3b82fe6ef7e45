// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// An Input becomes a Diagnosis: whether the data suffice, then the rules.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Evaluate says what the engine suffers from, by one Input alone: a pure function. Use a Tracker for verdicts that do not
// flicker.
func Evaluate(c *Config, in *Input) Diagnosis {
	d, _ := evaluate(c, in)
	return d
}

// wrongLimit is how many times the limit of a batch requests must run for it to be wrong: those put back for want of memory seem to run.
const wrongLimit = 1.5

// evaluate also reports whether the data are unusable, rather than few.
func evaluate(c *Config, in *Input) (d Diagnosis, unusable bool) {
	f := Summarize(in)
	s := &state{c: c, in: in, f: &f}
	if f.Batch > wrongLimit*float64(in.MaxNumSeqs) && in.MaxNumSeqs > 0 {
		// What is known to be wrong must not decide.
		without := *in
		without.MaxNumSeqs = 0
		f = Summarize(&without)
		s.in, s.wrongLimit = &without, in.MaxNumSeqs
	}
	d.Figures = f
	if n := len(in.Windows); n > 0 {
		d.Time = in.Windows[n-1].End
		d.Since = d.Time
	}
	if reason := s.unusable(); reason != nil {
		d.Finding = *reason
		return d, true
	}
	if reason := s.tooLittle(); reason != nil {
		d.Finding = *reason
		return d, false
	}
	few := f.Requests < c.MinRequests
	var found []Finding
	for i := range rules {
		if few && !rules[i].withoutRequests {
			continue
		}
		if x, ok := rules[i].find(s, few); ok {
			found = append(found, x)
		}
	}
	switch {
	case len(found) > 0:
		d.Finding, d.Also = found[0], found[1:]
	case few:
		d.Finding = s.fewRequests()
	default:
		if _, waits := queue.holds(s); waits {
			d.Finding = s.unexplainedQueue()
		} else {
			d.Finding = s.healthy()
		}
	}
	return d, false
}

// find is the rule's finding, if it holds.
func (r *rule) find(s *state, few bool) (Finding, bool) {
	var best held
	ok := false
	for i, when := range r.when {
		if few && i > 0 {
			break // only the first needs no requests
		}
		if h, holds := when.holds(s); holds && (!ok || h.rank() > best.rank()) {
			best, ok = h, true
		}
	}
	if !ok {
		return Finding{}, false
	}
	x := Finding{Verdict: r.verdict, Title: r.title, Evidence: slices.Clip(best.evidence)}
	x.Sentence = r.sentence(s)
	if r.cause != nil {
		x.Cause = r.cause(s)
	}
	if r.gain != nil {
		x.Gain = r.gain(s)
	}
	x.Actions = r.actions(s)
	x.Caveats = append(slices.Clone(best.caveats), r.caveats(s)...)
	x.Caveats = append(x.Caveats, s.reservations()...)
	x.Confidence = s.confidence(best, r.model || r.doubt != nil && r.doubt(s) || len(best.caveats) > 0 || few)
	return x, true
}

// confidence is Low where the data just suffice or a figure is near its threshold, High where the brackets meet the condition
// and nothing is assumed.
func (s *state) confidence(h held, assumed bool) Confidence {
	// Time alone tells idleness.
	fewButNotAll := s.f.Requests >= s.c.MinRequests && s.f.Requests < s.c.SureRequests
	switch {
	case h.near || fewButNotAll || s.f.Covered < s.c.SureTime:
		return Low
	case assumed || !h.sure || len(s.reservations()) > 0:
		return Medium
	}
	return High
}

// sureCompleteness is the completeness from which on means need no reservation; docs/accuracy.md has running requests within a
// few percent there.
const sureCompleteness = .95

// reservations are what makes every verdict less sure.
func (s *state) reservations() []string {
	var all []string
	if s.in.MaybeMixed {
		all = append(all, "Replicas may share this engine's name: set service.instance.id on each.")
	}
	if s.wrongLimit > 0 {
		all = append(all, fmt.Sprintf("engine::max_num_seqs is %d, but %s requests run at a time: it is not this engine's limit, and is not used.", s.wrongLimit, significant(s.f.Batch)))
	}
	if s.f.Flags.Has(timeline.Contradiction) {
		all = append(all, "Some forward times cannot all be true of one device.")
	}
	if s.f.Flags.Has(timeline.SpeculativeDecoding) {
		all = append(all, "Steps yield several tokens (speculative decoding or multi-step scheduling): a step here is the time per token.")
	}
	if s.f.Flags.Has(timeline.RoundedTimestamps) {
		all = append(all, "Something rounded the durations.")
	}
	if s.f.Flags.Has(timeline.Thinned) {
		all = append(all, "More requests than are kept: counts are scaled up, and nothing is said of the device.")
	}
	if s.f.Completeness < sureCompleteness {
		all = append(all, fmt.Sprintf("Only %s of the running time had been seen when the windows were closed.", percent(s.f.Completeness)))
	}
	return all
}

// contradictions is the share of windows that contradict themselves.
func (s *state) contradictions() float64 {
	n := 0
	for i := range s.in.Windows {
		if s.in.Windows[i].Flags.Has(timeline.Contradiction) {
			n++
		}
	}
	return float64(n) / float64(max(len(s.in.Windows), 1))
}

// mixedContradictions is the share of contradictory windows from which on an engine that may be several is taken for them.
// A single engine with chunked prefill has none, one with prefill priority has them under load; several have a quarter or more.
const mixedContradictions = .2

// unusable is why no amount of these data gives a verdict; nil if it would.
func (s *state) unusable() *Finding {
	switch {
	case s.f.Flags.Has(timeline.MixedEngines) || s.in.MaybeMixed && s.contradictions() > mixedContradictions:
		return &Finding{
			Confidence: None, Title: "Several engines under one name",
			Sentence: "The requests cannot be one engine's: figures about a device would be wrong.",
			Actions: []Action{{
				Text: "Give each engine a name of its own.", Why: "One scheduler with its devices is what a verdict is about.",
				Setting: "OTEL_RESOURCE_ATTRIBUTES=service.instance.id=<name>",
				Source:  "https://opentelemetry.io/docs/specs/semconv/resource/service/",
			}},
			Caveats: []string{"Data-parallel engines behind one API server share its name whatever it is; only engines that are started one by one can be told apart."},
		}
	case s.f.Flags.Has(timeline.Sampled):
		return &Finding{
			Confidence: None, Title: "Only a part of the requests",
			Sentence: "A sampler lets only a part of the requests through: what runs at a moment cannot be known.",
			Actions: []Action{
				{Text: "Put serving_metrics before every sampler."},
				{Text: "Let clients sample all requests, or send no sampling decision: engines follow the caller's."},
			},
		}
	}
	return nil
}

func (s *state) tooLittle() *Finding {
	none := func(title, sentence string, e ...Evidence) *Finding {
		return &Finding{Confidence: None, Title: title, Sentence: sentence, Evidence: e}
	}
	f, c := s.f, s.c
	if f.Windows == 0 || f.Covered <= 0 {
		return none("No window yet", "No window has been closed yet: a window waits until the requests that ran in it have ended.")
	}
	if f.Covered < c.MinTime {
		return none("Too little time", fmt.Sprintf("Windows cover %s; %s are needed.", f.Covered, c.MinTime),
			Evidence{Text: "time covered by windows", Value: f.Covered.Seconds(), Unit: "s", Condition: "< " + number(c.MinTime.Seconds())})
	}
	from, to := s.in.Windows[0].Start, s.in.Windows[len(s.in.Windows)-1].End
	if span := to.Sub(from); span > 0 && float64(f.Covered) < c.MinCoverage*float64(span) {
		return none("Gaps", fmt.Sprintf("Windows cover %s of %s.", f.Covered, span),
			Evidence{Text: "share of the time that windows cover", Value: float64(f.Covered) / float64(span), Unit: "1", Condition: "< " + number(c.MinCoverage)})
	}
	if !(f.Completeness >= c.MinCompleteness) { // also NaN
		if x, ok := s.stopped(); ok {
			return &x
		}
		x := none("Too little seen yet", fmt.Sprintf("%s of the running time had been seen when the windows were closed.", capitalize(percent(f.Completeness))))
		if !math.IsNaN(f.Completeness) {
			x.Evidence = []Evidence{{Text: "completeness", Value: f.Completeness, Unit: "1", Condition: "< " + number(c.MinCompleteness), Metric: prefix + "estimate.completeness"}}
		}
		x.Actions = []Action{{Text: "Wait: completeness rises as the lengths of the requests become known. If it stays low, raise timeline::grace."}}
		return x
	}
	if f.Requests < c.MinRequests && s.f.Covered < s.wholePeriod() {
		x := s.fewRequests()
		return &x
	}
	return nil
}

// CauseStopped narrows NoVerdict down: no request ends any more, though many would have by now.
const CauseStopped = "stopped"

const (
	// stoppedAfter is the least time without the end of a request that is called a stop.
	stoppedAfter = time.Minute
	// missedEnds is how many requests would have ended in that time, at the rate of before: that none did is no chance.
	missedEnds = 10
)

// stopped is the finding that requests no longer end, for an engine that may have had some: it hangs, was stopped, or its spans are lost. One
// that is known to have had none is idle.
func (s *state) stopped() (Finding, bool) {
	last := s.in.Windows[len(s.in.Windows)-1]
	if s.in.LastEnd.IsZero() {
		return Finding{}, false
	}
	silent := last.End.Sub(s.in.LastEnd)
	before := s.c.Period - silent // what of the period had requests that ended
	if silent < stoppedAfter || before > 0 && float64(s.f.Requests)*silent.Seconds() < missedEnds*before.Seconds() {
		return Finding{}, false
	}
	x := Finding{
		Confidence: None, Cause: CauseStopped, Title: "No request finishes any more",
		Evidence: []Evidence{
			{Text: "time since the last request's end", Value: silent.Seconds(), Unit: "s", Condition: ">= " + number(stoppedAfter.Seconds())},
			{Text: "completeness", Value: finite(s.f.Completeness), Unit: "1", Condition: "< " + number(s.c.MinCompleteness), Metric: prefix + "estimate.completeness"},
		},
		Sentence: fmt.Sprintf("No request has finished since %s UTC%s: the engine hangs or was stopped, or its spans are lost.", s.in.LastEnd.UTC().Format(time.TimeOnly), s.until()),
		Actions: []Action{
			{Text: "Ask the engine for a completion.", Why: "If it answers, its spans are lost on the way here: look at its exporter and at this Collector's receiver. If it does not, restart it."},
		},
		Caveats: []string{"What ran or waited when it stopped makes no span unless it finishes; after that only new requests tell more."},
	}
	if math.IsNaN(s.f.Completeness) {
		x.Evidence = x.Evidence[:1]
	}
	return x, true
}

// until says what the engine had to do when its requests stopped ending, as the last window says of which enough was seen.
func (s *state) until() string {
	for i := len(s.in.Windows) - 1; i >= 0; i-- {
		w := &s.in.Windows[i]
		if c, ok := w.Get(timeline.Completeness); !ok || c < s.c.MinCompleteness || !w.Start.Before(s.in.LastEnd) {
			continue
		}
		var parts []string
		if v, ok := w.Running(); ok && v >= 1 {
			parts = append(parts, significant(v)+" ran")
		}
		if v, ok := w.Waiting(); ok && v >= 1 {
			parts = append(parts, significant(v)+" waited")
		}
		if len(parts) == 0 {
			return ""
		}
		return ", when about " + strings.Join(parts, " and ")
	}
	return ""
}

// wholePeriod is the time that an engine must have been seen idle for without enough requests.
func (s *state) wholePeriod() time.Duration {
	return time.Duration(s.c.MinCoverage * float64(s.c.Period))
}

func (s *state) fewRequests() Finding {
	return Finding{
		Confidence: None, Title: "Too few requests",
		Sentence: fmt.Sprintf("%d %s finished in the last %s; %d are needed.", s.f.Requests, plural(int(s.f.Requests), "request"), minutes(s), s.c.MinRequests),
		Evidence: []Evidence{{Text: "finished requests", Value: float64(s.f.Requests), Unit: "{request}", Condition: "< " + number(float64(s.c.MinRequests)), Metric: prefix + "request.count"}},
	}
}

// unexplainedQueue: requests wait, and no rule says why. That is not healthy.
func (s *state) unexplainedQueue() Finding {
	h, _ := queue.holds(s)
	x := Finding{
		Confidence: None, Title: "Requests wait, and why is not known", Evidence: h.evidence, Caveats: s.reservations(),
		Sentence: waitText(s) + "; no rule says for what.",
	}
	if s.in.MaxNumSeqs == 0 {
		x.Sentence = waitText(s) + ". Whether for a place in the batch cannot be known: the engine's limit of requests in a batch is not configured."
		x.Actions = []Action{{Text: "Set engine::max_num_seqs of serving_metrics to the engine's limit.", Why: "With it, limits of the batch, of the memory and of the device are told apart.", Setting: "engine: {max_num_seqs: 256}"}}
	}
	return x
}

func (s *state) healthy() Finding {
	x := Finding{Verdict: Healthy, Title: "Healthy", Caveats: s.reservations()}
	h := held{sure: true}
	parts := allOf{
		{occupancy.is(">=", "0")},
		{wait.is("<=", "host_wait").orUnknown(noDevice)},
		{capacityAtMost.is("<", "full_capacity").orUnknown("How much of its capacity the engine uses is not known: that needs max_num_seqs or kv_cache_tokens, and batches of unlike sizes.")},
		{waitingMean.is(">=", "0")},
	}
	for _, p := range parts {
		if one, ok := p.holds(s); ok {
			one.near = false // not being over a threshold by little is no reason for doubt in the absence of a trouble
			h.and(one)
		}
	}
	if capacityAtMost.value(s) >= s.c.FullCapacity {
		h.caveats = append(h.caveats, fmt.Sprintf("Whether the engine is full is not known: %s of its capacity is used.", capacityText(s)))
		h.sure = false
	}
	for i := range h.evidence {
		if h.evidence[i].Condition == ">= 0" {
			h.evidence[i].Condition = ""
		}
	}
	x.Evidence, x.Caveats = h.evidence, append(h.caveats, x.Caveats...)
	x.Confidence = s.confidence(h, len(h.caveats) > 0)
	x.Sentence = fmt.Sprintf("Nothing to do: a request runs %s of the time", percent(s.f.Occupancy))
	if !math.IsNaN(capacityAtLeast.value(s)) {
		x.Sentence += fmt.Sprintf(", %s of the capacity is used", capacityText(s))
	}
	x.Sentence += " and no rule found a trouble."
	for _, m := range []quantity{ttftMiss, tpotMiss, e2eMiss} {
		if v := m.value(s); v > 1 {
			x.Title = "No cause found"
			x.Sentence = fmt.Sprintf("An objective is missed (%s: %s), and no rule says why.", m.text, significant(v))
			x.Confidence = Low
			x.Evidence = append(x.Evidence, Evidence{Text: m.text, Value: v, Unit: "1", Condition: "> 1", Metric: m.metric, Formula: m.formula})
		}
	}
	return x
}
