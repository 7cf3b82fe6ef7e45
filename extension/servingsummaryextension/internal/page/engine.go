// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// One engine in full.

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// figure is one number with its unit, and how it comes about.
type figure struct {
	Label, Value, Note, Formula string
}

type engineView struct {
	E    *summary.Engine
	Name string
	Sub  []string
	// Notice is said before everything else: that figures are of the past, or not there yet.
	Notice     string
	Severity   Severity
	Label      string
	Title      string
	Lead       string
	Confidence string
	Since      string
	Action     *summary.Action
	Gain       string
	GainLabel  string
	GainTitle  string
	Period     string
	// Version changes with the figures.
	Version string
	Key     string
	API     string

	Axes     *axesView
	Time     *timeView
	Queue    *queueView
	Steps    *stepsView
	Users    *usersView
	Anatomy  *anatomyView
	Workload []workloadRow
	Findings []findingView
	Sure     sureView
	Formulas map[string][]figure
	// Collecting: what is shown instead of figures.
	Collecting *collectingView
}

type collectingView struct{ Requests, Window string }

type axesView struct {
	Busy, Capacity         template.HTML
	BusyText, CapacityText string
	CapacityHeading        string
	Map                    template.HTML
	Where                  string
	BusyKnown              bool
	Remedy                 string
}

type timeView struct {
	Strip     template.HTML
	Groups    []groupView
	Ribbon    []severityName
	Hatched   bool
	BusyChart template.HTML
	Minutes   string
}

type severityName struct {
	Severity Severity
	Name     string
}

type groupView struct {
	Class, Label, Value string
	States              []stateView
}

type stateView struct{ Class, Label, What, Value string }

type queueView struct {
	Chart template.HTML
	// Bracket: somewhere a bracket can be seen.
	Bracket bool
	Limit   float64 // a horizontal line of the chart; 0: none
	Unit    string  // what the limit is called
	Figures []figure
	Text    string
}

type stepsView struct {
	Chart   template.HTML
	Figures []figure
	Text    string
}

type usersView struct {
	Rows    []latencyRow
	Goodput []figure
	Charts  []chartView
	Figures []figure
	None    string
}

type latencyRow struct {
	Name, What          string
	P50, P95, P99, Mean string
	Objective, Met      string
	Over                bool
	Bar                 template.HTML
}

type chartView struct {
	ID, Title string
	SVG       template.HTML
	Limit     float64
	Unit      string
}

type anatomyView struct {
	Stack template.HTML
	Parts []stateView
	Slow  []slowRow
}

type slowRow struct {
	End            time.Time
	Model, Error   string
	E2E            string
	Bar            template.HTML
	TTFT, TPOT     string
	Input, Output  string
	Trace, TraceID string
}

type workloadRow struct {
	Label, Now, NowTail, Before, BeforeTail, Change string
	Moved                                           bool
}

type findingView struct {
	Rank       int
	Severity   Severity
	Label      string
	Finding    *summary.Finding
	Gain       string
	GainTitle  string
	Evidence   []evidenceRow
	Confidence string
}

type evidenceRow struct{ Text, Value, Condition, Metric, Formula string }

type sureView struct {
	Figures  []figure
	Findings []string
	Missing  []summary.Missing
	Tier     string
	Mode     string
	KeyText  string
	MayMix   bool
	Rejected []figure
}

