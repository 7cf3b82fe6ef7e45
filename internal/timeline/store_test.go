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
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func TestPackedRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 10))
	for range 300_000 {
		// Any bits, but for what a record does not have.
		want := record{
			re: 1 + r.Int64N(math.MaxInt64/2), out: r.Uint32N(maxOut + 1), in: r.Uint32N(maxIn + 1),
			flags: uint16(r.Uint32N(2 * uint32(stepClock))), shift: uint8(r.UintN(25)),
		}
		length := r.Int64N(maxRun*sec + 1e9)
		if r.IntN(10) == 0 {
			want.re = []int64{1, math.MaxInt64 / 2, 1e18}[r.IntN(3)]
			length = []int64{0, 1, maxRun*sec + 1e7}[r.IntN(3)]
			want.out, want.in = []uint32{0, 1, maxOut}[r.IntN(3)], []uint32{0, 1, maxIn}[r.IntN(3)]
		}
		want.rs = want.re - length
		for _, x := range []struct {
			v    *float32
			flag uint16
		}{
			{&want.prefill, hasFirst},
			{&want.queue, hasQueue},
			{&want.forward, hasForward},
			{&want.execute, hasExecute},
			{&want.scheduler, hasScheduler},
		} {
			if want.has(x.flag) {
				*x.v = float32(r.ExpFloat64() * float64(r.IntN(3)))
			}
		}
		if !want.has(hasOut) {
			want.out = 0
		}
		if !want.has(hasIn) {
			want.in = 0
		}
		var p packed
		var got record
		want.pack(&p)
		p.unpack(&got)
		require.Equal(t, want, got)
		require.Equal(t, [2]int64{want.rs, want.re}, [2]int64{p.rs(), p.re()})
	}
	assert.EqualValues(t, 40, unsafe.Sizeof(packed{}))
}

// More tokens than any request has are not believed, rather than cut to something else.
func TestMostTokens(t *testing.T) {
	for _, x := range []struct {
		in, out float64
		flags   uint16
	}{{maxIn, maxOut, hasIn | hasOut}, {maxIn + 1, maxOut, hasOut}, {maxIn, maxOut + 1, hasIn}, {1e300, math.Inf(1), 0}} {
		q := plain(0, 0.1, 1, 5)
		q.Set(llmrequest.InputTokens, x.in)
		q.Set(llmrequest.OutputTokens, x.out)
		r, ok := makeRecord(&q)
		require.True(t, ok)
		assert.Equal(t, x.flags, r.flags&(hasIn|hasOut), "%v", x)
		var p packed
		var got record
		r.pack(&p)
		p.unpack(&got)
		assert.Equal(t, r, got)
	}
}

// What adds up to more than a request of a day is not its running time: it would not fit a packed record.
func TestLongestRun(t *testing.T) {
	q := plain(0, 1, maxRun-1, 100)
	q.Set(llmrequest.Prefill, 1.04*maxRun) // each within what one part may be of the whole
	q.Set(llmrequest.Decode, 1.04*maxRun)
	r, ok := makeRecord(&q)
	require.True(t, ok)
	assert.EqualValues(t, (maxRun-1)*sec, r.re-r.rs, "by the queue, then")
	var p packed
	var got record
	r.pack(&p)
	p.unpack(&got)
	assert.Equal(t, r, got)
}

// One request that hung for a day is most of the running time, but not of the tokens: what was seen of these is not divided by what was seen of that.
func TestTokensBesideADay(t *testing.T) {
	tl := New(Config{})
	most, absent := 0.0, 0
	for i := range 4000 {
		q := plain(float64(i)/10, 0.01, 2, 100)
		tl.Add(&q)
		if i == 1000 {
			q := plain(100-maxRun+1, 0.01, maxRun-1, 100)
			tl.Add(&q)
		}
		for _, w := range tl.Windows() {
			switch v, ok := w.Get(OutputThroughput); {
			case !ok:
				absent++
				assert.Less(t, w.Value(Completeness), minRunningSeen)
			case i > 100:
				most = max(most, v)
			}
		}
	}
	assert.Less(t, most, 1000/minRunningSeen*1.05, "of 1000 in truth")
	assert.Positive(t, absent)
}

