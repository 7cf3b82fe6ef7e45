// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// What the estimates are meant to reach, and whether they do.

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// aim is one goal and how it came out.
type aim struct {
	name string
	// figure is what was measured, and misses the number of cells (or runs) of all that do not reach the goal.
	figure      string
	missed, all int
	unit        string
	met         bool
	worst       []miss
}

// miss is a cell that does not reach an aim.
type miss struct {
	cell         *cell
	value, limit float64
}

// perCell is an aim that every cell has to reach.
type perCell struct {
	name   string
	format string
	// of gives the cell's figure and its limit; without a figure the cell does not take part.
	of func(c *cell) (value, limit float64, ok bool)
}

const (
	maxDeviceMAE      = 0.03
	maxDeviceMAEAsync = 0.06 // at full load
	maxMeanMAE        = 0.02
	maxBias           = 0.02
	minVerdict        = 0.97
	maxRunning        = 0.01
	maxStep           = 0.02
	maxCapacity       = 0.10
	minInside         = 0.97
	maxCompleteness   = 0.05
	minPooled         = 0.95
	minGiven          = 0.99
)

func of(m mean, limit float64) (value, lim float64, ok bool) {
	return m.value(), limit, m.n > 0
}

var cellAims = []perCell{
	{"device utilisation, 10 s: mean absolute error <= 0.03 (asynchronous output processing at full load: 0.06)", "%.4f", func(c *cell) (float64, float64, bool) {
		limit := maxDeviceMAE
		if c.async && c.load >= 1 {
			limit = maxDeviceMAEAsync
		}
		return of(c.scores[0].deviceAbs, limit)
	}},
	{"device utilisation, 10 s: bias within 0.02", "%.4f", func(c *cell) (float64, float64, bool) {
		v, l, ok := of(c.scores[0].bias, maxBias)
		return math.Abs(v), l, ok
	}},
	{"running requests, 10 s, where given: mean absolute error within 1 and 1 %", "%.2f", func(c *cell) (float64, float64, bool) {
		return of(c.scores[0].running, 1+maxRunning*c.scores[0].runningTruth.value())
	}},
	{"waiting requests, 10 s, where given: mean absolute error within 1", "%.2f", func(c *cell) (float64, float64, bool) { return of(c.scores[0].waiting, 1) }},
	{"step duration, 10 s: mean absolute error within 2 %", "%.4f", func(c *cell) (float64, float64, bool) { return of(c.scores[0].step, maxStep) }},
	{"step duration, 10 s: bias within 2 %", "%.4f", func(c *cell) (float64, float64, bool) {
		v, l, ok := of(c.scores[0].stepBias, maxStep)
		return math.Abs(v), l, ok
	}},
	{"capacity, 10 s, where the guard admits a figure: mean absolute error within 10 %", "%.4f", func(c *cell) (float64, float64, bool) {
		return of(c.scores[0].capacity, maxCapacity)
	}},
	{"the same by an estimator that is not told how many tokens the KV cache holds", "%.4f", func(c *cell) (float64, float64, bool) {
		return of(c.untold.capacity, maxCapacity)
	}},
	{"completeness, 10 s: mean absolute error within 0.05", "%.4f", func(c *cell) (float64, float64, bool) {
		return of(c.scores[0].completeness, maxCompleteness)
	}},
}

// aims judges the results.
func (r *results) aims() []aim {
	var out []aim
	for i, pc := range cellAims {
		a := aim{name: pc.name, unit: "cells"}
		var over mean
		worst, worstCell := 0.0, (*cell)(nil)
		for k := range r.cells {
			c := &r.cells[k]
			v, limit, ok := pc.of(c)
			if !ok {
				continue
			}
			a.all++
			over.add(v)
			if worstCell == nil || v > worst {
				worst, worstCell = v, c
			}
			if !(v <= limit) {
				a.missed++
				a.worst = append(a.worst, miss{c, v, limit})
			}
		}
		if a.all == 0 {
			continue
		}
		a.met = a.missed == 0
		a.figure = fmt.Sprintf("mean "+pc.format+", worst "+pc.format+" (%s)", over.value(), worst, worstCell.title())
		out = append(out, a)
		if i == 0 {
			out = append(out, aim{
				name: "device utilisation, 10 s: mean absolute error <= 0.02, averaged over the cells", unit: "cells",
				figure: fmt.Sprintf("%.4f", over.value()), met: over.value() <= maxMeanMAE,
			})
		}
	}
	out = append(out, r.shareAims()...)
	out = append(out, r.bracketAim()...)
	out = append(out, r.capacityBracketAims()...)
	out = append(out, r.verdictAim()...)
	out = append(out, r.silenceAim()...)
	out = append(out, r.earlyAim()...)
	out = append(out, r.pooledAims()...)
	return append(out, r.sampledAims()...)
}

