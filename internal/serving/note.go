// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What is noted of each request while spans are consumed, for windows and history to be made of when metrics are
// collected: nobody who sends spans waits for those.

import (
	"math"
	"sync"

	"github.com/otelcol-serving/otelcol-serving/internal/history"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// note is one request, without references. What windows and history make of it is made when they get it.
type note struct{ llmrequest.Figures }

// notes are requests in the order in which they were recorded, in pieces of one size that engines take turns with.
type notes struct {
	chunks []*chunk
	last   int // used of the last chunk
}

type chunk [chunkSize]note

const (
	chunkSize = 128 // 16 kB
	// maxNoted is how many requests of one engine are noted between two collects, maxNotedTotal those of all engines
	// (64 MB). More than that are given to the timeline by whoever records them.
	maxNoted      = 1 << 16
	maxNotedTotal = 1 << 19
)

// chunkPool has the memory of notes that were taken, for the next ones.
type chunkPool struct {
	mu   sync.Mutex
	free []*chunk
	used int // since the last trim
}

func (p *chunkPool) get() *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used++
	if last := len(p.free) - 1; last >= 0 {
		c := p.free[last]
		p.free = p.free[:last]
		return c
	}
	return new(chunk)
}

func (p *chunkPool) put(chunks []*chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, chunks...)
}

// trim keeps no more than was used since the last time.
func (p *chunkPool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.used; n < len(p.free) {
		clear(p.free[n:])
		p.free = p.free[:n]
	}
	p.used = 0
}

// next is the place of one more note, with whatever was there before.
func (n *notes) next(from *chunkPool) *note {
	if len(n.chunks) == 0 || n.last == chunkSize {
		n.chunks = append(n.chunks, from.get())
		n.last = 0
	}
	n.last++
	return &n.chunks[len(n.chunks)-1][n.last-1]
}

func (n *notes) len() int { return max(0, (len(n.chunks)-1)*chunkSize) + n.last }

// take takes them out.
func (n *notes) take(a *Aggregator) notes {
	taken := *n
	a.noted.Add(-int64(taken.len()))
	*n = notes{}
	return taken
}

// each walks the notes.
func (n notes) each(f func(*note)) {
	for i, c := range n.chunks {
		used := chunkSize
		if i == len(n.chunks)-1 {
			used = n.last
		}
		for j := range c[:used] {
			f(&c[j])
		}
	}
}

// note notes one request, and keeps it by name if it is slow and remember is set.
func (e *engine) note(a *Aggregator, s *series, r *llmrequest.Request, d *llmrequest.Derived) {
	e.noted.next(&a.chunks).Figures = r.Figures
	if a.remember && r.Has(llmrequest.E2E) && float32(r.Value(llmrequest.E2E)) > e.slow.floor {
		slow := history.Slow{
			TraceID: r.TraceID, SpanID: r.SpanID,
			// Not r's own, whose memory is the span's.
			Model: attributeText(s.attributes, attrModel), Error: attributeText(s.attributes, attrErrorType),
		}
		history.NewRequest(r, d, &slow.Request)
		slow.Request.Good = a.objectives.met(&r.Figures)
		e.slow.add(slow)
	}
}

// slowest are the slowest requests since the last collect, in no order.
type slowest struct {
	floor float32 // what a request must exceed to be one of them
	all   []history.Slow
}

func (s *slowest) add(slow history.Slow) {
	if len(s.all) < history.MaxSlowest {
		s.all = append(s.all, slow)
	} else {
		s.all[s.least()] = slow
	}
	if len(s.all) == history.MaxSlowest {
		s.floor = s.all[s.least()].E2E
	}
}

func (s *slowest) least() int {
	least := 0
	for i := range s.all {
		if s.all[i].E2E < s.all[least].E2E {
			least = i
		}
	}
	return least
}

// take takes them out.
func (s *slowest) take() []history.Slow {
	all := s.all
	*s = slowest{floor: float32(math.Inf(-1))}
	return all
}
