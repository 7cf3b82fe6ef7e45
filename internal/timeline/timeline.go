// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The flow of time: requests in, windows closed by the watermark, outliers kept away from it.

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// Timeline turns the finished requests of one engine into windows. It is not safe for concurrent
// use.
type Timeline struct {
	cfg Config
	win int64 // ns

	started   bool
	next      int64 // start of the next window
	closed    int64 // end of the last one closed
	horizon   int64 // what ended up to here counts in the next window
	grace     int64 // of the next window
	watermark int64 // newest end of a request seen, outliers apart
	lastEnd   int64 // newest end of a request in a closed window's horizon

	newest newest

	buffer
	minEnd int64 // of pending while not started
	minArr int64

	far     []record // quarantine, by re
	normals int      // requests since far was last empty
	behind  int      // requests far behind in a row

	shift uint8 // new requests stand for 1<<shift
	skip  uint32

	// The wall clock, as Advance tells it.
	fresh  bool  // a request came since
	seenAt int64 // the first Advance after the last request
	wall   int64 // the last Advance

	stats   Stats
	late    int64 // since the last window
	windows []Window

	begun        begun
	lengths      lengths
	running      lengths // lengths, as they would be of an engine that did not just begin
	totals       lengths // the same of the whole time since arrival
	queue        arrivals
	mask         prefills
	batches      history
	device       device
	best         float64 // highest output token throughput, decayed
	pace         pace
	full         full
	room         room
	prefillSteps prefillSteps
	find         detector
	idle         idle
	credit       int64 // windows that may be closed

	// Of the window that is being computed.
	main    []record // what takes part of what ended up to the horizon, by rs
	paced   int      // so many of them, from the first on, tell the pace
	bracket *bracket
	scratch *scratch
}

// Stats counts what a Timeline did with its input since New.
type Stats struct {
	// Requests were added, Late among them came too late for some window.
	Requests, Late int64
	// Rejected do not say when they ran.
	Rejected int64
	// Outliers were set aside for a time far from all others'.
	Outliers int64
	// Thinned were let go for MaxRequests.
	Thinned int64
	// SkippedWindows were beyond Config.Budget.
	SkippedWindows int64
	// DroppedWindows were not drained in time.
	DroppedWindows int64
	// Restarts counts jumps back of the engine's clock that were followed.
	Restarts int64
}

const (
	// farAhead is how far ahead of the engine's time a request must be confirmed by others: one wrong time
	// would otherwise close all windows up to it.
	farAhead    = int64(time.Minute)
	farBehind   = int64(time.Hour)
	confirm     = 3   // requests that make a jump forward credible
	confirmBack = 64  // requests in a row that make a jump back credible, and those that make one beyond the wall clock
	forget      = 256 // requests near the watermark that make one far ahead incredible
	maxLead     = int64(time.Hour)
)

// New makes a Timeline.
func New(cfg Config) *Timeline {
	cfg = cfg.withDefaults()
	t := &Timeline{cfg: cfg, win: int64(cfg.Window)}
	t.reset()
	return t
}

// reset forgets where in time the engine is, and what is in flight.
func (t *Timeline) reset() {
	t.started, t.next, t.closed, t.horizon = false, 0, 0, 0
	t.watermark, t.lastEnd, t.newest = math.MinInt64, math.MinInt64, newest{}
	t.minEnd, t.minArr = math.MaxInt64, math.MaxInt64
	t.cut(0, 0)
	t.mask.packed, t.mask.start, t.mask.end = t.mask.packed[:0], 0, 0
	t.pace.restart()
	t.queue, t.full.streak, t.begun = arrivals{}, 0, begun{}
	t.setGrace()
}

// Outcome is what Add did with a request.
type Outcome uint8

// The outcomes.
const (
	Accepted Outcome = iota
	// Late: some window it belongs to was closed already; it counts in those that are not.
	Late
	// Quarantined: its time is far from all others'; it counts if others confirm it.
	Quarantined
	// Rejected: it does not say when it ran.
	Rejected
)

// Add takes a finished request. It keeps no reference to q.
func (t *Timeline) Add(q *llmrequest.Request) Outcome {
	r, ok := NewRecord(q)
	if !ok {
		t.stats.Rejected++
		return Rejected
	}
	return t.AddRecord(r)
}

// AddRecord is Add of a request that was read before.
func (t *Timeline) AddRecord(r Record) Outcome {
	t.stats.Requests++
	t.earn(1)
	out := t.admit(r.record)
	t.fresh = true
	return out
}

