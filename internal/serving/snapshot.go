// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What was recorded up to a moment, taken out under short locks and made into OTLP metrics outside of them.

import (
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// ScopeName is the instrumentation scope of the derived metrics.
const ScopeName = "github.com/otelcol-serving/otelcol-serving/internal/serving"

// Snapshot is what Take took. It is valid until the next Take; Detach makes it last.
type Snapshot struct {
	// Time of all points, but for those that a failed send left behind.
	Time pcommon.Timestamp

	a       *Aggregator
	engines []engineSnapshot // by key
}

type engineSnapshot struct {
	engine   *engine
	resource pcommon.Map
	make     engineMake
	formerly []engineMake // that the snapshot before told of, if make is another
	gone     bool
	windows  []windowSnapshot // that were closed since the snapshot before
	shown    uint32           // windowGauges whose last point had a value
	series   []seriesSnapshot
	// ended are series whose last values were in an earlier snapshot. None with delta temporality, whose
	// points end by themselves.
	ended []seriesSnapshot
}

type seriesSnapshot struct {
	series     *series
	start, end pcommon.Timestamp
	values     *accumulators
}

// maxPendingWindows is how many windows of an engine wait for a consumer that refuses them: half a day of the
// default length.
const maxPendingWindows = 4096

// seriesPerLock is how many series are walked before the lock of their engine is let go for a moment.
const seriesPerLock = 16

// Take takes what was recorded: all series with cumulative temporality, with delta those that had
// requests since the last Take. Series and engines that were silent for too long end. Timestamps
// strictly increase from call to call.
func (a *Aggregator) Take() *Snapshot {
	a.taking.Lock()
	defer a.taking.Unlock()
	now, elapsed := a.clock.now()
	a.budget.Refill(spareWindows)
	a.recording.RLock()
	last := a.closed
	a.recording.RUnlock()

	s := &Snapshot{Time: now, a: a}
	for i := range a.shards {
		shard := &a.shards[i]
		shard.mu.RLock()
		engines := make([]*engine, 0, len(shard.engines))
		for _, e := range shard.engines {
			engines = append(engines, e)
		}
		shard.mu.RUnlock()
		for _, e := range engines {
			windows, shown, mode := e.takeWindows(a, now, last)
			taken := e.take(a, now, elapsed, mode)
			taken.windows, taken.shown = windows, shown
			taken.gone = e.expire(a, shard, elapsed)
			s.engines = append(s.engines, taken)
		}
	}
	a.chunks.trim()
	a.fleets.renew(s.engines)
	slices.SortFunc(s.engines, func(x, y engineSnapshot) int { return strings.Compare(x.engine.key, y.engine.key) })
	return s
}

// takeWindows closes the windows that the requests noted since the last call, and now the time, allow.
func (e *engine) takeWindows(a *Aggregator, now pcommon.Timestamp, last bool) (taken []windowSnapshot, shown uint32, mode timeline.Mode) {
	if e.windows == nil {
		return nil, 0, timeline.ModeUnknown
	}
	e.mu.Lock()
	noted := e.noted.take(a)
	about := e.about(a)
	slow := e.slow.take()
	e.mu.Unlock()
	taken, shown, mode = e.windows.take(noted, slow, about, now.AsTime(), last, &a.stats)
	a.chunks.put(noted.chunks)
	return taken, shown, mode
}

func (e *engine) take(a *Aggregator, now pcommon.Timestamp, elapsed time.Duration, mode timeline.Mode) engineSnapshot {
	out := engineSnapshot{engine: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken = now
	e.make.mode = mode
	out.resource, out.make = e.resource, e.make
	if e.reported != e.make && e.reported != (engineMake{}) {
		out.formerly = []engineMake{e.reported}
	}
	e.reported = e.make
	out.series = make([]seriesSnapshot, 0, len(e.order))
	for i, walked := 0, 1; i < len(e.order); walked++ {
		if walked%seriesPerLock == 0 {
			// Only Take removes series, so that the walk goes on where it was.
			e.mu.Unlock()
			e.mu.Lock()
		}
		s := e.order[i]
		untaken := s.untaken(a.delta)
		if elapsed-s.lastSeen > a.limits.SeriesExpiration && !untaken {
			e.remove(a, i)
			if !a.delta {
				out.ended = append(out.ended, seriesSnapshot{series: s, start: s.start, end: now, values: s.live})
			}
			continue
		}
		i++
		if s.start >= now || a.delta && !untaken {
			continue // begun while this walk was under way, or nothing to tell
		}
		if s.spare == nil {
			s.spare = newAccumulators(len(a.shapes))
		}
		if a.delta {
			s.live, s.spare = s.spare, s.live
			s.live.reset()
		} else {
			s.spare.take(s.live, a.shapes)
		}
		out.series = append(out.series, seriesSnapshot{series: s, start: s.start, end: now, values: s.spare})
		if a.delta {
			s.start = now
		}
	}
	return out
}

// expire removes an engine without series that was silent for too long.
func (e *engine) expire(a *Aggregator, shard *engineShard, elapsed time.Duration) bool {
	e.mu.Lock()
	live := len(e.order) > 0
	e.mu.Unlock()
	if live {
		return false // without keeping anybody from the shard
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.order) > 0 || elapsed-e.lastSeen <= a.limits.SeriesExpiration {
		return false
	}
	e.gone = true
	delete(shard.engines, e.key)
	if !e.overflow {
		a.engines.release()
	}
	return true
}

// Succeeded tells the aggregator that the metrics of s were handed over.
func (s *Snapshot) Succeeded() { s.a.stats.lastCollect.Store(s.a.clock.source.Wall().UnixNano()) }

// Empty reports whether s has nothing to send.
func (s *Snapshot) Empty() bool { return len(s.engines) == 0 }

// Detach is a copy of s that later calls of Take do not change: what a failed send keeps, to be merged
// into what is sent next. Only with delta temporality is there anything worth keeping.
func (s *Snapshot) Detach() *Snapshot {
	out := &Snapshot{Time: s.Time, a: s.a, engines: make([]engineSnapshot, len(s.engines))}
	for i, e := range s.engines {
		e.series = append([]seriesSnapshot(nil), e.series...)
		for j := range e.series {
			values := newAccumulators(len(s.a.shapes))
			values.merge(e.series[j].values, s.a.shapes)
			e.series[j].values = values
		}
		out.engines[i] = e
	}
	return out
}

// Merge is earlier and s together, as if the first had never been taken. It consumes earlier, which
// must be detached, and leaves s alone. Only snapshots of delta temporality can be merged.
//
// Series that ended meanwhile stay in it, but no more of them than limits::series; of what must be
// left out beyond that, the requests are counted as Lost.
func (s *Snapshot) Merge(earlier *Snapshot) *Snapshot {
	engines := make(map[string]int, len(earlier.engines)) // an engine that came back goes on
	for i := range earlier.engines {
		engines[earlier.engines[i].engine.key] = i
	}
	current := make(map[*series]bool)
	live := make(map[*engine]bool)
	for i := range s.engines {
		live[s.engines[i].engine] = !s.engines[i].gone
		for j := range s.engines[i].series {
			current[s.engines[i].series[j].series] = true
		}
	}
	// The overflow series of a live engine is beyond the limit by design, and there is one of each.
	stays := func(e *engineSnapshot, v *seriesSnapshot) bool {
		return current[v.series] || v.series.key == overflowKey && live[e.engine]
	}
	kept := 0
	for i := range earlier.engines {
		e := &earlier.engines[i]
		for j := range e.series {
			if !stays(e, &e.series[j]) {
				kept++
			}
		}
	}
	for _, e := range s.Detach().engines {
		i, ok := engines[e.engine.key]
		if !ok {
			earlier.engines = append(earlier.engines, e)
			continue
		}
		old := &earlier.engines[i]
		position := make(map[*series]int, len(old.series))
		for j := range old.series {
			position[old.series[j].series] = j
		}
		for _, next := range e.series {
			j, ok := position[next.series]
			if !ok {
				old.series = append(old.series, next)
				continue
			}
			// The point is longer now. Those of series without new requests end where they did: their
			// next one starts there.
			old.series[j].end = next.end
			old.series[j].values.merge(next.values, s.a.shapes)
		}
		old.windows = append(old.windows, e.windows...)
		old.windows = old.windows[max(0, len(old.windows)-maxPendingWindows):]
		old.engine, old.resource, old.make, old.formerly, old.gone, old.shown = e.engine, e.resource, e.make, e.formerly, e.gone, e.shown
	}
	earlier.forget(kept-s.a.limits.Series, stays)
	earlier.Time = s.Time
	return earlier
}

// forget leaves out the first n series that do not stay, and engines that have nothing more to say.
func (s *Snapshot) forget(n int, stays func(*engineSnapshot, *seriesSnapshot) bool) {
	for i := range s.engines {
		e := &s.engines[i]
		e.series = slices.DeleteFunc(e.series, func(v seriesSnapshot) bool {
			if n <= 0 || stays(e, &v) {
				return false
			}
			n--
			s.a.stats.lost.Add(int64(v.values.requests))
			return true
		})
	}
	s.engines = slices.DeleteFunc(s.engines, func(e engineSnapshot) bool { return e.gone && len(e.series) == 0 && len(e.windows) == 0 })
}

// Metrics makes OTLP metrics of s: a resource per engine, in each metric a point per series.
func (s *Snapshot) Metrics(version string) pmetric.Metrics {
	md := pmetric.NewMetrics()
	md.ResourceMetrics().EnsureCapacity(len(s.engines))
	for i := range s.engines {
		e := &s.engines[i]
		if e.engine.overflow && len(e.series) == 0 && len(e.ended) == 0 {
			continue // nothing to say, and no info of many engines at once
		}
		rm := md.ResourceMetrics().AppendEmpty()
		e.resource.CopyTo(rm.Resource().Attributes())
		sm := rm.ScopeMetrics().AppendEmpty()
		sm.Scope().SetName(ScopeName)
		sm.Scope().SetVersion(version)
		b := builder{snapshot: s, engine: e, metrics: sm.Metrics()}
		b.build()
	}
	return md
}

// builder makes the metrics of one engine.
type builder struct {
	snapshot *Snapshot
	engine   *engineSnapshot
	metrics  pmetric.MetricSlice
}

func (b *builder) build() {
	shapes := b.snapshot.a.shapes
	for id := 0; id < len(shapes); {
		end := id + 1 // definitions of one metric stand together
		for end < len(shapes) && shapes[end].definition.Name == shapes[id].definition.Name {
			end++
		}
		b.histogram(id, end)
		id = end
	}
	all := func(*accumulators, int) bool { return true }
	b.counter(&requestCount, []string{""}, all, func(a *accumulators, _ int, dp pmetric.NumberDataPoint) {
		dp.SetIntValue(int64(a.requests))
	})
	b.counter(&stageTime, stageNames[:], func(a *accumulators, i int) bool { return a.hasStages&(1<<i) != 0 },
		func(a *accumulators, i int, dp pmetric.NumberDataPoint) { dp.SetDoubleValue(a.stages[i]) })
	b.counter(&componentTime, componentNames[:], func(a *accumulators, _ int) bool { return a.hasParts },
		func(a *accumulators, i int, dp pmetric.NumberDataPoint) { dp.SetDoubleValue(a.components[i]) })
	b.counter(&tokenCount, tokenTypeNames[:], func(a *accumulators, i int) bool { return a.hasTokens&(1<<i) != 0 },
		func(a *accumulators, i int, dp pmetric.NumberDataPoint) { dp.SetIntValue(int64(a.tokens[i])) })
	configured := b.snapshot.a.objectives.configured()
	b.counter(&goodput, sloNames[:], func(_ *accumulators, i int) bool { return configured[i] },
		func(a *accumulators, i int, dp pmetric.NumberDataPoint) { dp.SetIntValue(int64(a.good[i])) })
	b.info()
	b.windows()
}

// temporality of all sums and histograms.
func (b *builder) temporality() pmetric.AggregationTemporality {
	if b.snapshot.a.delta {
		return pmetric.AggregationTemporalityDelta
	}
	return pmetric.AggregationTemporalityCumulative
}

// metric adds an empty metric.
func (b *builder) metric(d *Definition) pmetric.Metric {
	m := b.metrics.AppendEmpty()
	m.SetName(d.Name)
	m.SetUnit(d.Unit)
	m.SetDescription(d.Description)
	return m
}

// point is what all kinds of points have.
type point interface {
	Attributes() pcommon.Map
	SetTimestamp(pcommon.Timestamp)
	SetStartTimestamp(pcommon.Timestamp)
}

func (b *builder) point(p point, s *seriesSnapshot, attribute, value string) {
	s.series.attributes.CopyTo(p.Attributes())
	if attribute != "" {
		p.Attributes().PutStr(attribute, value)
	}
	p.SetStartTimestamp(s.start)
	p.SetTimestamp(s.end)
}

// histogram adds the metric of the histograms from id up to end, if any of them has a value.
func (b *builder) histogram(id, end int) {
	shapes := b.snapshot.a.shapes[id:end]
	var explicit pmetric.HistogramDataPointSlice
	var exponential pmetric.ExponentialHistogramDataPointSlice
	started := false
	start := func() {
		if started {
			return
		}
		started = true
		m := b.metric(&shapes[0].definition.Definition)
		if shapes[0].buckets != nil {
			h := m.SetEmptyHistogram()
			h.SetAggregationTemporality(b.temporality())
			explicit = h.DataPoints()
		} else {
			h := m.SetEmptyExponentialHistogram()
			h.SetAggregationTemporality(b.temporality())
			exponential = h.DataPoints()
		}
	}
	b.each(func(s *seriesSnapshot, ended bool) {
		for j := range shapes {
			h := &s.values.histograms[id+j]
			if h.count == 0 {
				continue
			}
			start()
			shape := &shapes[j]
			attribute, value := shape.definition.attribute, shape.definition.value
			if shape.buckets != nil {
				dp := explicit.AppendEmpty()
				b.point(dp, s, attribute, value)
				b.compatible(dp.Attributes(), id)
				if ended {
					dp.SetFlags(noRecordedValue)
				} else {
					h.putExplicit(dp, shape)
				}
			} else {
				dp := exponential.AppendEmpty()
				b.point(dp, s, attribute, value)
				if ended {
					dp.SetFlags(noRecordedValue)
				} else {
					h.putExponential(dp)
				}
			}
		}
	})
}

// counter adds the metric of a counter with a point per series and value of its attribute, if there is any.
func (b *builder) counter(d *Definition, values []string, has func(*accumulators, int) bool, set func(*accumulators, int, pmetric.NumberDataPoint)) {
	attribute := ""
	if len(d.Attributes) > 0 {
		attribute = d.Attributes[0]
	}
	var points pmetric.NumberDataPointSlice
	started := false
	b.each(func(s *seriesSnapshot, ended bool) {
		for j, value := range values {
			if !has(s.values, j) {
				continue
			}
			if !started {
				started = true
				points = b.sum(d)
			}
			dp := points.AppendEmpty()
			b.point(dp, s, attribute, value)
			if ended {
				dp.SetFlags(noRecordedValue)
			} else {
				set(s.values, j, dp)
			}
		}
	})
}

// info adds what is known of the engine.
func (b *builder) info() {
	e := b.engine
	if e.engine.overflow {
		return
	}
	points := b.metric(&engineInfo).SetEmptyGauge().DataPoints()
	add := func(m engineMake, ended bool) {
		dp := points.AppendEmpty()
		dp.SetTimestamp(b.snapshot.Time)
		dp.Attributes().PutStr(attrProvider, m.kind.String())
		dp.Attributes().PutStr(attrEngineGeneration, m.generation.String())
		dp.Attributes().PutStr(attrEngineKey, e.engine.source)
		dp.Attributes().PutBool(attrEngineMayMix, e.engine.mayMix)
		dp.Attributes().PutStr(attrEngineStepMode, m.mode.String())
		if ended {
			dp.SetFlags(noRecordedValue)
		} else {
			dp.SetIntValue(1)
		}
	}
	add(e.make, e.gone)
	for _, m := range e.formerly {
		add(m, true)
	}
}

// noRecordedValue ends a series. These points come last in their metric since the prometheus exporter
// reads a metric up to the first of them.
var noRecordedValue = pmetric.DefaultDataPointFlags.WithNoRecordedValue(true)

// each walks the series, and then those that ended.
func (b *builder) each(f func(s *seriesSnapshot, ended bool)) {
	for i := range b.engine.series {
		f(&b.engine.series[i], false)
	}
	for i := range b.engine.ended {
		f(&b.engine.ended[i], true)
	}
}

// compatible adds the label by which vLLM's own metrics name the model.
func (b *builder) compatible(attributes pcommon.Map, id int) {
	if id < int(numOwnHistograms) {
		return
	}
	if model, ok := attributes.Get(attrModel); ok {
		name := model.Str()
		attributes.PutStr(attrModelName, name)
	}
}
