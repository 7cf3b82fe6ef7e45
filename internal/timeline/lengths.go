// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Recent running times as a decaying histogram: what grace and completeness follow from.

import (
	"math"
	"time"
)

const (
	lengthsPerOctave = 8
	lengthsMinExp    = -10 // the first bucket ends at 2^-10 s
	lengthsBuckets   = 26 * lengthsPerOctave
	// forgotten is the count of a bucket, decayed, from which on it is empty.
	forgotten = 1e-6
)

// lengths holds counts and sums of running times in buckets of an eighth of an octave.
type lengths struct {
	count, sum [lengthsBuckets]float32
	total, n   float64
	top        int // the highest bucket in use
}

// octaveEdges are the edges of the buckets of an octave. There is one in each eighth of it, the last one at its end.
var octaveEdges = func() (edges [lengthsPerOctave]float64) {
	for i := range edges {
		edges[i] = math.Exp2(float64(i+1) / lengthsPerOctave)
	}
	return edges
}()

// lengthsBucket is the bucket of l. A logarithm is needed next to an edge only.
func lengthsBucket(l float64) int {
	if l <= 0 {
		return 0
	}
	const exponent, eighth = 52, 49 // first bits of a float64's exponent, and of the eighth of an octave
	bits := math.Float64bits(l)
	m := math.Float64frombits(bits&(1<<exponent-1) | 1023<<exponent) // l over a power of two, in [1, 2)
	i := int(bits>>eighth) % lengthsPerOctave
	edge := octaveEdges[i]
	if d := math.Abs(m - edge); d < 1e-9 || m-1 < 1e-9 {
		return lengthsBucketNear(l)
	}
	b := (int(bits>>exponent)-1023-lengthsMinExp)*lengthsPerOctave + i + 1
	if m > edge {
		b++
	}
	return min(max(b, 0), lengthsBuckets-1)
}

func lengthsBucketNear(l float64) int {
	return min(max(int(math.Ceil((math.Log2(l)-lengthsMinExp)*lengthsPerOctave)), 0), lengthsBuckets-1)
}

func (h *lengths) add(l, weight float64) {
	b := lengthsBucket(l)
	h.count[b] += float32(weight)
	h.sum[b] += float32(weight * l)
	h.top = max(h.top, b)
	h.total += weight * l
	h.n += weight
}

// decay multiplies everything by f.
func (h *lengths) decay(f float64) {
	h.total, h.n = 0, 0
	top := h.top
	h.top = 0
	for b := range top + 1 {
		if h.count[b] < forgotten {
			h.count[b], h.sum[b] = 0, 0
			continue
		}
		h.top = b
		h.count[b] *= float32(f)
		h.sum[b] *= float32(f)
		h.n += float64(h.count[b])
		h.total += float64(h.sum[b])
	}
}

// quantile is the upper edge of the bucket that holds quantile q, s.
func (h *lengths) quantile(q float64) float64 {
	var c float64
	for b := range h.top + 1 {
		if c += float64(h.count[b]); c >= q*h.n {
			return bucketEnd(b)
		}
	}
	return maxRun
}

// longest is the upper edge of the bucket of the longest running time that was added in the last hour, s.
func (h *lengths) longest() float64 {
	const faded = 0.015 // of one request, in six half-lives
	for b := lengthsBuckets - 1; b >= 0; b-- {
		if h.count[b] >= faded {
			return bucketEnd(b)
		}
	}
	return 0
}

// seen is the expected share of the running time at a moment that ends within age:
// sum min(L, age) / sum L, as the residual life of a request running at a random moment has it.
func (h *lengths) seen(age float64) float64 {
	if h.total <= 0 {
		return 1
	}
	if age <= 0 {
		return 0
	}
	var beyond float64
	for b := lengthsBucket(age); b <= h.top; b++ {
		beyond += max(float64(h.sum[b])-age*float64(h.count[b]), 0)
	}
	return max(1-beyond/h.total, 0)
}

// bucketEnds are the upper edges of the buckets, s, from that of the one before the first on.
var bucketEnds = func() (ends [lengthsBuckets + 2]float64) {
	for i := range ends {
		ends[i] = math.Exp2(float64(i-1)/lengthsPerOctave + lengthsMinExp)
	}
	return ends
}()

// bucketEnd is the upper edge of a bucket, s.
func bucketEnd(b int) float64 { return bucketEnds[b+1] }

// most is the length that requests make up all but a part of the running time below, s.
func (h *lengths) most(part float64) float64 {
	var s float64
	for b := h.top; b >= 0; b-- {
		if s += float64(h.sum[b]); s > part*h.total {
			return bucketEnd(b)
		}
	}
	return 0
}

// residual is what a request that runs at a random moment takes in all, on average, s.
func (h *lengths) residual() float64 {
	if h.total <= 0 {
		return 0
	}
	var ss float64
	for b := range h.top + 1 {
		if c := float64(h.count[b]); c > 0 {
			ss += float64(h.sum[b]) * float64(h.sum[b]) / c
		}
	}
	return ss / h.total
}

// begun is when an engine began, as far as its requests tell.
type begun struct{ rs, re int64 } // first schedule of the first; first end

func (b *begun) add(r *record) {
	if b.re == 0 {
		b.rs, b.re = r.rs, r.re
	}
	b.rs, b.re = min(b.rs, r.rs), min(b.re, r.re)
}

const (
	lengthsHalfLife = 10 * time.Minute
	// maxBegun bounds by how much grow may multiply.
	maxBegun = 4
	// begunBefore is the part of a request's time within which requests must have begun to end for the engine to have begun, too.
	begunBefore = 0.1
	// youngPart of the running time may be of longer requests than those that an engine must be older than, youngFor times.
	youngPart = 0.05
	youngFor  = 2.5
	// begunFor is how long, s, an engine has just begun.
	begunFor = 3600
)

// young reports whether an engine has begun too lately, at a moment, for its longest requests to have ended often enough.
func (b *begun) young(h *lengths, at int64) bool {
	known := float64(at-b.rs) / sec
	if b.re == 0 || known > begunFor {
		return false
	}
	long := h.most(youngPart)
	return float64(b.re-b.rs)/sec <= begunBefore*long && known < youngFor*long
}

// grow makes h what the lengths seen of an engine stand for at a moment: of one that has just begun only those have ended that began
// early enough, which few of the long ones did. Of one that ran before it was looked at, requests end of all ages.
func (b *begun) grow(h *lengths, seen *lengths, at int64) {
	*h = *seen
	known := float64(at-b.rs) / sec
	if b.re == 0 || known > begunFor {
		return
	}
	tau := lengthsHalfLife.Seconds() / math.Ln2
	exposure := func(s float64) float64 { return -math.Expm1(-max(s, 0) / tau) }
	all := exposure(known)
	h.n, h.total = 0, 0
	for i := range h.top + 1 {
		if h.count[i] > 0 {
			l := float64(h.sum[i] / h.count[i])
			if float64(b.re-b.rs)/sec <= begunBefore*l {
				f := float32(maxBegun)
				if e := exposure(known - l); e*maxBegun > all {
					f = float32(all / e)
				}
				h.count[i] *= f
				h.sum[i] *= f
			}
		}
		h.n += float64(h.count[i])
		h.total += float64(h.sum[i])
	}
}
