// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package markdown

// The text. It has what the page has but for the drawings, with the same words and units.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/page"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// writer keeps text of others from being taken for marks.
type writer struct{ strings.Builder }

func (w *writer) f(format string, args ...any) { fmt.Fprintf(w, format, args...) }

var special = strings.NewReplacer("\\", "\\\\", "`", "\\`", "*", "\\*", "[", "\\[", "]", "\\]", "<", "\\<", "|", "\\|", "~", "\\~", "\r", " ", "\n", " ")

// t is text of others. An underscore within a word is no mark, and what is one at the beginning of a line only is escaped there.
func t(s string) string {
	s = special.Replace(s)
	if s != "" && strings.ContainsRune("#>-+_", rune(s[0])) {
		s = "\\" + s
	}
	return s
}

// code is text of others as what can be typed. A longer fence than any inside keeps it together.
func code(s string) string {
	s = strings.NewReplacer("\n", " ", "\r", " ", "|", "\\|").Replace(s)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}

// Fleet writes all engines in a table.
func Fleet(out io.Writer, r *summary.Report) {
	var w writer
	w.f("# Serving summary\n\n%s, of %s %s.\n\n", stamp(r.Time), t(r.Collector.Name), t(r.Collector.Version))
	switch {
	case len(r.Sources) == 0:
		w.f("No serving_metrics component reports here. Add `summary: serving_summary` to its configuration.\n")
	case len(r.Engines) == 0:
		for _, s := range r.Sources {
			w.f("%s received %d spans, %d of them requests. No engine is known yet.\n", code(s.ID), s.Spans, s.Requests)
		}
	default:
		w.f("| engine | verdict | confidence | status | device busy | capacity used | waiting | TTFT p95 |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
		for i := range r.Engines {
			e := &r.Engines[i]
			w.f("| %s | %s | %s | %s | %s | %s | %s | %s |\n", t(page.EngineName(e)), t(page.FindingLabel(&e.Diagnosis.Finding)), t(e.Diagnosis.Confidence), e.Status,
				page.Percent(e.Figures.Utilization), page.Capacity(&e.Figures), page.Waiting(&e.Figures), ttft(&e.Requests))
		}
		for i := range r.Engines {
			e := &r.Engines[i]
			if s := page.SeverityOf(e); s != page.Critical && s != page.Warning {
				continue
			}
			w.f("\n## %s: %s\n\n", t(page.EngineName(e)), t(e.Diagnosis.Title))
			w.finding(&e.Diagnosis.Finding, false)
		}
	}
	_, _ = io.WriteString(out, w.String()) // a buffer
}

func ttft(q *summary.Requests) string {
	if q.TTFT == nil {
		return "–"
	}
	return page.Seconds(&q.TTFT.P95)
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// Engine writes one engine in full.
func Engine(out io.Writer, r *summary.EngineReport, from summary.Source) {
	e, d := &r.Engine, &r.Engine.Diagnosis
	var w writer
	w.f("# %s: %s\n\n", t(page.EngineName(e)), t(d.Title))
	w.f("%s, status %s", stamp(r.Time), e.Status)
	if e.Start != nil && e.End != nil {
		w.f(", figures of %s to %s", stamp(*e.Start), stamp(*e.End))
	}
	w.f(". %s", t(page.EngineKind(e)))
	for _, m := range e.Models {
		w.f(", %s", t(m))
	}
	w.f(".\n\n## %s, %s confidence\n\n", t(page.FindingLabel(&d.Finding)), t(d.Confidence))
	w.finding(&d.Finding, true)
	for i := range d.Also {
		a := &d.Also[i]
		w.f("\n## Also: %s, %s confidence\n\n", t(a.Title), t(a.Confidence))
		w.finding(a, true)
	}
	w.figures(e)
	w.requests(&e.Requests, &from)
	w.slowest(r.Slowest)
	w.certainty(&e.Certainty, &from, e)
	_, _ = io.WriteString(out, w.String())
}

func (w *writer) finding(f *summary.Finding, evidence bool) {
	w.f("%s\n", t(f.Sentence))
	if f.Gain != nil {
		if gain := page.Gain(f.Gain); gain != "" {
			w.f("\nTo gain: %s.\n", t(gain))
		}
	}
	for i, a := range f.Actions {
		if i == 0 {
			w.f("\n")
		}
		w.f("%d. %s", i+1, t(a.Text))
		if a.Setting != "" {
			w.f(": %s", code(a.Setting))
		}
		if a.Versions != "" {
			w.f(" (%s)", t(a.Versions))
		}
		w.f("\n")
	}
	if !evidence {
		return
	}
	if len(f.Evidence) > 0 {
		w.f("\n| evidence | value | condition | formula |\n| --- | --- | --- | --- |\n")
		for _, e := range f.Evidence {
			w.f("| %s | %s | %s | %s |\n", t(e.Text), t(page.WithUnit(e.Value, e.Unit)), t(page.Condition(e.Condition, e.Unit)), t(e.Formula))
		}
	}
	for i, c := range f.Caveats {
		if i == 0 {
			w.f("\nWhat would make this wrong:\n\n")
		}
		w.f("- %s\n", t(c))
	}
}

// row writes what is known.
func (w *writer) row(label, value string) {
	if value != "–" && value != "" {
		w.f("| %s | %s |\n", label, value)
	}
}

func (w *writer) figures(e *summary.Engine) {
	f := &e.Figures
	w.f("\n## Figures\n\n| figure | value |\n| --- | --- |\n")
	busy := page.Percent(f.Utilization)
	if f.UtilizationLower != nil && f.UtilizationUpper != nil && busy != "–" {
		busy += " (" + page.Percent(f.UtilizationLower) + " to " + page.Percent(f.UtilizationUpper) + ")"
	}
	w.row("device busy", busy)
	w.row("capacity used", page.Capacity(f))
	w.row("device waits for its host, of the occupied time", page.Percent(f.WaitRatio))
	w.row("occupied", page.Percent(f.Occupancy))
	w.row("time with a queue", page.Percent(f.QueuePressure))
	w.row("requests running", page.Running(f))
	w.row("requests waiting", page.Waiting(f))
	w.row("mean batch", page.Number(f.Batch))
	w.row("step", page.Seconds(f.Step))
	w.row("host gap of a step", page.Seconds(f.HostGap))
	if f.OutputThroughput != nil {
		w.row("output", page.WithUnit(*f.OutputThroughput, "{token}/s"))
	}
	names := make([]string, 0, len(f.States))
	for name := range f.States {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		share := f.States[name]
		w.row("time: "+t(name), page.Percent(&share))
	}
}

func (w *writer) requests(q *summary.Requests, from *summary.Source) {
	w.f("\n## Requests\n\n%d finished, %d failed.\n", q.Count, q.Failed)
	rows := []struct {
		name, key string
		s         *summary.Spread
		objective *float64
	}{{"TTFT", "ttft", q.TTFT, from.Objectives.TTFT}, {"TPOT", "tpot", q.TPOT, from.Objectives.TPOT}, {"E2E", "e2e", q.E2E, from.Objectives.E2E}}
	begun := false
	for _, row := range rows {
		if row.s == nil {
			continue
		}
		if !begun {
			w.f("\n| latency | p50 | p95 | p99 | objective | met by |\n| --- | --- | --- | --- | --- | --- |\n")
			begun = true
		}
		objective, met := "–", "–"
		if row.objective != nil {
			objective = page.Seconds(row.objective)
			if share, ok := q.Goodput[row.key]; ok {
				met = page.Percent(&share)
			}
		}
		w.f("| %s | %s | %s | %s | %s | %s |\n", row.name, page.Seconds(&row.s.P50), page.Seconds(&row.s.P95), page.Seconds(&row.s.P99), objective, met)
	}
}

func (w *writer) slowest(requests []summary.SlowRequest) {
	for i, s := range requests {
		if i == 0 {
			w.f("\n## Slowest requests of the last hour\n\n| ended | took | TTFT | trace |\n| --- | --- | --- | --- |\n")
		}
		w.f("| %s | %s | %s | %s |\n", stamp(s.End), page.Seconds(&s.E2E), page.Seconds(s.TTFT), code(s.TraceID))
	}
}

func (w *writer) certainty(c *summary.Certainty, from *summary.Source, e *summary.Engine) {
	w.f("\n## How sure\n\n")
	w.f("- seen of the running time: %s; late requests since the start: %d; steps: %s; spans support: %s\n", page.Percent(c.Completeness), c.Late, t(c.Mode), t(c.Tier))
	w.f("- told from others by %s\n", code(e.KeySource))
	w.f("- %s received %d spans, %d of them requests\n", code(from.ID), from.Spans, from.Requests)
	for _, name := range c.Findings {
		w.f("- %s\n", t(page.FindingText(name)))
	}
	for _, m := range c.Missing {
		w.f("- not known: %s: %s", t(m.What), t(m.Why))
		if m.Remedy != "" {
			w.f(" What would add it: %s", t(m.Remedy))
		}
		w.f("\n")
	}
}
