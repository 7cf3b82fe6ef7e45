// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The memory of a Timeline: one piece for its requests, no larger than they need, and what computing a window takes,
// which all Timelines share.

import (
	"slices"
	"sort"
	"sync"
	"unsafe"
)

// buffer is where the requests of a Timeline are between windows: kept, and pending right behind it. Both are cut to what is theirs, so that
// an append to either would not go into the other.
type buffer struct {
	kept    []packed // up to the horizon, by rs
	pending []packed // beyond the horizon, in order of arrival

	all   []packed // the memory of both, as long as it is
	most  int      // requests held at a time since the memory was last looked at
	looks int
}

const (
	// A buffer grows by a thirty-second, and by what the runtime rounds up to: doubling would leave a third of it unused on
	// average, and copying is cheap beside a window.
	growth    = 32
	minGrowth = 4 // requests
	// shrinkAfter is the windows after which memory that was not needed in any of them is given back.
	shrinkAfter = 64
)

// grown is the capacity for n where there was less.
func grown(n int) int { return n + max(n/growth, minGrowth) }

// hold makes kept and pending the first m and the n requests behind them.
func (b *buffer) hold(m, n int) {
	b.kept, b.pending = b.all[:m:m], b.all[m:m+n:m+n]
	b.most = max(b.most, m+n)
}

// add appends r to pending.
func (b *buffer) add(r *record) {
	m, n := len(b.kept), len(b.pending)
	if m+n == len(b.all) {
		b.resize(grown(m + n))
	}
	r.pack(&b.all[m+n])
	b.hold(m, n+1)
}

// resize moves both to memory for so many requests.
func (b *buffer) resize(capacity int) {
	all := slices.Grow([]packed(nil), capacity)
	all = append(append(all, b.kept...), b.pending...)
	b.all = all[:cap(all)]
	b.hold(len(b.kept), len(b.pending))
}

// cut makes kept and pending the first of theirs.
func (b *buffer) cut(kept, pending int) {
	b.pending = b.pending[:pending]
	copy(b.all[kept:], b.pending)
	b.hold(kept, pending)
}

// split takes what ended up to the horizon out of pending and gives it to each, last one first. Kept gets room for it at its end.
func (b *buffer) split(horizon int64, each func(*packed)) {
	m, n := len(b.kept), len(b.pending)
	w := n
	for i := n - 1; i >= 0; i-- {
		if r := &b.pending[i]; r.re() <= horizon {
			each(r)
		} else {
			w--
			b.pending[w] = *r
		}
	}
	b.hold(m+w, n-w)
}

// merge puts what split gave, in its order, where split made room for it in kept, which is by rs, and lets go of what ended up to a moment.
func (b *buffer) merge(moved []record, order []place, ended int64) {
	n := len(b.kept) - len(moved)
	// What started later has not ended.
	later := sort.Search(n, func(i int) bool { return b.kept[i].rs() > ended })
	k := 0
	for i := range later {
		if b.kept[i].re() <= ended {
			continue
		}
		if k != i {
			b.kept[k] = b.kept[i]
		}
		k++
	}
	k += copy(b.kept[k:], b.kept[later:n])
	order = slices.DeleteFunc(order, func(at place) bool { return moved[at.i].re <= ended })
	j := len(order)
	b.cut(k+j, len(b.pending))
	// From the back: what started before the first moved one stays where it is.
	for i := k + j - 1; j > 0; i-- {
		if k > 0 && b.kept[k-1].rs() > order[j-1].rs {
			k--
			b.kept[i] = b.kept[k]
		} else {
			j--
			moved[order[j].i].pack(&b.kept[i])
		}
	}
}

// look gives memory back that was not needed for some time.
func (b *buffer) look() {
	if b.looks++; b.looks < shrinkAfter {
		return
	}
	if tooLarge(len(b.all), b.most) {
		b.resize(grown(b.most))
	}
	b.looks, b.most = 0, len(b.kept)+len(b.pending)
}

// tooLarge is whether a capacity is more than most needs, room to grow and what the runtime rounds up to.
func tooLarge(capacity, most int) bool { return capacity > grown(grown(grown(most))) }

// scratches are for windows that are being computed: as many as are at a time, however many Timelines there are.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// borrow is called before a window is computed, giveBack after it.
func (t *Timeline) borrow() {
	s := scratches.Get().(*scratch)
	t.scratch, t.bracket, t.pace.paceScratch = s, &s.bracket, &s.pace
	t.mask.merge, t.device.votes, t.device.ended, t.device.covers = s.merge, s.votes, s.ended, s.covers
	t.mask.unpack(s.entries)
}

// take unpacks what takes part in a window up to w1.
func (t *Timeline) take(w1 int64) {
	from := func(at int64) int {
		return sort.Search(len(t.kept), func(i int) bool { return t.kept[i].rs() >= at })
	}
	t.paced = from(w1 + paceAhead)
	if t.paced > paceEnough && t.pace.share <= paceRead {
		t.paced = max(from(w1+paceSoon), paceEnough)
	}
	n := len(t.kept)
	for n > t.paced && t.kept[n-1].arrival() >= w1 {
		n--
	}
	t.main = slices.Grow(t.scratch.main[:0], n)[:n]
	for i := range t.main {
		t.kept[i].unpack(&t.main[i])
	}
}

func (t *Timeline) giveBack() {
	s := t.scratch
	s.main, t.main = t.main, nil
	t.mask.pack()
	s.entries, t.mask.entries = t.mask.entries, nil
	s.merge, s.votes, s.ended, s.covers = t.mask.merge, t.device.votes, t.device.ended, t.device.covers
	t.scratch, t.bracket, t.pace.paceScratch = nil, nil, nil
	t.mask.merge, t.device.votes, t.device.ended, t.device.covers = nil, nil, nil, nil
	scratches.Put(s)
}

// Memory is the bytes the Timeline holds, and the bytes that scale with the requests retained. What computing a window takes is
// not among them: it is shared.
func (t *Timeline) Memory() (total, requests int) {
	requests = len(t.all)*int(unsafe.Sizeof(packed{})) + cap(t.far)*int(unsafe.Sizeof(record{})) + cap(t.mask.packed)*2
	total = int(unsafe.Sizeof(*t)) + requests + cap(t.windows)*int(unsafe.Sizeof(Window{})) + t.pace.memory()
	return total, requests
}
