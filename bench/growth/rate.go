// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// What the windows of an engine cost per request, by how many requests it has per second. That work is done by the collect, not by
// who sends spans.

import (
	"runtime"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/measure"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

const (
	// usual is the rate that the budgets are for, in requests per second.
	usual = 10
	// An engine serves up to fastest requests per second; one that has more to serve is so much faster.
	fastest = 13
	// There are from leastWindows to mostWindows. What is retained is measured over the second half of them: at first an engine's
	// requests are not known and more of them are kept, and memory no longer needed is given back after some windows.
	leastWindows, mostWindows = 320, 1000
	windowTime                = 10 // s
)

// rate is an engine of a kind of internal/enginesim at a rate of requests, and what it cost in every round.
type rate struct {
	engine            string
	perSecond         int
	asItIs            bool      // not made faster
	collect, timeline []float64 // ns per request
	retained          int       // at most
	bytes             float64   // at most, per request retained at most
	fixed             float64
}

func byRate(e *effort, d *report.Document, images string) ([]report.Budget, error) {
	var all []*rate
	drawn := []string{"v0-default", "v1"}
	for _, engine := range drawn {
		for _, n := range []int{1, 2, 5, usual, 20, 50, 100} {
			all = append(all, &rate{engine: engine, perSecond: n})
		}
	}
	for _, engine := range []string{"v0-async", "v0-chunked", "v0-hostbound", "v1-async"} {
		all = append(all, &rate{engine: engine, perSecond: usual})
	}
	// Near what it can serve it preempts.
	all = append(all, &rate{engine: "v1-preempt", perSecond: 2 * usual, asItIs: true})
	for range e.rounds {
		for _, r := range all {
			if err := r.measure(e); err != nil {
				return nil, err
			}
		}
	}
	var lines [][]string
	var x []float64
	by := map[string][]float64{}
	for _, r := range all {
		c, t := measure.Of(r.collect), measure.Of(r.timeline)
		lines = append(lines, []string{
			r.engine + ", " + strconv.Itoa(r.perSecond) + "/s", c.Format("%.0f"), t.Format("%.0f"),
			strconv.FormatFloat(c.Median*float64(r.perSecond)*windowTime/1000, 'f', 0, 64), strconv.Itoa(r.retained), strconv.FormatFloat(r.bytes, 'f', 0, 64), strconv.FormatFloat(r.fixed/1000, 'f', 1, 64),
		})
		by[r.engine] = append(by[r.engine], c.Median)
		if r.engine == drawn[0] {
			x = append(x, float64(r.perSecond))
		}
	}
	d.Text("**Rate of requests of one engine**: what the collect costs for each of them (windows of 10 s, their diagnosis, and their metrics), " +
		"the part of it that is the timeline's, and the requests that the timeline retains once it knows the engine. The requests are those of the engine kinds of " +
		"[accuracy.md](accuracy.md#engine-kinds) serving chats, of engines as many times faster from 20/s on.")
	d.Table([]string{"requests of an engine", "collect, ns/request", "timeline, ns/request", "collect, µs/window", "retained at most", "B/request retained", "kB besides"}, lines)
	var budgets []report.Budget
	for _, r := range all {
		if r.perSecond == usual {
			t := measure.Of(r.timeline)
			budgets = append(budgets,
				report.Budget{What: "`" + r.engine + "`: timeline, ns per request, 10 requests/s", Limited: "<= 1000", Measured: t.Format("%.0f"), Value: t.Median, Limit: 1000},
				report.Budget{What: "`" + r.engine + "`: timeline, B per request retained", Limited: "<= 64", Measured: strconv.FormatFloat(r.bytes, 'f', 0, 64), Value: r.bytes, Limit: 64})
		}
	}
	if images == "" {
		return budgets, nil
	}
	return budgets, plotLines(images, "performance-collect-by-rate", "What a collect costs per request, by the engine's rate", "requests/s of one engine", "ns/request", x,
		series{drawn[0], by[drawn[0]]}, series{drawn[1], by[drawn[1]]})
}

func (r *rate) measure(e *effort) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a, _, err := aggregator(subject.Load{Engines: 1})
	if err != nil {
		return err
	}
	sim, err := r.simulation()
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
	windows := min(max(e.requests/(windowTime*r.perSecond), leastWindows), mostWindows)
	total := windows * windowTime * r.perSecond
	n, peak, half := 0, 0, false
	for warm := true; n < total; {
		var records []timeline.Record
		for len(records) < perCollect {
			for _, export := range sim.Advance(sim.Now().Add(windowTime * time.Second)) {
				a.Record(export.Traces, false)
				records = appendRecords(records, export.Traces)
			}
			sim.Forget(sim.Now())
		}
		runtime.GC() // what the simulation leaves behind is none of theirs
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

// simulation is of the engine at its rate.
func (r *rate) simulation() (*enginesim.Sim, error) {
	cfg, err := enginesim.Preset(r.engine)
	if err != nil {
		return nil, err
	}
	cfg.Start, cfg.Seed = time.Now().Add(-400*24*time.Hour), 1 // never ahead of the wall clock
	if r.perSecond > fastest && !r.asItIs {
		faster(&cfg, float64(usual)/float64(r.perSecond))
	}
	return enginesim.New(cfg, enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, float64(r.perSecond))
}

// faster makes everything that the device and its host do take a part of the time.
func faster(cfg *enginesim.Config, part float64) {
	for _, v := range []*float64{
		&cfg.Law.PrefillFloor, &cfg.Law.PrefillPerToken, &cfg.Law.DecodeBase, &cfg.Law.DecodePerSeq, &cfg.Law.DecodePerKVToken,
	} {
		*v *= part
	}
	h := &cfg.Host
	for _, v := range []*time.Duration{
		&h.Scheduler, &h.SchedulerPerSeq, &h.Prepare, &h.PreparePerSeq, &h.Sample, &h.SamplePerSeq, &h.Output, &h.OutputPerSeq, &h.Loop, &h.LoopPerSeq,
	} {
		*v = time.Duration(float64(*v) * part)
	}
}

func appendRecords(records []timeline.Record, td ptrace.Traces) []timeline.Record {
	var q llmrequest.Request
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
			for _, span := range ss.Spans().All() {
				if !llmrequest.Read(span, &src, &q) {
					continue
				}
				if record, ok := timeline.NewRecord(&q); ok {
					records = append(records, record)
				}
			}
		}
	}
	return records
}
