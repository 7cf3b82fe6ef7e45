// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// What is measured, and the tables it is shown in.

import (
	"fmt"
	"strconv"
	"time"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/measure"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/report"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/subject"
)

type effort struct {
	rounds int
	each   time.Duration
	fill   int
}

// row is one subject under one plan.
type row struct {
	group   string // rows of one group are compared with each other
	subject *subject.Subject
	plan    measure.Plan

	samples     []measure.Sample
	allocations measure.Allocations
}

type table struct {
	name, title string
	rows        []*row
	scaling     bool
}

// The load where no other is said.
const (
	batch   = 100
	engines = 10
	// hotBatch keeps the spans that are consumed again and again in the cache near a core: two cores would otherwise wait for
	// the memory that they share.
	hotBatch = 20
)

func plan(kind spans.Kind) measure.Plan {
	return measure.Plan{Load: subject.Load{Kind: kind, Engines: engines}, Batch: batch, Cores: 1}
}

func tables() []*table {
	made := []spans.Kind{spans.V0, spans.V1}
	peers := []*subject.Subject{subject.SpanMetrics, subject.SignalToMetrics, subject.Connector}

	base := &table{name: "base", title: fmt.Sprintf("One core, %d spans per export, %d engines, a series each.", batch, engines)}
	for _, kind := range []spans.Kind{spans.V0, spans.V1, spans.RecordedV0, spans.RecordedV1} {
		for _, s := range subject.All() {
			base.add(kind.String(), s, plan(kind))
		}
	}
	two := &table{name: "two", title: "Two cores, each decoding and consuming exports of its own."}
	for _, kind := range made {
		for _, s := range subject.All() {
			p := plan(kind)
			p.Cores = 2
			two.add(kind.String(), s, p)
		}
	}
	batches := &table{name: "batch", title: "Spans per export."}
	byEngines := &table{name: "engines", title: "Engines, a series each, taking turns with every export."}
	bySeries := &table{name: "series", title: fmt.Sprintf("Series, told apart by a dimension, over %d engines, taking turns with every span.", engines)}
	for _, kind := range made {
		for _, n := range []int{1, 100, 1000} {
			for _, s := range peers {
				p := plan(kind)
				p.Batch = n
				batches.add(kind.String()+", batch "+strconv.Itoa(n), s, p)
			}
		}
		for _, n := range []int{1, 100, 10_000} {
			for _, s := range peers {
				p := plan(kind)
				p.Load.Engines = n
				byEngines.add(kind.String()+", engines "+strconv.Itoa(n), s, p)
			}
		}
		for _, n := range []int{10, 1000, 20_000} {
			for _, s := range peers {
				p := plan(kind)
				p.Load.Series = n
				bySeries.add(kind.String()+", series "+strconv.Itoa(n), s, p)
			}
		}
	}
	scaling := &table{name: "scaling", scaling: true, title: fmt.Sprintf("From one core to two, consuming without decoding in between: the same spans again and again under new IDs, %d per export.", hotBatch)}
	for _, kind := range made {
		// The walk shares nothing: what it does not gain, this machine does not have.
		for _, s := range []*subject.Subject{subject.Walk, subject.SpanMetrics, subject.Connector, subject.Processor} {
			for _, n := range []int{1, engines} {
				p := plan(kind)
				p.Hot, p.Batch, p.Load.Engines = true, hotBatch, n
				group := kind.String() + ", engines " + strconv.Itoa(n)
				scaling.add(group, s, p)
				p.Cores = 2
				scaling.add(group, s, p)
			}
		}
	}
	return []*table{base, two, batches, byEngines, bySeries, scaling}
}

func (t *table) add(group string, s *subject.Subject, p measure.Plan) {
	t.rows = append(t.rows, &row{group: group, subject: s, plan: p})
}

// measure measures every row once per round.
func (t *table) measure(e *effort) error {
	for round := range e.rounds {
		for _, r := range t.rows {
			r.plan.For, r.plan.Fill = e.each, e.fill
			sample, err := measure.Run(r.subject, r.plan)
			if err != nil {
				return err
			}
			r.samples = append(r.samples, sample)
			if round == 0 && !t.scaling {
				if r.allocations, err = measure.Allocate(r.subject, r.plan); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// each is a figure of every round.
func (r *row) each(f func(round int) float64) measure.Spread {
	values := make([]float64, len(r.samples))
	for i := range r.samples {
		values[i] = f(i)
	}
	return measure.Of(values)
}

func (r *row) consume() measure.Spread {
	return r.each(func(i int) float64 { return r.samples[i].Consume })
}

func (r *row) decode() measure.Spread {
	return r.each(func(i int) float64 { return r.samples[i].Decode })
}

func (r *row) toDecode() measure.Spread {
	return r.each(func(i int) float64 { return r.samples[i].Consume / r.samples[i].Decode })
}

func (r *row) to(o *row) measure.Spread {
	return r.each(func(i int) float64 { return r.samples[i].Consume / o.samples[i].Consume })
}

// find is the row of a subject in a group.
func (t *table) find(group string, s *subject.Subject) *row {
	for _, r := range t.rows {
		if r.group == group && r.subject == s {
			return r
		}
	}
	return nil
}

func (t *table) write(d *report.Document) {
	d.Text("**%s**", t.title)
	if t.scaling {
		t.writeScaling(d)
		return
	}
	header := []string{"", "ns/span", "B/span", "allocs/span", "to decode", "to span_metrics", "to signal_to_metrics"}
	var lines [][]string
	group := ""
	for _, r := range t.rows {
		if r.group != group {
			group = r.group
			lines = append(lines, []string{
				"**" + group + "**: OTLP decode", r.decode().Format("%.0f"),
				fmt.Sprintf("%.0f", r.allocations.DecodeBytes), fmt.Sprintf("%.1f", r.allocations.DecodeObjects), "1", "", "",
			})
		}
		line := []string{
			r.subject.Name, r.consume().Format("%.0f"),
			fmt.Sprintf("%.0f", r.allocations.Bytes), fmt.Sprintf("%.2f", r.allocations.Objects), r.toDecode().Format("%.3f"), "", "",
		}
		if r.subject.Ours {
			for i, peer := range []*subject.Subject{subject.SpanMetrics, subject.SignalToMetrics} {
				if p := t.find(group, peer); p != nil {
					line[5+i] = r.to(p).Format([]string{"%.2f", "%.3f"}[i])
				}
			}
		}
		lines = append(lines, line)
	}
	d.Table(header, lines)
}

// scale is how many times as many spans per second two cores consume as one.
func scale(one, two *row) measure.Spread {
	return one.each(func(i int) float64 { return 2 * one.samples[i].Consume / two.samples[i].Consume })
}

func (t *table) writeScaling(d *report.Document) {
	var lines [][]string
	for i := 0; i < len(t.rows); i += 2 {
		one, two := t.rows[i], t.rows[i+1]
		lines = append(lines, []string{one.group + ": " + one.subject.Name, one.consume().Format("%.0f"), two.consume().Format("%.0f"), scale(one, two).Format("%.2f")})
	}
	d.Table([]string{"", "one core, ns/span", "two cores, ns/span of each", "throughput, two to one"}, lines)
}
