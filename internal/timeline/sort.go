// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Sorting of moments. Those of a window are spread over it, so that each can be put about where it belongs, in a third of the time that
// comparing them takes.

import (
	"math/bits"
	"slices"
)

// sorter has the memory for it.
type sorter struct {
	counts []int32
	placed []int64
}

const (
	// fewMoments are sorted as fast by comparing them.
	fewMoments = 24
	// crowded is the number of moments in a bucket from which on they are not spread.
	crowded = 32
)

// sort sorts moments.
func (s *sorter) sort(x []int64) {
	n := len(x)
	if n < fewMoments {
		slices.Sort(x)
		return
	}
	first, last := x[0], x[0]
	for _, v := range x[1:] {
		first, last = min(first, v), max(last, v)
	}
	// Up to two buckets for each.
	shift := max(bits.Len64(uint64(last-first))-bits.Len(uint(n)), 0) //nolint:gosec // last is not before first
	buckets := int(uint64(last-first)>>shift) + 1                     //nolint:gosec // as before
	counts := zeros(s.counts, buckets+1)
	for _, v := range x {
		counts[uint64(v-first)>>shift+1]++ //nolint:gosec // as before
	}
	most := int32(0)
	for i := range buckets {
		most = max(most, counts[i+1])
		counts[i+1] += counts[i]
	}
	s.counts = counts
	if most >= crowded {
		slices.Sort(x)
		return
	}
	placed := slices.Grow(s.placed[:0], n)[:n]
	for _, v := range x {
		at := &counts[uint64(v-first)>>shift] //nolint:gosec // as before
		placed[*at] = v
		*at++
	}
	s.placed = placed
	// What is left to do is within buckets.
	for i, v := range placed {
		j := i
		for ; j > 0 && x[j-1] > v; j-- {
			x[j] = x[j-1]
		}
		x[j] = v
	}
}
