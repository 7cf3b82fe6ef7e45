// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The budgets that these tables decide.

import (
	"fmt"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
)

// mostObjects allows for a piece of memory for 128 requests, which is taken now and then and given back by the collect.
const mostObjects = 0.05

// budgets compares the connector with what it may cost, where it was measured.
func budgets(all []*row) (lines []report.Budget) {
	find := func(s *subject.Subject, kind spans.Kind, cores int, hot bool) *row {
		for _, r := range all {
			p := r.plan
			if r.subject == s && p.Load.Kind == kind && p.Cores == cores && p.Hot == hot && (p.Batch == batch || hot) && p.Load.Engines == engines && p.Load.Series == 0 {
				return r
			}
		}
		return nil
	}
	for _, kind := range []spans.Kind{spans.V0, spans.V1} {
		name := "`" + kind.String() + "`: record a request, to "
		ours := find(subject.Connector, kind, 1, false)
		span, signal, walk := find(subject.SpanMetrics, kind, 1, false), find(subject.SignalToMetrics, kind, 1, false), find(subject.Walk, kind, 1, false)
		if ours != nil && span != nil && signal != nil && walk != nil {
			decode, toSpan, toSignal := ours.toDecode(), ours.to(span), ours.to(signal)
			lines = append(lines,
				report.Budget{What: name + "decoding it", Limited: "<= 0.15, aim 0.10", Measured: decode.Format("%.3f"), Value: decode.Median, Limit: 0.15},
				report.Budget{What: name + "`span_metrics`", Limited: "<= 0.75, aim 0.60", Measured: toSpan.Format("%.2f"), Value: toSpan.Median, Limit: 0.75},
				report.Budget{What: name + "`signal_to_metrics`", Limited: "<= 1/15 = 0.067", Measured: toSignal.Format("%.3f"), Value: toSignal.Median, Limit: 1.0 / 15},
				report.Budget{What: name + "one walk over its attributes", Limited: "none; 1 is the floor", Measured: ours.to(walk).Format("%.1f")},
				report.Budget{
					What: "`" + kind.String() + "`: allocations per request", Limited: fmt.Sprintf("0 (< %.2f)", mostObjects),
					Measured: fmt.Sprintf("%.3f", ours.allocations.Objects), Value: ours.allocations.Objects, Limit: mostObjects,
				})
		}
		one, two := find(subject.Connector, kind, 1, true), find(subject.Connector, kind, 2, true)
		if one != nil && two != nil {
			s := scale(one, two)
			lines = append(lines, report.Budget{
				What: "`" + kind.String() + "`: throughput of two cores, to one", Limited: ">= 1.8",
				Measured: s.Format("%.2f"), Value: s.Median, Limit: 1.8, AtLeast: true,
			})
		}
	}
	return lines
}
