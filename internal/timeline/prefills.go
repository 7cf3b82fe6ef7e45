// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Prefill windows as a mask: when some request's prompt ran.

import (
	"math"
	"slices"
	"sort"
)

// prefills is the union of all prefill windows, cut into one entry per distinct window. Entry k
// covers [start[k], start[k] + cum[k+1] - cum[k]); cum has the covered time before each.
type prefills struct {
	entries []prefillEntry
	end     int64 // cover up to the end of the last entry

	merge []span // scratch

	// Between windows the entries are packed, in half of the memory.
	packed     []uint32
	packedWide int
	start      int64 // cum of the first
	same       int   // entries, from the first on, that are as packed
	most       int   // words of packed at a time since its memory was last looked at
	looks      int

	distinct, partial float64 // windows added, and those that overlap another only in part
}

type prefillEntry struct{ start, cum int64 }

type span struct{ a, b int64 }

// wide stands in packed before a number of two words; a number below is one word.
const wide = math.MaxUint32

// pack packs the entries: of each the time from the end of the one before, in ns, and the length.
func (p *prefills) pack() {
	// The first is far from the start of time. Where no other is far from the one before, who is where is known, and
	// only what changed has to be packed.
	const first = 4
	from, words := 0, 2*len(p.entries)+first-2
	if p.same > 0 && p.packedWide == 1 && p.packed[0] == wide {
		from = p.same
	}
	p.most = max(p.most, words)
	if p.looks++; cap(p.packed) < words || p.looks >= shrinkAfter {
		if cap(p.packed) < words || tooLarge(cap(p.packed), p.most) {
			p.packed = append(slices.Grow([]uint32(nil), grown(p.most)), p.packed[:min(len(p.packed), words)]...)
		}
		p.looks, p.most = 0, words
	}
	out, last := p.packed[:0], int64(0)
	if from > 0 {
		out, last = p.packed[:2*from+first-2], p.entries[from-1].start+p.length(from-1)
	} else {
		p.packedWide = 0
	}
	for k := from; k < len(p.entries); k++ {
		e := &p.entries[k]
		gap, length := uint64(e.start-last), uint64(p.length(k)) //nolint:gosec // back in unpack
		last = e.start + int64(length)                           //nolint:gosec // as it was
		if gap < wide && length < wide && len(out)+2 <= cap(out) {
			out = append(out, uint32(gap), uint32(length))
			continue
		}
		if len(out)+6 > cap(out) {
			out = append(slices.Grow([]uint32(nil), grown(len(out)+2*(len(p.entries)-k)+4)), out...)
		}
		for _, v := range [2]uint64{gap, length} {
			if v < wide {
				out = append(out, uint32(v))
			} else {
				out = append(out, wide, uint32(v>>32), uint32(v)) //nolint:gosec // in two parts
				p.packedWide++
			}
		}
	}
	p.packed, p.start = out, p.end
	if len(p.entries) > 0 {
		p.start = p.entries[0].cum
	}
}

// unpack is the opposite of pack. The entries are in memory that is given.
func (p *prefills) unpack(entries []prefillEntry) {
	in := p.packed
	entries = slices.Grow(entries[:0], len(in)/2+1)[:len(in)/2+1]
	at, cum, i, n := int64(0), p.start, 0, 0
	next := func() int64 {
		v := uint64(in[i])
		if i++; v == wide {
			v = uint64(in[i])<<32 | uint64(in[i+1])
			i += 2
		}
		return int64(v) //nolint:gosec // as it was
	}
	for ; i < len(in); n++ {
		at += next()
		entries[n] = prefillEntry{at, cum}
		length := next()
		at += length
		cum += length
	}
	p.entries, p.same = entries[:n], n
}

// sameStep is by how much stamps of the same step may differ.
const sameStep = 20_000 // ns

func (p *prefills) length(k int) int64 {
	if k+1 < len(p.entries) {
		return p.entries[k+1].cum - p.entries[k].cum
	}
	return p.end - p.entries[k].cum
}

