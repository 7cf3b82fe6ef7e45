// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// What the parts of an engine's page say for figures at their edges.

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

func steps(law *summary.StepLaw, objective float64, maxNumSeqs int) *stepsView {
	r := &summary.EngineReport{History: *history()}
	r.Engine.Figures.StepLaw = law
	s := summary.Source{MaxNumSeqs: maxNumSeqs}
	if objective > 0 {
		s.Objectives.TPOT = &objective
	}
	return newSteps(r, &s)
}

func TestStepSentence(t *testing.T) {
	law := func(batch float64, sure bool) *summary.StepLaw {
		return &summary.StepLaw{A: .01, B: .0002, BatchAtObjective: &batch, Extrapolates: sure}
	}
	for want, s := range map[string]*stepsView{
		"Batch 96 is the most that meets 50 ms per token.":                                                       steps(law(96.7, true), .05, 256),
		"Batch 96 is the most that meets 50 ms per token. Batches that large were not seen, so this is a guess.": steps(law(96, false), .05, 0),
		"Even a full batch of 64 meets 50 ms per token.":                                                         steps(law(96, true), .05, 64),
		"Even a full batch of 64 meets 50 ms per token. Batches that large were not seen, so this is a guess.":   steps(law(96, false), .05, 64),
		"No batch meets 5 ms per token: one request alone takes 10 ms.":                                          steps(law(0, true), .005, 256),
		"Too little variety in batch sizes to fit a line.":                                                       steps(nil, .05, 256),
		"": steps(&summary.StepLaw{A: .01, B: .0002}, 0, 256),
	} {
		require.NotNil(t, s)
		assert.Equal(t, want, plain(s.Text))
	}
	assert.Nil(t, newSteps(&summary.EngineReport{}, &summary.Source{}), "no step known")
}

func TestDialsOfWhatIsKnown(t *testing.T) {
	assert.Nil(t, newAxes(&summary.Engine{}), "nothing known, nothing shown")
	peak := newAxes(&summary.Engine{Figures: summary.Figures{CapacityPeak: ptr(.4)}})
	assert.Contains(t, peak.CapacityText, "Not known: at most 40")
	assert.Contains(t, string(peak.Capacity), ">?<", "a share of the most seen is no measured value")
	assert.Contains(t, peak.BusyText, "Not known")
	assert.Empty(t, peak.Map, "one axis is no map")
	small := newAxes(&summary.Engine{Figures: summary.Figures{CapacityFit: ptr(.4), StepLaw: &summary.StepLaw{}}})
	assert.Contains(t, small.CapacityText, "At least this much")
	bracket := newAxes(&summary.Engine{Figures: summary.Figures{CapacityLower: ptr(.4), CapacityUpper: ptr(.6), CapacityPeak: ptr(.9)}})
	assert.Contains(t, plain(bracket.CapacityText), "40–60 % of the output tokens per second")
	assert.Contains(t, plain(string(bracket.Capacity)), ">40–60 %<")
	assert.Contains(t, string(bracket.Capacity), `class="bracket"`)
	assert.NotContains(t, string(bracket.Capacity), `class="fill`, "no value of its own")
	both := newAxes(&summary.Engine{Figures: summary.Figures{CapacityFit: ptr(.4), Utilization: ptr(.9)}})
	assert.Contains(t, both.Where, "Busy is not full")
	assert.NotEmpty(t, both.Map)
}

