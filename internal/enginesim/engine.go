// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// One engine: scheduler, step, and the moments and times that vLLM would have written down.

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// blockSize is the number of tokens in a block of the KV cache, vLLM's default.
	blockSize = 16
	// v1Stamp is the time between the engine core's taking a request and the stamp of its first schedule:
	// what an unloaded V1 engine reports as time in queue.
	v1Stamp = 30 * int64(time.Microsecond)
)

// request is one request inside an engine. Moments are Unix nanoseconds.
type request struct {
	demand
	ready   int64 // tokenised and handed to the engine
	abortAt int32 // the client goes away after so many tokens; 0: stays

	emitted  int32 // tokens the device has made
	produced int32 // tokens processed: what the client got
	computed int32 // tokens in the KV cache
	blocks   int32

	queued, firstScheduled, firstToken int64
	scheduler, forward, execute        int64 // ns, as vLLM V0 adds them up
	preemptions                        int32
	done                               bool

	// When vLLM V1's front end took the first and the last output from the engine core.
	firstReceived, lastReceived int64
}

// known is the number of tokens the request consists of so far.
func (r *request) known() int32 { return r.prompt + r.emitted }

// prefilling reports whether the next pass computes more than the newest token.
func (r *request) prefilling() bool { return r.emitted == 0 || r.computed < r.known()-1 }

// slot is a request's part of a step.
type slot struct {
	r      *request
	n      int32 // tokens to compute
	yields bool  // makes a token
}

// outputs are a step's, waiting to be processed.
type outputs struct {
	slots            []slot
	forward, execute int64
}

// finished is a request at the moment its engine knows that it is complete.
type finished struct {
	*request
	at int64
}

type engine struct {
	cfg   *Config
	truth *Truth
	rng   *rand.Rand
	clock int64
	// arrival gives the next arrival at or before the moment; peek the moment of the next one.
	arrival func(upTo int64) *request
	peek    func() (ready int64, ok bool)
	onDone  func(finished)
	onGone  func(*request, int64)

	incoming   []*request // arrived, not yet handed over
	waiting    deque
	running    []*request
	zombies    int // V1 async: finished requests that are still in running
	nWaiting   int
	moved      int // net change of nWaiting by the pass that runs
	freeBlocks int32
	watermark  int32
	batch      []slot
	spare      []slot
	pending    outputs // V0 async
	pipeline   bool    // V1 async: the step before ended right here

	// V1's front-end processes: busy until when, and when they took this step's outputs.
	frontFree, received []int64
}

func newEngine(cfg *Config, seed uint64) *engine {
	begin := cfg.Start.UnixNano()
	blocks := int32(cfg.KVTokens / blockSize)
	e := &engine{
		cfg: cfg, truth: newTruth(begin), rng: rand.New(rand.NewPCG(cfg.Seed, 0xe0+seed)), clock: begin, freeBlocks: blocks,
		frontFree: make([]int64, cfg.APIServers), received: make([]int64, cfg.APIServers),
	}
	if !cfg.Dialect.V1() {
		e.watermark = blocks / 100
	}
	return e
}

// advance runs whole steps until the clock has reached until; the last one may end after it.
func (e *engine) advance(until int64) {
	for e.clock < until {
		if !e.step() {
			next, ok := e.nextReady()
			if !ok || next > until {
				next = until
			}
			e.spend(max(1, next-e.clock), Idle)
			e.pipeline = false
		}
	}
}

func (e *engine) nextReady() (int64, bool) {
	if len(e.incoming) > 0 {
		return e.incoming[0].ready, true
	}
	return e.peek()
}

// spend lets d pass in state s.
func (e *engine) spend(d int64, s State) {
	e.clock += d
	e.truth.states.until(e.clock, s)
}

