// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// The simulation: engines, the requests between them, their spans in the order they are sent.

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Counts says where the requests of a simulation are. Arrived = Finished + Aborted + those in flight;
// Finished = Spans + Unsampled.
type Counts struct {
	Arrived, Finished, Aborted int
	// Spans have ended, whether sent already or not. Unsampled requests have none.
	Spans, Unsampled int
	Preemptions      int
	// PromptTokens and OutputTokens are those of finished requests.
	PromptTokens, OutputTokens int64
}

// RequestTruth is what happened to one request. Moments are Unix nanoseconds; zero: never.
type RequestTruth struct {
	Engine                                      int
	Arrival, FirstScheduled, FirstToken, Finish int64
	// Scheduler, Forward and Execute are the step times that vLLM V0 credits to the request.
	Scheduler, Forward, Execute time.Duration
	Prompt, Output, Made        int
	Preemptions                 int
	Aborted, Sampled            bool
}

// Sim is a running simulation. It is not safe for concurrent use.
type Sim struct {
	cfg       Config
	gen       *generator
	engines   []*engine
	fifo      []fifo // drawn arrivals, by engine
	exporters []*exporter
	now       int64
	held      []Export // made, to be received after now
	counts    []Counts
	requests  []RequestTruth
	saturated bool
	outputs   float64 // Σ output lengths drawn, for the capacity
	drawn     float64
	closed    bool
}

// New makes a simulation that starts at cfg.Start with rate requests per second over all engines.
func New(cfg Config, w Workload, rate float64) (*Sim, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("engine %s: %w", cfg.Name, err)
	}
	if err := checkRate(rate); err != nil {
		return nil, err
	}
	begin := cfg.Start.UnixNano()
	gen, err := newGenerator(w, cfg.MaxModelLen, cfg.Seed, begin, rate)
	if err != nil {
		return nil, err
	}
	s := &Sim{cfg: cfg, gen: gen, now: begin, fifo: make([]fifo, cfg.Engines), counts: make([]Counts, cfg.Engines)}
	for i := range cfg.Engines {
		e := newEngine(&s.cfg, uint64(i))
		e.arrival = func(upTo int64) *request { return s.arrival(i, upTo) }
		e.peek = func() (int64, bool) { return s.peek(i) }
		e.onDone = func(f finished) { s.done(i, f) }
		e.onGone = func(r *request, at int64) { s.gone(i, r, at) }
		s.engines = append(s.engines, e)
	}
	instances := cfg.Engines
	if cfg.Pooled {
		instances = 1
	}
	for i := range instances {
		for p := range cfg.APIServers {
			engine := i
			if cfg.Pooled {
				engine = -1
			}
			s.exporters = append(s.exporters, newExporter(&s.cfg, engine, i, p))
		}
	}
	return s, nil
}

func checkRate(rate float64) error {
	if !(rate >= 0 && rate <= 1e6) {
		return fmt.Errorf("a rate of %v requests/s: want 0 to 1e6", rate)
	}
	return nil
}

// SetRate changes the rate of arrivals from now on, in requests per second over all engines.
func (s *Sim) SetRate(rate float64) error {
	if err := checkRate(rate); err != nil {
		return err
	}
	// What was drawn ahead at the old rate is void. Engines may be within a step that ends after now.
	from := s.now
	for i, e := range s.engines {
		from = max(from, e.clock)
		s.fifo[i] = fifo{}
	}
	s.gen.clock = from
	s.gen.rate = rate
	return nil
}

// Now is how far the simulation has come.
func (s *Sim) Now() time.Time { return time.Unix(0, s.now).UTC() }

// Advance simulates up to a moment and gives what was received since the last call, in order. Going back
// is no error and does nothing.
func (s *Sim) Advance(until time.Time) []Export {
	to := until.UnixNano()
	if to <= s.now || s.closed {
		return nil
	}
	for _, e := range s.engines {
		e.advance(to)
		e.drain(to) // arrivals during its last step wait already
	}
	s.now = to
	for _, x := range s.exporters {
		x.run(to, false, func(e Export) { s.held = append(s.held, e) })
	}
	return s.release(to)
}

// Close ends the engines' processes: all requests that have finished are sent, Counts().Spans together with what Advance gave. Those of a step
// that ends after Now are received after it. The simulation cannot go on.
func (s *Sim) Close() []Export {
	if s.closed {
		return nil
	}
	s.closed = true
	for _, x := range s.exporters {
		x.run(s.now, true, func(e Export) { s.held = append(s.held, e) })
	}
	return s.release(math.MaxInt64)
}