func newEngineView(view View, o Options) *engineView {
	r, from := view.Engine, &view.Source
	e := &r.Engine
	v := &engineView{
		E: e, Name: engineName(e), Severity: engineSeverity(e), Label: findingLabel(&e.Diagnosis.Finding),
		Title: e.Diagnosis.Title, Lead: e.Diagnosis.Sentence, Confidence: e.Diagnosis.Confidence,
		Gain: gainText(e.Diagnosis.Gain), GainLabel: gainLabel(e.Diagnosis.Gain), Key: e.Key,
	}
	v.API = "api/v1/engines/" + url.PathEscape(e.Key) + "?" + url.Values{"source": {e.Source}}.Encode()
	if e.Diagnosis.Gain != nil {
		v.GainTitle = e.Diagnosis.Gain.Formula
	}
	if v.Title == "" {
		v.Title = v.Label
	}
	v.Sub = append([]string{engineKind(e)}, e.Models...)
	if e.Namespace != "" {
		v.Sub = append(v.Sub, "namespace "+e.Namespace)
	}
	if len(e.Diagnosis.Actions) > 0 {
		v.Action = &e.Diagnosis.Actions[0]
	}
	if e.Diagnosis.Since != nil && e.Status != summary.StatusCollecting {
		until := r.Time
		if e.End != nil { // in the engine's own time, which a replay has of another day
			until = *e.End
		}
		v.Since = "for " + span(max(until.Sub(*e.Diagnosis.Since), 0))
	}
	if e.Start != nil && e.End != nil {
		v.Period = span(e.End.Sub(*e.Start))
		v.Version = fmt.Sprint(e.End.Unix())
	}
	if n := len(r.History.Minutes.End); n > 0 {
		v.Version += fmt.Sprintf("-%d", r.History.Minutes.End[n-1])
	}
	v.status(r, from)
	v.Axes = newAxes(e)
	v.Time = newTime(r)
	v.Queue = newQueue(r, from)
	v.Steps = newSteps(r, from)
	v.Users = newUsers(r, from)
	v.Anatomy = newAnatomy(r, o)
	v.Workload = newWorkload(&e.Requests)
	if e.Status != summary.StatusCollecting {
		v.Findings = append(v.Findings, newFinding(1, &e.Diagnosis.Finding))
		for i := range e.Diagnosis.Also {
			v.Findings = append(v.Findings, newFinding(i+2, &e.Diagnosis.Also[i]))
		}
	}
	v.Sure = newSure(e, from)
	v.Formulas = formulas
	return v
}

func (v *engineView) status(r *summary.EngineReport, from *summary.Source) {
	e := &r.Engine
	switch e.Status {
	case summary.StatusCollecting:
		v.Label, v.Confidence, v.Action, v.Gain = "Collecting", "", nil, ""
		v.Collecting = &collectingView{plural(e.Requests.Count, "request"), span(secondsOf(from.WindowSeconds))}
		v.Title = "Collecting the first figures"
		v.Lead = plural(e.Requests.Count, "request") + " so far. Figures come by themselves; nothing is wrong."
	case summary.StatusStale:
		ago := "a long time"
		if known(e.AgeSeconds) {
			ago = span(secondsOf(*e.AgeSeconds))
		}
		v.Notice = "All figures below are of the past. The engine may be stopped, cut off from this Collector, or no longer traced."
		v.Lead = "The last verdict was: " + v.Label + ". " + v.Lead
		v.Title = "Nothing heard for " + ago
		v.Label, v.Confidence, v.Action, v.Gain, v.Since = "Stale", "", nil, "", ""
	case summary.StatusIdle:
		if !hasStopped(&e.Diagnosis.Finding) { // else it may have work
			v.Notice = "No request came for a while. Figures go on without work."
		}
	case summary.StatusCurrent:
	}
}

