// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Memory that is packed, shared and given back, and short cuts in arithmetic, against plain versions of themselves.

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func TestBufferAgainstTwoSlices(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 11))
		var b buffer
		var main, pending []record
		n := int64(0)
		for range 600 {
			switch r.IntN(4) {
			default:
				for range r.IntN(40) {
					n++
					b.add(record{rs: n})
					pending = append(pending, record{rs: n})
				}
			case 1: // some of pending go to main
				k := int64(2 + r.IntN(3))
				var out []record
				done := func(r *record) bool { return r.rs%k == 0 }
				m := len(b.main)
				b.split(done, func(r *record) { out = append(out, *r) })
				require.Len(t, b.main, m+len(out))
				copy(b.main[m:], out)
				slices.Reverse(pending)
				pending = slices.DeleteFunc(pending, func(r record) bool {
					if done(&r) {
						main = append(main, r)
					}
					return done(&r)
				})
				slices.Reverse(pending)
			case 2:
				k, j := r.IntN(len(main)+1), r.IntN(len(pending)+1)
				if r.IntN(3) > 0 {
					k, j = len(main)/2, len(pending)
				}
				b.cut(k, j)
				main, pending = main[:k], pending[:j]
			case 3:
				b.main = b.main[:len(b.main)/2] // as compute does
				main = main[:len(main)/2]
				b.cut(len(b.main), len(b.pending))
				b.look()
			}
			require.Equal(t, append([]record{}, main...), append([]record{}, b.main...))
			require.Equal(t, append([]record{}, pending...), append([]record{}, b.pending...))
		}
	}
}

func TestBufferIsNotMuchLargerThanNeeded(t *testing.T) {
	var b buffer
	for i := range 10_000 {
		b.add(record{})
		// An eighth, and as much again for what the runtime rounds up to.
		require.LessOrEqual(t, float64(len(b.all)), 1.27*float64(i+1)+2*minGrowth)
	}
	b.cut(0, 100)
	for range 2 * shrinkAfter {
		b.look()
	}
	assert.LessOrEqual(t, len(b.all), 150, "and gives back what was not needed for long")
	assert.Len(t, b.pending, 100)
}

// A mask that is packed after every step is the one that never was.
func TestPackedPrefills(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 12))
		var plain, packed prefills
		var scratch []prefillEntry
		now := int64(1e18)
		if seed%4 == 0 {
			now = 1e9 // an absurd clock
		}
		pause := []float64{0.05, 0.5, 3}[seed%3]
		for range 200 {
			var batch []span
			at := now
			for range r.IntN(30) {
				at += int64(r.ExpFloat64() * pause * sec)
				length := r.ExpFloat64() * 0.1
				if r.IntN(200) == 0 {
					length = 6
				}
				batch = append(batch, span{at, at + int64(length*sec)})
			}
			if r.IntN(60) == 0 {
				now += 3600e9
			}
			now = max(now, at-int64(r.IntN(3))*2e9)
			packed.unpack(scratch)
			require.True(t, slices.Equal(plain.entries, packed.entries), "seed %d", seed)
			require.Equal(t, plain.end, packed.end)
			for _, p := range []*prefills{&plain, &packed} {
				p.add(slices.Clone(batch))
				p.drop(now - 60e9)
			}
			packed.pack()
			require.LessOrEqual(t, len(packed.packed), 2*len(packed.entries)+2*packed.packedWide)
			scratch, packed.entries = packed.entries, nil
		}
	}
}

func TestCoverNear(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 13))
	for n := range 70 {
		var p prefills
		var all []span
		for k := range n {
			a := int64(1+k) * 1000
			all = append(all, span{a * 1000, a*1000 + int64(1+r.IntN(900))*1000})
		}
		p.add(all)
		for range 200 {
			at, hint := int64(r.IntN((n+2)*1000))*1000, r.IntN(n+3)
			want := 0
			for want < len(p.entries) && p.entries[want].start <= at {
				want++
			}
			c, k := p.cover(at)
			require.Equal(t, want, k)
			near, nearK := p.coverNear(at, hint)
			require.Equal(t, [2]int64{c, int64(k)}, [2]int64{near, int64(nearK)}, "%d entries, hint %d", n, hint)
		}
	}
}

