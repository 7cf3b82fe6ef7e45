// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Spans that were counted already: clients resend a whole payload when one of many exporters failed,
// and one span may come through several pipelines.

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// dedupe remembers (trace ID, span ID) for at least a window, less than three, in two generations: a new one is
// begun with the first span after the window is over or the current one is full, which forgets the one before.
//
// Of a span, 64 bits of a hash are remembered that nobody outside can foretell. A new span is taken for a
// resent one with a chance of the spans remembered over 2^64: with the default of a million, once in
// 2*10^13 spans, which is one in two years at 300 000 a second.
type dedupe struct {
	window time.Duration
	// evictions counts generations that were full before their window was over.
	evictions atomic.Int64

	// mu is held once for a batch, for less than a tenth of the time it takes to record it.
	mu      sync.Mutex
	parts   [dedupeParts]dedupePart
	touched uint64
}

const (
	// A part is grown and cleared by itself, so that nobody waits for all of them.
	dedupeParts      = 8
	dedupePartShift  = 64 - 3 // the upper bits of a hash are the part
	maxDedupeEntries = 1 << 28
)

// Seen remembers the spans that an ended Aggregator counted.
type Seen struct{ dedupe *dedupe }

// fits reports whether s can take the place of d, which has the same configuration.
func (s *Seen) fits(d *dedupe) bool {
	return s != nil && d != nil && s.dedupe.window == d.window && s.dedupe.parts[0].hashes.max == d.parts[0].hashes.max
}

type dedupePart struct {
	hashes hashSet
	begun  time.Duration
}

var dedupeSeed = maphash.MakeSeed()

// spanHash is what is remembered of a span, which is never 0; 0 where its IDs are not valid.
func spanHash(r *llmrequest.Request) uint64 {
	if r.TraceID.IsEmpty() || r.SpanID.IsEmpty() {
		return 0
	}
	var id [len(r.TraceID) + len(r.SpanID)]byte
	copy(id[:], r.TraceID[:])
	copy(id[len(r.TraceID):], r.SpanID[:])
	return max(1, maphash.Bytes(dedupeSeed, id[:]))
}

func newDedupe(window time.Duration, maxEntries int) *dedupe {
	if window == 0 {
		return nil
	}
	d := &dedupe{window: window}
	for i := range d.parts {
		d.parts[i].hashes.max = max(1, maxEntries/2/dedupeParts)
	}
	return d
}

// seen marks the requests that were given before as resent, and remembers the others. now is the time
// since start. Requests whose span has no valid IDs are never the same.
func (d *dedupe) seen(requests []parsed, now time.Duration) {
	if d == nil {
		for i := range requests {
			requests[i].resent = false
		}
		return
	}
	var hashes [batchSize]uint64
	for i := range requests {
		hashes[i] = spanHash(&requests[i].request)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.touch(hashes[:len(requests)])
	for i := range requests {
		requests[i].resent = hashes[i] != 0 && !d.add(hashes[i], now)
	}
}

// touch has the processor fetch what the look-ups need, for all of them at once: one after the other, each
// would wait for memory.
func (d *dedupe) touch(hashes []uint64) {
	var touched uint64
	for _, hash := range hashes {
		s := &d.parts[hash>>dedupePartShift].hashes
		if len(s.lines) > 0 {
			touched |= s.lines[s.home(hash)][0][0]
		}
	}
	d.touched = touched
}

// add remembers a hash, and reports whether it was not remembered before.
func (d *dedupe) add(hash uint64, now time.Duration) bool {
	p := &d.parts[hash>>dedupePartShift]
	if now-p.begun >= d.window || p.hashes.full() {
		d.rotate(p, now)
	}
	return p.hashes.add(hash)
}

// rotate begins a new generation.
func (d *dedupe) rotate(p *dedupePart, now time.Duration) {
	elapsed := now - p.begun
	if elapsed < d.window {
		d.evictions.Add(1)
	}
	p.hashes.rotate()
	if elapsed >= 2*d.window {
		p.hashes.rotate() // the other one is over, too
	}
	p.begun = now
}

// hashSet is two generations of hashes in an open-addressed table that is at most half full. Both generations
// of a hash are in the same line of the cache, so that nearly every look-up costs one access to memory.
type hashSet struct {
	lines   []hashLine
	used    [2]int // hashes of a generation
	max     int    // of used
	current uint8  // index of used and of a line
}

// hashLine has four hashes of each generation, from the first one on; 0: there are no more, nor in the lines that follow.
type hashLine [2][hashesPerLine]uint64

const (
	hashesPerLine = 4
	minHashLines  = 4
)

// home is the line where a hash is or, if that is full, after which it is. The upper bits, which are the part's, say nothing.
func (s *hashSet) home(hash uint64) uint64 {
	line, _ := bits.Mul64(hash<<(64-dedupePartShift), uint64(len(s.lines)))
	return line
}

// find reports whether a generation has a hash and, if not, where it would be. There must be lines, with room. It hardly ever
// jumps where the processor would not expect it.
func (s *hashSet) find(hash uint64, generation uint8) (place *uint64, found bool) {
	for i := s.home(hash); ; i++ {
		if i >= uint64(len(s.lines)) {
			i = 0
		}
		line := &s.lines[i][generation&1]
		if line[0] == hash || line[1] == hash || line[2] == hash || line[3] == hash {
			return nil, true
		}
		if line[3] != 0 {
			continue
		}
		used := 0
		if line[0] != 0 {
			used = 1
		}
		if line[1] != 0 {
			used = 2
		}
		if line[2] != 0 {
			used = 3
		}
		return &line[used], false
	}
}

func (s *hashSet) full() bool { return s.used[s.current] >= s.max }

// add adds hash to the current generation, and reports whether neither has had it.
func (s *hashSet) add(hash uint64) bool {
	if 2*s.used[s.current] >= hashesPerLine*len(s.lines) {
		s.resize(2 * len(s.lines))
	}
	if _, found := s.find(hash, s.current^1); found {
		return false
	}
	place, found := s.find(hash, s.current)
	if found {
		return false
	}
	*place = hash
	s.used[s.current]++
	return true
}

// resize makes a new table of about so many lines, and of no more than ever will be needed.
func (s *hashSet) resize(lines int) {
	old := s.lines
	s.lines = make([]hashLine, max(minHashLines, min(lines, 2*s.max/hashesPerLine+1)))
	for i := range old {
		for generation := range old[i] {
			for _, hash := range old[i][generation] {
				if hash != 0 {
					place, _ := s.find(hash, uint8(generation))
					*place = hash
				}
			}
		}
	}
}

// rotate forgets the older generation and begins a new one in its place. It keeps the memory unless little
// of it was used.
func (s *hashSet) rotate() {
	s.current ^= 1
	used := max(s.used[0], s.used[1])
	s.used[s.current] = 0
	for i := range s.lines {
		s.lines[i][s.current] = [hashesPerLine]uint64{}
	}
	if lines := len(s.lines) / 8; used < hashesPerLine*lines/2 {
		s.resize(lines)
	}
}
