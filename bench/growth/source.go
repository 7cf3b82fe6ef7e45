// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Where spans come from: engines take turns, and each has its own time.

import (
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
)

type source struct {
	load     subject.Load
	template *spans.Template
	begin    uint64
	step     uint64
	id       uint64
	ended    []uint64 // requests of each engine
	at       int
}

// newSource makes exports of batch spans, or fewer where an engine has fewer series. The requests of an engine end one step after the other.
func newSource(l subject.Load, step time.Duration, batch int) (*source, error) {
	if l.Series > 0 {
		batch = min(batch, max(1, l.Series/l.Engines))
	}
	template, err := spans.New(l.Kind, batch, l.Series > 0)
	if err != nil {
		return nil, err
	}
	return &source{
		load: l, template: template, step: uint64(step), ended: make([]uint64, l.Engines),
		begin: uint64(time.Now().Add(-400 * 24 * time.Hour).UnixNano()), // never ahead of the wall clock
	}, nil
}

// next is the next export, of the next engine.
func (s *source) next() (ptrace.Traces, error) {
	engine := s.at % s.load.Engines
	s.at++
	return s.of(engine)
}

func (s *source) of(engine int) (ptrace.Traces, error) {
	n, each := uint64(s.template.Len()), uint64(max(1, s.load.Series/s.load.Engines))
	s.template.Set(spans.Export{
		FirstID: s.id, Engine: engine, End: s.begin + s.ended[engine]*s.step, Step: s.step,
		FirstSeries: int(s.ended[engine] % each), Series: int(each),
	})
	s.id += n
	s.ended[engine] += n
	return s.template.Traces()
}

// all has every series of every engine seen once.
func (s *source) all(record func(ptrace.Traces, bool)) error {
	each := max(1, s.load.Series/s.load.Engines)
	for engine := range s.load.Engines {
		for seen := 0; seen < each; seen += s.template.Len() {
			td, err := s.of(engine)
			if err != nil {
				return err
			}
			record(td, false)
		}
	}
	return nil
}
