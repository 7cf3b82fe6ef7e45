// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// The way of a span: found to be a request, read, recognised if resent, and recorded with its engine.

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/engineid"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Aggregator turns request spans into metrics. Record may be called by many goroutines at once, also
// while Take runs.
type Aggregator struct {
	identifier *identifier
	limits     LimitConfig
	delta      bool
	shapes     []histogramShape // by histogramID
	objectives *objectives
	windows    timeline.Config
	budget     timeline.Budget // of all engines
	clock      steadyClock
	onNew      func(EngineInfo)

	shards  [engineShards]engineShard
	engines quota // engines there are
	series  quota // series there are, over all engines
	dedupe  *dedupe
	stats   statistics

	// recording is held shared by Record, so that Close knows that none is under way.
	recording sync.RWMutex
	closed    bool

	taking sync.Mutex   // held by Take
	noted  atomic.Int64 // requests noted and not taken, over all engines
	chunks chunkPool

	remember bool // the slowest requests and an hour of windows, for the page
	diagnose diagnosis.Config
	fleets   fleets
}

const engineShards = 64

type engineShard struct {
	mu      sync.RWMutex
	engines map[string]*engine
	_       [64]byte
}

var engineSeed = maphash.MakeSeed()

// EngineInfo is what an engine is known by.
type EngineInfo struct {
	// Service and Name are its service.name and service.instance.id, Source the key that gave the name.
	Service, Name, Source string
	// MayMix: the name is one that replicas are likely to share.
	MayMix bool
	// Overflow: the engine is beyond the limit, and reported together with all others that are.
	Overflow bool
}

// Settings are what an Aggregator needs besides its configuration.
type Settings struct {
	// Clock is SystemClock unless a test sets it.
	Clock Clock
	// Seen, if set, are the spans that an Aggregator before this one counted.
	Seen *Seen
	// OnNewEngine, if set, is called once for every engine, and for the first one over the limit.
	OnNewEngine func(EngineInfo)
}

// New makes an Aggregator of a valid configuration. It starts nothing.
func New(c *Config, set Settings) (*Aggregator, error) {
	identifier, err := newIdentifier(c)
	if err != nil {
		return nil, err
	}
	if set.Clock.Wall == nil {
		set.Clock = SystemClock()
	}
	a := &Aggregator{
		identifier: identifier,
		limits:     c.Limits,
		delta:      c.Temporality == Delta,
		shapes:     newShapes(c),
		objectives: newObjectives(&c.SLO),
		windows:    timelineConfig(c),
		remember:   c.Summary != nil,
		diagnose:   c.Diagnosis,
		clock:      steadyClock{source: set.Clock},
		onNew:      set.OnNewEngine,
		dedupe:     newDedupe(c.Dedupe.Window, c.Dedupe.MaxEntries),
	}
	a.windows.Budget = &a.budget
	a.budget.Refill(spareWindows)
	if set.Seen.fits(a.dedupe) {
		a.dedupe = set.Seen.dedupe
	}
	for i := range a.shards {
		a.shards[i].engines = map[string]*engine{}
	}
	return a, nil
}

func newShapes(c *Config) []histogramShape {
	var shapes []histogramShape
	add := func(definitions []histogramDefinition, exponential bool) {
		for i := range definitions {
			shape := histogramShape{definition: &definitions[i], maxSize: c.Histograms.MaxSize, maxExemplars: c.Exemplars.MaxPerPoint}
			if !exponential {
				bounds := definitions[i].Buckets
				if custom, ok := c.Histograms.Buckets[definitions[i].Name]; ok {
					bounds = custom
				}
				shape.buckets = newBucketIndex(bounds)
			}
			shapes = append(shapes, shape)
		}
	}
	add(histogramDefinitions[:], c.Histograms.Type == Exponential)
	for _, name := range c.Compatibility {
		if name == compatibilityVLLM && len(shapes) == int(numOwnHistograms) {
			add(vllmDefinitions[:], false) // dashboards made for vLLM read its own buckets
		}
	}
	return shapes
}

// Record counts every request span of td once. With annotate, it adds the shares of each request
// to its span, resent or not; td must then be the caller's to change. It keeps no reference to td.
func (a *Aggregator) Record(td ptrace.Traces, annotate bool) {
	a.recording.RLock()
	defer a.recording.RUnlock()
	b := batches.Get().(*batch)
	b.now, b.elapsed = a.clock.now()
	for _, rs := range td.ResourceSpans().All() {
		a.recordResource(b, rs, annotate)
	}
	a.stats.add(&b.counts, b.now)
	b.counts = counts{}
	batches.Put(b)
}

// Close waits for calls of Record and makes further ones count their requests as dropped: their
// metrics would go nowhere.
func (a *Aggregator) Close() {
	a.recording.Lock()
	defer a.recording.Unlock()
	a.closed = true
}

// Seen are the spans that were counted, for the Aggregator that comes after this one when a Collector reloads its configuration:
// clients go on resending what they sent to the old one. It must not be used before Close. Nil: spans are not remembered.
func (a *Aggregator) Seen() *Seen {
	if a.dedupe == nil {
		return nil
	}
	return &Seen{a.dedupe}
}

// Annotate adds the shares of each request to its span, as Record can, and counts nothing.
func Annotate(td ptrace.Traces) {
	var r llmrequest.Request
	var d llmrequest.Derived
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
			for _, span := range ss.Spans().All() {
				if llmrequest.Read(span, &src, &r) {
					r.Derive(&d)
					putShares(span.Attributes(), &d.Shares)
				}
			}
		}
	}
}

