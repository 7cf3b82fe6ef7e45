// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// All runs of a plan, side by side; what they give does not depend on their order.

import (
	"math"
	"sync"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/jobs"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// windowLengths are the lengths of the windows compared.
var windowLengths = [...]time.Duration{10 * time.Second, 60 * time.Second}

// graces are the graces that windows are closed with on purpose too early, so that much is missing.
var graces = [...]time.Duration{time.Nanosecond, 5 * time.Second, 20 * time.Second}

// cell is one engine kind at one workload and load, all seeds together.
type cell struct {
	engine, workload string
	load             float64
	async, v1        bool
	scores           [len(windowLengths)]score // by window length
	untold           score                     // of the capacity, windows of 10 s, by an estimator that does not know the KV cache
	// flagged is the number of runs in which a window was taken for several engines' or sampled.
	runs, flaggedMixed, flaggedSampled int
}

// early is the completeness of windows closed too early.
type early struct {
	engine string
	grace  time.Duration
	said   mean // completeness
	err    mean // absolute error of the mean over a run
}

// pooled are four engines under one key.
type pooled struct {
	engine string
	// Runs by whether the engine's requests were enough to tell, and those flagged at the end.
	enough, enoughFlagged, few, fewFlagged int
	needed                                 []int // requests received when the first window was flagged
	figures                                int   // device figures in windows that were flagged
}

// sampledCase is a way in which a tenth of the requests gets here.
type sampledCase struct {
	name string
	// told: the Timeline knows the probability. Otherwise known says whether the requests themselves can
	// show it.
	told, known bool
	maxNumSeqs  int // 0: the engine kind's
	loads       []float64
}

var sampledCases = []sampledCase{
	{"told", true, true, 0, []float64{0.5, 0.8}},
	{"not told, `max_num_seqs` 8, overloaded", false, true, 8, []float64{1.05}},
	{"not told", false, false, 0, []float64{0.5, 0.8}},
}

// sampled is one case with one engine kind.
type sampled struct {
	engine string
	v1     bool
	sampledCase
	runs, flaggedRuns int
	windows, flagged  mean // of windows: device figures or capacity given; flagged
	deviceAbs         mean
	running           mean // ratio of the run's mean running requests to the truth, -1, absolute
}

// results is everything the tables need.
type results struct {
	plan    plan
	cells   []cell
	early   []early
	pooled  []pooled
	sampled []sampled
	// single engines that are like several: several API servers.
	apiServers cell
}

// enoughRequests is the number of requests from which on pooled engines should be found.
const enoughRequests = 500

// runner runs a plan. spoil, if set, changes every window before it is compared: a test's broken
// estimator.
type runner struct {
	plan  plan
	spoil func(cfg *enginesim.Config, w *timeline.Window)
	tell  func(done, all int)

	capacities *capacities
}

// capacities are the measured capacities of engine kinds; each is measured once.
type capacities struct {
	mu   sync.Mutex
	once map[capacityKey]func() (enginesim.CapacityResult, error)
}

type capacityKey struct {
	engine, lengths string
	maxNumSeqs      int
}

func (c *capacities) of(cfg enginesim.Config, w enginesim.Workload) (enginesim.CapacityResult, error) {
	cfg.Seed, cfg.Engines, cfg.Pooled, cfg.APIServers = 1, 1, false, 1
	key := capacityKey{cfg.Name, w.Lengths, cfg.MaxNumSeqs}
	c.mu.Lock()
	measure := c.once[key]
	if measure == nil {
		measure = sync.OnceValues(func() (enginesim.CapacityResult, error) { return enginesim.Capacity(cfg, w) })
		if c.once == nil {
			c.once = map[capacityKey]func() (enginesim.CapacityResult, error){}
		}
		c.once[key] = measure
	}
	c.mu.Unlock()
	return measure()
}

func (r *runner) window(cfg *enginesim.Config, w *timeline.Window) {
	if r.spoil != nil {
		r.spoil(cfg, w)
	}
}

// run runs everything.
func (r *runner) run() (*results, error) {
	p := &r.plan
	res := &results{plan: *p}
	var all []func() error
	// A job fills what only it knows; the slices are complete before the first one starts.
	for _, cfg := range p.engines {
		for _, w := range p.workloads {
			if !fits(&cfg, w) {
				continue
			}
			for _, load := range p.loads {
				res.cells = append(res.cells, cell{engine: cfg.Name, workload: w.name, load: load, async: cfg.Async && !cfg.Dialect.V1(), v1: cfg.Dialect.V1()})
			}
		}
		for _, g := range graces {
			res.early = append(res.early, early{engine: cfg.Name, grace: g})
		}
		res.pooled = append(res.pooled, pooled{engine: cfg.Name})
		for _, c := range sampledCases {
			if c.known && !c.told && cfg.Dialect.V1() {
				c.known = false
			}
			res.sampled = append(res.sampled, sampled{engine: cfg.Name, v1: cfg.Dialect.V1(), sampledCase: c})
		}
	}
	nCell, nSampled := 0, 0
	for k, cfg := range p.engines {
		for _, w := range p.workloads {
			if !fits(&cfg, w) {
				continue
			}
			for _, load := range p.loads {
				c := &res.cells[nCell]
				nCell++
				all = append(all, func() error { return r.cell(c, cfg, w.Workload, load) })
			}
		}
		es := res.early[k*len(graces) : (k+1)*len(graces)]
		all = append(all,
			func() error { return r.early(es, cfg) },
			func() error { return r.pooled(&res.pooled[k], cfg) })
		for range sampledCases {
			s := &res.sampled[nSampled]
			nSampled++
			all = append(all, func() error { return r.sampled(s, cfg) })
		}
	}
	all = append(all, func() error { return r.apiServers(&res.apiServers) })
	return res, jobs.Run(all, r.tell)
}

// cell compares one engine's windows of all lengths with the truth.
func (r *runner) cell(c *cell, cfg enginesim.Config, w enginesim.Workload, load float64) error {
	capacity, err := r.capacities.of(cfg, w)
	if err != nil {
		return err
	}
	var settings []timeline.Config
	for _, l := range windowLengths {
		settings = append(settings, timeline.Config{Window: l, MaxNumSeqs: cfg.MaxNumSeqs, KVCacheTokens: cfg.KVTokens})
	}
	settings = append(settings, timeline.Config{Window: windowLengths[0], MaxNumSeqs: cfg.MaxNumSeqs})
	for seed := range r.plan.seeds {
		cfg.Seed = uint64(seed) + 1
		mixed, part := false, false
		run := run{cfg: cfg, w: w, rate: load * capacity.Requests, duration: r.plan.duration, settings: settings}
		run.each = func(sim *enginesim.Sim, which int, in *received, win *timeline.Window) {
			r.window(&cfg, win)
			if which == len(windowLengths) {
				if !win.Start.Before(cfg.Start.Add(warmUp)) {
					c.untold.compareCapacity(capacity.OutputTokens, win)
				}
				return
			}
			mixed = mixed || win.Flags.Has(timeline.MixedEngines)
			part = part || win.Flags.Has(timeline.Sampled)
			c.scores[which].compare(sim.Truth(0), in, cfg.Start, capacity.OutputTokens, win)
		}
		if err := run.stream(); err != nil {
			return err
		}
		c.runs++
		if mixed {
			c.flaggedMixed++
		}
		if part {
			c.flaggedSampled++
		}
	}
	return nil
}

// early closes windows too early and compares what they say is missing with what is, over a run.
func (r *runner) early(es []early, cfg enginesim.Config) error {
	w := enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}
	capacity, err := r.capacities.of(cfg, w)
	if err != nil {
		return err
	}
	var settings []timeline.Config
	for _, e := range es {
		settings = append(settings, timeline.Config{MaxNumSeqs: cfg.MaxNumSeqs, Grace: e.grace})
	}
	for _, load := range r.plan.faultLoads {
		cfg.Seed = 7
		said, seen := make([]mean, len(es)), make([]mean, len(es))
		run := run{cfg: cfg, w: w, rate: load * capacity.Requests, duration: r.plan.faultDuration, settings: settings}
		run.each = func(sim *enginesim.Sim, which int, in *received, win *timeline.Window) {
			r.window(&cfg, win)
			a, b := win.Start.UnixNano(), win.End.UnixNano()
			running, _ := sim.Truth(0).Running(a, b)
			if win.Start.Before(cfg.Start.Add(warmUp)) || running < minRunning {
				return
			}
			said[which].add(win.Value(timeline.Completeness))
			// What ended after the grace may have come by now, but does not count in the window.
			seen[which].add(min(in.running(a, b, b+int64(es[which].grace))/running, 1))
		}
		if err := run.stream(); err != nil {
			return err
		}
		for i := range es {
			es[i].said.merge(said[i])
			es[i].err.add(math.Abs(said[i].value() - seen[i].value()))
		}
	}
	return nil
}