func TestSmallest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 14))
	for range 3000 {
		s := make([]float64, 1+r.IntN(300))
		kinds := 1 + r.IntN(400)
		for i := range s {
			s[i] = float64(r.IntN(kinds)) - 5
			if r.IntN(2) == 0 {
				s[i] = float64(i) // sorted in part
			}
		}
		sorted := slices.Sorted(slices.Values(s))
		n := r.IntN(len(s))
		require.Equal(t, sorted[n], smallest(s, n))
	}
}

func TestLengthsBucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 15))
	check := func(l float64) {
		want := 0
		if l > 0 {
			want = min(max(int(math.Ceil((math.Log2(l)-lengthsMinExp)*lengthsPerOctave)), 0), lengthsBuckets-1)
		}
		require.Equal(t, want, lengthsBucket(l), "%v", l)
	}
	for range 300_000 {
		check(math.Exp2(r.Float64()*60 - 30))
	}
	for i := -300; i < 300; i++ { // the edges and what is next to them
		edge := math.Exp2(float64(i) / lengthsPerOctave)
		for _, by := range []float64{0, 1e-16, 2e-16, 1e-12, 0.9e-9, 1.1e-9, 1e-8} {
			check(edge * (1 + by))
			check(edge * (1 - by))
		}
	}
	for _, l := range []float64{0, -1, math.SmallestNonzeroFloat64, 1e-310, 1e300} {
		check(l)
	}
}

func TestQuotient(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 16))
	for range 300_000 {
		bits := 1 + r.IntN(49)
		q, d := r.Int64N(1<<bits), 1+r.Int64N(1<<(62-bits))
		n := max(q*d+int64(r.IntN(3))-1, 0) // next to a multiple
		if r.IntN(2) == 0 {
			n = q*d + r.Int64N(d)
		}
		require.Equal(t, n/d, quotient(n, d, 1/float64(d)), "%d / %d", n, d)
	}
}

// Timelines that take turns with memory, some of them at once, do not get into each other's windows.
func TestSharedScratch(t *testing.T) {
	names := []string{"default", "v1", "chunked"}
	reqs, alone := make([][]llmrequest.Request, len(names)), make([][]Window, len(names))
	for i, name := range names {
		reqs[i] = loaded(t, name, chat, 0.3)
		alone[i], _ = run(Config{MaxNumSeqs: 128}, reqs[i])
	}
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for k := range 4 * len(names) {
		i := k % len(names)
		wg.Go(func() {
			<-begin
			line := New(Config{MaxNumSeqs: 128})
			var got []Window
			for k := range reqs[i] {
				line.Add(&reqs[i][k])
				got = append(got, line.Windows()...)
			}
			assert.Greater(t, len(got), 40)
			assert.Equal(t, alone[i][:len(got)], got)
		})
	}
	close(begin)
	wg.Wait()
}

// The order in which requests of one moment come makes no difference.
func TestOrderOfEqualRequests(t *testing.T) {
	reqs := loaded(t, "default", chat, 0.5)
	for i := range len(reqs) { // many that differ in one figure only
		r := reqs[i]
		r.Set(llmrequest.Scheduler, 0.9*r.Value(llmrequest.Scheduler))
		reqs = append(reqs, r)
	}
	in := func(order func(a, b int) int) []Window {
		at := make([]int, len(reqs))
		for i := range at {
			at[i] = i
		}
		slices.SortFunc(at, func(a, b int) int { return cmp.Or(cmp.Compare(reqs[a].End, reqs[b].End), order(a, b)) })
		tl := New(Config{Disorder: 2 * time.Minute})
		for _, i := range at {
			tl.Add(&reqs[i])
		}
		tl.Flush(true)
		return tl.Windows()
	}
	forward := in(cmp.Compare[int])
	backward := in(func(a, b int) int { return cmp.Compare(b, a) })
	assert.Equal(t, forward, backward)
}