func newAxes(e *summary.Engine) *axesView {
	f := &e.Figures
	value, basis := capacityOf(f)
	if !known(f.Utilization) && math.IsNaN(value) && !known(f.Occupancy) {
		return nil
	}
	a := &axesView{BusyKnown: known(f.Utilization), CapacityHeading: "Capacity used"}
	if a.BusyKnown {
		g := dial{
			id: "dial-busy", class: "busy", title: "Device busy", value: f.Utilization, lower: f.UtilizationLower, upper: f.UtilizationUpper,
			mark: f.Occupancy, markLabel: "a request was running",
		}
		a.Busy = g.draw()
		a.BusyText = "of the time the device runs a forward pass"
		if known(f.UtilizationLower) && known(f.UtilizationUpper) {
			a.BusyText += "; surely between " + percent(*f.UtilizationLower) + " and " + percent(*f.UtilizationUpper)
		}
		if known(f.Occupancy) {
			a.BusyText += ". A request was running " + percent(*f.Occupancy) + " of the time"
		}
		a.BusyText += "."
	} else {
		g := dial{id: "dial-busy", title: "Device busy", text: "not known: the engine's spans have no forward times"}
		a.Busy = g.draw()
		a.BusyText = "Not known: this engine's spans do not say when the device worked."
		if known(f.Occupancy) {
			a.BusyText += " A request was running " + percent(*f.Occupancy) + " of the time, which is no measure of the device."
		}
		for _, m := range e.Certainty.Missing {
			if m.Remedy != "" {
				a.Remedy = m.Remedy
				break
			}
		}
	}
	g := dial{id: "dial-capacity", class: "capacity", title: "Capacity used", text: "not known"}
	switch basis {
	case "":
		a.CapacityText = "Not known: it needs output token counts and engine::max_num_seqs or engine::kv_cache_tokens."
	case "fit":
		g.value, g.lower, g.upper = &value, f.CapacityLower, f.CapacityUpper
		a.CapacityText = "of the output tokens per second that the engine gives when it is full"
		if known(f.Capacity) {
			a.CapacityText += " (" + withUnit(*f.Capacity, "{token}/s") + ")"
		}
		if f.StepLaw != nil && !f.StepLaw.Extrapolates {
			g.prefix = "≥" + nbsp
			a.CapacityText = "At least this much " + a.CapacityText + "; batches seen were too small to be sure"
		}
		a.CapacityText += "."
	case "bracket":
		g.text, g.lower, g.upper = percents(*f.CapacityLower, *f.CapacityUpper), f.CapacityLower, f.CapacityUpper
		a.CapacityText = g.text + " of the output tokens per second that the engine gives when it is full. Larger batches tell it better, and so does engine::kv_cache_tokens where that is not set."
	case "peak":
		a.CapacityText = "Not known: at most " + percent(value) + ", which is the share of the highest rate seen so far. Larger batches tell more."
		if !known(f.BatchUtilization) {
			a.CapacityText = "Not known: at most " + percent(value) + ", which is the share of the highest rate seen so far. Set engine::max_num_seqs, and it is told from the batches seen."
		}
	}
	a.Capacity = g.draw()
	if a.BusyKnown && basis == "fit" {
		a.Map = axesMap("map", []point{{
			name: engineName(e), severity: engineSeverity(e), busy: *f.Utilization,
			lower: orNaN(f.UtilizationLower), upper: orNaN(f.UtilizationUpper), capacityUsed: value,
		}}, false)
		switch busy := *f.Utilization >= .5; {
		case known(f.WaitRatio) && *f.WaitRatio > .4:
			a.Where = "While there is work, the device waits " + percent(*f.WaitRatio) + " of the time: its host holds it back, not the load."
		case busy && value >= .5:
			a.Where = "Busy, and much of its capacity is used."
		case busy:
			a.Where = "Busy is not full: the device works, yet could serve more at once."
		case value >= .5:
			a.Where = "Most of what this set-up can do is used, while the device waits for its host."
		default:
			a.Where = "Little is asked of it."
		}
	}
	return a
}

