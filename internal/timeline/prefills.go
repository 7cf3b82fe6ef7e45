// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Prefill windows as a mask: when some request's prompt ran.

import (
	"slices"
	"sort"
)

// prefills is the union of all prefill windows, cut into one entry per distinct window. Entry k
// covers [start[k], start[k] + cum[k+1] - cum[k]); cum has the covered time before each.
type prefills struct {
	entries []prefillEntry
	end     int64 // cover up to the end of the last entry

	merge []span // scratch

	distinct, partial float64 // windows added, and those that overlap another only in part
}

type prefillEntry struct{ start, cum int64 }

type span struct{ a, b int64 }

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
		if w.b <= a {
			continue
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
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if p.entries[m].start <= t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return p.coverAt(t, lo), lo
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
		if k == 0 || p.entries[k-1].start+p.length(k-1) < p.entries[k].start {
			n++
		}
	}
	return n
}

// drop forgets entries that ended before t.
func (p *prefills) drop(t int64) {
	k := 0
	for k < len(p.entries) && p.entries[k].start+p.length(k) < t {
		k++
	}
	// A few at a time: the move costs as much as what stays.
	if k > 64 && k > len(p.entries)/8 {
		p.entries = slices.Delete(p.entries, 0, k)
	}
}
