// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The safe bracket of device utilisation: what no arrangement of the device's activity that
// agrees with the spans can get below or above.
//
// With B(t) the device's busy time up to t, a request that ran from s to e with forward time F
// proves B(e) - B(s) >= F, and, for a forward pass runs neither in the scheduler nor in the host's
// part of the executor, B(e) - B(s) <= L - S - (E - F). Between neighbouring moments B grows by 0
// up to the time some request ran. An engine that runs prompts in steps of their own held the
// request up meanwhile: the prompts' forward time, at least, comes on top of F. These are difference constraints: the extremes of B over the
// window are shortest paths between its edges.

import (
	"math"
	"math/bits"
	"slices"
)

type bracket struct {
	candidates []candidate
	c          []constraint

	points []int64
	ends   []int64   // when constraints end after w0, and which
	cap    []float64 // of the segment after each point
	dist   []float64
	ending []int32 // first constraint that ends at a point
	scores []float64
}

type constraint struct {
	a, b   int64
	lo, hi float64
	s, e   int32
	next   int32 // constraint with the same end
}

// candidate is a request that may become a constraint: the lower its score, the more it says.
type candidate struct {
	r              *record
	blocked, score float64
}

// A window takes up to minConstraints + the requests that ended in it, and maxConstraints (times its length in
// constraintTime), so that the work per request is bounded. Leaving some out only widens the bracket.
const (
	minConstraints = 12
	maxConstraints = 40
	// maxConstraints is for a window of up to constraintTime, and grows with it up to maxConstraintsFactor.
	constraintTime       = 10 * sec
	maxConstraintsFactor = 8
	// preferLong makes the longer of two requests inside the window the better one: fewer leave no gap.
	preferLong = 0.05
)

func (k *bracket) reset() { k.candidates = k.candidates[:0] }

// add takes a request that ran in the window, and what the device ran of others while they held it up, s.
func (k *bracket) add(r *record, w0, w1 int64, blocked float64) {
	// What it says of the window at least: the longer outside, the less.
	inside := float64(min(r.re, w1)-max(r.rs, w0)) / sec
	k.candidates = append(k.candidates, candidate{r, blocked, float64(r.re-r.rs)/sec - inside - preferLong*inside})
}

func (x *candidate) constraint() constraint {
	r := x.r
	c := constraint{a: r.rs, b: r.re, lo: float64(r.forward) + x.blocked, hi: float64(r.re-r.rs) / sec}
	if r.has(hasScheduler) {
		c.hi -= float64(r.scheduler)
	}
	if r.has(hasExecute) {
		c.hi -= max(0, float64(r.execute-r.forward))
	}
	c.lo = min(c.lo, c.hi)
	return c
}

// solve returns the least and the most of the busy time in [w0, w1), s. occupied is the union of
// the running times in the window, in which so many requests ended. It is not sound when the constraints contradict each other.
func (k *bracket) solve(w0, w1 int64, occupied []span, ended int) (lo, hi float64, sound bool) {
	limit, worst := min(minConstraints+ended, min(max(int((w1-w0)/constraintTime), 1), maxConstraintsFactor)*maxConstraints), math.Inf(1)
	if len(k.candidates) > limit {
		k.scores = k.scores[:0]
		for i := range k.candidates {
			k.scores = append(k.scores, k.candidates[i].score)
		}
		worst = smallest(k.scores, limit-1)
	}
	k.c = k.c[:0]
	for i := range k.candidates {
		if x := &k.candidates[i]; x.score <= worst && len(k.c) < limit {
			k.c = append(k.c, x.constraint())
		}
	}
	i0, i1 := k.lay(w0, w1)
	n := len(k.points)
	k.cap = k.cap[:0]
	o := 0
	for i := range n - 1 {
		a, b := k.points[i], k.points[i+1]
		c := float64(b-a) / sec
		if a >= w0 && b <= w1 {
			c = 0
			for o < len(occupied) && occupied[o].b <= a {
				o++
			}
			for j := o; j < len(occupied) && occupied[j].a < b; j++ {
				c += float64(min(b, occupied[j].b)-max(a, occupied[j].a)) / sec
			}
		}
		k.cap = append(k.cap, c)
	}
	up, ok1 := k.path(i0, i1)
	down, ok2 := k.path(i1, i0)
	hi = max(up, 0) // contradictions up to a tolerance are none
	return min(max(-down, 0), hi), hi, ok1 && ok2
}