// step runs one iteration of the engine's loop; false when there is nothing to do.
func (e *engine) step() bool {
	start := e.clock
	e.drain(start)
	e.takeOver(start)
	// Preempting needs the outputs of the step before: they are processed first, and the pass starts anew.
	if !e.schedule() {
		e.flush()
		e.drain(e.clock)
		e.schedule()
	}
	if len(e.batch) == 0 {
		// Whatever is still pending belongs to requests that are done or is processed now.
		if len(e.pending.slots) > 0 {
			e.flush()
			return true
		}
		return e.clock != start
	}
	h, v1, host := e.cfg.Host, e.cfg.Dialect.V1(), e.noise()
	overlapped := v1 && e.cfg.Async && e.pipeline

	promptTokens, prefills, decodes, kv := e.shape()
	seconds := e.cfg.Law.Forward(promptTokens, decodes, kv) * e.noise()
	forward := max(1, int64(seconds*1e9))
	cost := func(base, per time.Duration, n int) int64 {
		return int64(float64(base+per*time.Duration(n)) * host)
	}
	sched := cost(h.Scheduler, h.SchedulerPerSeq, len(e.running))
	prepare := cost(h.Prepare, h.PreparePerSeq, len(e.batch))
	sample := cost(h.Sample, h.SamplePerSeq, len(e.batch))
	output := cost(h.Output, h.OutputPerSeq, len(e.batch))
	loop := cost(h.Loop, h.LoopPerSeq, len(e.running))

	// The scheduler's pass. V0 stamps the first schedule after it, V1 at its start.
	passStart := e.clock
	if !overlapped {
		e.spend(sched, Scheduler)
	}
	stamp := e.clock
	if v1 {
		stamp = min(passStart+v1Stamp, e.clock)
	}
	e.admitted(stamp)
	for _, r := range e.running {
		r.scheduler += sched
	}

	// Model execution.
	if !overlapped {
		e.spend(prepare, ExecuteHost)
	}
	forwardStart := e.clock
	state := ForwardDecode
	switch {
	case decodes == 0:
		state = ForwardPrefill
	case prefills > 0:
		state = ForwardMixed
	}
	e.spend(forward, state)
	forwardEnd := e.clock
	var excess int64 // of host work meant to hide behind the forward pass
	switch {
	case v1 && e.cfg.Async:
		excess = max(0, output+loop-forward)
		if overlapped {
			excess = max(0, sched+prepare+output+loop-forward)
		}
	case e.cfg.Async && len(e.pending.slots) > 0:
		// The callback runs inside model execution, once the forward pass is launched.
		n := len(e.pending.slots)
		d := cost(h.Output, h.OutputPerSeq, n)
		excess = max(0, d-forward)
		e.process(e.pending, forwardStart, d)
		e.spare, e.pending = e.pending.slots[:0], outputs{}
	}
	e.spend(excess, ExecuteHost)
	e.spend(sample, ExecuteHost)
	for i := range e.batch {
		s := &e.batch[i]
		s.r.computed += s.n
		if s.yields {
			s.r.emitted++
		}
	}

	// Outputs.
	out := outputs{slots: e.batch, forward: forward, execute: prepare + forward + excess + sample}
	switch {
	case v1 && e.cfg.Async:
		e.process(out, e.clock, 0)
	case v1:
		e.spend(output, HostOther)
		e.process(out, e.clock, 0)
		e.spend(loop, HostOther)
	case e.cfg.Async:
		e.pending = out
		e.batch = e.spare
		e.spend(loop, HostOther)
	default:
		e.process(out, e.clock, output)
		e.spend(output+loop, HostOther)
	}
	e.pipeline = true
	e.truth.steps = append(e.truth.steps, Step{
		Start: start, End: e.clock, ForwardStart: forwardStart, ForwardEnd: forwardEnd,
		PromptTokens: int32(promptTokens), Prefills: int32(prefills), Decodes: int32(decodes),
	})
	return true
}

// noise is a factor around 1.
func (e *engine) noise() float64 {
	return min(2, max(.5, 1+e.cfg.Jitter*e.rng.NormFloat64()))
}

// drain notes the arrivals up to at.
func (e *engine) drain(at int64) {
	for r := e.arrival(at); r != nil; r = e.arrival(at) {
		e.incoming = append(e.incoming, r)
		if !e.cfg.Dialect.V1() {
			e.nWaiting++
			e.truth.waiting.set(r.at, e.nWaiting)
		}
	}
}

// takeOver moves what is ready to the scheduler's queue, and drops whose client has left it.
func (e *engine) takeOver(at int64) {
	n := 0
	for n < len(e.incoming) && e.incoming[n].ready <= at {
		r := e.incoming[n]
		r.queued = at
		if e.pipeline && e.cfg.Async {
			r.queued = max(r.ready, at-v1Stamp) // the pass was hidden behind the step before
		}
		e.waiting.pushBack(r)
		if e.cfg.Dialect.V1() {
			e.nWaiting++
		}
		n++
	}
	if n > 0 {
		e.incoming = slices.Delete(e.incoming, 0, n)
	}
	if p := int64(e.cfg.Patience); p > 0 {
		// The oldest are in front, behind the preempted ones; those have been scheduled and stay.
		i := 0
		for i < e.waiting.len() && e.waiting.get(i).firstScheduled != 0 {
			i++
		}
		for i < e.waiting.len() && e.waiting.get(i).at+p < at {
			r := e.waiting.remove(i)
			r.done = true
			e.nWaiting--
			e.onGone(r, at)
		}
	}
	e.truth.waiting.set(at, e.nWaiting)
}

