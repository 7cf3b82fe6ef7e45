// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// How much work requests can make: three with times far apart would otherwise have every window in between computed.

import "sync/atomic"

// Budget bounds the windows that Timelines close. Each Timeline may close one for each request and one for each window's length of wall
// time, as engines at work do; what a backlog of idle hours takes beyond that comes out of the Budget, which they share.
type Budget struct{ left atomic.Int64 }

// Refill sets the windows that may be closed beyond those of requests and of wall time.
func (b *Budget) Refill(windows int64) { b.left.Store(windows) }

const (
	// maxCredit bounds the windows that a Timeline may save up.
	maxCredit = 4096
	// minCredit is what Advance grants at least: windows are closed some at a time.
	minCredit = 8
	// requestsPerCost is the requests running that make a window cost as much again.
	requestsPerCost = 1024
)

// earn is called for each request and, with the windows that fit into it, for wall time.
func (t *Timeline) earn(windows int64) { t.credit = min(t.credit+windows, maxCredit) }

// afford pays for the next window, or reports that it cannot.
func (t *Timeline) afford() bool {
	if t.cfg.Budget == nil {
		return true
	}
	cost := int64(1 + len(t.kept)/requestsPerCost)
	if t.credit >= cost {
		t.credit -= cost
		return true
	}
	return t.cfg.Budget.left.Add(-cost) >= 0
}

// skipTo goes on with the window that begins at next, and leaves out those before.
func (t *Timeline) skipTo(next int64) {
	if next <= t.next {
		return
	}
	t.stats.SkippedWindows += (next - t.next) / t.win
	t.next, t.closed = next, next
}
