// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// linearBucket is what bucketIndex.find has to find.
func linearBucket(bounds []float64, v float64) int {
	for i, bound := range bounds {
		if v <= bound {
			return i
		}
	}
	return len(bounds)
}

// odd values: where a table over exponents and mantissas could go wrong.
var oddValues = []float64{
	0, math.Copysign(0, -1), math.SmallestNonzeroFloat64, 2 * math.SmallestNonzeroFloat64, 1e-310, 0x1p-1022, 0x1p-1023, 1e-300, 1e-9,
	1, 1.5, 2, math.Nextafter(2, 0), 1 << 31, 1e300, math.MaxFloat64,
}

func checkIndex(t *testing.T, bounds []float64, more ...float64) {
	t.Helper()
	index := newBucketIndex(bounds)
	check := func(v float64) {
		if v >= 0 {
			require.Equal(t, linearBucket(bounds, v), index.find(v), "%g in %v", v, bounds)
		}
	}
	for _, v := range slices.Concat(oddValues, more, bounds) {
		check(v)
		check(math.Nextafter(v, 0))
		check(math.Nextafter(v, math.MaxFloat64))
	}
}

func TestBucketIndex(t *testing.T) {
	for _, shape := range newShapes(&Config{Histograms: HistogramConfig{Type: Explicit}, Compatibility: []string{"vllm", "vllm"}}) {
		checkIndex(t, shape.buckets.bounds)
	}
	for _, bounds := range [][]float64{
		{0},
		{0, 1},
		{math.SmallestNonzeroFloat64},
		{0, math.SmallestNonzeroFloat64, math.MaxFloat64},
		{math.MaxFloat64},
		{1, math.Nextafter(1, 2), math.Nextafter(math.Nextafter(1, 2), 2)},
		{math.Copysign(0, -1), 1},
	} {
		checkIndex(t, bounds)
	}

	rng := rand.New(rand.NewPCG(7, 8))
	draw := []func() float64{
		rng.Float64,
		func() float64 { return math.Exp(rng.NormFloat64() * 10) },
		func() float64 { return float64(rng.IntN(1000)) },
		func() float64 { return math.Float64frombits(rng.Uint64() &^ (1 << 63)) },
		func() float64 { return math.Float64frombits(rng.Uint64() >> 13) }, // subnormal
	}
	finite := func() float64 {
		for {
			if v := draw[rng.IntN(len(draw))](); !math.IsNaN(v) && !math.IsInf(v, 0) {
				return v
			}
		}
	}
	for range 400 {
		bounds := make([]float64, 1+rng.IntN(maxBuckets))
		for i := range bounds {
			bounds[i] = finite()
		}
		slices.Sort(bounds)
		bounds = slices.Compact(bounds)
		more := make([]float64, 50)
		for i := range more {
			more[i] = finite()
		}
		checkIndex(t, bounds, more...)
	}
}

func explicitPoint(h *histogram, shape *histogramShape) pmetric.HistogramDataPoint {
	dp := pmetric.NewHistogramDataPoint()
	h.putExplicit(dp, shape)
	return dp
}

func exponentialPoint(h *histogram) pmetric.ExponentialHistogramDataPoint {
	dp := pmetric.NewExponentialHistogramDataPoint()
	h.putExponential(dp)
	return dp
}

func testShape(kind HistogramType, maxSize int32) *histogramShape {
	shape := &histogramShape{definition: &histogramDefinitions[histDuration], maxSize: maxSize, maxExemplars: 2}
	if kind == Explicit {
		shape.buckets = newBucketIndex(durationBuckets)
	}
	return shape
}