// pooled puts four engines under one key.
func (r *runner) pooled(p *pooled, cfg enginesim.Config) error {
	for _, arrivals := range []enginesim.Arrivals{enginesim.Poisson, enginesim.Bursty} {
		w := enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: arrivals}
		capacity, err := r.capacities.of(cfg, w)
		if err != nil {
			return err
		}
		for _, load := range r.plan.faultLoads {
			for seed := range r.plan.seeds {
				cfg.Seed, cfg.Engines, cfg.Pooled = uint64(seed)+101, 4, true
				last, first, n := false, 0, 0
				run := run{cfg: cfg, w: w, rate: load * 4 * capacity.Requests, duration: r.plan.faultDuration, settings: []timeline.Config{{MaxNumSeqs: cfg.MaxNumSeqs}}}
				run.each = func(_ *enginesim.Sim, _ int, in *received, win *timeline.Window) {
					r.window(&cfg, win)
					last, n = win.Flags.Has(timeline.MixedEngines), in.requests
					if last && first == 0 {
						first = in.requests
					}
					if last && (win.Has(timeline.DeviceUtilization) || win.Has(timeline.DeviceLower) || win.Has(timeline.DeviceUpper)) {
						p.figures++
					}
				}
				if err := run.stream(); err != nil {
					return err
				}
				all, found := &p.few, &p.fewFlagged
				if n >= enoughRequests {
					all, found = &p.enough, &p.enoughFlagged
				}
				*all++
				if last {
					*found++
					p.needed = append(p.needed, first)
				}
			}
		}
	}
	return nil
}