// release gives the exports received by a moment, in order.
func (s *Sim) release(by int64) []Export {
	slices.SortStableFunc(s.held, func(a, b Export) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Process, b.Process))
	})
	n := len(s.held)
	for n > 0 && s.held[n-1].At.UnixNano() > by {
		n--
	}
	out := slices.Clone(s.held[:n])
	s.held = slices.Delete(s.held, 0, n)
	return out
}

// Engines is the number of engines.
func (s *Sim) Engines() int { return len(s.engines) }

// Truth is what an engine really did. What it says of the time before Now is final.
func (s *Sim) Truth(engine int) *Truth { return s.engines[engine].truth }

// Counts sums up the requests of all engines. A request that is in a step that ends after Now counts as
// what it is after that step.
func (s *Sim) Counts() Counts {
	var sum Counts
	for i := range s.counts {
		c := s.EngineCounts(i)
		sum.Arrived += c.Arrived
		sum.Finished += c.Finished
		sum.Aborted += c.Aborted
		sum.Spans += c.Spans
		sum.Unsampled += c.Unsampled
		sum.Preemptions += c.Preemptions
		sum.PromptTokens += c.PromptTokens
		sum.OutputTokens += c.OutputTokens
	}
	return sum
}

// EngineCounts are the counts of one engine.
func (s *Sim) EngineCounts(engine int) Counts {
	return s.counts[engine]
}

// Requests are the requests that finished or were aborted, in that order by engine, if
// Config.KeepRequests is set.
func (s *Sim) Requests() []RequestTruth { return s.requests }

// Forget drops the ground truth before a moment, so that a long simulation needs bounded memory.
func (s *Sim) Forget(before time.Time) {
	for _, e := range s.engines {
		e.truth.forget(before.UnixNano())
	}
}

// arrival gives engine i its next request if it arrives by upTo.
func (s *Sim) arrival(i int, upTo int64) *request {
	if s.saturated {
		e := s.engines[i]
		if e.waiting.len()+len(e.incoming) >= 2*s.cfg.MaxNumSeqs {
			return nil
		}
		r := s.request(s.gen.now(upTo))
		r.ready = r.at
		s.counts[i].Arrived++
		return r
	}
	d, ok := s.head(i)
	if !ok || d.at > upTo {
		return nil
	}
	s.fifo[i].pop()
	s.counts[i].Arrived++
	return s.request(d)
}

func (s *Sim) request(d demand) *request {
	s.drawn++
	s.outputs += float64(d.output)
	r := &request{demand: d, ready: s.ready(d)}
	h := mix(mix(s.cfg.Seed, uint64(d.id)), 7)
	if unit(h) < s.cfg.AbortRate {
		r.abortAt = 1 + int32(mix(h, 1)%uint64(d.output))
		if r.abortAt >= d.output {
			r.abortAt = 0 // done before the client could go
		}
	}
	return r
}

func (s *Sim) ready(d demand) int64 {
	return d.at + int64(s.cfg.FrontEnd.Tokenize) + int64(s.cfg.FrontEnd.TokenizePerToken)*int64(d.prompt)
}

// peek is when engine i's next request will be ready.
func (s *Sim) peek(i int) (int64, bool) {
	d, ok := s.head(i)
	return s.ready(d), ok
}

// head draws arrivals until there is one for engine i: requests go to the engines in turn.
func (s *Sim) head(i int) (demand, bool) {
	for s.fifo[i].len() == 0 {
		d, ok := s.gen.next()
		if !ok {
			return demand{}, false
		}
		s.fifo[int((d.id-1)%int64(len(s.engines)))].push(d)
	}
	return s.fifo[i].first(), true
}

// done takes a complete request: its span ends a little after its last output.
func (s *Sim) done(i int, f finished) {
	c := &s.counts[i]
	c.Finished++
	c.PromptTokens += int64(f.prompt)
	c.OutputTokens += int64(f.output)
	c.Preemptions += int(f.preemptions)
	sampled := f.sampled(&s.cfg)
	s.keep(i, f.request, f.at, false, sampled)
	if !sampled {
		c.Unsampled++
		return
	}
	c.Spans++
	end := f.at
	if s.cfg.Dialect.V1() {
		end = f.lastReceived
	}
	h := mix(mix(s.cfg.Seed, uint64(f.id)), 8)
	end += int64(200*time.Microsecond) + int64(h%uint64(1100*time.Microsecond))
	x := s.exporters[s.exporterOf(i, f.request)]
	heap.Push(&x.ended, spanData{r: f.request, end: end, finish: f.at})
}