// lay makes the points of the window's edges, which it returns, and of the requests. These come sorted by start; by end they are chained per
// point. All of them end after w0.
func (k *bracket) lay(w0, w1 int64) (i0, i1 int32) {
	const who = 10 // bits: there are up to maxConstraints x maxConstraintsFactor
	k.ends = k.ends[:0]
	for i := range k.c {
		k.ends = append(k.ends, (k.c[i].b-w0)<<who|int64(i))
	}
	slices.Sort(k.ends)
	k.points, k.ending = k.points[:0], k.ending[:0]
	point := func(at int64) int32 {
		if n := len(k.points); n == 0 || k.points[n-1] != at {
			k.points, k.ending = append(k.points, at), append(k.ending, -1)
		}
		return int32(len(k.points) - 1) //nolint:gosec // a few hundred
	}
	edges := [...]int64{w0, w1, math.MaxInt64}
	at := [len(edges)]int32{}
	for s, e, x := 0, 0, 0; s < len(k.c) || e < len(k.ends) || x < 2; {
		start, end := int64(math.MaxInt64), int64(math.MaxInt64)
		if s < len(k.c) {
			start = k.c[s].a
		}
		if e < len(k.ends) {
			end = k.ends[e]>>who + w0
		}
		switch {
		case edges[x] <= min(start, end):
			at[x] = point(edges[x])
			x++
		case start <= end:
			k.c[s].s = point(start)
			s++
		default:
			i := int32(k.ends[e] & (1<<who - 1)) //nolint:gosec // a few hundred
			c := &k.c[i]
			c.e = point(end)
			c.next, k.ending[c.e] = k.ending[c.e], i
			e++
		}
	}
	return at[0], at[1]
}

// smallest is what would be at index n if s were sorted. It moves the elements of s.
func smallest(s []float64, n int) float64 {
	for rounds := 2 * bits.Len(uint(len(s))); len(s) > 16 && rounds > 0; rounds-- {
		a, b, c := s[0], s[len(s)/2], s[len(s)-1]
		pivot := max(min(a, b), min(max(a, b), c))
		i, j := 0, len(s)-1
		for i <= j {
			for s[i] < pivot {
				i++
			}
			for s[j] > pivot {
				j--
			}
			if i <= j {
				s[i], s[j] = s[j], s[i]
				i++
				j--
			}
		}
		switch {
		case n <= j:
			s = s[:j+1]
		case n >= i:
			s, n = s[i:], n-i
		default:
			return pivot
		}
	}
	slices.Sort(s)
	return s[n]
}

// path is the shortest distance from a point to another. Stopped early it is too long, which
// widens the bracket and is safe.
func (k *bracket) path(from, to int32) (float64, bool) {
	n := len(k.points)
	k.dist = k.dist[:0]
	for range n {
		k.dist = append(k.dist, math.Inf(1))
	}
	d := k.dist
	d[from] = 0
	const eps = 1e-7
	// By turns along the time and back, until a turn changes nothing: the one before left nothing to do in its direction.
	back := to < from
	for turn := range 2 * 24 {
		changed := turn == 0
		if back {
			for i := n - 1; i >= 0; i-- {
				if i < n-1 && d[i+1] < d[i]-eps {
					d[i], changed = d[i+1], true
				}
				for j := k.ending[i]; j >= 0; j = k.c[j].next {
					c := &k.c[j]
					if x := d[i] - c.lo; x < d[c.s]-eps {
						d[c.s], changed = x, true
					}
				}
			}
		} else {
			j := 0
			for i := range n {
				if i > 0 {
					if x := d[i-1] + k.cap[i-1]; x < d[i]-eps {
						d[i], changed = x, true
					}
				}
				// From start to end of a request.
				for ; j < len(k.c) && int(k.c[j].s) == i; j++ {
					if x := d[i] + k.c[j].hi; x < d[k.c[j].e]-eps {
						d[k.c[j].e], changed = x, true
					}
				}
			}
		}
		if d[from] < -1e-4 {
			return d[to], false
		}
		if !changed {
			break
		}
		back = !back
	}
	return d[to], true
}