// add merges windows, sorted by start, into the union.
func (p *prefills) add(windows []span) {
	if len(windows) == 0 {
		return
	}
	// Only what starts after the first new window has to be laid out anew.
	from := sort.Search(len(p.entries), func(k int) bool { return p.entries[k].start > windows[0].a-sameStep })
	from = max(from-1, 0)
	p.merge = p.merge[:0]
	i := from
	for i < len(p.entries) || len(windows) > 0 {
		if len(windows) == 0 || i < len(p.entries) && p.entries[i].start <= windows[0].a {
			p.merge = append(p.merge, span{p.entries[i].start, p.entries[i].start + p.length(i)})
			i++
			continue
		}
		p.merge = append(p.merge, windows[0])
		windows = windows[1:]
		p.distinct++
	}
	var cum int64
	if from < len(p.entries) {
		cum = p.entries[from].cum
	} else {
		cum = p.end
	}
	p.entries = p.entries[:from]
	p.same = min(p.same, from)
	var prev span
	if from > 0 {
		prev = span{p.entries[from-1].start, p.entries[from-1].start + cum - p.entries[from-1].cum}
	}
	var prevStart int64
	for _, w := range p.merge {
		if w.a-prevStart <= sameStep && prevStart != 0 && w.b-prev.b <= sameStep && prev.b-w.b <= sameStep {
			p.distinct-- // of the same step
			continue
		}
		prevStart = w.a
		if w.a < prev.b-sameStep && prev.b != 0 {
			p.partial++
		}
		a := max(w.a, prev.b)
		if w.b <= a || w.b-a <= sameStep && a > w.a {
			continue // of the same step as one that was cut before
		}
		p.entries = append(p.entries, prefillEntry{a, cum})
		cum += w.b - a
		prev = span{a, w.b}
	}
	p.end = cum
}

// cover is the covered time before t, with the index of the first entry that starts after t.
func (p *prefills) cover(t int64) (int64, int) { return p.coverIn(t, 0, len(p.entries)) }

// coverIn is cover where that index is known to be in [lo, hi].
func (p *prefills) coverIn(t int64, lo, hi int) (int64, int) {
	// Without a branch that depends on what is found, which no processor could foresee.
	e := p.entries[:hi]
	for n := hi - lo; n > 0; {
		half := (n + 1) / 2
		next := lo + half
		if e[next-1].start <= t {
			lo = next
		}
		n -= half
	}
	return p.coverAt(t, lo), lo
}

// density is the number of entries per ns.
func (p *prefills) density() float64 {
	n := len(p.entries)
	if n < 2 {
		return 0
	}
	return float64(n) / float64(p.entries[n-1].start-p.entries[0].start)
}

// coverNear is cover where that index is not far from k.
func (p *prefills) coverNear(t int64, k int) (int64, int) {
	lo, hi := min(max(k, 0), len(p.entries)), len(p.entries)
	if lo < hi && p.entries[lo].start <= t {
		for step := 1; lo+step < hi; step *= 2 {
			if p.entries[lo+step].start > t {
				hi = lo + step
				break
			}
			lo += step
		}
		return p.coverIn(t, lo+1, hi)
	}
	hi, lo = lo, 0
	for step := 1; hi-step >= 0; step *= 2 {
		if p.entries[hi-step].start <= t {
			lo = hi - step + 1
			break
		}
		hi -= step
	}
	return p.coverIn(t, lo, hi)
}

// coverFrom is cover where that index is not before k and not far from it.
func (p *prefills) coverFrom(t int64, k int) (int64, int) {
	for k < len(p.entries) && p.entries[k].start <= t {
		k++
	}
	return p.coverAt(t, k), k
}

func (p *prefills) coverAt(t int64, k int) int64 {
	if k == 0 {
		if len(p.entries) > 0 {
			return p.entries[0].cum
		}
		return 0
	}
	e := &p.entries[k-1]
	return e.cum + min(t-e.start, p.length(k-1))
}

// runs is the number of the entries [k0, k1) that do not follow the one before at once.
func (p *prefills) runs(k0, k1 int) int {
	n := 0
	for k := k0; k < k1; k++ {
		if k == 0 || p.entries[k].start-p.entries[k-1].start-p.length(k-1) > sameStep {
			n++
		}
	}
	return n
}

// followed reports whether an entry begins where the one that ends at t does; k is what cover says of t.
func (p *prefills) followed(t int64, k int) bool {
	near := func(k int) bool {
		return k > 0 && k < len(p.entries) && max(t-p.entries[k].start, p.entries[k].start-t) <= sameStep
	}
	return near(k-1) || near(k)
}

// drop forgets entries that ended before t.
func (p *prefills) drop(t int64) {
	k := 0
	for k < len(p.entries) && p.entries[k].start+p.length(k) < t {
		k++
	}
	// A few at a time: to move and pack what stays costs as much as to unpack it.
	if k > 8 && k > len(p.entries)/16 {
		p.entries, p.same = slices.Delete(p.entries, 0, k), 0
	}
}