func newTime(r *summary.EngineReport) *timeView {
	h := &r.History
	if len(h.End) == 0 {
		return nil
	}
	axis := newTimeAxis(h.End, h.WindowSeconds)
	t := &timeView{Strip: timeStrip("strip", h), Minutes: span(secondsOf(axis.end - axis.start))}
	for _, g := range stateGroups {
		view := groupView{Class: g.class, Label: g.label}
		var sum float64
		for _, name := range g.states {
			m, ok := mean(h.States[name])
			if !ok || m <= 0 {
				continue
			}
			sum += m
			i := slices.IndexFunc(states, func(s state) bool { return s.name == name })
			view.States = append(view.States, stateView{name, states[i].label, states[i].what, percent(m)})
		}
		if len(view.States) > 0 {
			view.Value = percent(sum)
			t.Groups = append(t.Groups, view)
		}
	}
	seen := map[string]bool{}
	for _, verdict := range h.Verdicts {
		if !seen[verdict] && len(t.Ribbon) < 6 {
			seen[verdict] = true
			t.Ribbon = append(t.Ribbon, severityName{severityOf(verdict), verdictLabel(verdict)})
		}
	}
	for _, c := range h.Figures["completeness"] {
		t.Hatched = t.Hatched || known(c) && *c < provisional
	}
	if known(last(h.Figures["device_utilization"])) {
		c := chart{
			id: "busy-chart", title: "Device busy over time", height: 130, axis: axis, end: h.End, top: 1, format: percent,
			lines: []line{{class: "busy", label: "device busy", values: h.Figures["device_utilization"]}},
			bands: []band{{lower: h.Figures["device_utilization_lower"], upper: h.Figures["device_utilization_upper"]}},
		}
		if known(last(h.Figures["occupancy"])) {
			c.lines = append([]line{{class: "occupied", label: "a request was running", values: h.Figures["occupancy"]}}, c.lines...)
		}
		t.BusyChart = c.draw()
	}
	return t
}

func newQueue(r *summary.EngineReport, from *summary.Source) *queueView {
	h, f := &r.History, &r.Engine.Figures
	running, runningBand, runningReach := counts(h, "running")
	waiting, waitingBand, waitingReach := counts(h, "waiting")
	if !known(last(running.values)) && !known(last(waiting.values)) {
		return nil
	}
	waiting.area = true
	c := chart{
		id: "queue-chart", title: "Requests waiting and running", height: 180, axis: newTimeAxis(h.End, h.WindowSeconds), end: h.End, format: digits,
		lines: []line{waiting, running}, bands: []band{waitingBand, runningBand}, reach: math.Max(runningReach, waitingReach),
	}
	if from.MaxNumSeqs > 0 {
		c.limit, c.limitLabel = float64(from.MaxNumSeqs), fmt.Sprintf("max_num_seqs %d", from.MaxNumSeqs)
	}
	q := &queueView{Chart: c.draw(), Bracket: c.reach > 0, Limit: c.limit, Unit: c.limitLabel}
	q.Figures = figures(
		figure{"Running", requestsText(withoutBracket(f.RunningCount())), runningNote(f), "mean over time of requests between first step and end, divided by completeness; where some of them cannot be known, the middle of the least and the most"},
		figure{"Waiting", requestsText(f.WaitingCount()), peakNote(f.WaitingMax, f.WaitingCount()), "mean over time of requests before their first step; a range where more than one of them may not have been seen, by the rate of arrivals and the running times"},
		figure{"Time with a queue", opt(f.QueuePressure, percent), "", "time with a waiting request / wall time"},
		figure{"Batch filled", opt(f.BatchUtilization, percent), "", "mean running requests while any runs / max_num_seqs"},
	)
	if from.MaxNumSeqs == 0 {
		q.Text = "Set engine::max_num_seqs to the engine's --max-num-seqs to see how full its batches are."
	}
	return q
}

// counts are the running or the waiting requests of each window as a line, which goes through the middle of the bracket where there is no number,
// with the bracket, and how far the scale has to reach for those windows.
func counts(h *summary.History, name string) (l line, b band, reach float64) {
	prefix := "requests_" + name
	means, upper := h.Figures[prefix+"_mean"], h.Figures[prefix+"_upper"]
	l = line{class: name, label: name, values: make([]*float64, len(h.End))}
	for i := range h.End {
		c := h.CountAt(prefix, i)
		v := c.Value()
		if !sane(v) {
			continue
		}
		if name == "running" {
			c = withoutBracket(c)
		}
		l.values[i], l.at = &v, countText(c)
		if i < len(upper) && known(upper[i]) && (i >= len(means) || !known(means[i])) {
			reach = math.Max(reach, *upper[i])
		}
	}
	return l, band{name, h.Figures[prefix+"_lower"], upper}, reach
}

