// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package registry

// The reporters, and the report made of theirs.

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// Registry holds the reporters that are registered. All methods may be called at once.
type Registry struct {
	collector summary.Collector

	mu        sync.RWMutex
	reporters []*entry // in the order of their registration
}

type entry struct{ summary.Reporter }

// New makes a Registry without reporters, in the program collector.
func New(collector summary.Collector) *Registry {
	return &Registry{collector: collector}
}

// Register adds a reporter until the returned function is called, which may be done more than once.
func (r *Registry) Register(reporter summary.Reporter) (unregister func()) {
	e := &entry{reporter}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reporters = append(r.reporters, e)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reporters = slices.DeleteFunc(slices.Clone(r.reporters), func(o *entry) bool { return o == e })
	}
}

// snapshot is not changed by a later Register: append only ever writes behind it.
func (r *Registry) snapshot() []*entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.reporters
}

// Report is what all reporters know, the engines that need attention most first.
func (r *Registry) Report(now time.Time) summary.Report {
	report := summary.Report{
		SchemaVersion: summary.SchemaVersion,
		Time:          now.UTC(),
		Collector:     r.collector,
		Sources:       []summary.Source{},
		Engines:       []summary.Engine{},
	}
	for _, reporter := range r.snapshot() {
		from := reporter.Source()
		before := len(report.Engines)
		report.Sources = append(report.Sources, from)
		report.Engines = append(report.Engines, reporter.Engines(now)...)
		for i := before; i < len(report.Engines); i++ {
			report.Engines[i].Source = from.ID // links lead there
		}
	}
	slices.SortStableFunc(report.Sources, func(a, b summary.Source) int { return strings.Compare(a.ID, b.ID) })
	slices.SortStableFunc(report.Engines, ByPain)
	return report
}

// Engine is one engine in full. Where more than one component reports key, source chooses; empty: any.
func (r *Registry) Engine(key, source string, now time.Time) (summary.EngineReport, summary.Source, bool) {
	for _, reporter := range r.snapshot() {
		from := reporter.Source()
		if source != "" && source != from.ID {
			continue
		}
		if report, ok := reporter.Engine(key, now); ok {
			report.SchemaVersion = summary.SchemaVersion
			report.Time = now.UTC()
			report.Engine.Source = from.ID
			complete(&report)
			return report, from, true
		}
	}
	return summary.EngineReport{}, summary.Source{}, false
}

// complete makes empty what is nil, as the JSON has empty lists and no null in their place.
func complete(r *summary.EngineReport) {
	orEmpty(&r.Slowest)
	h, m := &r.History, &r.History.Minutes
	orEmpty(&h.End)
	orEmpty(&h.Verdicts)
	if h.States == nil {
		h.States = map[string][]float64{}
	}
	if h.Figures == nil {
		h.Figures = map[string][]*float64{}
	}
	orEmpty(&m.End)
	orEmpty(&m.Count)
	for _, column := range []*[]*float64{&m.TTFTP50, &m.TTFTP95, &m.TTFTP99, &m.TPOTP50, &m.TPOTP95, &m.TPOTP99, &m.E2EP50, &m.E2EP95, &m.E2EP99} {
		orEmpty(column)
	}
}

func orEmpty[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}

// ByPain orders engines: the graver verdict first, then the surer, then where more requests wait, then by name.
func ByPain(a, b summary.Engine) int {
	return cmp.Or(
		cmp.Compare(pain(&b), pain(&a)),
		cmp.Compare(sureness(b.Diagnosis.Confidence), sureness(a.Diagnosis.Confidence)),
		cmp.Compare(waiting(&b), waiting(&a)),
		strings.Compare(a.Service, b.Service),
		strings.Compare(a.Instance, b.Instance),
		strings.Compare(a.Key, b.Key),
	)
}

// pains are the verdicts by how much users and operators lose by them: first what makes requests wait without end, then
// what wastes a device under load, then what could be better, then what costs only money, then what is not known.
var pains = func() map[string]int {
	order := []diagnosis.Verdict{
		diagnosis.Healthy, diagnosis.NoVerdict, diagnosis.Idle, diagnosis.DecodeHeadroom, diagnosis.WorkloadShift, diagnosis.Imbalance,
		diagnosis.PrefillHeavy, diagnosis.PrefillInterference, diagnosis.FrontendBound, diagnosis.DeviceBoundPastKnee, diagnosis.HostBound,
		diagnosis.QueueBoundAdmission, diagnosis.QueueBoundKV, diagnosis.DeviceBoundFull, diagnosis.OverloadBuilding,
	}
	ranks := make(map[string]int, len(order))
	for i, v := range order {
		ranks[v.String()] = i
	}
	return ranks
}()

// pain of an engine whose figures are of the past is that of one of which nothing is known; one whose requests no longer end is missed by its users.
func pain(e *summary.Engine) int {
	if e.Status == summary.StatusStale {
		return pains[diagnosis.NoVerdict.String()]
	}
	if e.Diagnosis.Verdict == diagnosis.NoVerdict.String() && e.Diagnosis.Cause == diagnosis.CauseStopped {
		return pains[diagnosis.HostBound.String()]
	}
	rank, ok := pains[e.Diagnosis.Verdict]
	if !ok { // a verdict newer than this list
		return pains[diagnosis.WorkloadShift.String()]
	}
	return rank
}

func sureness(confidence string) int {
	return slices.Index([]string{string(diagnosis.None), string(diagnosis.Low), string(diagnosis.Medium), string(diagnosis.High)}, confidence)
}

// waiting is how many requests wait, as far as is known.
func waiting(e *summary.Engine) float64 {
	if v := e.Figures.WaitingCount().Value(); !math.IsNaN(v) {
		return v
	}
	return 0
}