// shareAims are those that keep a figure from being withheld where it is known, and a bracket from being of no use.
func (r *results) shareAims() []aim {
	var out []aim
	for _, x := range []struct {
		name          string
		of            func(s *score) mean
		all, everyone float64
	}{
		{"running requests, 10 s: given in >= 98 % of all windows", func(s *score) mean { return s.runningGiven }, 0.98, 0},
		{"running requests, 10 s: the bracket holds the truth, to 1 and 1 %, in >= 99 % of all windows and >= 95 % of each cell's", func(s *score) mean { return s.runningInside }, 0.99, 0.95},
		{"waiting requests, 10 s: both ends of the bracket given in >= 99 % of all windows and >= 80 % of each cell's", func(s *score) mean { return s.waitingBounded }, 0.99, 0.80},
		{"waiting requests, 10 s: the bracket holds the truth, to 1, in >= 99 % of all windows and >= 95 % of each cell's", func(s *score) mean { return s.waitingInside }, 0.99, 0.95},
		{"step duration, 10 s: given in >= 98 % of all windows with 20 decode steps and >= 85 % of each cell's", func(s *score) mean { return s.stepGiven }, 0.98, 0.85},
	} {
		if a := r.shareAim(x.name, x.of, x.all, x.everyone); a.all > 0 {
			out = append(out, a)
		}
	}
	return out
}

// shareAim is met where a share of the 10 s windows of all cells, and one of each cell's, is reached.
func (r *results) shareAim(name string, of func(s *score) mean, all, everyone float64) aim {
	a := aim{name: name, unit: "cells"}
	var sum mean
	for k := range r.cells {
		c := &r.cells[k]
		m := of(&c.scores[0])
		if m.n == 0 {
			continue
		}
		a.all++
		sum.merge(m)
		if m.value() < everyone {
			a.missed++
			a.worst = append(a.worst, miss{c, m.value(), everyone})
		}
	}
	if a.all > 0 {
		a.figure = percent(sum)
		a.met = a.missed == 0 && sum.value() >= all
	}
	return a
}

func (r *results) bracketAim() []aim {
	a := aim{name: "the bracket holds the truth in every window, 10 s and 60 s", unit: "cells"}
	var all mean
	for k := range r.cells {
		c := &r.cells[k]
		var here mean
		for i := range c.scores {
			here.merge(c.scores[i].inside)
		}
		if here.n == 0 {
			continue
		}
		all.merge(here)
		a.all++
		if here.value() < 1 {
			a.missed++
			a.worst = append(a.worst, miss{c, here.value(), 1})
		}
	}
	if a.all == 0 {
		return nil
	}
	a.figure = fmt.Sprintf("%.0f of %d windows outside", float64(all.n)-all.sum, all.n)
	a.met = a.missed == 0
	return []aim{a}
}

func (r *results) capacityBracketAims() []aim {
	var out []aim
	for _, told := range []bool{true, false} {
		a := aim{name: "the capacity is in its bracket, or within 5 % of it, in >= 97 % of the windows with one, 10 s, the KV cache told", unit: "cells"}
		if !told {
			a.name = "the same, not told"
		}
		var all mean
		for k := range r.cells {
			c := &r.cells[k]
			inside := c.scores[0].capacityInside
			if !told {
				inside = c.untold.capacityInside
			}
			if inside.n == 0 {
				continue
			}
			all.merge(inside)
			a.all++
			if inside.value() < minInside {
				a.missed++
				a.worst = append(a.worst, miss{c, inside.value(), minInside})
			}
		}
		if a.all > 0 {
			a.figure = percent(all)
			a.met = all.value() >= minInside
			out = append(out, a)
		}
	}
	return out
}

func (r *results) verdictAim() []aim {
	a := aim{name: `"waits for host" (utilisation / occupancy < 0.6), 10 s: right in >= 97 % of all windows at a load >= 20 %`, unit: "cells"}
	var all mean
	for k := range r.cells {
		c := &r.cells[k]
		v := c.scores[0].verdict
		if c.load < 0.2 || v.n == 0 {
			continue
		}
		all.merge(v)
		a.all++
		if v.value() < minVerdict {
			a.missed++
			a.worst = append(a.worst, miss{c, v.value(), minVerdict})
		}
	}
	if a.all == 0 {
		return nil
	}
	a.figure = percent(all)
	a.met = all.value() >= minVerdict
	return []aim{a}
}

