// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Cost by the number of series and of engines: to record a request, to collect, and in memory.

import (
	"runtime"
	"strconv"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/measure"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// size is one number of series or engines, and what it cost in every round.
type size struct {
	n              int
	load           subject.Load
	record, decode []float64 // ns per span
	take, build    []float64 // ms per collect
	memory         []float64 // bytes, over those of one engine with one series
}

func bySeries(e *effort, d *report.Document, images string) ([]report.Budget, error) {
	var all []*size
	for _, n := range []int{10, 100, 1000, 5000, 10_000, 20_000} {
		if n <= e.most {
			all = append(all, &size{n: n, load: subject.Load{Kind: spans.V0, Engines: 10, Series: n}})
		}
	}
	d.Text("**Series** (V0 spans, 10 engines, every span of another series than the one before).")
	return nil, sizes(e, d, all, "series", images)
}

func byEngines(e *effort, d *report.Document, images string) ([]report.Budget, error) {
	var all []*size
	for _, n := range []int{1, 10, 100, 1000, 10_000} {
		if n <= e.most {
			all = append(all, &size{n: n, load: subject.Load{Kind: spans.V0, Engines: n}})
		}
	}
	d.Text("**Engines** (V0 spans, one series each, every export of another engine than the one before).")
	return nil, sizes(e, d, all, "engines", images)
}

func sizes(e *effort, d *report.Document, all []*size, what, images string) error {
	for range e.rounds {
		for _, s := range all {
			if err := s.measure(e); err != nil {
				return err
			}
		}
	}
	var lines [][]string
	var x, record, decode, take, whole []float64
	for _, s := range all {
		r, c, t, b, m := measure.Of(s.record), measure.Of(s.decode), measure.Of(s.take), measure.Of(s.build), measure.Of(s.memory)
		lines = append(lines, []string{
			strconv.Itoa(s.n), r.Format("%.0f"), c.Format("%.0f"), t.Format("%.2f"), b.Format("%.1f"),
			strconv.FormatFloat(m.Median/(1<<20), 'f', 1, 64), strconv.FormatFloat(m.Median/1000/float64(s.n), 'f', 1, 64),
		})
		x = append(x, float64(s.n))
		record, decode = append(record, r.Median), append(decode, c.Median)
		take, whole = append(take, t.Median), append(whole, t.Median+b.Median)
	}
	d.Table([]string{what, "record, ns/span", "decode, ns/span", "collect: take, ms CPU", "collect: build, ms CPU", "memory, MiB", "kB each"}, lines)
	if images == "" {
		return nil
	}
	if err := plotLines(images, "performance-record-by-"+what, "What a span costs, by "+what, what, "ns/span", x,
		series{"OTLP decode", decode}, series{"record", record}); err != nil {
		return err
	}
	return plotLines(images, "performance-collect-by-"+what, "What a collect takes, by "+what, what, "ms of CPU time", x,
		series{"take and build", whole}, series{"take", take})
}

func (s *size) measure(e *effort) error {
	sample, err := measure.Run(subject.Connector, measure.Plan{Load: s.load, Batch: 100, Cores: 1, For: e.each, Fill: e.fill})
	if err != nil {
		return err
	}
	s.record, s.decode = append(s.record, sample.Consume), append(s.decode, sample.Decode)

	before := heap()
	a, feed, err := aggregator(s.load)
	if err != nil {
		return err
	}
	if err := feed.all(a.Record); err != nil {
		return err
	}
	a.Take()
	s.memory = append(s.memory, float64(heap()-before))
	if err := feed.all(a.Record); err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	begin := measure.CPU()
	snapshot := a.Take()
	middle := measure.CPU()
	snapshot.Metrics("bench")
	s.take = append(s.take, (middle-begin).Seconds()*1e3)
	s.build = append(s.build, (measure.CPU()-middle).Seconds()*1e3)
	runtime.KeepAlive(a)
	return nil
}

// aggregator is what connector and processor have in them, without a remembered span: that is the same for all sizes.
func aggregator(l subject.Load) (*serving.Aggregator, *source, error) {
	c := serving.NewDefaultConfig()
	c.Limits.Engines, c.Limits.Series = max(c.Limits.Engines, 2*l.Engines), max(c.Limits.Series, 2*l.Engines, 2*l.Series)
	c.Dedupe.Window = 0
	if l.Series > 0 {
		c.Dimensions = []serving.Dimension{{Name: spans.Dimension}}
	}
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	a, err := serving.New(&c, serving.Settings{})
	if err != nil {
		return nil, nil, err
	}
	feed, err := newSource(l, 100*time.Millisecond, 100)
	return a, feed, err
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // less than 2^63
}
