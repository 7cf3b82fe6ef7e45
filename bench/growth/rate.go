// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// What the windows of an engine cost per request, by how many requests it has per second. That work is done by the collect, not by
// who sends spans.

import (
	"runtime"
	"strconv"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/measure"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

const (
	// usual is the rate that the budgets are for.
	usual = 10
	// leastWindows is how many windows there are at least. What is retained is measured over the second half of them: at first an engine's
	// requests are not known and more of them are kept, and memory no longer needed is given back after some windows.
	leastWindows = 320
)

type rate struct {
	perSecond         int
	kind              spans.Kind
	collect, timeline []float64 // ns per request
	retained          int       // at most
	bytes             float64   // at most, per request retained at most
	fixed             float64
}

func byRate(e *effort, d *report.Document, images string) ([]report.Budget, error) {
	rates := []int{1, 2, 5, 10, 20, 50, 100}
	kinds := []spans.Kind{spans.V0, spans.V1}
	var all []*rate
	for _, kind := range kinds {
		for _, n := range rates {
			all = append(all, &rate{perSecond: n, kind: kind})
		}
	}
	for range e.rounds {
		for _, r := range all {
			if err := r.measure(e); err != nil {
				return nil, err
			}
		}
	}
	var lines [][]string
	var x []float64
	by := map[spans.Kind][]float64{}
	for _, r := range all {
		c, t := measure.Of(r.collect), measure.Of(r.timeline)
		lines = append(lines, []string{
			r.kind.String() + ", " + strconv.Itoa(r.perSecond) + "/s", c.Format("%.0f"), t.Format("%.0f"),
			strconv.FormatFloat(c.Median*float64(r.perSecond)*10/1000, 'f', 0, 64), strconv.Itoa(r.retained), strconv.FormatFloat(r.bytes, 'f', 0, 64), strconv.FormatFloat(r.fixed/1000, 'f', 1, 64),
		})
		by[r.kind] = append(by[r.kind], c.Median)
		if r.kind == kinds[0] {
			x = append(x, float64(r.perSecond))
		}
	}
	d.Text("**Rate of requests of one engine**: what the collect costs for each of them (windows of 10 s, their diagnosis, and their metrics), " +
		"the part of it that is the timeline's, and the requests that the timeline retains once it knows the engine.")
	d.Table([]string{"requests of an engine", "collect, ns/request", "timeline, ns/request", "collect, µs/window", "retained at most", "B/request retained", "kB besides"}, lines)
	var budgets []report.Budget
	for _, r := range all {
		if r.perSecond == usual {
			t := measure.Of(r.timeline)
			budgets = append(budgets,
				report.Budget{What: "`" + r.kind.String() + "`: timeline, ns per request, 10 requests/s", Limited: "<= 1000", Measured: t.Format("%.0f"), Value: t.Median, Limit: 1000},
				report.Budget{What: "`" + r.kind.String() + "`: timeline, B per request retained", Limited: "<= 64", Measured: strconv.FormatFloat(r.bytes, 'f', 0, 64), Value: r.bytes, Limit: 64})
		}
	}
	if images == "" {
		return budgets, nil
	}
	return budgets, plotLines(images, "performance-collect-by-rate", "What a collect costs per request, by the engine's rate", "requests/s of one engine", "ns/request", x,
		series{"V0 detailed", by[spans.V0]}, series{"V1", by[spans.V1]})
}

func (r *rate) measure(e *effort) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	load := subject.Load{Kind: r.kind, Engines: 1}
	a, _, err := aggregator(load)
	if err != nil {
		return err
	}
	step := time.Second / time.Duration(r.perSecond)
	feed, err := newSource(load, step, 100)
	if err != nil {
		return err
	}
	// A collect has the requests of its interval, but not so few that its own cost counts.
	perCollect := max(15*r.perSecond, 1000)
	line := timeline.New(timeline.Config{})
	most := 0
	look := func(*timeline.Window) {
		_, bytes := line.Memory()
		most = max(most, bytes)
	}
	var inCollect, inTimeline time.Duration
	total := max(e.requests, leastWindows*10*r.perSecond) // windows are of 10 s
	n, peak, half := 0, 0, false
	for warm := true; n < total; {
		var records []timeline.Record
		for recorded := 0; recorded < perCollect; recorded += feed.template.Len() {
			td, err := feed.next()
			if err != nil {
				return err
			}
			a.Record(td, false)
			rs := td.ResourceSpans().At(0)
			src := llmrequest.NewSource(rs.Resource().Attributes(), rs.ScopeSpans().At(0).Scope().Name())
			var q llmrequest.Request
			for _, span := range rs.ScopeSpans().At(0).Spans().All() {
				if llmrequest.Read(span, &src, &q) {
					if record, ok := timeline.NewRecord(&q); ok {
						records = append(records, record)
					}
				}
			}
		}
		begin := measure.CPU()
		a.Take().Metrics("bench")
		middle := measure.CPU()
		for i := range records {
			line.AddRecord(records[i])
			line.Drain(look)
			peak = max(peak, line.Retained())
		}
		if warm {
			warm = false
			continue
		}
		inCollect += middle - begin
		inTimeline += measure.CPU() - middle
		if n += len(records); !half && n >= total/2 {
			half, peak, most = true, 0, 0
		}
	}
	r.collect = append(r.collect, float64(inCollect.Nanoseconds())/float64(n))
	r.timeline = append(r.timeline, float64(inTimeline.Nanoseconds())/float64(n))
	all, requests := line.Memory()
	r.retained = peak
	r.bytes, r.fixed = float64(most)/float64(max(1, peak)), float64(all-requests)
	return nil
}
