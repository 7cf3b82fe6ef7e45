// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// How long ingest takes while 20 000 series are collected, and while they are not.

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

const (
	// pause keeps the ingest from being a closed loop that all the CPU time goes into: a fleet sends now and then.
	pause = 200 * time.Microsecond
)

// What is collected while ingest is measured.
const (
	nothing = iota
	another // aggregator, which shares nothing but the machine: what of the difference is not ours to avoid
	same
	between // of two of them: not counted
)

func whileCollecting(e *effort, d *report.Document, images string) ([]report.Budget, error) {
	const n = 20_000
	a, feed, err := collected(n)
	if err != nil {
		return nil, err
	}
	other, _, err := collected(n)
	if err != nil {
		return nil, err
	}

	var state atomic.Int32
	var stop atomic.Bool
	var collects []float64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			begin := time.Now()
			state.Store(same)
			a.Take().Metrics("bench")
			state.Store(between)
			took := time.Since(begin)
			collects = append(collects, took.Seconds()*1e3)
			// As long each: what else happens on the machine meets all three.
			state.Store(another)
			other.Take().Metrics("bench")
			state.Store(nothing)
			time.Sleep(took)
			state.Store(between)
		}
	}()
	var by [between + 1][]float64 // µs per export
	for begin := time.Now(); time.Since(begin) < 3*e.quantiles; {
		td, err := feed.next()
		if err != nil {
			return nil, err
		}
		before := state.Load()
		t := time.Now()
		a.Record(td, false)
		took := time.Since(t).Seconds() * 1e6
		if before == state.Load() {
			by[before] = append(by[before], took)
		}
		time.Sleep(pause)
	}
	stop.Store(true)
	<-done

	for _, values := range by {
		slices.Sort(values)
	}
	slices.Sort(collects)
	at := func(sorted []float64, q float64) float64 {
		return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
	}
	var lines [][]string
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		base := at(by[nothing], q)
		line := []string{fmt.Sprintf("p%g", q*100), fmt.Sprintf("%.0f", base)}
		for _, s := range []int{another, same} {
			line = append(line, fmt.Sprintf("%.0f", at(by[s], q)), fmt.Sprintf("%.2f", at(by[s], q)/base))
		}
		lines = append(lines, line)
	}
	d.Text("**Ingest during a collect**: time to consume an export of %d spans, with %d series over 100 engines: %d times without a collect, %d times during one of an "+
		"aggregator that shares nothing with this one but the machine, %d times during its own. A collect took %.0f ms (median).",
		feed.template.Len(), n, len(by[nothing]), len(by[another]), len(by[same]), at(collects, 0.5))
	d.Table([]string{"", "without, µs", "another's, µs", "to without", "its own, µs", "to without"}, lines)
	budgets := []report.Budget{
		budgetOf("p99 of ingest during a collect of 20 000 series, to without", at(by[same], 0.99)/at(by[nothing], 0.99)),
		budgetOf("the same, to during a collect that shares nothing with it", at(by[same], 0.99)/at(by[another], 0.99)),
	}
	if images == "" {
		return budgets, nil
	}
	var x []float64
	var y [between][]float64
	for _, q := range []float64{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999} {
		x = append(x, 1/(1-q))
		for s := range y {
			y[s] = append(y[s], at(by[s], q))
		}
	}
	return budgets, plotLines(images, "performance-ingest", fmt.Sprintf("An export of %d spans, during a collect of %d series and without", feed.template.Len(), n),
		"one export in this many takes", "µs or more", x, series{"during its own collect", y[same]}, series{"during another's", y[another]}, series{"without", y[nothing]})
}

func budgetOf(what string, ratio float64) report.Budget {
	return report.Budget{What: what, Limited: "<= 2", Measured: fmt.Sprintf("%.2f", ratio), Value: ratio, Limit: 2}
}

// collected is an aggregator with n series that was collected once.
func collected(n int) (*serving.Aggregator, *source, error) {
	a, feed, err := aggregator(subject.Load{Kind: spans.V0, Engines: 100, Series: n})
	if err != nil {
		return nil, nil, err
	}
	if err := feed.all(a.Record); err != nil {
		return nil, nil, err
	}
	a.Take().Metrics("bench")
	return a, feed, nil
}
