// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// The report in a terminal.

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// Write writes what a person wants to know first: each engine's verdict, how sure it is, what to do, and the figures.
func Write(w io.Writer, r *summary.Report) error {
	var b strings.Builder
	if len(r.Engines) == 0 {
		writeEmpty(&b, r)
	}
	for i := range r.Engines {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeEngine(&b, &r.Engines[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeEmpty(b *strings.Builder, r *summary.Report) {
	if len(r.Sources) == 0 {
		b.WriteString("Nothing reports here: set summary: serving_summary in serving_metrics.\n")
		return
	}
	for _, s := range r.Sources {
		switch {
		case s.Spans == 0:
			fmt.Fprintf(b, "%s has received no span.\n", s.ID)
		case s.Requests == 0:
			fmt.Fprintf(b, "%s has received %d spans, and none of them is a finished request (an llm_request span).\n", s.ID, s.Spans)
		default:
			fmt.Fprintf(b, "%s has counted %d requests, of engines that are gone.\n", s.ID, s.Requests)
		}
	}
}

func writeEngine(b *strings.Builder, e *summary.Engine) {
	d := &e.Diagnosis
	fmt.Fprintf(b, "%s\n", printable(Name(e)))
	fmt.Fprintf(b, "  %s", strings.ToUpper(d.Title))
	if d.Confidence != "none" {
		fmt.Fprintf(b, "  (%s, confidence %s)", d.Verdict, d.Confidence)
	}
	if e.Status != summary.StatusCurrent && e.Status != summary.StatusCollecting {
		fmt.Fprintf(b, "  [%s]", e.Status)
	}
	fmt.Fprintf(b, "\n  %s\n", d.Sentence)
	switch {
	case d.Gain == nil:
	case d.Gain.Factor < 1:
		fmt.Fprintf(b, "  at best    %.2gx %s\n", d.Gain.Factor, d.Gain.Of)
	case d.Gain.AtLeast:
		fmt.Fprintf(b, "  at least   %.2gx %s\n", d.Gain.Factor, d.Gain.Of)
	default:
		fmt.Fprintf(b, "  at most    %.2gx %s\n", d.Gain.Factor, d.Gain.Of)
	}
	for i, a := range d.Actions {
		label := "          "
		if i == 0 {
			label = "what to do"
		}
		fmt.Fprintf(b, "  %s %s", label, a.Text)
		if a.Setting != "" {
			fmt.Fprintf(b, "  %s", a.Setting)
		}
		if a.Versions != "" {
			fmt.Fprintf(b, "  (%s)", a.Versions)
		}
		b.WriteByte('\n')
	}
	for _, f := range d.Also {
		fmt.Fprintf(b, "  also       %s: %s\n", f.Title, f.Sentence)
	}
	if line := figures(e); line != "" {
		fmt.Fprintf(b, "  figures    %s\n", line)
	}
	if line := latencies(&e.Requests); line != "" {
		fmt.Fprintf(b, "  requests   %s\n", line)
	}
	if line := certainty(e); line != "" {
		fmt.Fprintf(b, "  how sure   %s\n", line)
	}
	for _, m := range e.Certainty.Missing {
		fmt.Fprintf(b, "  not known  %s: %s\n", m.What, strings.TrimSpace(m.Why+" "+m.Remedy))
	}
}

func figures(e *summary.Engine) string {
	f := &e.Figures
	var parts []string
	if f.Utilization != nil {
		part := "device busy " + percent(*f.Utilization)
		if f.UtilizationLower != nil && f.UtilizationUpper != nil {
			part += fmt.Sprintf(" (%.0f to %s)", *f.UtilizationLower*100, percent(*f.UtilizationUpper))
		}
		parts = append(parts, part)
	}
	add := func(name string, v *float64, format func(float64) string) {
		if v != nil {
			parts = append(parts, name+" "+format(*v))
		}
	}
	add("occupied", f.Occupancy, percent)
	switch {
	case f.CapacityFit != nil:
		add("capacity used", f.CapacityFit, percent)
	case f.CapacityLower != nil && f.CapacityUpper != nil:
		parts = append(parts, fmt.Sprintf("capacity used %.0f to %s", *f.CapacityLower*100, percent(*f.CapacityUpper)))
	default:
		add("capacity used at most", f.CapacityPeak, percent)
	}
	running := f.RunningCount()
	running.Upper = math.NaN() // what would be if running times had grown is no range for the number
	for _, part := range []struct {
		name string
		summary.Count
	}{{"running", running}, {"waiting", f.WaitingCount()}} {
		if text := count(part.Count); text != "" {
			parts = append(parts, part.name+" "+text)
		}
	}
	add("step", f.Step, duration)
	add("output", f.OutputThroughput, func(v float64) string { return fmt.Sprintf("%.0f tokens/s", v) })
	return strings.Join(parts, ", ")
}

// count is a number of requests, a range where one number cannot stand for it, or how many at least.
func count(c summary.Count) string {
	switch {
	case math.IsNaN(c.Value()), c.AtLeast() && c.Lower <= 0:
		return ""
	case c.AtLeast():
		return "at least " + tenths(c.Lower)
	case c.Wide():
		return tenths(c.Lower) + " to " + tenths(c.Upper)
	default:
		return tenths(c.Mean)
	}
}

// tenths are written where they matter.
func tenths(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func latencies(r *summary.Requests) string {
	var parts []string
	if r.Count > 0 {
		parts = append(parts, fmt.Sprintf("%d finished", r.Count))
	}
	if r.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", r.Failed))
	}
	for _, s := range []struct {
		name   string
		spread *summary.Spread
	}{{"ttft", r.TTFT}, {"tpot", r.TPOT}, {"e2e", r.E2E}} {
		if s.spread != nil {
			parts = append(parts, fmt.Sprintf("%s p50 %s p95 %s p99 %s", s.name, duration(s.spread.P50), duration(s.spread.P95), duration(s.spread.P99)))
		}
	}
	if v, ok := r.Goodput["all"]; ok {
		parts = append(parts, "objectives met "+percent(v))
	}
	return strings.Join(parts, ", ")
}

func certainty(e *summary.Engine) string {
	c := &e.Certainty
	var parts []string
	if c.Completeness != nil {
		parts = append(parts, "seen "+percent(*c.Completeness))
	}
	if c.Late > 0 {
		parts = append(parts, fmt.Sprintf("%d since the start came after their windows had closed", c.Late))
	}
	if len(c.Findings) > 0 {
		parts = append(parts, strings.Join(c.Findings, ", "))
	}
	if e.MayMix {
		if e.KeySource == "none" {
			parts = append(parts, "nothing names this engine, so several may be mixed")
		} else {
			parts = append(parts, "replicas may be mixed under "+e.KeySource)
		}
	}
	return strings.Join(parts, ", ")
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", v*100) }

// duration has three digits and a unit.
func duration(v float64) string {
	switch {
	case v < 1e-3:
		return fmt.Sprintf("%.0f µs", v*1e6)
	case v < 1:
		return fmt.Sprintf("%.3g ms", v*1e3)
	case v < 600:
		return fmt.Sprintf("%.3g s", v)
	}
	return time.Duration(math.Round(v) * float64(time.Second)).String()
}

// printable leaves out what could drive a terminal: names are whatever a sender wrote.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}
