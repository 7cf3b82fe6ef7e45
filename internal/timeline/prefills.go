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
// covers [start[k], start[k] + cum[k+1] - cum[k]); cum has the covered time before each. All are whole units.
type prefills struct {
	entries []prefillEntry
	end     int64 // cover up to the end of the last entry

	merge []span // scratch

	// Between windows the entries are packed, in less than half of the memory.
	packed     []uint16
	packedWide int
	start      int64 // cum of the first
	same       int   // entries, from the first on, that are as packed
	most       int   // words of packed at a time since its memory was last looked at
	looks      int

	distinct, partial float64 // windows added, and those that overlap another only in part
}

type prefillEntry struct{ start, cum int64 }

type span struct{ a, b int64 }

// An entry is packed as the time from the end of the one before and its length, in units: 24 bits of each, in three words. Where either has
// more, all of both are wide and four words of each follow.
const (
	unitBits   = 10
	unit       = 1 << unitBits // ns
	wide       = 1<<24 - 1
	entryWords = 3
	wideWords  = entryWords + 8
)

// pack packs the entries.
func (p *prefills) pack() {
	// The first is far from the start of time. Where no other is far from the one before, who is where is known, and
	// only what changed has to be packed.
	from, words := 0, max(entryWords*(len(p.entries)-1), 0)+wideWords
	if p.same > 0 && p.onlyFirstWide() {
		from = p.same
	}
	p.most = max(p.most, words)
	if p.looks++; cap(p.packed) < words || p.looks >= shrinkAfter {
		if cap(p.packed) < words || tooLarge(cap(p.packed), p.most) {
			p.packed = append(slices.Grow([]uint16(nil), grown(p.most)), p.packed[:min(len(p.packed), words)]...)
		}
		p.looks, p.most = 0, words
	}
	out, last := p.packed[:0], int64(0)
	if from > 0 {
		out, last = p.packed[:entryWords*(from-1)+wideWords], p.entries[from-1].start+p.length(from-1)
	} else {
		p.packedWide = 0
	}
	for k := from; k < len(p.entries); k++ {
		e := &p.entries[k]
		gap, length := uint64(e.start-last)>>unitBits, uint64(p.length(k))>>unitBits //nolint:gosec // back in unpack
		last = e.start + int64(length)<<unitBits                                     //nolint:gosec // as it was
		if gap < wide && length < wide && len(out)+entryWords <= cap(out) {
			out = append(out, uint16(gap), uint16(length), uint16(gap>>16|length>>16<<8)) //nolint:gosec // in parts
			continue
		}
		if len(out)+wideWords > cap(out) {
			out = append(slices.Grow([]uint16(nil), grown(len(out)+entryWords*(len(p.entries)-k)+wideWords)), out...)
		}
		p.packedWide++
		out = appendWide(out, gap, length)
	}
	p.packed, p.start = out, p.end
	if len(p.entries) > 0 {
		p.start = p.entries[0].cum
	}
}

// unpack is the opposite of pack. The entries are in memory that is given.
func (p *prefills) unpack(entries []prefillEntry) {
	in := p.packed
	entries = slices.Grow(entries[:0], len(in)/entryWords)[:len(in)/entryWords]
	at, cum, n := int64(0), p.start, 0
	for ; len(in) >= entryWords; n++ {
		gap, length := uint64(in[0])|uint64(in[2]&0xff)<<16, uint64(in[1])|uint64(in[2]>>8)<<16
		if gap == wide && length == wide {
			in = in[entryWords:]
			gap = uint64(in[0]) | uint64(in[1])<<16 | uint64(in[2])<<32 | uint64(in[3])<<48
			length = uint64(in[4]) | uint64(in[5])<<16 | uint64(in[6])<<32 | uint64(in[7])<<48
			in = in[wideWords-entryWords:]
		} else {
			in = in[entryWords:]
		}
		at += int64(gap) << unitBits //nolint:gosec // as it was
		entries[n] = prefillEntry{at, cum}
		at += int64(length) << unitBits  //nolint:gosec // as it was
		cum += int64(length) << unitBits //nolint:gosec // as it was
	}
	p.entries, p.same = entries[:n], n
}

// inUnits is the moment in whole units. It is never later: what starts where another ends has started by that end still.
func inUnits(at int64) int64 { return at &^ (unit - 1) }

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
		if len(windows) == 0 || i < len(p.entries) && p.entries[i].start <= inUnits(windows[0].a) {
			p.merge = append(p.merge, span{p.entries[i].start, p.entries[i].start + p.length(i)})
			i++
			continue
		}
		p.merge = append(p.merge, span{inUnits(windows[0].a), inUnits(windows[0].b)})
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
	// A few at a time, for what stays is moved.
	if k <= 8 || k <= len(p.entries)/16 {
		return
	}
	if p.same > k && p.onlyFirstWide() {
		// Those that stay are packed as they were, but for the one that is now the first.
		packed := p.packed[:0]
		packed = appendWide(packed, uint64(p.entries[k].start)>>unitBits, uint64(p.length(k))>>unitBits) //nolint:gosec // back in unpack
		p.packed = packed[:wideWords+copy(p.packed[wideWords:], p.packed[wideWords+entryWords*k:])]
		p.same -= k
	} else {
		p.same = 0
	}
	p.entries = slices.Delete(p.entries, 0, k)
}

// onlyFirstWide is whether, of what is packed, only the first entry is wide: where the others are is known then.
func (p *prefills) onlyFirstWide() bool {
	return p.packedWide == 1 && p.packed[0] == math.MaxUint16 && p.packed[1] == math.MaxUint16 && p.packed[2] == math.MaxUint16
}

// appendWide appends a wide entry.
func appendWide(out []uint16, gap, length uint64) []uint16 {
	out = append(out, math.MaxUint16, math.MaxUint16, math.MaxUint16)
	for _, v := range [2]uint64{gap, length} {
		out = append(out, uint16(v), uint16(v>>16), uint16(v>>32), uint16(v>>48)) //nolint:gosec // in parts
	}
	return out
}