func TestBufferAgainstTwoSlices(t *testing.T) {
	unpacked := func(p *packed) (r record) {
		p.unpack(&r)
		return r
	}
	all := func(s []packed) []record {
		out := []record{}
		for i := range s {
			out = append(out, unpacked(&s[i]))
		}
		return out
	}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 11))
		var b buffer
		kept, pending := []record{}, []record{}
		for range 600 {
			switch r.IntN(4) {
			default:
				for range r.IntN(40) {
					x := record{re: 1 + r.Int64N(1000)}
					x.rs = max(x.re-r.Int64N(3)*100, 1)
					b.add(&x)
					pending = append(pending, x)
				}
			case 1: // some of pending go to kept
				horizon := r.Int64N(600)
				var out []record
				b.split(horizon, func(p *packed) { out = append(out, unpacked(p)) })
				require.Len(t, b.kept, len(kept)+len(out))
				var want []record
				pending = slices.DeleteFunc(pending, func(r record) bool {
					if r.re <= horizon {
						want = append(want, r)
					}
					return r.re <= horizon
				})
				slices.Reverse(want)
				require.Equal(t, want, out)
				kept = append(kept, out...)
				slices.SortStableFunc(kept, func(a, b record) int { return cmp.Compare(a.rs, b.rs) })
				ended := r.Int64N(300) // they are of no further use
				kept = slices.DeleteFunc(kept, func(r record) bool { return r.re <= ended })
				order := []place{}
				for i := range out {
					order = append(order, place{out[i].rs, int32(i)})
				}
				slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.rs, b.rs) })
				b.merge(out, order, ended)
			case 2:
				k, j := r.IntN(len(kept)+1), r.IntN(len(pending)+1)
				if r.IntN(3) > 0 {
					k, j = len(kept)/2, len(pending)
				}
				b.cut(k, j)
				kept, pending = kept[:k], pending[:j]
			case 3:
				b.look()
			}
			require.Equal(t, kept, all(b.kept))
			require.Equal(t, pending, all(b.pending))
		}
	}
}

func TestBufferIsNotMuchLargerThanNeeded(t *testing.T) {
	var b buffer
	for i := range 10_000 {
		b.add(&record{re: 1, rs: 1})
		// A thirty-second, and what the runtime rounds up to: an eighth, or up to 4 KiB more.
		require.LessOrEqual(t, float64(len(b.all)), 1.2*float64(i+1)+2*minGrowth+100)
	}
	b.cut(0, 100)
	for range 2 * shrinkAfter {
		b.look()
	}
	assert.LessOrEqual(t, len(b.all), 125, "and gives back what was not needed for long")
	assert.Len(t, b.pending, 100)
}

func TestPackedPrefillsAreNotMuchLargerThanNeeded(t *testing.T) {
	var p prefills
	at := int64(1e18)
	grow := func(n int) {
		p.unpack(nil)
		var batch []span
		for range n {
			at += 1e9
			batch = append(batch, span{at, at + 1e8})
		}
		p.add(batch)
		p.pack()
	}
	for range 1000 {
		grow(3)
		require.LessOrEqual(t, float64(cap(p.packed)), 1.2*float64(len(p.packed))+2*minGrowth+100)
	}
	p.unpack(nil)
	p.drop(at - 100e9)
	p.pack()
	for range 2 * shrinkAfter {
		grow(0)
	}
	assert.Len(t, p.packed, wideWords+entryWords*100)
	assert.LessOrEqual(t, cap(p.packed), 375, "and give back what was not needed for long")
}

// wholeMask makes a Timeline keep all of its mask for good.
type wholeMask struct{ all []prefillEntry }

func (m *wholeMask) restore(t *Timeline) {
	t.mask.unpack(nil)
	kept := t.mask.entries
	if len(kept) == 0 {
		return // only at the beginning
	}
	n, _ := slices.BinarySearchFunc(m.all, kept[0].start, func(e prefillEntry, at int64) int { return cmp.Compare(e.start, at) })
	m.all = append(m.all[:n], kept...)
	t.mask.entries, t.mask.same = m.all, 0
	t.mask.pack()
	t.mask.entries = nil
}