// batch is the memory of one Record call.
type batch struct {
	now      pcommon.Timestamp
	elapsed  time.Duration
	n        int
	requests [batchSize]parsed
	fresh    []uint8 // requests that are to be recorded
	keys     []byte  // of their series
	engine   engineKey
	counts   counts
}

// batchSize is how many requests are read before they are looked up and their engine is locked: enough to
// make locks cheap and to wait for memory once for several of them, few enough to stay in the caches near the core.
const batchSize = 32

var batches = sync.Pool{New: func() any { return &batch{fresh: make([]uint8, 0, batchSize)} }}

func (a *Aggregator) recordResource(b *batch, rs ptrace.ResourceSpans, annotate bool) {
	resource := rs.Resource().Attributes()
	b.engine.made = false
	for _, ss := range rs.ScopeSpans().All() {
		src := llmrequest.NewSource(resource, ss.Scope().Name())
		b.counts.spans += int64(ss.Spans().Len())
		for _, span := range ss.Spans().All() {
			p := &b.requests[b.n]
			if !llmrequest.Read(span, &src, &p.request) {
				continue
			}
			p.attributes = span.Attributes()
			b.n++
			if b.n == batchSize {
				a.flush(b, resource, annotate)
			}
		}
	}
	a.flush(b, resource, annotate)
	b.engine.id, b.engine.service = engineid.ID{}, ""
}

// flush records the requests that were read, all of one engine.
func (a *Aggregator) flush(b *batch, resource pcommon.Map, annotate bool) {
	if a.closed {
		b.counts.dropped += int64(b.n)
	} else {
		a.dedupe.seen(b.requests[:b.n], b.elapsed)
	}
	for i := range b.requests[:b.n] {
		p := &b.requests[i]
		if a.closed || p.resent {
			if annotate {
				p.request.Derive(&p.derived)
				putShares(p.attributes, &p.derived.Shares)
			}
			continue
		}
		p.request.Derive(&p.derived)
		b.fresh = append(b.fresh, uint8(i))
	}
	if !a.closed {
		b.counts.duplicates += int64(b.n - len(b.fresh))
	}
	if len(b.fresh) > 0 {
		a.recordFresh(b, resource)
	}
	if annotate {
		for _, i := range b.fresh {
			putShares(b.requests[i].attributes, &b.requests[i].derived.Shares)
		}
	}
	b.forget()
}

// recordFresh records the requests that were not recorded before.
func (a *Aggregator) recordFresh(b *batch, resource pcommon.Map) {
	if !b.engine.made {
		a.identifier.engineKey(&b.engine, resource, &b.counts.cut)
	}
	var last *parsed // whose key was made
	for _, i := range b.fresh {
		p := &b.requests[i]
		b.counts.add(&p.request)
		if last != nil && a.identifier.sameSeries(&last.request, &p.request) {
			p.keyStart, p.keyEnd = last.keyStart, last.keyEnd
			continue
		}
		before := b.counts.cut
		p.keyStart = len(b.keys)
		b.keys = a.identifier.seriesKey(b.keys, &p.request, b.engine.service, p.attributes, resource, &b.counts.cut)
		p.keyEnd = len(b.keys)
		if last = p; b.counts.cut != before {
			last = nil // what is cut is counted for each request
		}
	}
	for !a.engine(&b.engine, b.elapsed).record(a, b) {
		// It expired between look-up and lock; look it up anew.
	}
}

// forget keeps nothing of the payload: the strings of a request are those of its span. One more than were
// recorded may have been read.
func (b *batch) forget() {
	for i := range b.requests[:min(b.n+1, batchSize)] {
		p := &b.requests[i]
		p.request.Model, p.request.Operation, p.request.ErrorType = "", "", ""
		p.attributes = pcommon.Map{}
	}
	b.n, b.fresh, b.keys = 0, b.fresh[:0], b.keys[:0]
}

// engine is the engine of key, new if there is room and the overflow engine if there is none.
func (a *Aggregator) engine(key *engineKey, elapsed time.Duration) *engine {
	shard := &a.shards[maphash.Bytes(engineSeed, key.identity)%engineShards]
	shard.mu.RLock()
	e := shard.engines[string(key.identity)]
	shard.mu.RUnlock()
	if e != nil {
		return e
	}
	e, isNew := a.addEngine(shard, key, elapsed)
	switch {
	case e == nil:
		return a.engine(&engineKey{}, elapsed)
	case isNew && a.onNew != nil:
		a.onNew(e.info())
	}
	return e
}

// addEngine is the engine of key, new unless another was faster, or nil if there is no room.
func (a *Aggregator) addEngine(shard *engineShard, key *engineKey, elapsed time.Duration) (e *engine, isNew bool) {
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e = shard.engines[string(key.identity)]; e != nil {
		return e, false
	}
	if len(key.identity) > 0 && !a.engines.take(a.limits.Engines) {
		return nil, false
	}
	e = newEngine(a, key, elapsed)
	shard.engines[e.key] = e
	return e, true
}

func putShares(attributes pcommon.Map, shares *llmrequest.Shares) {
	attributes.EnsureCapacity(attributes.Len() + shares.Len()) // they move once, to no more memory than they need
	for share := range llmrequest.NumShares {
		if v, ok := shares.Get(share); ok {
			attributes.PutDouble(ShareAttribute(share), v)
		}
	}
}

// quota counts what is limited.
type quota struct{ n atomic.Int64 }

// take reports whether there was room for one more.
func (q *quota) take(limit int) bool {
	for {
		n := q.n.Load()
		if n >= int64(limit) {
			return false
		}
		if q.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (q *quota) release() { q.n.Add(-1) }
