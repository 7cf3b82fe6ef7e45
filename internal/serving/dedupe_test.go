// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func ids(n uint64) (trace pcommon.TraceID, span pcommon.SpanID) {
	binary.LittleEndian.PutUint64(trace[:], n+1)
	binary.LittleEndian.PutUint64(span[:], n*7+1)
	return trace, span
}

// seenOne looks a single span up.
func (d *dedupe) seenOne(trace pcommon.TraceID, span pcommon.SpanID, now time.Duration) bool {
	var requests [1]parsed
	requests[0].request.TraceID, requests[0].request.SpanID = trace, span
	d.seen(requests[:], now)
	return requests[0].resent
}

// Against a map that never forgets: a span within the window is always recognised, one after two windows never.
func TestDedupeAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const window = time.Minute
	d := newDedupe(window, 1<<20)
	last := map[uint64]time.Duration{}
	now := time.Duration(0)
	for range 200_000 {
		now += time.Duration(rng.IntN(5)) * time.Millisecond
		if rng.IntN(20000) == 0 {
			now += time.Duration(rng.IntN(200)) * time.Second
		}
		n := uint64(rng.IntN(30_000))
		trace, span := ids(n)
		seen := d.seenOne(trace, span, now)
		at, before := last[n]
		switch {
		case !before:
			require.False(t, seen, "never seen")
		case now-at < window:
			require.True(t, seen, "seen %v ago", now-at)
		}
		// A sighting renews nothing unless the span was forgotten: retries do not keep it for ever.
		if !seen {
			last[n] = now
		}
	}
	assert.Zero(t, d.evictions.Load())
}

func TestDedupeForgetsAfterTwoWindows(t *testing.T) {
	d := newDedupe(time.Minute, 1000)
	trace, span := ids(1)
	assert.False(t, d.seenOne(trace, span, 0))
	assert.True(t, d.seenOne(trace, span, 59*time.Second))
	assert.False(t, d.seenOne(trace, span, 2*time.Minute))
	assert.True(t, d.seenOne(trace, span, 2*time.Minute))
}

func TestDedupeIsBounded(t *testing.T) {
	const limit = 6400
	const perPart = limit / dedupeParts / 2
	d := newDedupe(time.Hour, limit)
	for n := range uint64(50 * limit) {
		trace, span := ids(n)
		require.False(t, d.seenOne(trace, span, time.Second))
	}
	entries := 0
	for i := range d.parts {
		entries += d.parts[i].hashes.used[0] + d.parts[i].hashes.used[1]
	}
	assert.LessOrEqual(t, entries, limit)
	assert.Greater(t, entries, limit/3)
	assert.Positive(t, d.evictions.Load())
	trace, span := ids(50*limit - 1)
	assert.True(t, d.seenOne(trace, span, time.Second), "the newest are still known")

	d.seenOne(trace, span, 3*time.Hour) // what little use follows gives the memory back
	for i := range d.parts {
		for k := range uint64(perPart) {
			trace, span := ids(1<<40 + uint64(i)*100000 + k)
			d.seenOne(trace, span, 6*time.Hour)
		}
	}
	for _, at := range []time.Duration{9, 12, 15} {
		for n := range uint64(200) {
			trace, span := ids(1<<50 + n)
			d.seenOne(trace, span, at*time.Hour)
		}
	}
	slots := 0
	for i := range d.parts {
		slots += 2 * hashesPerLine * len(d.parts[i].hashes.lines)
	}
	assert.Less(t, slots, limit)
}

// All hashes belong to the last line of the table, so that they go on from its beginning, and their line is full in both
// generations.
func TestHashSetGoesRound(t *testing.T) {
	s := hashSet{max: 100}
	hash := func(i int) uint64 { return (1<<dedupePartShift - 1) - uint64(i) }
	for i := range 40 {
		if i == 20 {
			s.rotate()
		}
		require.True(t, s.add(hash(i)), i)
		for j := range i + 1 {
			require.False(t, s.add(hash(j)), "%d after %d", j, i)
		}
	}
	assert.Equal(t, [2]int{20, 20}, s.used)
	s.rotate()
	assert.True(t, s.add(hash(0)), "forgotten")
	for i := 20; i < 40; i++ {
		assert.False(t, s.add(hash(i)), "of the generation before: %d", i)
	}
}

// Neither ID alone makes a span the same, and no hash is 0, which stands for none.
func TestSpanHash(t *testing.T) {
	var r llmrequest.Request
	assert.Zero(t, spanHash(&r))
	r.TraceID[15] = 1
	assert.Zero(t, spanHash(&r), "no span ID")
	seen := map[uint64]bool{}
	for bit := range 24 * 8 {
		r.TraceID, r.SpanID = pcommon.TraceID{1: 1}, pcommon.SpanID{1: 1}
		if at := bit / 8; at < 16 {
			r.TraceID[at] ^= 1 << (bit % 8)
		} else {
			r.SpanID[at-16] ^= 1 << (bit % 8)
		}
		if h := spanHash(&r); h != 0 {
			assert.False(t, seen[h], "bit %d counts", bit)
			seen[h] = true
		}
	}
	assert.Len(t, seen, 24*8-2, "all but the two without an ID")
}
