// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

// What the page shows of the requests: the period in full, the hour minute by minute.

import (
	"math"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
)

// Recent are the requests of the period up to the end of the last window.
type Recent struct {
	diagnosis.Requests
	// Queue, Prefill, Decode and Frontend are mean seconds of a request; NaN: unknown.
	Queue, Prefill, Decode, Frontend float64
	// Good are the requests that met ttft, tpot, e2e and all of them.
	Good [numObjectives]int64
	// Before is the day before; nil: unknown.
	Before *diagnosis.Before
}

// Recent is what Period tells of requests, and more.
func (h *History) Recent() Recent {
	if len(h.points) == 0 {
		n := math.NaN()
		return Recent{Requests: noRequests(), Queue: n, Prefill: n, Decode: n, Frontend: n}
	}
	end := h.points[len(h.points)-1].End
	m := h.requests(end)
	return Recent{
		Requests: m.requests, Good: m.good, Before: h.before(end),
		Queue: m.sums[queueTime].mean(), Prefill: m.sums[prefillTime].mean(), Decode: m.sums[decodeTime].mean(), Frontend: m.sums[frontendTime].mean(),
	}
}

// Minute is what finished in one minute.
type Minute struct {
	End             time.Time
	Count           int64
	TTFT, TPOT, E2E diagnosis.Quantiles
}

// Minutes are the whole minutes of the hour up to the end of the last window oldest first.
func (h *History) Minutes() []Minute {
	if len(h.points) == 0 {
		return nil
	}
	to := h.points[len(h.points)-1].End.Truncate(time.Minute)
	var all []Minute
	h.minutes.each(to.Add(-time.Hour).UnixNano(), to.UnixNano(), func(start int64, m *minute) {
		all = append(all, Minute{
			End: time.Unix(0, start).Add(time.Minute).UTC(), Count: m.count,
			TTFT: m.ttft.quantiles(), TPOT: m.tpot.quantiles(), E2E: m.e2e.quantiles(),
		})
	})
	return all
}