// A queue is drawn and told however much of it is known.
func TestQueueOfUnknownLength(t *testing.T) {
	r := &summary.EngineReport{}
	assert.Nil(t, newQueue(r, &summary.Source{}), "nothing known, nothing shown")
	h := &r.History
	h.WindowSeconds, h.End = 10, []int64{1010, 1020, 1030, 1040, 1050}
	h.Figures = map[string][]*float64{
		"requests_waiting_mean": column(20, gap, gap, gap, gap), "requests_waiting_lower": column(20, 40, 80, 90, 100), "requests_waiting_upper": column(20, gap, 120, 130, 140),
		"requests_running_mean": column(16, 16, 16, 16, 16), "requests_running_lower": column(16, 16, 16, 16, 15), "requests_running_upper": column(16, 16, 16, 16, 9000),
	}
	f := &r.Engine.Figures
	f.WaitingLower, f.WaitingUpper, f.WaitingMax = ptr(80.), ptr(120.), ptr(20.)
	f.Running, f.RunningLower, f.RunningUpper, f.RunningMax = ptr(16.), ptr(15.), ptr(24.), ptr(17.)
	q := newQueue(r, &summary.Source{})
	chart := string(q.Chart)
	assert.Contains(t, chart, `class="area waiting" d="M3330 867L3390 733 3450 333 3510 267 3570 200L`, "the number, the lower end, the middle")
	assert.Contains(t, chart, `class="band waiting" d="M3450 200L3510 133L3570 67L3570 333L3510 400L3450 467z"`)
	assert.Contains(t, chart, `class="band running"`)
	assert.Contains(t, chart, "waiting 100–140 at the end, running 16 at the end", "and the scale is not that of the bracket of what is known")
	assert.True(t, q.Bracket)
	assert.Equal(t, "80–120 requests", plain(q.Figures[1].Value))
	assert.Empty(t, q.Figures[1].Note, "the peak is of before")
	assert.Equal(t, "16 requests", plain(q.Figures[0].Value))
	assert.Equal(t, "peak 17, between 15 and 24", q.Figures[0].Note)

	f.WaitingUpper, h.Figures["requests_waiting_upper"] = nil, nil
	f.Running, f.RunningUpper, h.Figures["requests_running_mean"] = nil, nil, nil
	q = newQueue(r, &summary.Source{})
	assert.Contains(t, string(q.Chart), "waiting at least"+nbsp+"100 at the end")
	assert.NotContains(t, string(q.Chart), `class="band waiting"`)
	assert.Equal(t, "at least 80 requests", plain(q.Figures[1].Value))
	assert.Equal(t, "at least 15 requests", plain(q.Figures[0].Value))

	h.Figures = map[string][]*float64{"requests_waiting_mean": column(1, 2, 3, 4, 5)}
	f.Waiting, f.WaitingLower = ptr(3.), nil
	q = newQueue(r, &summary.Source{})
	assert.False(t, q.Bracket, "a number alone has none")
	assert.Equal(t, "3 requests", plain(q.Figures[1].Value))
	assert.Equal(t, "peak 20", q.Figures[1].Note)
}

// A table of engines is sorted by the queue that is known, be it a number or not.
func TestFleetByWaiting(t *testing.T) {
	engine := func(key string, f summary.Figures) summary.Engine {
		return summary.Engine{Instance: key, Key: key, Status: summary.StatusCurrent, Figures: f}
	}
	r := &summary.Report{Engines: []summary.Engine{
		engine("number", summary.Figures{Waiting: ptr(50.)}), engine("none", summary.Figures{}), engine("bracket", summary.Figures{WaitingLower: ptr(60.), WaitingUpper: ptr(90.)}),
		engine("least", summary.Figures{WaitingLower: ptr(80.)}), engine("grown", summary.Figures{Waiting: ptr(2.), WaitingLower: ptr(70.)}),
	}}
	var shown []string
	for _, row := range newFleetView(View{Report: r, Sort: "waiting", Descending: true}).Rows {
		shown = append(shown, row.Name+" "+plain(row.Waiting))
	}
	assert.Equal(t, []string{"least at least 80", "bracket 60–90", "grown at least 70", "number 50", "none –"}, shown)
}

func TestWorkloadChange(t *testing.T) {
	for _, c := range []struct {
		now, before float64
		change      string
		moved       bool
	}{{10, 10, "× 1", false}, {21, 10, "× 2.1", true}, {4, 10, "× 0.4", true}, {10, 0, "–", false}} {
		row := newWorkloadRow("x", c.now, gap, c.before, gap, "{token}")
		assert.Equal(t, c.change, plain(row.Change))
		assert.Equal(t, c.moved, row.Moved)
	}
	assert.Empty(t, newWorkload(&summary.Requests{}))
}

func TestTraceLink(t *testing.T) {
	s := &summary.SlowRequest{TraceID: "ab/../c?", SpanID: "d&e"}
	assert.Equal(t, "https://x/ab%2F..%2Fc%3F?s=d%26e", traceLink("https://x/{trace_id}?s={span_id}", s))
	assert.Empty(t, traceLink("", s))
	assert.Empty(t, traceLink("https://x/{trace_id}", &summary.SlowRequest{}))
}

func TestEngineName(t *testing.T) {
	for want, e := range map[string]summary.Engine{
		"a": {Instance: "a"}, "s": {Service: "s", Instance: "s"}, "s-1": {Service: "s", Instance: "s-1"}, "s / x": {Service: "s", Instance: "x"}, "t": {Service: "t"},
	} {
		assert.Equal(t, want, engineName(&e))
	}
}

