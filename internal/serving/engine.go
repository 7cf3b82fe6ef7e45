// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// One inference engine: its resource, its series and its windows.

import (
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// engine is one inference engine. What is above the lock does not change.
type engine struct {
	key      string // its identity
	source   string // of the name
	mayMix   bool
	overflow bool // stands for all engines over the limit

	mu sync.Mutex
	// resource is as emitted. A map that was put here does not change any more: snapshots have it.
	resource    pcommon.Map
	description string // the part of resource that is no identity

	windows *windows // nil: not wanted, or many engines at once, which have no time in common
	noted   notes    // requests since the last collect
	slow    slowest  // of them

	// gone: the engine expired and left the aggregator while somebody held it.
	gone     bool
	lastSeen time.Duration

	make engineMake
	// reported is the make that the last snapshot told of.
	reported engineMake
	// taken is the time of the last snapshot.
	taken pcommon.Timestamp

	series map[string]*series
	// order has the same series, so that a walk can let go of the lock on its way.
	order []*series
	// recent is the series of the last request: most engines serve one model.
	recent *series
}

// engineMake is what kind of engine it is.
type engineMake struct {
	kind       llmrequest.Kind
	generation llmrequest.Generation
	mode       timeline.Mode
}

// learn takes in what one more request says. A request that says nothing, such as one that was
// aborted early, changes nothing.
func (m *engineMake) learn(kind llmrequest.Kind, generation llmrequest.Generation) {
	switch {
	case kind == llmrequest.KindUnknown:
	case kind != m.kind:
		m.kind, m.generation = kind, generation
	case generation != llmrequest.GenerationUnknown:
		m.generation = generation
	}
}

func newEngine(a *Aggregator, key *engineKey, elapsed time.Duration) *engine {
	e := &engine{
		key: string(key.identity), source: key.id.Source, mayMix: key.id.MayMix(),
		lastSeen: elapsed, series: map[string]*series{},
	}
	if len(key.identity) == 0 {
		e.overflow, e.source, e.mayMix = true, "none", false
		e.resource = pcommon.NewMap()
		e.resource.PutStr(serviceInstanceID, "overflow")
		e.resource.PutBool(attrOverflow, true)
		return e
	}
	e.describe(a, key.description)
	e.windows = newWindows(a)
	e.slow.take()
	return e
}

// describe takes in a description that differs from the one before.
func (e *engine) describe(a *Aggregator, description []byte) {
	if e.overflow {
		return
	}
	merged := a.identifier.mergeDescriptions([]byte(e.description), description)
	if e.description == string(merged) {
		return
	}
	e.description = string(merged)
	e.resource = a.identifier.engineAttributes([]byte(e.key), merged)
}

// info is what a new engine is announced with.
func (e *engine) info() EngineInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	return EngineInfo{
		Service: attributeText(e.resource, serviceName), Name: attributeText(e.resource, serviceInstanceID),
		Source: e.source, MayMix: e.mayMix, Overflow: e.overflow,
	}
}

// parsed is a request that has been read.
type parsed struct {
	request          llmrequest.Request
	derived          llmrequest.Derived
	attributes       pcommon.Map // of the span
	resent           bool        // was recorded before
	keyStart, keyEnd int         // of the series' key in the batch
}

// record adds the fresh requests of b. It reports false, and has done nothing, if the engine is gone.
func (e *engine) record(a *Aggregator, b *batch) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false
	}
	e.lastSeen = b.elapsed
	if e.description != string(b.engine.description) {
		e.describe(a, b.engine.description)
	}
	s, keyStart := e.recent, -1
	for _, i := range b.fresh {
		p := &b.requests[i]
		e.make.learn(p.request.Kind, p.request.Generation)
		if p.keyStart != keyStart { // not that of the request before
			keyStart = p.keyStart
			if key := b.keys[p.keyStart:p.keyEnd]; s == nil || s.key != string(key) {
				s = e.find(a, key, b.now)
			}
		}
		if s.key == overflowKey {
			a.stats.overflow.Add(1)
		}
		s.lastSeen = b.elapsed
		met := a.objectives.met(&p.request.Figures)
		s.live.record(a.shapes, met, &p.request, &p.derived, b.now)
		if e.windows != nil {
			e.note(a, s, &p.request, &p.derived)
		}
	}
	e.recent = s
	if e.windows != nil {
		noted := a.noted.Add(int64(len(b.fresh)))
		if e.noted.len() >= maxNoted || noted >= maxNotedTotal && e.noted.len() >= chunkSize {
			noted := e.noted.take(a)
			e.windows.add(noted, e.about(a), &a.stats)
			a.chunks.put(noted.chunks)
		}
	}
	return true
}

// find is the series of key, new if there is room and the overflow series if there is none.
func (e *engine) find(a *Aggregator, key []byte, now pcommon.Timestamp) *series {
	if e.overflow {
		key = nil
	}
	if s := e.series[string(key)]; s != nil {
		return s
	}
	if len(key) != 0 {
		if !a.series.take(a.limits.Series) {
			return e.find(a, nil, now)
		}
	}
	s := &series{
		key: string(key), attributes: a.identifier.seriesAttributes(key), live: newAccumulators(len(a.shapes)),
		// A call of Record may have begun before the last collect; if this series was there before and has
		// ended, it must not start within its own past.
		start: max(now, e.taken),
	}
	e.series[s.key] = s
	e.order = append(e.order, s)
	return s
}

// remove takes the i-th series out.
func (e *engine) remove(a *Aggregator, i int) {
	s := e.order[i]
	last := len(e.order) - 1
	e.order[i] = e.order[last]
	e.order[last] = nil
	e.order = e.order[:last]
	delete(e.series, s.key)
	if e.recent == s {
		e.recent = nil
	}
	if s.key != overflowKey {
		a.series.release()
	}
}