// admitted stamps the first schedules of the batch and notes the counts.
func (e *engine) admitted(at int64) {
	e.drain(at)
	for _, s := range e.batch {
		if s.r.firstScheduled == 0 {
			s.r.firstScheduled = at
		}
	}
	e.nWaiting += e.moved
	e.moved = 0
	e.truth.running.set(at, len(e.running)-e.zombies)
	e.truth.waiting.set(at, e.nWaiting)
	if e.zombies > 0 {
		e.running = slices.DeleteFunc(e.running, func(r *request) bool {
			if r.done {
				e.release(r)
			}
			return r.done
		})
		e.zombies = 0
	}
}

// shape is what the law needs to know of the batch.
func (e *engine) shape() (promptTokens, prefills, decodes int, kv int64) {
	for _, s := range e.batch {
		if s.r.prefilling() {
			prefills++
			promptTokens += int(s.n)
		} else {
			decodes++
			kv += int64(s.r.computed)
		}
	}
	return promptTokens, prefills, decodes, kv
}

// schedule makes the batch; false when outputs must be processed first.
func (e *engine) schedule() bool {
	e.batch = e.batch[:0]
	if e.cfg.Mode == PrefillPriority {
		return e.schedulePrefillFirst()
	}
	return e.scheduleChunked()
}

// schedulePrefillFirst admits whole prompts, and decodes where it admits none.
func (e *engine) schedulePrefillFirst() bool {
	budget := int32(e.cfg.MaxBatchedTokens)
	for e.waiting.len() > 0 && len(e.running) < e.cfg.MaxNumSeqs {
		r := e.waiting.get(0)
		n := r.known()
		need := blocksFor(n)
		if n > budget || e.freeBlocks-need < e.watermark {
			break
		}
		budget -= n
		e.admit(r, need)
		e.batch = append(e.batch, slot{r: r, n: n, yields: true})
	}
	if len(e.batch) > 0 {
		return true
	}
	for i := 0; i < len(e.running); i++ {
		r := e.running[i]
		// vLLM V0 wants a free block for each sequence it appends to, needed or not.
		for e.freeBlocks < 1 {
			if len(e.pending.slots) > 0 {
				return false
			}
			if e.preemptLast() == r {
				break
			}
		}
		if i >= len(e.running) {
			break
		}
		e.grow(r, r.computed+1)
		e.batch = append(e.batch, slot{r: r, n: 1, yields: true})
	}
	return true
}

// scheduleChunked spends a budget of tokens on the running requests, then on waiting ones.
func (e *engine) scheduleChunked() bool {
	v1 := e.cfg.Dialect.V1()
	budget := int32(e.cfg.MaxBatchedTokens)
	preempted := false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		n := min(r.known()-r.computed, budget)
		for e.freeBlocks < blocksFor(r.computed+n)-r.blocks || (!v1 && e.freeBlocks < 1) {
			if len(e.pending.slots) > 0 {
				return false
			}
			preempted = true
			if e.preemptLast() == r {
				break
			}
		}
		if i >= len(e.running) {
			break
		}
		e.grow(r, r.computed+n)
		budget -= n
		e.batch = append(e.batch, slot{r: r, n: n, yields: r.computed+n == r.known()})
	}
	for !preempted && budget > 0 && e.waiting.len() > 0 && len(e.running) < e.cfg.MaxNumSeqs {
		r := e.waiting.get(0)
		n := min(r.known()-r.computed, budget)
		need := blocksFor(r.computed + n)
		if !v1 {
			need = blocksFor(r.known()) // V0 takes the blocks of the whole prompt with its first chunk
		}
		if e.freeBlocks-need < e.watermark {
			break
		}
		e.admit(r, need)
		budget -= n
		e.batch = append(e.batch, slot{r: r, n: n, yields: r.computed+n == r.known()})
	}
	return true
}

// admit takes the first waiting request into running.
func (e *engine) admit(r *request, blocks int32) {
	e.waiting.popFront()
	e.moved--
	r.blocks = blocks
	e.freeBlocks -= blocks
	e.running = append(e.running, r)
}

