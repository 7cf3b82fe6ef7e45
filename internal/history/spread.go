// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

// How one quantity is spread.

import (
	"math"

	expohisto "github.com/lightstep/go-expohisto/structure"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
)

// spread is a histogram of at most maxBuckets buckets of equal ratio. Its quantiles are within 2.2 % where its values
// span a factor of up to 1024, within 4.4 % up to 2^20.
type spread struct {
	h *expohisto.Histogram[float64]
}

const (
	maxBuckets = 160
	// tiny is counted as zero: one absurd value would make all buckets wide.
	tiny = 1e-6
)

func (s *spread) add(v float32) {
	if !(v >= 0) {
		return
	}
	x := float64(v)
	if x < tiny {
		x = 0
	}
	s.histogram().Update(x)
}

func (s *spread) histogram() *expohisto.Histogram[float64] {
	if s.h == nil {
		s.h = expohisto.NewFloat64(expohisto.NewConfig(expohisto.WithMaxSize(maxBuckets)))
	}
	return s.h
}

func (s *spread) merge(o *spread) {
	if o.h != nil && o.h.Count() > 0 {
		s.histogram().MergeFrom(o.h)
	}
}

func (s *spread) reset() {
	if s.h != nil {
		s.h.Clear()
	}
}

func (s *spread) quantiles() diagnosis.Quantiles {
	if s.h == nil || s.h.Count() == 0 {
		n := math.NaN()
		return diagnosis.Quantiles{Mean: n, P50: n, P90: n, P95: n, P99: n}
	}
	q := diagnosis.Quantiles{Count: int64(s.h.Count()), Mean: s.h.Sum() / float64(s.h.Count())} //nolint:gosec // far below
	s.walk([]float64{.5, .9, .95, .99}, []*float64{&q.P50, &q.P90, &q.P95, &q.P99})
	return q
}

// walk sets each of to to the quantile of at, which ascend: the geometric middle of the bucket that has it, within the
// extremes.
func (s *spread) walk(at []float64, to []*float64) {
	count := float64(s.h.Count())
	width := math.Exp2(math.Ldexp(1, -int(s.h.Scale()))) // ratio of a bucket's bounds
	seen := float64(s.h.ZeroCount())
	k := 0
	for k < len(at) && seen >= at[k]*count {
		*to[k] = max(0, s.h.Min())
		k++
	}
	buckets := s.h.Positive()
	for i := range buckets.Len() {
		if k == len(at) {
			return
		}
		seen += float64(buckets.At(i))
		for k < len(at) && seen >= at[k]*count*(1-1e-12) {
			low := math.Pow(width, float64(buckets.Offset())+float64(i))
			*to[k] = min(max(low*math.Sqrt(width), s.h.Min()), s.h.Max())
			k++
		}
	}
	for ; k < len(at); k++ {
		*to[k] = s.h.Max()
	}
}
