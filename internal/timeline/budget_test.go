// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// jumps are requests three by three, each three 25 minutes after those before: windows of an idle engine in between.
func jumps(n int) (all []llmrequest.Request) {
	for i := range n {
		all = append(all, plain(float64(i/3)*25*60, 0, 2, 10))
	}
	return all
}

// closeAll is how many windows are closed in all.
func closeAll(tl *Timeline, reqs []llmrequest.Request) (closed int64) {
	for i := range reqs {
		tl.Add(&reqs[i])
		tl.Drain(func(*Window) { closed++ })
	}
	return closed
}

// Requests whose times are far apart make no more windows than the budget allows, and all are accounted for.
func TestBudgetBoundsWindows(t *testing.T) {
	const spare = 1000
	reqs := jumps(3000)
	budget := &Budget{}
	budget.Refill(spare)
	tl := New(Config{Budget: budget, IdleTimeout: 30 * time.Minute})
	closed := closeAll(tl, reqs)
	assert.LessOrEqual(t, closed, int64(spare+len(reqs)))
	assert.Greater(t, closed, int64(spare), "what is affordable is there")
	skipped := tl.Stats().SkippedWindows
	assert.Greater(t, skipped, 10*closed)

	tl = New(Config{IdleTimeout: 30 * time.Minute})
	assert.InDelta(t, closeAll(tl, reqs), closed+skipped, 200)
	assert.Zero(t, tl.Stats().SkippedWindows)
}

// Engines that are at work, or rest while time goes by, need no budget.
func TestBudgetIsNotForWallTime(t *testing.T) {
	count := func(b *Budget) (closed int) {
		tl := New(Config{Budget: b, IdleTimeout: 30 * time.Minute})
		now := simEpoch
		for i := range 4 * 60 {
			if i < 60 || i > 120 && i%7 == 0 {
				r := plain(float64(i)*60, 0, 2, 10)
				tl.Add(&r)
			}
			for range 4 {
				now = now.Add(15 * time.Second)
				tl.Advance(now)
			}
		}
		require.Zero(t, tl.Stats().SkippedWindows)
		tl.Drain(func(*Window) { closed++ })
		return closed
	}
	assert.Positive(t, count(nil))
	assert.Equal(t, count(nil), count(&Budget{}))
}

// What was saved up in quiet hours is bounded.
func TestCreditIsBounded(t *testing.T) {
	tl := New(Config{Budget: &Budget{}, IdleTimeout: 30 * time.Minute})
	tl.Advance(simEpoch)
	tl.Advance(simEpoch.Add(1000 * time.Hour))
	reqs := jumps(150)
	closed := closeAll(tl, reqs)
	assert.LessOrEqual(t, closed, int64(maxCredit+len(reqs)))
	assert.Greater(t, closed, int64(maxCredit/2))
	assert.Positive(t, tl.Stats().SkippedWindows)
}

// At the end the budget holds, too.
func TestBudgetAtTheEnd(t *testing.T) {
	for _, budget := range []*Budget{nil, {}} {
		tl := New(Config{Budget: budget, Grace: time.Hour})
		for _, r := range []llmrequest.Request{plain(0, 0, 2, 10), plain(50, 0, 2, 10), plain(600, 0, 2, 10)} {
			tl.Add(&r)
		}
		tl.Flush(false)
		closed := int64(len(tl.Windows()))
		if budget == nil {
			assert.Greater(t, closed, int64(50))
			assert.Zero(t, tl.Stats().SkippedWindows)
			continue
		}
		assert.LessOrEqual(t, closed, int64(3), "one for each request")
		assert.Greater(t, tl.Stats().SkippedWindows, int64(50))
	}
}