// requestsText is a number of requests with its noun.
func requestsText(c summary.Count) string {
	switch text := countText(c); text {
	case absent:
		return absent
	case "1":
		return text + nbsp + "request"
	default:
		return text + nbsp + "requests"
	}
}

// peakNote leaves out a peak that is of other windows, in which fewer waited.
func peakNote(v *float64, c summary.Count) string {
	if !known(v) || *v < c.Value() {
		return ""
	}
	return "peak " + digits(*v)
}

// withoutBracket is for running requests, whose bracket is what would be if running times had grown: the mean is what to go by.
func withoutBracket(c summary.Count) summary.Count {
	c.Upper = math.NaN()
	return c
}

func runningNote(f *summary.Figures) string {
	c := f.RunningCount()
	note := peakNote(f.RunningMax, c)
	if c.Wide() && sane(c.Upper) {
		note = strings.TrimPrefix(note+", between "+digits(c.Lower)+" and "+digits(c.Upper), ", ")
	}
	return note
}

// figures are those that are known.
func figures(all ...figure) (some []figure) {
	for _, f := range all {
		if f.Value != absent && f.Value != "" {
			some = append(some, f)
		}
	}
	return some
}

func newSteps(r *summary.EngineReport, from *summary.Source) *stepsView {
	h, f := &r.History, &r.Engine.Figures
	if _, perToken := pace(h); !known(last(perToken)) {
		return nil
	}
	s := &stepsView{Chart: stepChart("step-chart", h, f.StepLaw, from.Objectives.TPOT, from.MaxNumSeqs, f.Batch)}
	s.Figures = figures(
		figure{"Step", opt(f.Step, seconds), "", "decode time without others' prompts / (output tokens − 1)"},
		figure{"of it, host gap", opt(f.HostGap, seconds), "", "step × (1 − device busy while decoding)"},
		figure{"Mean batch", opt(f.Batch, func(v float64) string { return withUnit(v, "{request}") }), "", "mean running requests while any runs"},
		figure{"Grows with the batch", opt(f.Marginal, percent), "", "b·batch / (a + b·batch): share of a step that more requests lengthen"},
	)
	law := f.StepLaw
	switch {
	case law == nil:
		s.Text = "Too little variety in batch sizes to fit a line."
	case law.BatchAtObjective != nil && from.Objectives.TPOT != nil && *law.BatchAtObjective < 1:
		s.Text = "No batch meets " + seconds(*from.Objectives.TPOT) + " per token: one request alone takes " + seconds(law.A) + "."
	case law.BatchAtObjective != nil && from.Objectives.TPOT != nil && from.MaxNumSeqs > 0 && *law.BatchAtObjective >= float64(from.MaxNumSeqs):
		s.Text = fmt.Sprintf("Even a full batch of %d meets %s per token.", from.MaxNumSeqs, seconds(*from.Objectives.TPOT))
		if !law.Extrapolates {
			s.Text += " Batches that large were not seen, so this is a guess."
		}
	case law.BatchAtObjective != nil && from.Objectives.TPOT != nil:
		s.Text = fmt.Sprintf("Batch %s is the most that meets %s per token.", grouped(math.Floor(*law.BatchAtObjective)), seconds(*from.Objectives.TPOT))
		if !law.Extrapolates {
			s.Text += " Batches that large were not seen, so this is a guess."
		}
	}
	if law != nil {
		s.Figures = append(s.Figures, figure{"Step law", seconds(law.A) + " + " + seconds(law.B) + " × batch", "", "least squares over requests: time per output token = a + b × requests in the batch, time lost to the prompts of others included"})
	}
	return s
}

