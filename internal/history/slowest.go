// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

// The slowest requests, and where to find them in a tracing backend.

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// MaxSlowest is how many slow requests are kept of each ten minutes.
const MaxSlowest = 10

// Slow is one slow request. Its strings are its own.
type Slow struct {
	Request
	TraceID pcommon.TraceID
	SpanID  pcommon.SpanID
	Model   string
	Error   string
}

// slowest are the slowest requests of ten minutes, in no order.
type slowest struct{ all []Slow }

// AddSlow takes in a request that may be one of the slowest.
func (h *History) AddSlow(r *Slow) {
	if r.End <= 0 || !(r.E2E >= 0) || !h.cfg.Hour {
		return
	}
	s := h.slowest.at(r.End)
	if len(s.all) < MaxSlowest {
		s.all = append(s.all, *r)
		return
	}
	least := 0
	for i := range s.all {
		if s.all[i].E2E < s.all[least].E2E {
			least = i
		}
	}
	if r.E2E > s.all[least].E2E {
		s.all[least] = *r
	}
}

// Slowest are the slowest requests of the hour up to the end of the last window, slowest first.
func (h *History) Slowest() []Slow {
	var all []Slow
	if n := len(h.points); n > 0 {
		end := h.points[n-1].End
		h.slowest.each(end.Add(-time.Hour).UnixNano(), end.Add(slowestSpan).UnixNano(), func(_ int64, s *slowest) { all = append(all, s.all...) })
	}
	slices.SortStableFunc(all, func(a, b Slow) int {
		return cmp.Or(-cmp.Compare(a.E2E, b.E2E), cmp.Compare(a.End, b.End), slices.Compare(a.SpanID[:], b.SpanID[:]))
	})
	return all[:min(len(all), MaxSlowest)]
}