func TestExplicitAgreesWithExponential(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, maxSize := range []int32{minMaxSize, 160, maxMaxSize} {
		explicit, exponential := testShape(Explicit, 0), testShape(Exponential, maxSize)
		var a, b histogram
		values := append([]float64{0, 1e-12, 7 * 24 * 3600, 64, 1 << 31, 5e-324}, durationBuckets...)
		for range 2000 {
			values = append(values, math.Exp(rng.NormFloat64()*3))
		}
		sum := 0.0
		for _, v := range values {
			a.record(explicit, v, &exemplar{})
			b.record(exponential, v, &exemplar{})
			sum += v
		}
		x, y := explicitPoint(&a, explicit), exponentialPoint(&b)
		assert.EqualValues(t, len(values), x.Count())
		assert.Equal(t, x.Count(), y.Count())
		assert.Equal(t, sum, x.Sum())
		assert.Equal(t, sum, y.Sum())
		assert.Equal(t, x.Min(), y.Min())
		assert.Equal(t, float64(1<<31), y.Max())

		assert.GreaterOrEqual(t, y.Scale(), int32(-4), "coarser ones are refused by Prometheus")
		assert.LessOrEqual(t, y.Positive().BucketCounts().Len(), int(maxSize))
		assert.EqualValues(t, 3, y.ZeroCount())
		base := math.Pow(2, math.Pow(2, -float64(y.Scale())))
		inBuckets := y.ZeroCount()
		for i, n := range y.Positive().BucketCounts().All() {
			inBuckets += n
			lower := math.Pow(base, float64(y.Positive().Offset())+float64(i))
			direct := uint64(0)
			for _, v := range values {
				// Bounds are computed with rounding, so none of the values drawn is at one.
				if v > zeroThreshold && v > lower*(1+1e-12) && v <= lower*base*(1+1e-12) {
					direct++
				}
			}
			if y.Scale() <= 0 { // exact bounds
				assert.Equal(t, direct, n, "bucket %d", i)
			}
		}
		assert.Equal(t, y.Count(), inBuckets)
		inBuckets = 0
		for i, n := range x.BucketCounts().All() {
			inBuckets += n
			direct := uint64(0)
			for _, v := range values {
				if linearBucket(durationBuckets, v) == i {
					direct++
				}
			}
			assert.Equal(t, direct, n, "bucket %d", i)
		}
		assert.Equal(t, x.Count(), inBuckets)
	}
}

func TestHistogramMergeIsAssociative(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, kind := range []HistogramType{Explicit, Exponential} {
		shape := testShape(kind, 20)
		for range 100 {
			var parts [3]histogram
			var whole histogram
			for i := range parts {
				for range rng.IntN(20) { // some are empty
					v := math.Round(math.Exp(rng.NormFloat64()*float64(i+1))*1024) / 1024 // sums of these are exact
					parts[i].record(shape, v, &exemplar{})
					whole.record(shape, v, &exemplar{})
				}
			}
			add := func(order ...int) *histogram {
				var h histogram
				for _, i := range order {
					h.merge(&parts[i], shape)
				}
				return &h
			}
			var right histogram // a + (b + c)
			right.merge(&parts[0], shape)
			right.merge(add(1, 2), shape)
			for _, h := range []*histogram{add(0, 1, 2), add(2, 1, 0), &right} {
				h.exemplars, whole.exemplars = nil, nil
				if whole.count == 0 {
					assert.Zero(t, h.count)
					continue
				}
				if kind == Explicit {
					assert.Equal(t, explicitPoint(&whole, shape), explicitPoint(h, shape))
				} else {
					sameExponential(t, exponentialPoint(&whole), exponentialPoint(h))
				}
			}
		}
	}
}

// sameExponential compares at the coarser of both scales: the scale depends on the order of the values.
func sameExponential(t *testing.T, a, b pmetric.ExponentialHistogramDataPoint) {
	t.Helper()
	assert.Equal(t, []any{a.Count(), a.Sum(), a.Min(), a.Max(), a.ZeroCount()}, []any{b.Count(), b.Sum(), b.Min(), b.Max(), b.ZeroCount()})
	scale := min(a.Scale(), b.Scale())
	at := func(p pmetric.ExponentialHistogramDataPoint) map[int32]uint64 {
		buckets := map[int32]uint64{}
		for i, n := range p.Positive().BucketCounts().All() {
			if n > 0 {
				buckets[(p.Positive().Offset()+int32(i))>>(p.Scale()-scale)] += n
			}
		}
		return buckets
	}
	assert.Equal(t, at(a), at(b))
}

func TestHistogramTakeAndReset(t *testing.T) {
	for _, kind := range []HistogramType{Explicit, Exponential} {
		shape := testShape(kind, 160)
		var live, copied histogram
		copied.take(&live, shape)
		assert.Zero(t, copied.count)
		for _, v := range []float64{0.1, 3, 0.5, 7} {
			live.record(shape, v, &exemplar{})
		}
		copied.take(&live, shape)
		assert.EqualValues(t, 4, copied.count)
		assert.Equal(t, []float64{0.1, 7}, []float64{copied.exemplars[0].value, copied.exemplars[1].value}, "the first ones and the largest")
		assert.Empty(t, live.exemplars)
		live.record(shape, 100, &exemplar{})
		assert.EqualValues(t, 4, copied.count, "a copy")
		assert.Equal(t, 7.0, copied.max)
		live.reset()
		live.record(shape, 2, &exemplar{})
		assert.Equal(t, []float64{2, 2, 2}, []float64{live.min, live.max, live.sum})
		if kind == Explicit {
			assert.EqualValues(t, 1, live.counts[linearBucket(durationBuckets, 2)])
		} else {
			assert.EqualValues(t, 1, live.exponential.Count())
		}
	}
}
