// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package measure

// The two clocks.

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

var start = time.Now()

func clock() time.Duration { return time.Since(start) }

// CPU is what this process has used of all cores so far.
func CPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // no Linux is without it
	}
	return time.Duration(t.Nano())
}

// overheadOf is what a clock adds to what it measures.
func overheadOf(now func() time.Duration) time.Duration {
	took := make([]time.Duration, 1000)
	for i := range took {
		begin := now()
		took[i] = now() - begin
	}
	slices.Sort(took)
	return took[len(took)/2]
}
