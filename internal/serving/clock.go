// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Time that never goes back, although the wall clock does.

import (
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Clock is the source of time, for tests to replace.
type Clock struct {
	// Wall is the time of day, which may step either way.
	Wall func() time.Time
	// Elapsed is the time since a fixed moment, which never steps.
	Elapsed func() time.Duration
}

// started is when this process did: what one Aggregator remembers has meaning for the next.
var started = time.Now()

// SystemClock is the clock of the machine.
func SystemClock() Clock {
	return Clock{Wall: time.Now, Elapsed: func() time.Duration { return time.Since(started) }}
}

// steadyClock gives timestamps that strictly increase and follow the wall clock. Where that steps back,
// they go on from where they were at half speed until it has caught up with them.
type steadyClock struct {
	source Clock

	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
}

// now is the timestamp for points and the time since start for expiry.
func (c *steadyClock) now() (pcommon.Timestamp, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, elapsed := c.source.Wall(), c.source.Elapsed()
	// Strip the monotonic reading: it would hide the very step that this looks for.
	wall = wall.Round(0)
	if !wall.After(c.wall) && !c.wall.IsZero() {
		wall = c.wall.Add(max((elapsed-c.elapsed)/2, 1))
	}
	c.wall, c.elapsed = wall, elapsed
	return pcommon.NewTimestampFromTime(wall), elapsed
}
