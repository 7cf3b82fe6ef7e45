// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// The verdict of each window: what is known of the engine besides its windows, and of the engines beside it.

import (
	"math"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// about is what a diagnosis needs to know of an engine besides its windows and requests. A copy: it is used outside of the engine's
// lock.
type about struct {
	kind       llmrequest.Kind
	generation llmrequest.Generation
	mayMix     bool
	maxNumSeqs int
	objectives objectives
	peers      *diagnosis.Peers
}

// about is called under the engine's lock.
func (e *engine) about(a *Aggregator) about {
	known := about{
		kind: e.make.kind, generation: e.make.generation, mayMix: e.mayMix,
		maxNumSeqs: a.windows.MaxNumSeqs, peers: a.fleets.peers(e.resource),
	}
	if a.objectives != nil {
		known.objectives = *a.objectives
	}
	return known
}

// diagnose observes a window that was just closed.
func (w *windows) diagnose(window *timeline.Window, known *about) {
	w.history.AddWindow(window)
	in := diagnosis.Input{
		Kind: known.kind.String(), Generation: known.generation.String(), MaybeMixed: known.mayMix, MaxNumSeqs: known.maxNumSeqs, Peers: known.peers,
		TTFTObjective: seconds(known.objectives.ttft), TPOTObjective: seconds(known.objectives.tpot), E2EObjective: seconds(known.objectives.e2e),
	}
	in.LastEnd, _ = w.timeline.LastEnd()
	w.history.Period(&in)
	w.diagnosis = w.tracker.Observe(&in)
	w.history.SetVerdict(w.diagnosis.Verdict)
}

// fleets are the engines of each service: those that share its load.
type fleets struct {
	mu       sync.Mutex
	services map[serviceKey]*diagnosis.Peers
}

type serviceKey struct{ namespace, name string }

func newServiceKey(resource pcommon.Map) serviceKey {
	return serviceKey{attributeText(resource, serviceNamespace), attributeText(resource, serviceName)}
}

// peers are the engines of the service as of the last collect; nil where this one is alone, or has no service.
func (f *fleets) peers(resource pcommon.Map) *diagnosis.Peers {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.services[newServiceKey(resource)]; p != nil && p.Engines > 1 {
		return p
	}
	return nil
}

// renew takes in the diagnoses of a collect. What peers gave out before does not change.
//
// All engines of a service are measured by the highest capacity that is known of any: one with little work has seen no
// batch to know its own by.
func (f *fleets) renew(engines []engineSnapshot) {
	type fleet struct {
		engines                 int
		least, most, full, upto float64 // output tokens per second
	}
	all := map[serviceKey]*fleet{}
	for i := range engines {
		e := &engines[i]
		if e.engine.windows == nil || e.gone {
			continue
		}
		key := newServiceKey(e.resource)
		if key.name == "" {
			continue
		}
		x := all[key]
		if x == nil {
			x = &fleet{least: math.NaN(), most: math.NaN(), full: math.NaN(), upto: math.NaN()}
			all[key] = x
		}
		x.engines++
		output, full, upto := e.engine.windows.throughput()
		x.least, x.most, x.full, x.upto = least(x.least, output), most(x.most, output), most(x.full, full), most(x.upto, upto)
	}
	services := make(map[serviceKey]*diagnosis.Peers, len(all))
	for key, x := range all {
		p := &diagnosis.Peers{Engines: x.engines, AtLeast: math.IsNaN(x.full)}
		full := x.full
		if p.AtLeast {
			full = x.upto
		}
		p.CapacityMin, p.CapacityMax = x.least/full, x.most/full
		services[key] = p
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services = services
}

// throughput is the output tokens per second of the last diagnosis, those of a full engine, and the most that these may be. NaN: unknown.
func (w *windows) throughput() (output, full, upto float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.diagnosis.Time.IsZero() {
		return math.NaN(), math.NaN(), math.NaN()
	}
	f := &w.diagnosis.Figures
	return f.OutputThroughput, f.Capacity, f.OutputThroughput / f.CapacityLeast
}

// least and most are min and max that pass over NaN.
func least(a, b float64) float64 {
	if !(a <= b) && b == b {
		return b
	}
	return a
}

func most(a, b float64) float64 {
	if !(a >= b) && b == b {
		return b
	}
	return a
}
