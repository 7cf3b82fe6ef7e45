// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The parts on their own, against slow and plain versions of themselves.

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPrefillsAgainstBruteForce(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		var p prefills
		var all []span
		const ms = 1000 * unit
		for range 20 {
			var batch []span
			for range r.IntN(8) {
				a := int64(1+r.IntN(2000)) * ms
				batch = append(batch, span{a, a + int64(r.IntN(80))*ms})
			}
			slices.SortFunc(batch, func(x, y span) int { return int(x.a - y.a) })
			p.add(batch)
			all = append(all, batch...)
			for range 20 {
				at := int64(r.IntN(2200)) * ms
				want := int64(0)
				for b := int64(0); b < at; b += ms {
					for _, s := range all {
						if s.a <= b && b < s.b {
							want += ms
							break
						}
					}
				}
				a, _ := p.cover(0)
				got, _ := p.cover(at)
				require.Equal(t, want, got-a, "cover before %d ms", at/ms)
			}
		}
	}
}

func TestPrefillsCountSteps(t *testing.T) {
	var p prefills
	p.add([]span{{1e9, 2e9}, {1e9 + 300, 2e9 + 200}, {3e9, 4e9}})
	assert.EqualValues(t, 2, p.distinct, "co-batched prompts share a window")
	assert.Zero(t, p.partial)
	p.add([]span{{35e8, 5e9}})
	assert.EqualValues(t, 1, p.partial)
	c, k := p.cover(6e9)
	assert.InDelta(t, 3e9, c, 2*unit)
	assert.Equal(t, 3, k)
}

// With asynchronous output processing a prefill window reaches into the next one. Requests of one step do not have the same stamps
// to the nanosecond, and come in any order.
func TestPrefillsThatOverlap(t *testing.T) {
	var p prefills
	p.add([]span{{10e8, 20e8}, {19e8, 30e8}})
	p.add([]span{{19e8 + 300, 30e8 - 400}}) // of the second step: nothing new
	p.add([]span{{10e8 - 300, 20e8 - 400}}) // of the first: what was cut does not close up with it any more
	p.add([]span{{50e8, 60e8}})
	_, k := p.cover(70e8)
	assert.Equal(t, 3, k, "steps with prompts")
	assert.Equal(t, 2, p.runs(0, k), "of which two follow each other")
	for end, want := range map[int64]bool{20e8 - 400: true, 20e8: true, 20e8 + 200: true, 30e8: false, 30e8 - 400: false, 60e8: false} {
		_, k = p.cover(end)
		assert.Equal(t, want, p.followed(end, k), "window that ends at %d", end)
	}
}

// What is kept of the mask is in units; a window that begins where another ends has begun by that end none the less.
func TestPrefillsThatFollowAreNotMissed(t *testing.T) {
	for rest := range int64(unit) {
		var p prefills
		end := 20e8 + rest
		p.add([]span{{10e8, end}, {19e8, 30e8}})
		_, k := p.cover(end)
		require.Equal(t, 2, k, "%d ns", end)
	}
}

// TestBracketHolds draws a device's activity and requests over it: the truth is always inside.
func TestBracketHolds(t *testing.T) {
	width := 0.0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		const bins, bin = 400, int64(50e6)
		var busy [bins]float64
		for i := range busy {
			busy[i] = r.Float64() * 0.05 * float64(r.IntN(4)) / 3
		}
		between := func(a, b int) float64 {
			s := 0.0
			for _, x := range busy[a:b] {
				s += x
			}
			return s
		}
		w0, w1 := 100*bin, 300*bin
		var k bracket
		k.reset()
		var us []span
		for range 1 + r.IntN(150) {
			a := r.IntN(bins - 10)
			b := a + 1 + r.IntN(min(bins-a-1, 120))
			us = append(us, span{int64(a), int64(b)})
		}
		slices.SortFunc(us, func(x, y span) int { return int(x.a - y.a) })
		var occupied []span
		covered := [bins]bool{}
		for _, u := range us {
			for i := u.a; i < u.b; i++ {
				covered[i] = true
			}
		}
		for i := range busy {
			if !covered[i] {
				busy[i] = 0
			} else if i >= 100 && i < 300 {
				occupied = append(occupied, span{int64(i) * bin, int64(i+1) * bin})
			}
		}
		for _, u := range us {
			f := between(int(u.a), int(u.b))
			l := float64((u.b-u.a)*bin) / sec
			rec := record{rs: u.a * bin, re: u.b * bin, forward: float32(f), scheduler: float32((l - f) * 0.3 * r.Float64()), flags: hasForward | hasScheduler}
			k.add(&rec, w0, w1, 0)
		}
		lo, hi, sound := k.solve(w0, w1, occupied, 100)
		require.True(t, sound, "seed %d", seed)
		truth := between(100, 300)
		require.LessOrEqual(t, lo, truth+1e-3, "seed %d", seed)
		require.GreaterOrEqual(t, hi, truth-1e-3, "seed %d", seed)
		require.LessOrEqual(t, hi, float64(sum(occupied))/sec+1e-6)
		width += (hi - lo) / 10 / 300
	}
	assert.Less(t, width, 0.7, "and it says something")
}

