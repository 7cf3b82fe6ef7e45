// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The memory of a Timeline: one piece for its requests, no larger than they need, and what computing a window takes,
// which all Timelines share.

import (
	"slices"
	"sync"
	"unsafe"
)

// buffer is where the requests of a Timeline are: main, and pending right behind it. Both are cut to what is theirs, so that an
// append to either would not go into the other.
type buffer struct {
	main    []record // up to the horizon, by rs
	pending []record // beyond the horizon, in order of arrival

	all   []record // the memory of both, as long as it is
	most  int      // requests held at a time since the memory was last looked at
	looks int
}

const (
	// A buffer grows by an eighth: doubling would leave a third of it unused on average, and copying is cheap beside a window.
	growth    = 8
	minGrowth = 16 // requests
	// shrinkAfter is the windows after which memory that was not needed in any of them is given back.
	shrinkAfter = 64
)

// grown is the capacity for n where there was less.
func grown(n int) int { return n + max(n/growth, minGrowth) }

// hold makes main and pending the first m and the n requests behind them.
func (b *buffer) hold(m, n int) {
	b.main, b.pending = b.all[:m:m], b.all[m:m+n:m+n]
	b.most = max(b.most, m+n)
}

// add appends r to pending.
func (b *buffer) add(r record) {
	m, n := len(b.main), len(b.pending)
	if m+n == len(b.all) {
		b.resize(grown(m + n))
	}
	b.all[m+n] = r
	b.hold(m, n+1)
}

// resize moves both to memory for so many requests.
func (b *buffer) resize(capacity int) {
	all := slices.Grow([]record(nil), capacity)
	all = append(append(all, b.main...), b.pending...)
	b.all = all[:cap(all)]
	b.hold(len(b.main), len(b.pending))
}

// cut makes main and pending the first of theirs.
func (b *buffer) cut(main, pending int) {
	b.pending = b.pending[:pending]
	copy(b.all[main:], b.pending)
	b.hold(main, pending)
}

// split takes out of pending what done says and gives it to each, last one first. Main gets room for it at its end.
func (b *buffer) split(done func(*record) bool, each func(*record)) {
	m, n := len(b.main), len(b.pending)
	w := n
	for i := n - 1; i >= 0; i-- {
		if r := &b.pending[i]; done(r) {
			each(r)
		} else {
			w--
			b.pending[w] = *r
		}
	}
	b.hold(m+w, n-w)
}

// look gives memory back that was not needed for some time.
func (b *buffer) look() {
	if b.looks++; b.looks < shrinkAfter {
		return
	}
	if want := grown(b.most); 2*want < len(b.all) {
		b.resize(want)
	}
	b.looks, b.most = 0, len(b.main)+len(b.pending)
}

// scratches are for windows that are being computed: as many as are at a time, however many Timelines there are.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// borrow is called before a window is computed, giveBack after it.
func (t *Timeline) borrow() {
	s := scratches.Get().(*scratch)
	t.scratch, t.bracket, t.pace.paceScratch = s, &s.bracket, &s.pace
	t.mask.merge, t.device.votes, t.device.ended = s.merge, s.votes, s.ended
	t.mask.unpack(s.entries)
}

func (t *Timeline) giveBack() {
	s := t.scratch
	t.mask.pack()
	s.entries, t.mask.entries = t.mask.entries, nil
	s.merge, s.votes, s.ended = t.mask.merge, t.device.votes, t.device.ended
	t.scratch, t.bracket, t.pace.paceScratch = nil, nil, nil
	t.mask.merge, t.device.votes, t.device.ended = nil, nil, nil
	scratches.Put(s)
}

// Memory is the bytes the Timeline holds, and the bytes that scale with the requests retained. What computing a window takes is
// not among them: it is shared.
func (t *Timeline) Memory() (total, requests int) {
	requests = (len(t.all)+cap(t.far))*int(unsafe.Sizeof(record{})) + cap(t.mask.packed)*4
	total = int(unsafe.Sizeof(*t)) + requests + cap(t.windows)*int(unsafe.Sizeof(Window{})) + t.pace.memory()
	return total, requests
}