func newUsers(r *summary.EngineReport, from *summary.Source) *usersView {
	q := &r.Engine.Requests
	if r.Engine.Status == summary.StatusCollecting {
		return nil
	}
	if q.Count == 0 && q.TTFT == nil && q.E2E == nil {
		return &usersView{None: "No request finished in this time."}
	}
	u := &usersView{}
	for _, row := range []struct {
		key, name, what string
		s               *summary.Spread
		objective       *float64
	}{
		{"ttft", "Time to first token", "TTFT: from arrival to the first token", q.TTFT, from.Objectives.TTFT},
		{"tpot", "Time per output token", "TPOT: (e2e − TTFT) / (output tokens − 1)", q.TPOT, from.Objectives.TPOT},
		{"e2e", "Whole request", "E2E: from arrival to the last token", q.E2E, from.Objectives.E2E},
	} {
		if row.s == nil {
			continue
		}
		l := latencyRow{
			Name: row.name, What: row.what, P50: seconds(row.s.P50), P95: seconds(row.s.P95), P99: seconds(row.s.P99), Mean: seconds(row.s.Mean),
			Bar: spreadBar(row.s, row.objective),
		}
		if row.objective != nil {
			l.Objective = "≤" + nbsp + seconds(*row.objective)
			l.Over = row.s.P99 > *row.objective
			if met, ok := q.Goodput[row.key]; ok {
				l.Met = percent(met)
			}
		}
		u.Rows = append(u.Rows, l)
	}
	if all, ok := q.Goodput["all"]; ok {
		u.Goodput = append(u.Goodput, figure{"met all objectives", percent(all), "", "requests that met every objective / finished requests"})
	}
	u.Figures = figures(
		figure{"Finished", count(q.Count), "", "requests that ended in this time"},
		figure{"Rate", opt(q.Rate, func(v float64) string { return withUnit(v, "{request}/s") }), "", "finished requests / time"},
		figure{"Failed", failedText(q), "", "finished requests with an error"},
		figure{"Prompts", opt(r.Engine.Figures.InputThroughput, func(v float64) string { return withUnit(v, "{token}/s") }), "", "input tokens spread over the time they were read in"},
		figure{"Output", opt(r.Engine.Figures.OutputThroughput, func(v float64) string { return withUnit(v, "{token}/s") }), "", "output tokens spread over the time they were made in"},
	)
	m := &r.History.Minutes
	if len(m.End) > 1 {
		axis := newTimeAxis(m.End, 60)
		for _, c := range []struct {
			id, title     string
			p50, p95, p99 []*float64
			objective     *float64
		}{
			{"ttft", "Time to first token", m.TTFTP50, m.TTFTP95, m.TTFTP99, from.Objectives.TTFT},
			{"tpot", "Time per output token", m.TPOTP50, m.TPOTP95, m.TPOTP99, from.Objectives.TPOT},
			{"e2e", "Whole request", m.E2EP50, m.E2EP95, m.E2EP99, from.Objectives.E2E},
		} {
			if !known(last(c.p50)) {
				continue
			}
			g := chart{
				id: c.id + "-chart", title: c.title + " over time", height: 120, axis: axis, end: m.End, format: seconds,
				lines: []line{{class: "p99", label: "p99", values: c.p99}, {class: "p95", label: "p95", values: c.p95}, {class: "p50", label: "p50", values: c.p50}},
			}
			if c.objective != nil {
				g.limit, g.limitLabel = *c.objective, "objective "+seconds(*c.objective)
			}
			u.Charts = append(u.Charts, chartView{c.id, c.title, g.draw(), g.limit, g.limitLabel})
		}
	}
	return u
}

func failedText(q *summary.Requests) string {
	if q.Count == 0 {
		return ""
	}
	if q.Failed == 0 {
		return "0"
	}
	return count(q.Failed) + " (" + percent(float64(q.Failed)/float64(q.Count)) + ")"
}