func TestBracketFindsContradiction(t *testing.T) {
	var k bracket
	// Ten seconds of forward time in one request, none in another over the same time.
	a := record{rs: 0, re: 10e9, forward: 9, flags: hasForward}
	b := record{rs: 0, re: 10e9, forward: 0, scheduler: 8, flags: hasForward | hasScheduler}
	k.add(&a, 0, 10e9, 0)
	k.add(&b, 0, 10e9, 0)
	_, _, sound := k.solve(0, 10e9, []span{{0, 10e9}}, 2)
	assert.False(t, sound)
}

func TestLengths(t *testing.T) {
	var h lengths
	assert.EqualValues(t, 1, h.seen(1), "nothing known")
	r := rand.New(rand.NewPCG(1, 1))
	var ls []float64
	for range 20000 {
		l := math.Exp(1 + r.NormFloat64())
		ls = append(ls, l)
		h.add(l, 1)
	}
	slices.Sort(ls)
	for _, age := range []float64{0.1, 1, 3, 10, 30, 200} {
		var num, den float64
		for _, l := range ls {
			num += min(l, age)
			den += l
		}
		assert.InDelta(t, num/den, h.seen(age), 0.01, "age %v", age)
	}
	assert.InEpsilon(t, ls[19800], h.quantile(0.99), 0.1)
	before := h.seen(3)
	h.decay(0.5)
	assert.InDelta(t, before, h.seen(3), 1e-6)
}

func TestHistory(t *testing.T) {
	var h history
	w := int64(10e9)
	for k := range int64(100) {
		var bins [historyPerWindow]float64
		for i := range bins {
			bins[i] = float64(k) * 10 / historyPerWindow // k requests run in window k
		}
		h.add((1000+k)*w, (1001+k)*w, &bins)
	}
	m, ok := h.mean(1080*w, 1100*w)
	assert.True(t, ok)
	assert.InDelta(t, 89.5, m, 1e-9)
	m, ok = h.mean(1090*w+w/2, 1091*w+w/2)
	assert.True(t, ok)
	assert.InDelta(t, 90.5, m, 1e-9)
	_, ok = h.mean(1010*w, 1090*w)
	assert.False(t, ok, "too long ago")
	_, ok = h.mean(1090*w, 1101*w)
	assert.False(t, ok, "not yet")
}

func TestRegression(t *testing.T) {
	var g regression
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		n, b, m := float64(r.IntN(300)), 1+50*r.Float64(), float64(r.IntN(40))
		g.add(n, n*b, m, n*0.01+n*b*0.0002+m*0.004, 1)
	}
	c, ok := g.solve([3]prior{})
	require.True(t, ok)
	assert.InEpsilon(t, 0.01, c[0], 1e-6)
	assert.InEpsilon(t, 0.0002, c[1], 1e-6)
	assert.InEpsilon(t, 0.004, c[2], 1e-6)
	var none regression
	_, ok = none.solve([3]prior{})
	assert.False(t, ok)
	c, ok = none.solve([3]prior{{1, 1}, {2, 1}, {3, 1}})
	assert.True(t, ok)
	assert.Equal(t, [3]float64{1, 2, 3}, c)
}

func TestPeakAndUnion(t *testing.T) {
	assert.Equal(t, 2, peak(1, []int64{1, 2, 5}, []int64{2, 3, 9}), "an end at the moment of a start comes first")
	s := []span{{1, 2}, {1, 4}, {3, 5}, {7, 9}}
	assert.EqualValues(t, 6, sum(s[unionByEnd(s):]))
}

func TestStepLaw(t *testing.T) {
	var l stepLaw
	for k := range 2000 {
		b := 1 + float64(k%100)
		l.add(b, 0.012+0.0003*b, 0)
	}
	a, b, lo, hi, ok := l.fit(0)
	require.True(t, ok)
	assert.InEpsilon(t, 0.012, a, 0.01)
	assert.InEpsilon(t, 0.0003, b, 0.02)
	assert.Less(t, lo, 3.0)
	assert.Greater(t, hi, 90.0)
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
