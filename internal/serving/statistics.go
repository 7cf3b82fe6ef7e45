// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What the aggregator says of its own health.

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// Stats is the health of an Aggregator. All but Engines, Series, LastSpan and LastCollect only grow.
type Stats struct {
	// Spans are all that were received, whether they are requests or not; LastSpan is when the last came; zero: none did.
	Spans    int64
	LastSpan time.Time
	// Requests are the requests that were counted in the metrics.
	Requests [llmrequest.NumKinds][llmrequest.NumGenerations]int64
	// Rejected are the implausible values that were left out, by reason.
	Rejected [llmrequest.NumReasons]int64
	// Duplicates are the resent spans that were not counted again.
	Duplicates int64
	// Forgotten is how often spans were forgotten before the dedupe window was over.
	Forgotten int64
	// Overflow are the requests that were counted in an overflow series.
	Overflow int64
	// Cut are the attribute values that were too long.
	Cut int64
	// Dropped are the requests that came after Close.
	Dropped int64
	// Lost are the requests in delta points that could not be sent for so long that Merge left them out.
	Lost int64
	// Late are the requests that came after a window they belong to was closed. They are in all other metrics.
	Late int64
	// Outlying are the requests whose time is too far from that of all others to be in a window, or is not known.
	Outlying int64
	// SkippedWindows are those that were not computed, or not handed over: there were more at a time than a collect has time for.
	SkippedWindows int64
	// Engines and Series are those that exist.
	Engines, Series int64
	// LastCollect is when metrics were last handed over successfully; zero: never.
	LastCollect time.Time
}

// statistics are the counters behind Stats.
type statistics struct {
	spans       atomic.Int64
	lastSpan    atomic.Int64 // ns since 1970
	requests    [llmrequest.NumKinds][llmrequest.NumGenerations]atomic.Int64
	rejected    [llmrequest.NumReasons]atomic.Int64
	duplicates  atomic.Int64
	overflow    atomic.Int64
	cut         atomic.Int64
	dropped     atomic.Int64
	lost        atomic.Int64
	late        atomic.Int64
	outlying    atomic.Int64
	skipped     atomic.Int64
	lastCollect atomic.Int64 // ns since 1970
}

// counts are those of one batch, so that a request costs no atomic operation.
type counts struct {
	requests                 [llmrequest.NumKinds][llmrequest.NumGenerations]int64
	rejected                 [llmrequest.NumReasons]int64
	spans                    int64
	duplicates, cut, dropped int64
}

// add counts a request that is recorded.
func (c *counts) add(r *llmrequest.Request) {
	c.requests[r.Kind][r.Generation]++
	for _, rejection := range r.Rejections() {
		c.rejected[rejection.Reason]++
	}
	if further := r.FurtherRejections(); further != nil {
		for reason, n := range further {
			c.rejected[reason] += int64(n)
		}
	}
}

func (s *statistics) add(c *counts, now pcommon.Timestamp) {
	if c.spans > 0 {
		s.spans.Add(c.spans)
		s.lastSpan.Store(int64(now)) //nolint:gosec // the wall clock
	}
	for kind := range c.requests {
		for generation, n := range c.requests[kind] {
			addNonZero(&s.requests[kind][generation], n)
		}
	}
	for reason, n := range c.rejected {
		addNonZero(&s.rejected[reason], n)
	}
	addNonZero(&s.duplicates, c.duplicates)
	addNonZero(&s.cut, c.cut)
	addNonZero(&s.dropped, c.dropped)
}

func addNonZero(to *atomic.Int64, n int64) {
	if n != 0 {
		to.Add(n)
	}
}

// Stats reads the counters.
func (a *Aggregator) Stats() Stats {
	s := &a.stats
	out := Stats{
		Spans: s.spans.Load(), Duplicates: s.duplicates.Load(), Overflow: s.overflow.Load(), Cut: s.cut.Load(), Dropped: s.dropped.Load(), Lost: s.lost.Load(), Late: s.late.Load(), Outlying: s.outlying.Load(), SkippedWindows: s.skipped.Load(),
		Engines: a.engines.n.Load(), Series: a.series.n.Load(),
	}
	for kind := range s.requests {
		for generation := range s.requests[kind] {
			out.Requests[kind][generation] = s.requests[kind][generation].Load()
		}
	}
	for reason := range s.rejected {
		out.Rejected[reason] = s.rejected[reason].Load()
	}
	if a.dedupe != nil {
		out.Forgotten = a.dedupe.evictions.Load()
	}
	if ns := s.lastSpan.Load(); ns != 0 {
		out.LastSpan = time.Unix(0, ns)
	}
	if ns := s.lastCollect.Load(); ns != 0 {
		out.LastCollect = time.Unix(0, ns)
	}
	return out
}