// requireAlike allows for sums that began elsewhere.
func requireAlike(t *testing.T, want, got *Window) {
	t.Helper()
	for f := range NumFigures {
		require.Equal(t, want.Has(f), got.Has(f), "%v: figure %d", want.Start, f)
		require.InDelta(t, want.Value(f), got.Value(f), 1e-12*math.Abs(want.Value(f)), "%v: figure %d", want.Start, f)
	}
	for s := range NumStates {
		require.InDelta(t, want.States[s], got.States[s], 1, "%v: %v", want.Start, s)
	}
	a, b := *want, *got
	a.values, b.values, a.States, b.States = [NumFigures]float64{}, [NumFigures]float64{}, [NumStates]time.Duration{}, [NumStates]time.Duration{}
	require.Equal(t, a, b)
}

// What is no longer kept of the mask is of no further use, even where some come late.
func TestMaskIsKeptAsLongAsNeeded(t *testing.T) {
	dropped := 0
	for _, name := range []string{"default", "async"} {
		for _, w := range []workload{chat, long, {prompt: 300, out: 100, burst: "bursty"}, {prompt: 1500, out: 20, burst: "onoff"}} {
			for _, load := range []float64{0.05, 0.5} {
				reqs := loaded(t, name, w, load)
				some, all := New(Config{MaxNumSeqs: 128}), New(Config{MaxNumSeqs: 128})
				var mask wholeMask
				r := rand.New(rand.NewPCG(1, 17))
				for i := range min(len(reqs), 5000) {
					if j := i + r.IntN(40); j < len(reqs) && r.IntN(10) == 0 {
						reqs[i], reqs[j] = reqs[j], reqs[i]
					}
					some.Add(&reqs[i])
					all.Add(&reqs[i])
					got, want := some.Windows(), all.Windows()
					require.Len(t, got, len(want))
					for k := range want {
						requireAlike(t, &want[k], &got[k])
					}
					if len(got) > 0 {
						mask.restore(all)
					}
				}
				dropped += len(all.mask.packed) - len(some.mask.packed)
			}
		}
	}
	assert.Greater(t, dropped, 5000, "words")
}

// A request that takes longer than any before has the mask kept from when it is seen, up to a bound.
func TestMaskIsKeptForTheLongest(t *testing.T) {
	tl := New(Config{})
	at := 0.0
	short := func(n int) {
		for range n {
			q := plain(at, 0.1, 2, 50)
			tl.Add(&q)
			at++
		}
	}
	needed := func() float64 { return float64(tl.next-tl.needed()) / sec } // s before the next window
	short(400)
	assert.Less(t, needed(), 5.0, "a tenth more than the longest, and a bin of the pace")
	const age = 60
	next := tl.next
	q := plain(at-age, 0.1, age, 500)
	rs := simEpoch.UnixNano() + int64((at-age+0.1)*sec)
	require.Equal(t, Accepted, tl.Add(&q))
	require.Equal(t, next, tl.next)
	assert.GreaterOrEqual(t, needed(), float64(next-rs)/sec, "it is pending")
	short(int(tl.grace/1e9) + 15)
	assert.Greater(t, tl.next, next)
	assert.GreaterOrEqual(t, needed(), float64(tl.next-rs)/sec, "it is not")
	short(100)
	assert.GreaterOrEqual(t, needed(), 1.1*age, "another may come")

	q = plain(at-3000, 0.1, 3000, 500)
	tl.Add(&q)
	assert.LessOrEqual(t, needed(), 3*float64(tl.grace)/sec+60)
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
					length = 20 // wide
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
			require.LessOrEqual(t, len(packed.packed), entryWords*len(packed.entries)+(wideWords-entryWords)*packed.packedWide)
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
			at, hint := int64(r.IntN((n+2)*1000))*1000, r.IntN(n+4)-1
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