func (t *Timeline) admit(r record) Outcome {
	if t.watermark != math.MinInt64 {
		switch {
		case r.re > t.virtual()+farAhead:
			t.quarantine(r)
			return Quarantined
		case r.re < t.watermark-farBehind:
			if t.behind++; t.behind < confirmBack {
				t.stats.Outliers++
				return Quarantined
			}
			// The engine's clock was set back, or was wrong when it was first seen.
			t.stats.Restarts++
			t.reset()
		}
	}
	t.behind = 0
	if len(t.far) > 0 {
		if t.normals++; t.normals > forget {
			t.stats.Outliers += int64(len(t.far))
			t.far = t.far[:0]
		}
	}
	out := t.insert(r)
	t.close(t.watermark)
	return out
}

// virtual is the engine's time by the wall clock: the watermark and the silence since.
func (t *Timeline) virtual() int64 {
	if t.fresh || t.seenAt == 0 || t.wall < t.seenAt {
		return t.watermark
	}
	return t.watermark + (t.wall - t.seenAt)
}

// quarantine sets r aside until others confirm that the engine's time moved on that far.
func (t *Timeline) quarantine(r record) {
	if len(t.far) == 0 {
		t.normals = 0
	}
	i, _ := slices.BinarySearchFunc(t.far, r, func(a, b record) int { return cmp.Compare(a.re, b.re) })
	t.far = slices.Insert(t.far, i, r)
	for len(t.far) >= t.confirmed() {
		first := t.far[0]
		t.far = slices.Delete(t.far, 0, 1)
		t.normals = 0
		t.insert(first)
		t.close(t.watermark)
		for len(t.far) > 0 && t.far[0].re <= t.watermark+farAhead {
			first = t.far[0]
			t.far = slices.Delete(t.far, 0, 1)
			t.insert(first)
			t.close(t.watermark)
		}
	}
}

// confirmed is how many requests make the jump to the first of far credible. No engine is ahead of the time of day, but its clock may be.
func (t *Timeline) confirmed() int {
	if len(t.far) > 0 && t.wall != 0 && t.far[0].re > t.wall+maxLead {
		return confirmBack
	}
	return confirm
}

func (t *Timeline) insert(r record) Outcome {
	out := Accepted
	t.watermark = max(t.watermark, r.re)
	t.newest.add(&r)
	if t.started {
		// It belongs to the windows it touches that close after it ended.
		if r.arrival() < t.next && r.re <= t.horizon-t.win {
			out = Late
		}
		if r.re <= t.next && !r.has(hasForward) {
			t.countLate(&r)
			return out // of no further use
		}
	} else {
		t.minEnd = min(t.minEnd, r.re)
		t.minArr = min(t.minArr, r.arrival())
	}
	if t.shift > 0 {
		if t.skip++; t.skip&(1<<t.shift-1) != 0 {
			t.stats.Thinned++
			return out
		}
		r.shift = t.shift
	}
	if len(t.pending)+len(t.kept) >= t.cfg.MaxRequests {
		t.thin()
		r.shift = t.shift
	}
	t.buffer.add(&r)
	return out
}

// countLate counts r if it touches a window that was closed without it: it came late, or took longer than the grace.
func (t *Timeline) countLate(r *record) {
	if r.arrival() < t.closed {
		t.late++
		t.stats.Late++
	}
}

// thin lets every second request go; the others stand for two.
func (t *Timeline) thin() {
	half := func(s []packed) int {
		var r record
		n := 0
		for i := range s {
			if i&1 == 0 {
				s[i].unpack(&r)
				r.shift = min(r.shift+1, 24)
				r.pack(&s[n])
				n++
			}
		}
		t.stats.Thinned += int64(len(s) - n)
		return n
	}
	t.cut(half(t.kept), half(t.pending))
	t.shift = min(t.shift+1, 24)
}

// Advance tells the wall time. Once no request has come for Config.Silence the engine's time is
// moved on by the time that passed since, so that a silent engine reports that it is idle.
func (t *Timeline) Advance(now time.Time) {
	n := now.UnixNano()
	t.earn(minCredit)
	if t.wall != 0 && n > t.wall {
		t.earn((n - t.wall) / t.win)
	}
	t.wall = n
	if t.fresh || t.seenAt == 0 || n < t.seenAt {
		t.fresh, t.seenAt = false, n
		return
	}
	if t.watermark == math.MinInt64 || n-t.seenAt < int64(t.cfg.Silence) {
		return
	}
	t.close(t.virtual())
}

// Flush closes all windows up to the newest request's end. With drained the recording is whole:
// nothing is still running unseen, and completeness is that of a silent engine.
func (t *Timeline) Flush(drained bool) {
	for _, r := range t.far {
		if t.normals > 0 && drained {
			t.stats.Outliers++
			continue
		}
		t.insert(r)
	}
	t.far = t.far[:0]
	if t.watermark == math.MinInt64 {
		return
	}
	if drained {
		t.close(t.watermark)
		for t.begin() {
			if t.next >= t.watermark {
				break
			}
			t.horizon = max(t.horizon, t.next+t.win+t.grace)
			t.closeOne(math.MaxInt64)
		}
		return
	}
	for t.begin() && t.next < t.watermark {
		if !t.afford() {
			t.skipTo(t.floor(t.watermark) + t.win)
			return
		}
		t.horizon = max(t.horizon, t.next+t.win+t.grace)
		t.closeOne(t.watermark)
	}
}

