// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Whether what the collector holds has grown.

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// A heap that leaks as much as a span in a thousand leaves some 2 MiB behind in 15 minutes.
	heapGrowth = 0.05 // of the median, between the first and the last third after warm-up
	heapSlack  = 1.0  // MiB
	// Connections of scrapes and exports come and go.
	goroutineSlack = 6
)

// judge compares the first and the last third of the samples after warm-up.
func judge(samples []sample) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	warm := slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.at < settled })
	if len(warm) < 9 {
		return fmt.Errorf("only %d samples after warm-up", len(warm))
	}
	third := len(warm) / 3
	first, last := warm[:third], warm[len(warm)-third:]

	before, after := median(first, heapOf), median(last, heapOf)
	grown := after - before
	hours := (middle(last) - middle(first)) / 3600
	fmt.Printf("\nheap: %.1f MiB in the first third after warm-up, %.1f MiB in the last (%+.2f MiB, %+.1f MiB/h)\n", before, after, grown, grown/hours)
	if grown > before*heapGrowth+heapSlack {
		fail("the heap grows: %.1f MiB, then %.1f MiB", before, after)
	}
	rBefore, rAfter := median(first, goroutinesOf), median(last, goroutinesOf)
	fmt.Printf("goroutines: %.0f, then %.0f\n", rBefore, rAfter)
	if rAfter > rBefore+goroutineSlack {
		fail("goroutines grow: %.0f, then %.0f", rBefore, rAfter)
	}
	most := func(of func(sample) int) int {
		return of(slices.MaxFunc(warm, func(a, b sample) int { return of(a) - of(b) }))
	}
	series, engines := most(func(s sample) int { return s.series }), most(func(s sample) int { return s.engines })
	fmt.Printf("at most %d series of %d and %d engines of %d\n", series, maxSeries, engines, maxEngines)
	// The sum over all engines' overflow series is beyond the limit of series by design: one per engine.
	if series > maxSeries {
		fail("%d series, the limit is %d", series, maxSeries)
	}
	if engines > maxEngines {
		fail("%d engines, the limit is %d", engines, maxEngines)
	}
	// That the run was worth it.
	end := samples[len(samples)-1]
	if end.overflow == 0 {
		fail("no limit was ever reached")
	}
	if end.duplicates == 0 {
		fail("no span was resent")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("flat")
	return nil
}

func heapOf(s sample) float64       { return s.heap }
func goroutinesOf(s sample) float64 { return float64(s.goroutines) }

func median(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i := range samples {
		values[i] = of(samples[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// middle is the mean time of samples, in s.
func middle(samples []sample) (sum float64) {
	for i := range samples {
		sum += samples[i].at.Seconds()
	}
	return sum / float64(len(samples))
}
