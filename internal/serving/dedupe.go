// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Spans that were counted already: clients resend a whole payload when one of many exporters failed,
// and one span may come through several pipelines.

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dedupe remembers (trace ID, span ID) for at least a window, at most two, in two generations: a new one is
// begun when the window is over or the current one is full, which forgets the one before.
type dedupe struct {
	shards [dedupeShards]dedupeShard
	window time.Duration
	// evictions counts generations that were full before their window was over.
	evictions atomic.Int64
}

const (
	// Few, so that several requests of a batch share one and its lock.
	dedupeShards     = 8
	dedupeShardShift = 64 - 3 // the upper bits of a hash are the shard
	maxDedupeEntries = 1 << 28
)

// Seen remembers the spans that an ended Aggregator counted.
type Seen struct{ dedupe *dedupe }

// fits reports whether s can take the place of d, which has the same configuration.
func (s *Seen) fits(d *dedupe) bool {
	return s != nil && d != nil && s.dedupe.window == d.window && s.dedupe.shards[0].max == d.shards[0].max
}

type dedupeShard struct {
	mu      sync.Mutex
	spans   idSet
	begun   time.Duration
	max     int // entries of one generation
	touched uint32
	_       [64]byte
}

// spanKey is the identity of a span.
type spanKey struct {
	traceHigh, traceLow, span uint64
}

// dedupeID is a span to be looked up.
type dedupeID struct {
	key  spanKey
	hash uint64
}

var dedupeSeed = maphash.MakeSeed()

func hashOf(key spanKey) uint64 { return maphash.Comparable(dedupeSeed, key) }

func newDedupe(window time.Duration, maxEntries int) *dedupe {
	if window == 0 {
		return nil
	}
	d := &dedupe{window: window}
	for i := range d.shards {
		d.shards[i].max = max(1, maxEntries/2/dedupeShards)
	}
	return d
}

// seen marks the requests that were given before as resent, and remembers the others. now is the time
// since start, ids is memory to use. Requests whose span has no valid IDs are never the same.
func (d *dedupe) seen(requests []parsed, ids *[batchSize]dedupeID, now time.Duration) {
	var members [dedupeShards]uint32 // of each shard, a bit per request
	for i := range requests {
		p := &requests[i]
		p.resent = false
		trace, span := &p.request.TraceID, &p.request.SpanID
		if d == nil || trace.IsEmpty() || span.IsEmpty() {
			continue
		}
		id := &ids[i]
		id.key = spanKey{
			binary.LittleEndian.Uint64(trace[:8]), binary.LittleEndian.Uint64(trace[8:]), binary.LittleEndian.Uint64(span[:]),
		}
		id.hash = hashOf(id.key)
		members[id.hash>>dedupeShardShift] |= 1 << i
	}
	for i, m := range members {
		if m == 0 {
			continue
		}
		s := &d.shards[i]
		s.mu.Lock()
		s.touch(m, ids)
		for ; m != 0; m &= m - 1 {
			j := bits.TrailingZeros32(m)
			if now-s.begun >= d.window || len(s.spans.keys[s.spans.current]) >= s.max {
				d.rotate(s, now)
			}
			requests[j].resent = !s.spans.add(&ids[j])
		}
		s.mu.Unlock()
	}
}

// touch has the processor fetch what the look-ups need, for all of them at once: one after the other, each
// would wait for memory.
func (s *dedupeShard) touch(members uint32, ids *[batchSize]dedupeID) {
	var touched uint32
	for m := members; m != 0; m &= m - 1 {
		touched |= s.spans.at(ids[bits.TrailingZeros32(m)].hash)
	}
	s.touched = touched
}

// rotate begins a new generation.
func (d *dedupe) rotate(s *dedupeShard, now time.Duration) {
	elapsed := now - s.begun
	if elapsed < d.window {
		d.evictions.Add(1)
	}
	s.spans.rotate()
	if elapsed >= 2*d.window {
		s.spans.rotate() // the other one is over, too
	}
	s.begun = now
}

// idSet is two generations of span identities: they in the order they came, and an open-addressed table of
// where they are, at most half full. So a span costs one access to memory that is in no cache, that to
// the table: there, both generations are side by side, and what is written beside it is
// where the last one was written.
type idSet struct {
	keys    [2][]spanKey
	current uint8 // index of keys and of a slot
	// table has a power of two slots.
	table []idSlot
}

// idSlot has an entry per generation. 0 is empty; otherwise the lower bits are one more than an index of
// keys, and the others some of the key's hash, so that keys are hardly ever read.
type idSlot [2]uint32

const (
	idSetBits = 25 // of the index: a shard and generation has at most 1/16 of maxDedupeEntries
	idSetTag  = 1<<32 - 1<<idSetBits
	// tagShift moves the bits below those of the shard to the tag.
	idSetTagShift = dedupeShardShift - 32
	idSetMinimum  = 16 // slots to begin with
)

// at is what the first slot of a hash has.
func (s *idSet) at(hash uint64) uint32 {
	if len(s.table) == 0 {
		return 0
	}
	slot := &s.table[hash&uint64(len(s.table)-1)]
	return slot[0] | slot[1]
}

// find is the entry of id in a generation, or where it would be. The table must not be empty.
func (s *idSet) find(id *dedupeID, generation uint8) (entry *uint32, found bool) {
	mask, tag := uint64(len(s.table)-1), uint32(id.hash>>idSetTagShift)&idSetTag
	for i := id.hash & mask; ; i = (i + 1) & mask {
		entry = &s.table[i][generation&1]
		if *entry == 0 {
			return entry, false
		}
		if *entry&idSetTag == tag && s.keys[generation&1][*entry&^idSetTag-1] == id.key {
			return entry, true
		}
	}
}

// add adds id to the current generation, and reports whether neither has had it.
func (s *idSet) add(id *dedupeID) bool {
	if 2*(len(s.keys[s.current])+1) > len(s.table) {
		s.resize(max(idSetMinimum, 2*len(s.table)))
	}
	if _, found := s.find(id, s.current^1); found {
		return false
	}
	entry, found := s.find(id, s.current)
	if found {
		return false
	}
	s.keys[s.current] = append(s.keys[s.current], id.key)
	*entry = uint32(id.hash>>idSetTagShift)&idSetTag | uint32(len(s.keys[s.current]))
	return true
}

// resize makes a new table.
func (s *idSet) resize(slots int) {
	s.table = make([]idSlot, slots)
	for generation, keys := range s.keys {
		for i, key := range keys {
			id := dedupeID{key, hashOf(key)}
			entry, _ := s.find(&id, uint8(generation))
			*entry = uint32(id.hash>>idSetTagShift)&idSetTag | uint32(i+1)
		}
	}
}

// rotate forgets the older generation and begins a new one in its place. It keeps the memory unless little
// of it was used.
func (s *idSet) rotate() {
	s.current ^= 1
	forgotten := len(s.keys[s.current])
	s.keys[s.current] = s.keys[s.current][:0]
	kept := len(s.keys[s.current^1])
	if slots := len(s.table) / 8; max(forgotten, kept) < slots/2 {
		s.keys[s.current] = nil
		s.keys[s.current^1] = slices.Clip(slices.Clone(s.keys[s.current^1]))
		s.resize(slots)
		return
	}
	for i := range s.table {
		s.table[i][s.current] = 0
	}
}