// grow gives r the blocks for tokens.
func (e *engine) grow(r *request, tokens int32) {
	if need := blocksFor(tokens) - r.blocks; need > 0 {
		r.blocks += need
		e.freeBlocks -= need
	}
}

// preemptLast puts the newest running request back to the head of the queue, to be computed anew.
func (e *engine) preemptLast() *request {
	last := len(e.running) - 1
	r := e.running[last]
	e.running = e.running[:last]
	e.release(r)
	if r.done { // a finished request that was to run in vain
		e.zombies--
		return r
	}
	r.computed = 0
	r.preemptions++
	e.moved++
	e.waiting.pushFront(r)
	e.truth.preempts = append(e.truth.preempts, e.clock)
	return r
}

func (e *engine) release(r *request) {
	e.freeBlocks += r.blocks
	r.blocks = 0
}

// flush processes pending outputs outside a step.
func (e *engine) flush() {
	p := e.pending
	e.pending = outputs{}
	d := int64(e.cfg.Host.Output + e.cfg.Host.OutputPerSeq*time.Duration(len(p.slots)))
	e.process(p, e.clock, d)
	e.spare = p.slots[:0]
	e.spend(d, HostOther)
}

// process hands a step's outputs on. now is what vLLM stamps on first tokens; the requests are worked off
// one after the other during d.
func (e *engine) process(out outputs, now, d int64) {
	tokens, gone := 0, false
	if e.cfg.Dialect.V1() {
		e.receive(out.slots, now)
	}
	for i, s := range out.slots {
		r := s.r
		if r.done {
			continue
		}
		r.forward += out.forward
		r.execute += out.execute
		if !s.yields {
			continue
		}
		r.produced++
		tokens++
		if r.firstToken == 0 {
			r.firstToken = now
			r.firstReceived = e.received[e.server(r)]
		}
		at := now + d*int64(i+1)/int64(len(out.slots))
		switch {
		case r.produced >= r.output:
			r.done = true
		case r.abortAt > 0 && r.produced >= r.abortAt:
			r.done = true
		default:
			continue
		}
		gone = true
		r.lastReceived = e.received[e.server(r)]
		e.zombies++
		e.truth.running.set(at, len(e.running)-e.zombies)
		if r.produced >= r.output {
			e.onDone(finished{request: r, at: at})
		} else {
			e.onGone(r, at)
		}
	}
	e.truth.addTokens(now, tokens)
	// With asynchronous scheduling the next batch is made already: they run once more, in vain.
	if gone && !(e.cfg.Dialect.V1() && e.cfg.Async) {
		e.running = slices.DeleteFunc(e.running, func(r *request) bool {
			if r.done {
				e.release(r)
			}
			return r.done
		})
		e.zombies = 0
	}
}

// receive lets the front-end processes take a step's outputs, each after it is done with the ones before.
func (e *engine) receive(slots []slot, now int64) {
	f := e.cfg.FrontEnd
	for p := range e.received {
		e.received[p] = max(now+int64(f.Transfer), e.frontFree[p])
		e.frontFree[p] = e.received[p] + int64(f.Output)
	}
	for _, s := range slots {
		if s.yields && !s.r.done {
			e.frontFree[e.server(s.r)] += int64(f.OutputPerSeq)
		}
	}
}

// server is the front-end process that serves r.
func (e *engine) server(r *request) int { return int(r.id % int64(len(e.received))) }

func blocksFor(tokens int32) int32 { return (tokens + blockSize - 1) / blockSize }

// deque is a queue that also takes requests back at its head.
type deque struct {
	items []*request
	head  int
}

func (d *deque) len() int            { return len(d.items) - d.head }
func (d *deque) get(i int) *request  { return d.items[d.head+i] }
func (d *deque) pushBack(r *request) { d.items = append(d.items, r) }
func (d *deque) popFront() (r *request) {
	r = d.items[d.head]
	d.items[d.head] = nil
	d.head++
	if d.head > 1024 && d.head*2 > len(d.items) {
		d.items = slices.Delete(d.items, 0, d.head)
		d.head = 0
	}
	return r
}

func (d *deque) pushFront(r *request) {
	if d.head > 0 {
		d.head--
		d.items[d.head] = r
		return
	}
	d.items = slices.Insert(d.items, 0, r)
}

func (d *deque) remove(i int) *request {
	r := d.items[d.head+i]
	d.items = slices.Delete(d.items, d.head+i, d.head+i+1)
	return r
}