// LastEnd is the newest end of the requests that are believed, and whether there are any.
func (t *Timeline) LastEnd() (time.Time, bool) {
	if t.watermark == math.MinInt64 {
		return time.Time{}, false
	}
	return time.Unix(0, t.watermark), true
}

// floor is the start of the window that holds ns.
func (t *Timeline) floor(ns int64) int64 { return ns - ns%t.win }

// begin decides where the windows start, or start again after a gap.
func (t *Timeline) begin() bool {
	if t.started {
		if len(t.kept) > 0 || t.next < t.lastEnd+int64(t.cfg.IdleTimeout) {
			return true
		}
		t.started = false // the engine vanished
		t.minEnd, t.minArr = math.MaxInt64, math.MaxInt64
		var r record
		for i := range t.pending {
			t.pending[i].unpack(&r)
			t.minEnd = min(t.minEnd, r.re)
			t.minArr = min(t.minArr, r.arrival())
		}
	}
	if len(t.pending) == 0 {
		return false
	}
	start := t.minEnd
	if t.cfg.FromStart {
		start = max(t.minArr, t.minEnd-maxLead)
	}
	t.next = max(t.closed, t.floor(start))
	return true
}

// close closes the windows whose time has come at the given time of the engine.
func (t *Timeline) close(now int64) {
	for {
		if t.started && now < t.next+t.win+t.grace+int64(t.cfg.Disorder) {
			return
		}
		if !t.begin() || now < t.next+t.win+t.grace+int64(t.cfg.Disorder) {
			return
		}
		t.started = true
		if !t.afford() {
			t.skipTo(t.floor(now-t.win-t.grace-int64(t.cfg.Disorder)) + t.win)
			return
		}
		t.horizon = max(t.horizon, t.next+t.win+t.grace)
		t.closeOne(t.horizon)
	}
}

// graceQuantile is the share of requests that end within the automatic grace of their arrival.
const graceQuantile = 0.999

// enough is the number of requests from which on their lengths are known.
const enough = 50

// setGrace sets the grace of the next window from what closed windows have seen.
func (t *Timeline) setGrace() {
	g := t.cfg.Grace
	if g <= 0 {
		lo := t.cfg.MinGrace
		if t.totals.n < enough {
			lo = max(lo, min(time.Minute, t.cfg.MaxGrace)) // too few to know
		}
		g = lo
		if t.totals.n > 0 {
			// The longest of a few is soon outdone.
			margin := 1 + 10/math.Sqrt(max(t.totals.n, 1))
			g = time.Duration(min(max(t.totals.quantile(graceQuantile)*margin*sec, float64(lo)), float64(t.cfg.MaxGrace)))
		}
	}
	t.grace = int64(g)
}

// closeOne closes the next window; seen is the time up to which ends have been seen.
func (t *Timeline) closeOne(seen int64) {
	t.started = true
	t.borrow()
	t.move()
	t.take(t.next + t.win)
	if len(t.windows) >= t.cfg.MaxWindows {
		// A quarter at once: requests from all over time close a window each, and moving all of the others
		// each time would make them expensive.
		drop := max(t.cfg.MaxWindows/4, 1)
		t.stats.DroppedWindows += int64(drop)
		t.windows = slices.Delete(t.windows, 0, drop)
	}
	t.windows = append(t.windows, Window{})
	w := &t.windows[len(t.windows)-1]
	w.Start, w.End = time.Unix(0, t.next).UTC(), time.Unix(0, t.next+t.win).UTC()
	w.Late, t.late = t.late, 0
	if t.cutOff(seen) {
		seen = t.watermark
	}
	t.compute(w, t.next, t.next+t.win, seen)

	t.next += t.win
	t.closed = t.next
	t.mask.drop(t.needed())
	t.giveBack()
	t.look()
	if t.shift > 0 && len(t.kept)+len(t.pending) < t.cfg.MaxRequests/4 {
		t.shift--
	}
	t.setGrace()
}

// needed is how far back the mask is still looked at: to the bin of the pace in which the oldest request began of those in memory and of
// those to come. These end after t.next if they count in any window at all, and a grace later if they come in time: the mask is whole
// for one that takes up to a tenth longer than any did in the last hour, and the grace on top if it comes in time.
func (t *Timeline) needed() int64 {
	least := t.next - 3*t.grace - int64(time.Minute)
	if t.lengths.n < enough {
		return least
	}
	from := t.next - int64(1.1*t.lengths.longest()*sec)
	for i := range t.pending { // the others are among lengths
		from = min(from, t.pending[i].rs())
	}
	return max(from-binOf(t.win), least)
}

