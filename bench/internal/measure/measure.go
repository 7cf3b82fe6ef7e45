// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package measure

// One measurement: a component is opened, filled, and given spans for a while.

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
)

// Plan is how to measure.
type Plan struct {
	Load  subject.Load
	Batch int // spans per export
	Cores int // goroutines that consume at once, each its own exports
	// For is how long to measure.
	For time.Duration
	// Fill is how many spans our components get before, so that their memory of spans is as full as it gets.
	Fill int
	// Hot has the same decoded spans consumed again and again under new IDs, with nothing in between: what it costs out of
	// the caches, and the most that cores get in each other's way. Not with annotate, which finds its attributes there.
	Hot bool
}

// Sample is one measurement, in nanoseconds per span: of CPU time of the process on one core, its collection of garbage
// included and what others do on the machine left out; of the clock on several cores, and where a plan is Hot, since there it matters
// who waits for whom.
type Sample struct {
	// Decode is 0 if the plan is Hot.
	Decode, Consume float64
}

// most is how many spans a goroutine is given at most. What serving_metrics notes of a request is worked off by its collect, every
// interval; only beyond 65 536 requests of an engine or 524 288 in all in between, which is more than engines send, by who sends the
// spans. That is not to be measured here.
func (p *Plan) most() int {
	return min(p.Load.Engines*40_000, 400_000) / p.Cores
}

// groupSpans is how many spans are timed at once, at least: enough for the clock to cost nothing, few enough to stay in the
// cache near the core.
const groupSpans = 64

// ballast is what the collectors of this world hold besides: without it, the heap of the smaller components would be collected
// all the time.
var ballast = make([]byte, 64<<20)

// Run measures.
func Run(s *subject.Subject, p Plan) (Sample, error) {
	defer runtime.KeepAlive(ballast)
	feed, running, err := open(s, p)
	if err != nil {
		return Sample{}, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(p.Cores))
	runtime.GC()
	workers := make([]worker, p.Cores)
	var wait sync.WaitGroup
	until := time.Now().Add(p.For)
	for i := range workers {
		workers[i].feed = feed.of(i)
		workers[i].now = clock
		if p.Cores == 1 && !p.Hot {
			workers[i].now = CPU
		}
		wait.Go(func() {
			if p.Hot {
				workers[i].err = workers[i].hot(until, running.Consume)
			} else {
				workers[i].err = workers[i].run(until, running.Consume)
			}
		})
	}
	wait.Wait()
	var total worker
	for i := range workers {
		total.add(&workers[i])
	}
	n := float64(total.spans)
	return Sample{Decode: float64(total.decode.Nanoseconds()) / n, Consume: float64(total.consume.Nanoseconds()) / n},
		errors.Join(total.err, running.Close())
}

func open(s *subject.Subject, p Plan) (*feed, *subject.Running, error) {
	running, err := s.Open(p.Load)
	if err != nil {
		return nil, nil, err
	}
	feed, err := newFeed(p)
	if err != nil {
		return nil, nil, err
	}
	if err := feed.introduce(running.Consume); err != nil {
		return nil, nil, err
	}
	if s.Ours {
		err = feed.fill(p.Fill, running.Consume)
	}
	return feed, running, err
}

type worker struct {
	feed            *feed
	now             func() time.Duration
	decode, consume time.Duration
	spans           int
	err             error
}

func (w *worker) add(o *worker) {
	w.decode += o.decode
	w.consume += o.consume
	w.spans += o.spans
	w.err = errors.Join(w.err, o.err)
}

// run decodes a group of exports, then has them consumed.
func (w *worker) run(until time.Time, consume func(ptrace.Traces) error) (err error) {
	group := w.feed.group()
	decoded := make([]ptrace.Traces, len(group))
	overhead := overheadOf(w.now)
	for {
		for _, t := range group {
			t.Set(w.feed.next(t.Len()))
		}
		begin := w.now()
		for i, t := range group {
			if decoded[i], err = t.Traces(); err != nil {
				return err
			}
		}
		middle := w.now()
		for _, td := range decoded {
			if err = consume(td); err != nil {
				return err
			}
		}
		end := w.now()
		w.decode += middle - begin - overhead
		w.consume += end - middle - overhead
		w.spans += len(group) * group[0].Len()
		if w.spans >= w.feed.plan.most() || time.Now().After(until) {
			return nil
		}
	}
}

// hot has decoded exports consumed.
func (w *worker) hot(until time.Time, consume func(ptrace.Traces) error) error {
	type engine struct {
		number int
		td     ptrace.Traces
	}
	var engines []engine
	for range w.feed.plan.Load.Engines {
		t := w.feed.template.Clone()
		e := w.feed.next(t.Len())
		t.Set(e)
		td, err := t.Traces()
		if err != nil {
			return err
		}
		engines = append(engines, engine{e.Engine, td})
	}
	group := max(1, groupSpans/w.feed.plan.Batch)
	for at := 0; ; {
		for i := range group {
			e := &engines[(at+i)%len(engines)]
			spans.Renumber(e.td, w.feed.nextOf(e.number, w.feed.plan.Batch))
		}
		begin := w.now()
		for i := range group {
			if err := consume(engines[(at+i)%len(engines)].td); err != nil {
				return err
			}
		}
		w.consume += w.now() - begin
		at += group
		w.spans += group * w.feed.plan.Batch
		if w.spans >= w.feed.plan.most() || time.Now().After(until) {
			return nil
		}
	}
}

// Allocations is what one span costs in bytes and objects to decode and to consume.
type Allocations struct {
	DecodeBytes, DecodeObjects, Bytes, Objects float64
}

// Allocate counts over some spans on one core.
func Allocate(s *subject.Subject, p Plan) (Allocations, error) {
	feed, running, err := open(s, p)
	if err != nil {
		return Allocations{}, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var a Allocations
	group := feed.of(0).group()
	decoded := make([]ptrace.Traces, len(group))
	const rounds = 100
	var before, middle, after runtime.MemStats
	for range rounds {
		for _, t := range group {
			t.Set(feed.next(t.Len()))
		}
		runtime.ReadMemStats(&before)
		for i, t := range group {
			if decoded[i], err = t.Traces(); err != nil {
				return a, err
			}
		}
		runtime.ReadMemStats(&middle)
		for _, td := range decoded {
			if err = running.Consume(td); err != nil {
				return a, err
			}
		}
		runtime.ReadMemStats(&after)
		a.DecodeBytes += float64(middle.TotalAlloc - before.TotalAlloc)
		a.DecodeObjects += float64(middle.Mallocs - before.Mallocs)
		a.Bytes += float64(after.TotalAlloc - middle.TotalAlloc)
		a.Objects += float64(after.Mallocs - middle.Mallocs)
	}
	n := float64(rounds * len(group) * group[0].Len())
	for _, v := range []*float64{&a.DecodeBytes, &a.DecodeObjects, &a.Bytes, &a.Objects} {
		*v /= n
	}
	return a, running.Close()
}
