// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// One scenario becomes Inputs as a collector would have them: spans late and in batches, windows closed by the watermark.

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
	"github.com/otelcol-serving/otelcol-serving/internal/jobs"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

const (
	// tick is the default interval of serving_metrics.
	tick = 15 * time.Second
	// warmUp is how long an engine runs before the collector starts: its batch is then what its load makes it.
	warmUp = 5 * time.Minute
	window = 10 * time.Second
	// before is how long scenario.earlier lasts, settle how long its batch needs to become that of the load.
	before, settle = 10 * time.Minute, 2 * time.Minute
	// after is how long requests still come before the rate of a scenario changes, so that the collector knows the engine.
	after = 30 * time.Second
)

// sizes are how much of the engine is known when it is judged; the period is at least the default.
var sizes = [...]time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// result is what came out of one run at one size.
type result struct {
	scenario *scenario
	seed     int
	size     time.Duration
	diagnosis.Diagnosis
	tracked diagnosis.Verdict
}

// right: the first verdict and, where one is looked at, the cause.
func (r *result) right() bool {
	return r.Verdict == r.scenario.expect && (r.scenario.cause == "" || r.Cause == r.scenario.cause)
}

// run judges a scenario at all sizes.
func (s *scenario) run(seed int) ([]result, error) {
	cfg, err := s.config(seed)
	if err != nil {
		return nil, err
	}
	rate, then, err := s.rates(cfg)
	if err != nil {
		return nil, err
	}
	engine, err := observe(cfg, s.workload, s.earlierRate(rate), rate, then, s.limit(&cfg), s.cache(&cfg))
	if err != nil {
		return nil, err
	}
	var peer *observed
	if s.peer > 0 {
		c := cfg
		c.Seed += 1000
		if peer, err = observe(c, s.workload, 0, rate/s.load*s.peer, rate/s.load*s.peer, s.limit(&cfg), s.cache(&cfg)); err != nil {
			return nil, err
		}
	}
	var before *diagnosis.Before
	if len(s.before) > 0 {
		if before, err = s.dayBefore(cfg, rate/s.load); err != nil {
			return nil, err
		}
	}
	var out []result
	for _, size := range sizes {
		c := diagnosis.NewDefaultConfig()
		c.Period = max(c.Period, size)
		in := func(n int) *diagnosis.Input { return s.input(&cfg, engine, peer, before, n, size) }
		last := int(size / window)
		if last > len(engine.windows) {
			return nil, fmt.Errorf("%s, %s: only %d windows were closed", s.name, s.preset, len(engine.windows))
		}
		tracker := diagnosis.NewTracker(&c)
		var tracked diagnosis.Diagnosis
		for n := 1; n <= last; n++ {
			if n > last-3 || n == 1 { // what a tracker remembers
				tracked = tracker.Observe(in(n))
			}
		}
		out = append(out, result{s, seed, size, diagnosis.Evaluate(&c, in(last)), tracked.Verdict})
	}
	return out, nil
}

func (s *scenario) config(seed int) (enginesim.Config, error) {
	cfg, err := enginesim.Preset(s.preset)
	if err != nil {
		return cfg, err
	}
	if s.change != nil {
		s.change(&cfg)
	}
	cfg.Seed = uint64(seed) + 1 //nolint:gosec // small
	return cfg, nil
}

func (s *scenario) limit(cfg *enginesim.Config) int {
	if s.unknownLimit {
		return 0
	}
	return cfg.MaxNumSeqs
}

// cache is what the engine's log says of its KV cache, where its operator looked.
func (s *scenario) cache(cfg *enginesim.Config) int {
	if s.unknownLimit {
		return 0
	}
	return cfg.KVTokens
}

// capacities are measured once for each scenario, whatever the seed.
var capacities sync.Map

func (s *scenario) rates(cfg enginesim.Config) (rate, then float64, err error) {
	rate = s.rate
	if s.load > 0 {
		measure, _ := capacities.LoadOrStore(s, sync.OnceValues(func() (enginesim.CapacityResult, error) {
			cfg.Seed = 1
			return enginesim.Capacity(cfg, s.workload)
		}))
		capacity, err := measure.(func() (enginesim.CapacityResult, error))()
		if err != nil {
			return 0, 0, err
		}
		rate = s.load * capacity.Requests
	}
	then = rate
	if s.then > 0 {
		then = rate / s.load * s.then
	}
	if s.stop {
		then = 0
	}
	return rate, then, nil
}

// earlierRate is 0 where the collector sees nothing earlier.
func (s *scenario) earlierRate(rate float64) float64 {
	if s.earlier == 0 {
		return 0
	}
	return rate / s.load * s.earlier
}

// observed is what the collector has of one engine after the longest size.
type observed struct {
	windows  []timeline.Window
	requests []llmrequest.Request // in order of arrival
}