func newAnatomy(r *summary.EngineReport, o Options) *anatomyView {
	q := &r.Engine.Requests
	a := &anatomyView{}
	if shares := partShares(q.Parts); len(shares) > 0 {
		var total float64
		for _, s := range shares {
			total += s.value
		}
		for i := range shares {
			shares[i].text = seconds(shares[i].value)
			if total > 0 {
				a.Parts = append(a.Parts, stateView{shares[i].class, shares[i].label, partWhat(shares[i].class), seconds(shares[i].value) + ", " + percent(shares[i].value/total)})
			}
		}
		a.Stack = stack("anatomy-stack", "stack", "A mean request", 34, shares)
	}
	var top float64
	for i := range r.Slowest {
		top = math.Max(top, r.Slowest[i].E2E)
	}
	top *= 1.0001
	for i := range r.Slowest {
		s := &r.Slowest[i]
		row := slowRow{
			End: s.End, Model: s.Model, Error: s.Error, E2E: seconds(s.E2E), TTFT: opt(s.TTFT, seconds), TPOT: opt(s.TPOT, seconds),
			Input: optCount(s.InputTokens), Output: optCount(s.OutputTokens), TraceID: s.TraceID, Trace: traceLink(o.TraceURL, s),
		}
		if shares := partShares(s.Parts); len(shares) > 0 {
			for j := range shares {
				shares[j].text = seconds(shares[j].value)
			}
			shares = append(shares, share{class: "part-rest", value: math.Max(0, top-s.E2E)}) // so that lengths compare
			row.Bar = stack(fmt.Sprintf("slow-%d", i), "stack", "Request of "+seconds(s.E2E), 14, shares)
		}
		a.Slow = append(a.Slow, row)
	}
	if a.Stack == "" && len(a.Slow) == 0 {
		return nil
	}
	return a
}

func partShares(p map[string]float64) (shares []share) {
	for _, part := range parts {
		if v, ok := p[part.name]; ok {
			shares = append(shares, share{class: "part-" + part.name, label: part.label, value: v})
		}
	}
	return shares
}

func partWhat(class string) string {
	for _, p := range parts {
		if class == "part-"+p.name {
			return p.what
		}
	}
	return ""
}

func optCount(n *int64) string {
	if n == nil {
		return absent
	}
	return count(*n)
}

// traceLink fills the template; IDs are hexadecimal, but come from outside.
func traceLink(urlTemplate string, s *summary.SlowRequest) string {
	if urlTemplate == "" || s.TraceID == "" {
		return ""
	}
	return strings.NewReplacer("{trace_id}", url.QueryEscape(s.TraceID), "{span_id}", url.QueryEscape(s.SpanID)).Replace(urlTemplate)
}

func newWorkload(q *summary.Requests) (rows []workloadRow) {
	before := q.Before
	if before == nil {
		before = &summary.Workload{}
	}
	if known(q.Rate) {
		rows = append(rows, newWorkloadRow("Requests per second", *q.Rate, math.NaN(), orNaN(before.Rate), math.NaN(), "{request}/s"))
	}
	for _, s := range []struct {
		label       string
		now, before *summary.Spread
	}{{"Prompt length", q.Input, before.Input}, {"Output length", q.Output, before.Output}} {
		if s.now == nil {
			continue
		}
		b := summary.Spread{P50: math.NaN(), P99: math.NaN()}
		if s.before != nil {
			b = *s.before
		}
		rows = append(rows, newWorkloadRow(s.label, s.now.P50, s.now.P99, b.P50, b.P99, "{token}"))
	}
	return rows
}

func newWorkloadRow(label string, now, tail, before, beforeTail float64, unit string) workloadRow {
	r := workloadRow{Label: label, Now: withUnit(now, unit), NowTail: withUnit(tail, unit), Before: withUnit(before, unit), BeforeTail: withUnit(beforeTail, unit), Change: absent}
	if before > 0 {
		ratio := now / before
		r.Change = "×" + nbsp + digits(ratio)
		r.Moved = ratio > 2 || ratio < .5
	}
	return r
}