func TestSetup(t *testing.T) {
	source := func(spans, requests int64, window float64) *summary.Report {
		return &summary.Report{Sources: []summary.Source{{ID: "processor/serving_metrics", Spans: spans, Requests: requests, WindowSeconds: window}}}
	}
	for want, r := range map[string]*summary.Report{
		"No component reports here yet":  {},
		"Ready, and nothing has arrived": source(0, 0, 10),
		"412 spans, none is a request":   source(412, 0, 10),
		"1 span, and it is no request":   source(1, 0, 10),
		"The first requests are here":    source(3, 3, 10),
		"3 requests, but no windows":     source(3, 3, 0),
	} {
		assert.Equal(t, want, plain(newSetupView(r).Title))
	}
}

// The sentence above a fleet counts what needs attention.
func TestFleetTitle(t *testing.T) {
	engines := func(verdicts ...string) View {
		r := &summary.Report{}
		for _, v := range verdicts {
			e := summary.Engine{Key: v, Status: summary.StatusCurrent}
			e.Diagnosis.Verdict = v
			r.Engines = append(r.Engines, e)
		}
		return View{Report: r}
	}
	for want, v := range map[string]View{
		"1 of 2 engines needs attention":                                            engines("host_bound", "healthy"),
		"2 of 3 engines need attention":                                             engines("overload_building", "host_bound", "idle"),
		"All 2 engines are well":                                                    engines("healthy", "healthy"),
		"No trouble found so far; 1 of 2 without a verdict":                         engines("healthy", "no_verdict"),
		"No trouble, but 1 of 2 engines could be smaller":                           engines("healthy", "idle"),
		"No trouble, but 1 of 4 engines could be smaller; 2 of 4 without a verdict": engines("healthy", "idle", "no_verdict", "no_verdict"),
		"2 engines, and no verdict yet":                                             engines("no_verdict", "no_verdict"),
	} {
		assert.Equal(t, want, newFleetView(v).Title)
	}
	assert.Equal(t, Critical, newFleetView(engines("overload_building", "host_bound")).Severity)
	assert.Equal(t, Warning, newFleetView(engines("host_bound", "healthy")).Severity)
}

// An engine that sends now and has figures of another time has a clock that is off.
func TestAge(t *testing.T) {
	for want, e := range map[string]summary.Engine{
		"40 s ago":            {Status: summary.StatusCurrent, AgeSeconds: ptr(40.)},
		"clock 2 h ahead":     {Status: summary.StatusCurrent, AgeSeconds: ptr(-7200.)},
		"clock 10.8 h behind": {Status: summary.StatusCurrent, AgeSeconds: ptr(10.8 * 3600)},
		"2 h ago":             {Status: summary.StatusStale, AgeSeconds: ptr(7200.)},
		"now":                 {Status: summary.StatusCurrent, AgeSeconds: ptr(-5.)},
	} {
		assert.Equal(t, want, strings.ReplaceAll(age(&e), nbsp, " "))
	}
}

// An engine without requests goes on without work, unless they only stopped finishing.
func TestNoticeOfIdle(t *testing.T) {
	notice := func(cause string) string {
		r := summary.EngineReport{Engine: summary.Engine{Status: summary.StatusIdle}}
		r.Engine.Diagnosis.Finding = summary.Finding{Verdict: diagnosis.NoVerdict.String(), Cause: cause}
		var v engineView
		v.status(&r, &summary.Source{})
		return v.Notice
	}
	assert.NotEmpty(t, notice(""))
	assert.Empty(t, notice(diagnosis.CauseStopped))
}

// A report without anything in it makes pages.
func TestBareReports(t *testing.T) {
	r, err := NewRenderer(Options{Asset: func(name string) string { return name }})
	require.NoError(t, err)
	for _, status := range []summary.Status{"", summary.StatusCollecting, summary.StatusCurrent, summary.StatusIdle, summary.StatusStale} {
		e := summary.EngineReport{Time: time.Unix(0, 0), Engine: summary.Engine{Key: "k", Status: status}}
		report := &summary.Report{Engines: []summary.Engine{e.Engine, e.Engine}}
		for _, engine := range []*summary.EngineReport{nil, &e} {
			var out bytes.Buffer
			require.NoError(t, r.Render(&out, View{Report: report, Engine: engine}))
			assert.Contains(t, out.String(), "<h1")
		}
	}
}
