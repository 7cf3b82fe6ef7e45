// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package measure

// What spans come when: engines take turns, and each has its own time, in which its requests end one after the other.

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
)

const (
	// step is the time between the ends of two requests of an engine: 10 requests/s, about 40 at once.
	step = uint64(100 * time.Millisecond)
	// history is how far back the spans begin: they must not run ahead of the wall clock however fast they come.
	history = 400 * 24 * time.Hour
)

// feed is one goroutine's source of exports. Those of one measurement share the engines' clocks.
type feed struct {
	plan     Plan
	template *spans.Template
	number   uint64
	at       int
	id       uint64
	begin    uint64
	ended    []atomic.Uint64 // requests of each engine
}

// feeds counts them: no two have a span in common, even if a component inherits what one before it remembered.
var feeds atomic.Uint64

func newFeed(p Plan) (*feed, error) {
	template, err := spans.New(p.Load.Kind, p.Batch, p.Load.Series > 0)
	if err != nil {
		return nil, err
	}
	// One engine more than there are, to fill with.
	number := feeds.Add(1)
	return &feed{plan: p, template: template, number: number, id: feedID(number, 0), begin: uint64(time.Now().Add(-history).UnixNano()), ended: make([]atomic.Uint64, p.Load.Engines+1)}, nil
}

// of is the source of one worker. It begins with an engine that the others are not at.
func (f *feed) of(worker int) *feed {
	own := *f
	own.id = feedID(f.number, worker+1)
	own.at = worker * f.plan.Load.Engines / f.plan.Cores
	return &own
}

// feedID is the first of the 2^36 IDs of a worker.
func feedID(feed uint64, worker int) uint64 { return feed<<40 | uint64(worker)<<36 }

// group is the templates that are decoded at once.
func (f *feed) group() []*spans.Template {
	var group []*spans.Template
	for range max(1, groupSpans/f.plan.Batch) {
		group = append(group, f.template.Clone())
	}
	return group
}

// next is the next export of n spans, of the next engine.
func (f *feed) next(n int) spans.Export {
	engine := f.at % f.plan.Load.Engines
	f.at++
	return f.nextOf(engine, n)
}

func (f *feed) nextOf(engine, n int) spans.Export {
	ended := f.ended[engine].Add(uint64(n)) - uint64(n)
	series := f.seriesPerEngine()
	e := spans.Export{FirstID: f.id, Engine: engine, End: f.begin + ended*step, Step: step, FirstSeries: int(ended % uint64(series)), Series: series}
	f.id += uint64(n)
	return e
}

func (f *feed) seriesPerEngine() int { return max(1, f.plan.Load.Series/f.plan.Load.Engines) }

// introduce has every engine and every series seen once.
func (f *feed) introduce(consume func(ptrace.Traces) error) error {
	n := min(f.seriesPerEngine(), 1000)
	template, err := spans.New(f.plan.Load.Kind, n, f.plan.Load.Series > 0)
	if err != nil {
		return err
	}
	for range f.plan.Load.Engines {
		for seen := 0; seen < f.seriesPerEngine(); seen += n {
			template.Set(f.nextOf(f.at%f.plan.Load.Engines, n))
			td, err := template.Traces()
			if err != nil {
				return err
			}
			if err := consume(td); err != nil {
				return err
			}
		}
		f.at++
	}
	return nil
}

// fill has an engine of its own end so many requests.
func (f *feed) fill(n int, consume func(ptrace.Traces) error) error {
	const batch = 100
	template, err := spans.New(f.plan.Load.Kind, batch, false)
	if err != nil {
		return err
	}
	engine := f.plan.Load.Engines
	template.Set(f.nextOf(engine, batch))
	td, err := template.Traces()
	if err != nil {
		return err
	}
	for done := 0; done < n; done += batch {
		spans.Renumber(td, f.nextOf(engine, batch))
		if err := consume(td); err != nil {
			return err
		}
	}
	return nil
}