func newFinding(rank int, f *summary.Finding) findingView {
	v := findingView{Rank: rank, Severity: findingSeverity(f), Label: findingLabel(f), Finding: f, Gain: gainText(f.Gain), Confidence: f.Confidence}
	if f.Gain != nil {
		v.GainTitle = f.Gain.Formula
	}
	for _, e := range f.Evidence {
		v.Evidence = append(v.Evidence, evidenceRow{e.Text, withUnit(e.Value, e.Unit), conditionText(e.Condition, e.Unit), e.Metric, e.Formula})
	}
	return v
}

// conditionText writes a comparison in the unit of its figure: "> 0.4" of a ratio is "> 40 %".
func conditionText(condition, unit string) string {
	operator, number, ok := strings.Cut(condition, " ")
	var v float64
	if !ok {
		return condition
	}
	if n, err := fmt.Sscanf(number, "%g", &v); n != 1 || err != nil || fmt.Sprint(v) != number || unit != "1" {
		return strings.NewReplacer(">=", "≥", "<=", "≤").Replace(condition)
	}
	return strings.NewReplacer(">=", "≥", "<=", "≤").Replace(operator) + nbsp + percent(v)
}

func newSure(e *summary.Engine, from *summary.Source) sureView {
	c := &e.Certainty
	s := sureView{Missing: c.Missing, Tier: tiers[c.Tier], Mode: modes[c.Mode], KeyText: e.KeySource, MayMix: e.MayMix}
	s.Figures = figures(
		figure{"Seen of the running time", opt(c.Completeness, percent), "", "expected share of the running time that had been seen when a window was closed"},
		figure{"Late requests", count(c.Late), "", "requests since the start that came after a window they belong to was closed, as many do that run longer than the grace; they are in all figures of requests"},
		figure{"Spans of all engines", count(from.Spans), "", "by " + from.ID + " since it was started, of all engines"},
		figure{"of them requests", count(from.Requests), "", "finished requests of all engines that were counted"},
		figure{"Resent", count(from.Duplicates), "", "spans that came again and were not counted again"},
		figure{"Dropped", count(from.Dropped), "", "spans that came after the end"},
	)
	for _, name := range c.Findings {
		s.Findings = append(s.Findings, findingText(name))
	}
	for _, reason := range slices.Sorted(keysOf(from.Rejected)) {
		s.Rejected = append(s.Rejected, figure{Label: strings.ReplaceAll(reason, "_", " "), Value: count(from.Rejected[reason])})
	}
	return s
}

func keysOf(m map[string]int64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// formulas by section, for those who cannot hover.
var formulas = map[string][]figure{
	"axes": {
		{Label: "Device busy", Formula: "time of forward passes / wall time, by the split ratio of the requests' forward times; the bracket is what their times allow"},
		{Label: "Capacity used", Formula: "output tokens per second / those of a full engine: measured where requests waited all the time, else by the law of decoding with the prompts that belong to it at the batch that max_num_seqs and kv_cache_tokens allow; from-to where these leave more than a tenth open; where neither is known, / the most seen so far"},
	},
	"time": {
		{Label: "Shares", Formula: "time in each state / wall time; every second is in exactly one, so they add up to 100 %"},
		{Label: "Device works", Formula: "decode + prefill"},
		{Label: "Device waits for the host", Formula: "host in the executor + scheduler + other host time"},
	},
	"users": {
		{Label: "TTFT", Formula: "arrival to first token, as the engine reports it"},
		{Label: "TPOT", Formula: "(e2e − TTFT) / (output tokens − 1), from two output tokens up"},
		{Label: "p50, p95, p99", Formula: "the time that 50, 95, 99 % of the finished requests stay below, within 3 %"},
		{Label: "Met", Formula: "requests that met the objective / finished requests"},
	},
	"anatomy": {
		{Label: "Queue", Formula: "arrival to first step"},
		{Label: "Prefill", Formula: "first step to first token"},
		{Label: "Decode", Formula: "first token to last token"},
		{Label: "Front end", Formula: "e2e − queue − prefill − decode"},
	},
}