// observe runs an engine until the windows of the longest size are closed. With an earlier rate, they begin when that is over.
func observe(cfg enginesim.Config, w enginesim.Workload, earlier, rate, then float64, limit, cache int) (*observed, error) {
	first := rate
	if earlier > 0 {
		first = earlier
	}
	sim, err := enginesim.New(cfg, w, first)
	if err != nil {
		return nil, err
	}
	o := &observed{}
	t := timeline.New(timeline.Config{Window: window, MaxNumSeqs: limit, KVCacheTokens: cache})
	start := cfg.Start.Add(warmUp)
	judged := start
	if earlier > 0 {
		judged = start.Add(before + settle)
	}
	enough := int(sizes[len(sizes)-1] / window)
	for now := cfg.Start.Add(tick); len(o.windows) < enough && now.Before(judged.Add(time.Hour)); now = now.Add(tick) {
		exports := sim.Advance(now)
		if earlier > 0 && now.Equal(start.Add(before)) {
			if err := sim.SetRate(rate); err != nil {
				return nil, err
			}
		}
		if now.Equal(judged.Add(after)) && then != rate {
			if err := sim.SetRate(then); err != nil {
				return nil, err
			}
		}
		sim.Forget(now.Add(-time.Minute))
		if now.Before(start) {
			continue
		}
		for _, export := range exports {
			for _, rs := range export.Traces.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
					for _, span := range ss.Spans().All() {
						var q llmrequest.Request
						if llmrequest.Read(span, &src, &q) {
							q.Model, q.Operation, q.ErrorType = "", "", "" // they are the span's memory
							t.Add(&q)
							o.requests = append(o.requests, q)
						}
					}
				}
			}
		}
		t.Advance(now)
		t.Drain(func(w *timeline.Window) {
			if earlier == 0 || !w.Start.Before(judged) {
				o.windows = append(o.windows, *w)
			}
		})
	}
	return o, nil
}

// input is what is known when the nth window has been closed, of the last size.
func (s *scenario) input(cfg *enginesim.Config, engine, peer *observed, before *diagnosis.Before, n int, size time.Duration) *diagnosis.Input {
	windows := engine.windows[max(0, n-int(size/window)):n]
	in := &diagnosis.Input{
		Windows: windows, Requests: engine.aggregate(windows), Before: before,
		Kind: "vllm", Generation: "v0", MaybeMixed: s.maybeMixed, MaxNumSeqs: s.limit(cfg), TPOTObjective: s.tpot,
	}
	if cfg.Dialect.V1() {
		in.Generation = "v1"
	}
	if peer != nil && n <= len(peer.windows) {
		in.Peers = peers(windows, peer.windows[max(0, n-int(size/window)):n])
	}
	return in
}

// peers compares engines of one kind: the output of each over the highest capacity that any of them shows, for one with little
// work has seen too small batches to show its own.
func peers(all ...[]timeline.Window) *diagnosis.Peers {
	var out []float64
	capacity, upto := math.NaN(), math.NaN()
	for _, windows := range all {
		f := diagnosis.Summarize(&diagnosis.Input{Windows: windows})
		out = append(out, f.OutputThroughput)
		if !(f.Capacity <= capacity) && !math.IsNaN(f.Capacity) {
			capacity = f.Capacity
		}
		if v := f.OutputThroughput / f.CapacityLeast; !(v <= upto) && !math.IsNaN(v) {
			upto = v
		}
	}
	atLeast := math.IsNaN(capacity)
	if atLeast {
		capacity = upto
	}
	return &diagnosis.Peers{Engines: len(all), CapacityMin: slices.Min(out) / capacity, CapacityMax: slices.Max(out) / capacity, AtLeast: atLeast}
}

// dayBefore is a day in short: the same engine under its loads, one after the other.
func (s *scenario) dayBefore(cfg enginesim.Config, full float64) (*diagnosis.Before, error) {
	cfg.Seed += 2000
	b := &diagnosis.Before{Hours: 24}
	var all observed
	var covered time.Duration
	for i, load := range s.before {
		c := cfg
		c.Seed += uint64(i) //nolint:gosec // small
		o, err := observe(c, s.workload, 0, load*full, load*full, s.limit(&cfg), s.cache(&cfg))
		if err != nil {
			return nil, err
		}
		r := o.aggregate(o.windows)
		f := diagnosis.Summarize(&diagnosis.Input{Windows: o.windows, Requests: r, MaxNumSeqs: s.limit(&cfg)})
		b.StepLawA += f.StepLawA / float64(len(s.before))
		b.StepLawB += f.StepLawB / float64(len(s.before))
		covered += f.Covered
		b.Rate += r.Rate / float64(len(s.before))
		all.requests = append(all.requests, o.requests...)
	}
	r := all.of(all.requests, covered)
	b.Input, b.Output = r.Input, r.Output
	return b, nil
}

// aggregate is of the requests that ended in the windows.
func (o *observed) aggregate(windows []timeline.Window) diagnosis.Requests {
	from, to := windows[0].Start, windows[len(windows)-1].End
	var in []llmrequest.Request
	for i := range o.requests {
		if end := endOf(&o.requests[i]); !end.Before(from) && end.Before(to) {
			in = append(in, o.requests[i])
		}
	}
	return o.of(in, to.Sub(from))
}