// move takes what ended up to the horizon from pending into kept and the mask, and lets go of what no window needs any more.
func (t *Timeline) move() {
	s := t.scratch
	s.moved = s.moved[:0]
	t.split(t.horizon, func(p *packed) {
		s.moved = append(s.moved, record{})
		p.unpack(&s.moved[len(s.moved)-1])
	})
	if len(s.moved) == 0 {
		t.merge(nil, nil, t.next)
		return
	}
	s.sort()
	windows := s.spans[:0]
	fade := math.Exp2(-float64(t.win) / float64(lengthsHalfLife))
	t.room.fade(t.win)
	t.lengths.decay(fade)
	t.totals.decay(fade)
	t.mask.distinct *= fade
	t.mask.partial *= fade
	for _, at := range s.order {
		r := &s.moved[at.i]
		t.countLate(r)
		t.lastEnd = max(t.lastEnd, r.re)
		t.begun.add(r)
		t.room.add(r)
		t.lengths.add(float64(r.re-r.rs)/sec, r.weight())
		t.totals.add(float64(r.re-r.arrival())/sec, r.weight())
		// Before the mode is found, too: requests that are learnt from soon had these prompts beside them.
		if t.device.mode() != ModeMasked || !r.has(hasForward) {
			t.pace.prompt(r, t.win)
		}
		t.queue.add(r.arrival(), r.weight(), t.win)
		if r.has(stepClock|hasFirst) && r.prefill > 0 {
			windows = append(windows, span{r.rs, r.first()})
		}
	}
	t.mask.add(windows)
	s.spans = windows[:0]
	t.merge(s.moved, s.order, t.next)
}

// sort makes order that of moved by first schedule, and where that is the same by everything else: it must not depend on the order of arrival.
func (s *scratch) sort() {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range s.moved {
		first, last = min(first, s.moved[i].rs), max(last, s.moved[i].rs)
	}
	// Whole numbers are sorted in half the time: when, as exactly as there is room for, and who.
	who := bits.Len(uint(len(s.moved)))
	coarse := max(bits.Len64(uint64(last-first))+who-63, 0) //nolint:gosec // last is not before first
	s.keys, s.order = s.keys[:0], s.order[:0]
	for i := range s.moved {
		s.keys = append(s.keys, (s.moved[i].rs-first)>>coarse<<who|int64(i))
	}
	s.sorter.sort(s.keys)
	same := 0 // the first of those with the same when
	for k, key := range s.keys {
		i := int32(key & (1<<who - 1)) //nolint:gosec // below MaxRequests
		s.order = append(s.order, place{s.moved[i].rs, i})
		if k+1 < len(s.keys) && s.keys[k+1]>>who == key>>who {
			continue
		}
		if k > same {
			slices.SortFunc(s.order[same:], func(a, b place) int { return compareRecords(&s.moved[a.i], &s.moved[b.i]) })
		}
		same = k + 1
	}
}

// place is where a request is and when it was scheduled.
type place struct {
	rs int64
	i  int32
}

func compareRecords(a, b *record) int {
	return cmp.Or(cmp.Compare(a.rs, b.rs), cmp.Compare(a.re, b.re), cmp.Compare(a.prefill, b.prefill), cmp.Compare(a.forward, b.forward),
		cmp.Compare(a.out, b.out), cmp.Compare(a.in, b.in), cmp.Compare(a.queue, b.queue), cmp.Compare(a.execute, b.execute),
		cmp.Compare(a.scheduler, b.scheduler), cmp.Compare(a.flags, b.flags), cmp.Compare(a.shift, b.shift))
}

// Drain hands out the windows closed since the last call, oldest first. w is valid during f only.
func (t *Timeline) Drain(f func(w *Window)) {
	for i := range t.windows {
		f(&t.windows[i])
	}
	t.windows = t.windows[:0]
	if cap(t.windows) > 1024 {
		t.windows = nil // a backlog's
	}
}

// Windows is Drain into a slice of the caller's own.
func (t *Timeline) Windows() []Window {
	out := make([]Window, 0, len(t.windows))
	t.Drain(func(w *Window) { out = append(out, *w) })
	return out
}

// Stats are the counts since New.
func (t *Timeline) Stats() Stats { return t.stats }

// SetSampling tells the share of requests that get here, as Config.SamplingProbability does.
func (t *Timeline) SetSampling(p float64) {
	if p > 0 && p <= 1 {
		t.cfg.SamplingProbability = p
	}
}

// Retained is the number of requests held.
func (t *Timeline) Retained() int { return len(t.pending) + len(t.kept) + len(t.far) }
