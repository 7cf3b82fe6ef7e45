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