func endOf(q *llmrequest.Request) time.Time {
	return q.Start.AsTime().Add(time.Duration(q.Value(llmrequest.E2E) * 1e9))
}

// of are exact statistics of requests.
func (o *observed) of(requests []llmrequest.Request, covered time.Duration) diagnosis.Requests {
	var ttft, tpot, e2e, input, output []float64
	var queue, queueFirst, front, prefill, sched, host share
	bins := map[time.Time]*share{}
	r := diagnosis.Requests{Count: int64(len(requests)), Rate: float64(len(requests)) / covered.Seconds()}
	for i := range requests {
		q := &requests[i]
		if q.Failed {
			r.Failed++
		}
		take := func(to *[]float64, v float64, ok bool) {
			if ok {
				*to = append(*to, v)
			}
		}
		whole, hasE2E := q.Get(llmrequest.E2E)
		first, hasFirst := q.Get(llmrequest.TimeToFirstToken)
		wait, hasWait := q.Get(llmrequest.Queue)
		take(&e2e, whole, hasE2E)
		take(&ttft, first, hasFirst)
		per, ok := q.TimePerOutputToken()
		take(&tpot, per, ok)
		tokens, ok := q.Get(llmrequest.InputTokens)
		take(&input, tokens, ok)
		tokens, ok = q.Get(llmrequest.OutputTokens)
		take(&output, tokens, ok)
		if hasE2E && hasWait {
			queue.add(wait, whole)
			if inference, ok := q.Get(llmrequest.Inference); ok {
				front.add(max(whole-wait-inference, 0), whole)
			}
			running := whole - wait
			if v, ok := q.Get(llmrequest.Scheduler); ok {
				sched.add(v, running)
			}
			if e, ok := q.Get(llmrequest.Execute); ok && q.Has(llmrequest.Forward) {
				host.add(max(e-q.Value(llmrequest.Forward), 0), running)
			}
		}
		if hasFirst && hasWait {
			queueFirst.add(wait, first)
		}
		switch p, ok := q.Get(llmrequest.Prefill); {
		case ok && q.Has(llmrequest.Decode):
			prefill.add(p, p+q.Value(llmrequest.Decode))
		case hasE2E && hasFirst && hasWait:
			prefill.add(first-wait, whole-wait)
		}
		if hasFirst {
			at := endOf(q).Truncate(window)
			if bins[at] == nil {
				bins[at] = &share{}
			}
			bins[at].add(first, 1)
		}
	}
	r.TTFT, r.TPOT, r.E2E, r.Input, r.Output = quantiles(ttft), quantiles(tpot), quantiles(e2e), quantiles(input), quantiles(output)
	r.QueueShare, r.QueueTTFTShare, r.FrontendShare = queue.value(), queueFirst.value(), front.value()
	r.PrefillShare, r.SchedulerShare, r.ExecuteHostShare = prefill.value(), sched.value(), host.value()
	var at []time.Time
	var mean []float64
	for t, b := range bins {
		at, mean = append(at, t), append(mean, b.value())
	}
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return at[a].Compare(at[b]) })
	sortedAt, sortedMean := make([]time.Time, len(at)), make([]float64, len(at))
	for i, k := range order {
		sortedAt[i], sortedMean[i] = at[k], mean[k]
	}
	r.TTFTSlope, r.TTFTSlopeError = diagnosis.Slope(sortedAt, sortedMean)
	return r
}

type share struct{ above, below float64 }

func (s *share) add(above, below float64) { s.above, s.below = s.above+above, s.below+below }

// value is NaN where nothing was added.
func (s *share) value() float64 { return s.above / s.below }

func quantiles(v []float64) diagnosis.Quantiles {
	nan := math.NaN()
	q := diagnosis.Quantiles{Count: int64(len(v)), Mean: nan, P50: nan, P90: nan, P95: nan, P99: nan}
	if len(v) == 0 {
		return q
	}
	slices.Sort(v)
	q.Mean = 0
	for _, x := range v {
		q.Mean += x / float64(len(v))
	}
	at := func(p float64) float64 { return v[min(int(p*float64(len(v))), len(v)-1)] }
	q.P50, q.P90, q.P95, q.P99 = at(.5), at(.9), at(.95), at(.99)
	return q
}

// runAll runs every scenario with seeds from first on, and gives the results in their order.
func runAll(list []scenario, first, seeds int, tell func(done, all int)) ([]result, error) {
	results := make([][]result, len(list)*seeds)
	var all []func() error
	for i := range results {
		all = append(all, func() (err error) {
			results[i], err = list[i/seeds].run(first + i%seeds)
			return err
		})
	}
	if err := jobs.Run(all, tell); err != nil {
		return nil, err
	}
	return slices.Concat(results...), nil
}