// sampled lets a tenth of the requests through.
func (r *runner) sampled(s *sampled, cfg enginesim.Config) error {
	const probability = 0.1
	if s.maxNumSeqs > 0 {
		cfg.MaxNumSeqs = s.maxNumSeqs
	}
	w := enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}
	capacity, err := r.capacities.of(cfg, w)
	if err != nil {
		return err
	}
	setting := timeline.Config{MaxNumSeqs: cfg.MaxNumSeqs}
	if s.told {
		setting.SamplingProbability = probability
	}
	for _, load := range s.loads {
		for seed := range r.plan.seeds {
			// All are the callers' to sample: vLLM follows the parent.
			cfg.Seed, cfg.Sampling, cfg.Parents = uint64(seed)+201, probability, 1
			last := false
			var running, truth mean
			run := run{cfg: cfg, w: w, rate: load * capacity.Requests, duration: r.plan.duration, settings: []timeline.Config{setting}}
			run.each = func(sim *enginesim.Sim, _ int, _ *received, win *timeline.Window) {
				r.window(&cfg, win)
				last = win.Flags.Has(timeline.Sampled)
				if win.Start.Before(cfg.Start.Add(warmUp)) {
					return
				}
				s.flagged.hit(last)
				u, given := win.Get(timeline.DeviceUtilization)
				s.windows.hit(given || win.Has(timeline.DeviceLower) || win.Has(timeline.DeviceUpper) || win.Has(timeline.Capacity) || win.Has(timeline.CapacityLower))
				a, b := win.Start.UnixNano(), win.End.UnixNano()
				if given {
					s.deviceAbs.add(math.Abs(u - sim.Truth(0).Times(a, b).Share()))
				}
				v, _ := sim.Truth(0).Running(a, b)
				truth.add(v)
				running.add(win.Value(timeline.RunningMean))
			}
			if err := run.stream(); err != nil {
				return err
			}
			s.runs++
			if last {
				s.flaggedRuns++
			}
			if truth.n > 0 {
				s.running.add(math.Abs(running.value()/truth.value() - 1))
			}
		}
	}
	return nil
}

// apiServers is one vLLM V1 engine behind four front-end processes: several exporters, one engine.
func (r *runner) apiServers(c *cell) error {
	cfg, err := enginesim.Preset("v1")
	if err != nil {
		return err
	}
	cfg.APIServers = 4
	*c = cell{engine: cfg.Name, v1: true}
	for _, load := range r.plan.faultLoads {
		if err := r.cell(c, cfg, enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, load); err != nil {
			return err
		}
	}
	return nil
}
