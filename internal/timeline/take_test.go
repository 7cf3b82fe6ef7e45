// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What takes part in a window, and in which order.

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The order is by first schedule and then by everything else, however far apart requests are and however many are of one moment.
func TestSortIsTheSameInAnyOrderOfArrival(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 21))
	for _, span := range []int64{1, 3, 1000, 1e12, math.MaxInt64 / 2} {
		var s scratch
		for n := 1; n < 200; n++ {
			s.moved = s.moved[:0]
			for range n {
				rs := 1 + r.Int64N(span)
				s.moved = append(s.moved, record{rs: rs, re: rs + r.Int64N(3), out: uint32(r.IntN(4))}) //nolint:gosec // small
			}
			want := slices.Clone(s.moved)
			slices.SortFunc(want, func(a, b record) int {
				return cmp.Or(cmp.Compare(a.rs, b.rs), compareRecords(&a, &b))
			})
			s.sort()
			var got []record
			for _, at := range s.order {
				require.Equal(t, s.moved[at.i].rs, at.rs)
				got = append(got, s.moved[at.i])
			}
			require.Equal(t, want, got, "%d in %d ns", n, span)
		}
	}
}

// Many requests tell the pace without those long after the window, but not where prompts take most of the time; who waits in the window
// takes part whenever it was scheduled.
func TestTake(t *testing.T) {
	const w1 = int64(1e18)
	taken := func(perSecond int, share float64, waits float32) (paced, main int) {
		tl := New(Config{})
		tl.scratch = &scratch{}
		tl.pace.share = share
		for i := range 60 * perSecond {
			rs := w1 - 10*sec + int64(i)*sec/int64(perSecond)
			x := record{rs: rs, re: rs + sec, flags: hasQueue}
			if i == 50*perSecond {
				x.queue = waits
			}
			tl.add(&x)
		}
		tl.hold(len(tl.pending), 0)
		tl.take(w1)
		return tl.paced, len(tl.main)
	}
	paced, main := taken(100, 0, 0)
	assert.Equal(t, [2]int{1200, 1200}, [2]int{paced, main}, "2 s after the window")
	paced, _ = taken(100, 0.9, 0)
	assert.Equal(t, 4000, paced, "30 s, for prompts take the time")
	paced, _ = taken(5, 0, 0)
	assert.Equal(t, paceEnough, paced, "as many as are enough")
	paced, _ = taken(2, 0, 0)
	assert.Equal(t, 80, paced, "30 s, for there are not enough")
	paced, main = taken(100, 0, 45)
	assert.Equal(t, [2]int{1200, 5001}, [2]int{paced, main}, "somebody who was scheduled 40 s later came before the window's end")
}

// The bracket's points are the distinct moments in order, and every constraint knows its own.
func TestBracketPoints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 22))
	for range 2000 {
		const w0, w1 = int64(1000), int64(1100)
		var k bracket
		want := []int64{w0, w1}
		for range r.IntN(60) {
			c := constraint{a: 950 + r.Int64N(150)}
			c.b = max(c.a, w0) + 1 + r.Int64N(120)
			k.c = append(k.c, c)
			want = append(want, c.a, c.b)
		}
		slices.SortFunc(k.c, func(a, b constraint) int { return cmp.Compare(a.a, b.a) })
		slices.Sort(want)
		want = slices.Compact(want)
		i0, i1 := k.lay(w0, w1)
		require.Equal(t, want, k.points)
		require.Equal(t, [2]int64{w0, w1}, [2]int64{k.points[i0], k.points[i1]})
		chained := 0
		for p, first := range k.ending {
			for i := first; i >= 0; i = k.c[i].next {
				require.EqualValues(t, p, k.c[i].e)
				chained++
			}
		}
		require.Len(t, k.c, chained)
		for _, c := range k.c {
			require.Equal(t, [2]int64{c.a, c.b}, [2]int64{k.points[c.s], k.points[c.e]})
		}
	}
}

func TestSeenIsTheShareOfTheRunningTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 23))
	for range 200 {
		var h lengths
		var all []float64
		for range 1 + r.IntN(50) {
			l := math.Exp(3 * r.NormFloat64())
			all = append(all, l)
			h.add(l, 1)
		}
		for range 20 {
			age := math.Exp(4 * r.NormFloat64())
			var seen, total float64
			for _, l := range all {
				seen += min(l, age)
				total += l
			}
			// Within its bucket a length is taken for the bucket's mean.
			assert.InDelta(t, seen/total, h.seen(age), 0.05)
		}
	}
}