func (s *Sim) exporterOf(engine int, r *request) int {
	if s.cfg.Pooled {
		engine = 0
	}
	return engine*s.cfg.APIServers + s.engines[0].server(r)
}

// gone takes an aborted request: neither generation of vLLM makes a span of it.
func (s *Sim) gone(i int, r *request, at int64) {
	s.counts[i].Aborted++
	s.counts[i].Preemptions += int(r.preemptions)
	s.keep(i, r, at, true, false)
}

func (s *Sim) keep(i int, r *request, at int64, aborted, sampled bool) {
	if !s.cfg.KeepRequests {
		return
	}
	s.requests = append(s.requests, RequestTruth{
		Engine: i, Arrival: r.at, FirstScheduled: r.firstScheduled, FirstToken: r.firstToken, Finish: at,
		Scheduler: time.Duration(r.scheduler), Forward: time.Duration(r.forward), Execute: time.Duration(r.execute),
		Prompt: int(r.prompt), Output: int(r.output), Made: int(r.produced), Preemptions: int(r.preemptions),
		Aborted: aborted, Sampled: sampled,
	})
}

// fifo is a queue of drawn arrivals.
type fifo struct {
	items []demand
	head  int
}

func (f *fifo) len() int      { return len(f.items) - f.head }
func (f *fifo) first() demand { return f.items[f.head] }
func (f *fifo) push(d demand) {
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	f.items = append(f.items, d)
}
func (f *fifo) pop() { f.head++ }

// CapacityResult is what a deployment can do at most.
type CapacityResult struct {
	// Requests and OutputTokens per second, over all engines.
	Requests, OutputTokens float64
	// Running is the mean number of running requests of an engine, and Busy the share of time in which
	// its device runs forward passes.
	Running, Busy float64
}

// Capacity measures what the deployment can do: one engine with a queue that never empties, for 10 min
// after 5 min of warming up, times the number of engines. Aborts and sampling are left out.
func Capacity(cfg Config, w Workload) (CapacityResult, error) {
	if err := cfg.Validate(); err != nil {
		return CapacityResult{}, fmt.Errorf("engine %s: %w", cfg.Name, err)
	}
	engines := cfg.Engines
	cfg.Engines, cfg.AbortRate, cfg.Patience, cfg.Sampling, cfg.KeepRequests = 1, 0, 0, 1, false
	if w.Arrivals == Recorded {
		w.Arrivals = Poisson // arrivals do not matter; lengths are drawn from the same rows
	}
	s, err := New(cfg, w, 1)
	if err != nil {
		return CapacityResult{}, err
	}
	s.saturated = true
	e := s.engines[0]
	e.onDone = func(finished) {}
	from := e.clock + int64(5*time.Minute)
	to := from + int64(10*time.Minute)
	e.advance(to)
	running, _ := e.truth.Running(from, to)
	tokens := float64(e.truth.OutputTokens(from, to)) / float64(to-from) * 1e9 * float64(engines)
	if tokens <= 0 {
		return CapacityResult{}, errors.New("the engine made no token in 10 minutes")
	}
	return CapacityResult{
		Requests: tokens / (s.outputs / s.drawn), OutputTokens: tokens,
		Running: running, Busy: e.truth.Times(from, to).Share(),
	}, nil
}

// Result is a complete run.
type Result struct {
	*Sim
	// Capacity was measured first; the run offered Load of it.
	Capacity CapacityResult
	Load     float64
	Exports  []Export
}

// Run measures the capacity, then offers load of it (1: just full) for a time. The exports end with those
// of the shutdown.
func Run(cfg Config, w Workload, load float64, d time.Duration) (*Result, error) {
	if !(load >= 0 && load <= 100) {
		return nil, fmt.Errorf("a load of %v: want 0 to 100, 1 is the capacity", load)
	}
	c, err := Capacity(cfg, w)
	if err != nil {
		return nil, err
	}
	s, err := New(cfg, w, load*c.Requests)
	if err != nil {
		return nil, err
	}
	out := s.Advance(cfg.Start.Add(d))
	return &Result{Sim: s, Capacity: c, Load: load, Exports: append(out, s.Close()...)}, nil
}
