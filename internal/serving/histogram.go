// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// One histogram: explicit or exponential buckets, sum, extremes and exemplars.

import (
	"math"
	"slices"

	expohisto "github.com/lightstep/go-expohisto/structure"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// histogram accumulates values that are finite and not negative. What every value needs comes first, to be in
// one line of the cache.
type histogram struct {
	count         uint64
	sum, min, max float64
	// floor is what a value must exceed to be an exemplar.
	floor       float64
	counts      []uint64 // explicit: one more than there are bounds
	exponential *expohisto.Histogram[float64]
	exemplars   []exemplar
}

// exemplar is one request of the interval that is running.
type exemplar struct {
	value   float64
	time    pcommon.Timestamp
	traceID pcommon.TraceID
	spanID  pcommon.SpanID
}

// histogramShape is what all histograms of one definition have in common.
type histogramShape struct {
	definition   *histogramDefinition
	buckets      *bucketIndex // nil: exponential
	maxSize      int32
	maxExemplars int
}

func (h *histogram) record(shape *histogramShape, v float64, e *exemplar) {
	if h.count == 0 {
		h.start(shape)
		h.min, h.max = v, v
	} else if v < h.min {
		h.min = v
	} else if v > h.max {
		h.max = v
	}
	h.count++
	h.sum += v
	if shape.buckets != nil {
		h.counts[shape.buckets.find(v)]++
	} else {
		h.exponential.Update(flushToZero(v))
	}
	if v > h.floor {
		h.addExemplar(shape, v, e)
	}
}

// addExemplar keeps the first ones, and in the last place the largest of all that follow.
func (h *histogram) addExemplar(shape *histogramShape, v float64, e *exemplar) {
	if len(h.exemplars) < shape.maxExemplars {
		h.exemplars = append(h.exemplars, exemplar{})
	}
	last := &h.exemplars[len(h.exemplars)-1]
	*last = *e
	last.value = v
	if len(h.exemplars) == shape.maxExemplars {
		h.floor = v
	}
}

// dropExemplars makes room for those of the next interval.
func (h *histogram) dropExemplars(shape *histogramShape) {
	h.exemplars = h.exemplars[:0]
	h.floor = -1
	if shape.maxExemplars == 0 {
		h.floor = math.MaxFloat64
	}
}

// zeroThreshold is the largest value that an exponential histogram counts as zero: a nanosecond, or a
// billionth. Without it, one absurdly small value would make all buckets so wide that Prometheus
// refuses the histogram, which can be no coarser than scale -4.
const zeroThreshold = 1e-9

func flushToZero(v float64) float64 {
	if v <= zeroThreshold {
		return 0
	}
	return v
}

// start makes room for buckets at the first value: most series lack half of the histograms.
func (h *histogram) start(shape *histogramShape) {
	if len(h.exemplars) == 0 {
		h.dropExemplars(shape)
	}
	switch {
	case shape.buckets == nil && h.exponential == nil:
		h.exponential = expohisto.NewFloat64(expohisto.NewConfig(expohisto.WithMaxSize(shape.maxSize)))
	case shape.buckets != nil && h.counts == nil:
		h.counts = make([]uint64, len(shape.buckets.bounds)+1)
	}
}

// take makes h a copy of from, whose exemplars it takes away: they are of one interval only.
func (h *histogram) take(from *histogram, shape *histogramShape) {
	h.exemplars, from.exemplars = from.exemplars, h.exemplars
	from.dropExemplars(shape)
	h.count, h.sum, h.min, h.max = from.count, from.sum, from.min, from.max
	if from.count == 0 {
		return
	}
	h.start(shape)
	if h.exponential != nil {
		from.exponential.CopyInto(h.exponential)
	} else {
		copy(h.counts, from.counts)
	}
}

// merge adds what from has.
func (h *histogram) merge(from *histogram, shape *histogramShape) {
	if from.count == 0 {
		return
	}
	if h.count == 0 {
		h.start(shape)
		h.min, h.max = from.min, from.max
	} else {
		h.min, h.max = min(h.min, from.min), max(h.max, from.max)
	}
	h.count += from.count
	h.sum += from.sum
	if h.exponential != nil {
		h.exponential.MergeFrom(from.exponential)
	} else {
		for i, n := range from.counts {
			h.counts[i] += n
		}
	}
	// The newest ones: a sample, not a sum.
	h.exemplars = append(h.exemplars[:0], from.exemplars...)
}

func (h *histogram) reset() {
	h.count, h.sum, h.min, h.max = 0, 0, 0, 0
	h.exemplars = h.exemplars[:0] // start, at the next value, sets their floor
	if h.exponential != nil {
		h.exponential.Clear()
	}
	clear(h.counts)
}

// putExplicit and putExponential write h into an empty point.
func (h *histogram) putExplicit(dp pmetric.HistogramDataPoint, shape *histogramShape) {
	dp.SetCount(h.count)
	dp.SetSum(h.sum)
	dp.SetMin(h.min)
	dp.SetMax(h.max)
	dp.ExplicitBounds().FromRaw(shape.buckets.bounds)
	dp.BucketCounts().FromRaw(h.counts)
	h.putExemplars(dp.Exemplars())
}

func (h *histogram) putExponential(dp pmetric.ExponentialHistogramDataPoint) {
	dp.SetCount(h.count)
	dp.SetSum(h.sum)
	dp.SetMin(h.min)
	dp.SetMax(h.max)
	dp.SetScale(h.exponential.Scale())
	dp.SetZeroCount(h.exponential.ZeroCount())
	dp.SetZeroThreshold(zeroThreshold)
	positive := h.exponential.Positive()
	dp.Positive().SetOffset(positive.Offset())
	counts := dp.Positive().BucketCounts()
	counts.EnsureCapacity(int(positive.Len()))
	for i := range positive.Len() {
		counts.Append(positive.At(i))
	}
	h.putExemplars(dp.Exemplars())
}

func (h *histogram) putExemplars(to pmetric.ExemplarSlice) {
	to.EnsureCapacity(len(h.exemplars))
	for i := range h.exemplars {
		e := &h.exemplars[i]
		x := to.AppendEmpty()
		x.SetDoubleValue(e.value)
		x.SetTimestamp(e.time)
		x.SetTraceID(e.traceID)
		x.SetSpanID(e.spanID)
	}
}

// bucketIndex finds the bucket of a value in nearly constant time: the exponent and the upper bits of
// the mantissa select a cell that is a sixteenth of an octave wide, and the cell knows the first bucket
// that can be meant. A search is a few mispredicted branches per value, a table is none.
type bucketIndex struct {
	bounds []float64
	first  uint64  // key of cells[0]
	cells  []uint8 // lowest bucket that a value of this cell can be in
}

const cellShift = 52 - 4 // 4 bits of mantissa

func newBucketIndex(bounds []float64) *bucketIndex {
	b := &bucketIndex{bounds: slices.Clone(bounds)}
	positive := bounds
	if positive[0] <= 0 {
		positive = positive[1:]
	}
	if len(positive) == 0 {
		return b
	}
	b.first = math.Float64bits(positive[0]) >> cellShift
	last := math.Float64bits(positive[len(positive)-1]) >> cellShift
	for key := b.first; key <= last; key++ {
		low := math.Float64frombits(key << cellShift)
		bucket, _ := slices.BinarySearch(bounds, low)
		b.cells = append(b.cells, uint8(bucket))
	}
	return b
}

// find is the index of the first bound that is not below v, or the number of bounds.
func (b *bucketIndex) find(v float64) int {
	i := 0
	if n := uint64(len(b.cells)); n > 0 {
		// Without the sign: zero may have one.
		if key := math.Float64bits(v) &^ (1 << 63) >> cellShift; key >= b.first {
			i = int(b.cells[min(key-b.first, n-1)])
		}
	}
	for i < len(b.bounds) && v > b.bounds[i] {
		i++
	}
	return i
}
