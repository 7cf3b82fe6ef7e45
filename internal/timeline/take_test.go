// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What takes part in a window, and in which order.

import (
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
			slices.SortFunc(want, func(a, b record) int { return compareRecords(&a, &b) })
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