// silenceAim: what the spans cannot support is absent, and what they can is there.
func (r *results) silenceAim() []aim {
	var v0, v1 mean
	missed1, n0, n1 := 0, 0, 0
	var worst []miss
	for k := range r.cells {
		c := &r.cells[k]
		g := c.scores[0].given
		g.merge(c.scores[1].given)
		if c.v1 {
			n1++
			v1.merge(g)
			if g.sum > 0 {
				missed1++
			}
			continue
		}
		n0++
		v0.merge(g)
		if g.value() < minGiven {
			worst = append(worst, miss{c, g.value(), minGiven})
		}
	}
	var out []aim
	if n0 > 0 {
		out = append(out, aim{
			name: "vLLM V0 with forward times: device utilisation given in >= 99 % of the windows", unit: "cells",
			figure: percent(v0), missed: len(worst), all: n0, met: len(worst) == 0, worst: worst,
		})
	}
	if n1 > 0 {
		out = append(out, aim{
			name: "vLLM V1: device utilisation never given", unit: "cells",
			figure: fmt.Sprintf("given in %.0f of %d windows", v1.sum, v1.n), missed: missed1, all: n1, met: missed1 == 0,
		})
	}
	return out
}

func (r *results) earlyAim() []aim {
	a := aim{name: "completeness of windows closed too early (grace 0, 5, 20 s): error over a run within 0.05", unit: "engine kinds and graces"}
	worst, at := 0.0, ""
	for _, e := range r.early {
		a.all++
		if !(e.err.value() <= maxCompleteness) {
			a.missed++
		}
		if e.err.value() >= worst {
			worst, at = e.err.value(), fmt.Sprintf("%s, %v", e.engine, e.grace.Round(time.Second))
		}
	}
	if a.all == 0 {
		return nil
	}
	a.figure = fmt.Sprintf("worst %.3f (%s)", worst, at)
	a.met = a.missed == 0
	return []aim{a}
}

func (r *results) pooledAims() []aim {
	found := aim{name: fmt.Sprintf("four engines under one key: found in >= 95 %% of the runs of >= %d requests", enoughRequests), unit: "runs"}
	hits := 0
	for _, p := range r.pooled {
		found.all += p.enough
		hits += p.enoughFlagged
	}
	found.missed = found.all - hits
	found.figure = fmt.Sprintf("%d of %d runs", hits, found.all)
	found.met = float64(hits) >= minPooled*float64(found.all)

	single := aim{name: "a single engine is never taken for several", unit: "runs"}
	for k := range r.cells {
		c := &r.cells[k]
		single.all += c.runs
		single.missed += c.flaggedMixed
		if c.flaggedMixed > 0 {
			single.worst = append(single.worst, miss{c, float64(c.flaggedMixed), 0})
		}
	}
	single.all += r.apiServers.runs
	single.missed += r.apiServers.flaggedMixed
	single.figure = fmt.Sprintf("%d of %d runs", single.missed, single.all)
	if n := r.apiServers.flaggedMixed; n > 0 {
		single.figure += fmt.Sprintf("; %d of %d with four API servers", n, r.apiServers.runs)
	}
	single.met = single.missed == 0
	if found.all == 0 {
		return []aim{single}
	}
	return []aim{found, single}
}

func (r *results) sampledAims() []aim {
	known := aim{name: "a tenth of the requests: flagged where it can be known", unit: "engine kinds and cases"}
	withheld := aim{name: "a tenth of the requests: device figures and capacity withheld from where it is flagged on", unit: "engine kinds and cases"}
	whole := aim{name: "an engine all of whose requests arrive is never taken for sampled", unit: "runs"}
	for _, s := range r.sampled {
		if !s.known {
			continue
		}
		known.all++
		withheld.all++
		if s.told && s.flagged.value() < 1 || s.flaggedRuns < s.runs {
			known.missed++
		}
		// Windows before the finding are not withheld; the told case knows from the start.
		if s.windows.sum > float64(s.flagged.n)-s.flagged.sum {
			withheld.missed++
		}
	}
	for k := range r.cells {
		whole.all += r.cells[k].runs
		whole.missed += r.cells[k].flaggedSampled
	}
	for _, a := range []*aim{&known, &withheld, &whole} {
		a.met = a.missed == 0
		a.figure = fmt.Sprintf("%d of %d", a.all-a.missed, a.all)
	}
	if known.all == 0 {
		return []aim{whole}
	}
	return []aim{known, withheld, whole}
}

func (c *cell) title() string {
	return fmt.Sprintf("%s, %s, %.0f %%", c.engine, c.workload, 100*c.load)
}

func percent(m mean) string {
	if m.n == 0 {
		return "-"
	}
	// Never rounded up to 100 %.
	p := 100 * m.value()
	if p < 100 {
		p = min(p, 99.99)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", p), "0"), ".") + " %"
}

// flagNames names what a window can be flagged with.
var flagNames = []struct {
	flag timeline.Flags
	name string
}{
	{timeline.MixedEngines, "mixed engines"},
	{timeline.Sampled, "sampled"},
	{timeline.RoundedTimestamps, "rounded"},
	{timeline.SpeculativeDecoding, "speculative decoding"},
	{timeline.AsyncOutput, "asynchronous output"},
	{timeline.Thinned, "thinned"},
	{timeline.Contradiction, "contradiction"},
}
