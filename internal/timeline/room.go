// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The room for a batch: how many requests an engine can run at once, by what it is configured to and by what its requests hold.

import (
	"cmp"
	"math"
	"slices"
)

// room learns what a running request holds of the KV cache. In a lasting load a request runs about as long as it makes tokens, so that long
// ones are the more frequent among those that run: weighted by their output, they hold their prompt and half of their output on average.
type room struct {
	requests float64 // decayed, as the others
	v0       float64 // of them of engines that keep some of the cache free for what runs
	out      float64 // Σ output tokens
	outOut   float64 // Σ output tokens^2
	held     float64 // Σ output tokens x tokens held
	heldHeld float64 // Σ output tokens x tokens held^2
}

const (
	roomHalfLife = 30 * 60 * sec // ns
	// blockLoss is what of a request's last block of the KV cache is unused on average, tokens: half of vLLM's default block.
	blockLoss = 8
	// A full cache is not quite full: vLLM V0 keeps a hundredth free, and a prompt that does not fit waits until it does. In
	// internal/enginesim the batches of engines whose cache is full are 0.97 to 1.01 of what roomUsed of it holds.
	roomUsed = 0.99
	// roomError is by how much the batch may be off besides the error of the mean.
	roomError = 0.02
	// enoughRoom is the number of requests, by what they weigh, from which on what they hold is known.
	enoughRoom = 30
)

func (m *room) fade(win int64) {
	f := math.Exp2(-float64(win) / roomHalfLife)
	m.requests, m.v0, m.out, m.outOut, m.held, m.heldHeld = m.requests*f, m.v0*f, m.out*f, m.outOut*f, m.held*f, m.heldHeld*f
}

func (m *room) add(r *record) {
	if !r.has(hasIn|hasOut) || r.out == 0 {
		return
	}
	weight, out := r.weight(), float64(r.out)
	held := float64(r.in) + out/2 + blockLoss
	m.requests += weight
	if r.has(stepClock) {
		m.v0 += weight
	}
	m.out += weight * out
	m.outOut += weight * out * out
	m.held += weight * out * held
	m.heldHeld += weight * out * held * held
}

// batch is the largest batch of a lasting load that a cache for so many tokens holds, and its least and most by the spread of what requests
// hold.
func (m *room) batch(tokens float64) (batch, least, most float64, ok bool) {
	if !(tokens > 0) || !(m.out > 0) {
		return 0, 0, 0, false
	}
	n := m.out * m.out / m.outOut
	if n < enoughRoom {
		return 0, 0, 0, false
	}
	mean := m.held / m.out
	sigma := math.Sqrt(max(m.heldHeld/m.out-mean*mean, 0) / n)
	batch = roomUsed * tokens / mean
	doubt := roomError + 2*sigma/mean
	return max(batch, 1), max(batch/(1+doubt), 1), max(batch*(1+doubt), 1), true
}

// again is how often a request of an engine whose cache is full with such a batch is put back and computed again, at most. The figures are fitted
// to internal/enginesim: vLLM V1 admits what just fits, and puts the newest back as soon as the others have grown.
func (m *room) again(batch float64) float64 {
	if !(m.requests > 0) {
		return 0
	}
	n := againPerRoot * math.Sqrt(m.out/m.requests) * math.Pow(batch, -0.7)
	return n * (1 - (1-againV0)*m.v0/m.requests)
}

const (
	againPerRoot = 0.9
	// againV0 is the same of vLLM V0, which keeps some of the cache free, over that of V1.
	againV0 = 0.25
)

// mean is the mean output of a request, tokens.
func (m *room) mean() float64 { return m.out / m.requests }

// spread is the relative standard error of a rate that so many output tokens were counted for: their number is that of requests of unlike lengths.
func (m *room) spread(tokens float64) float64 {
	if !(m.out > 0) {
		return 1
	}
	return math.Sqrt(m.outOut / m.out / tokens)
}

// prefillSteps is how prompts share steps of their own, in masked mode: a step over prompts takes time for the step and time for its tokens, and
// the host's for the requests that run. An engine with few requests reads each prompt in a step of its own. One that is full takes in
// as many as ended since the last step.
type prefillSteps struct {
	prompts float64 // decayed, as the others
	time    float64 // Σ time of steps, s
	host    float64 // Σ time outside of them, s
	steps   float64
	x       float64 // Σ tokens of a step
	xx, xt  float64 // Σ tokens^2, Σ tokens x time

	between, base, seq float64 // time outside of a step, and by the running requests, s: of the last window that told
}

// add takes the prompts that began in a window.
func (g *prefillSteps) add(t *Timeline, e *estimate, w0, w1 int64) {
	f := math.Exp2(-float64(w1-w0) / roomHalfLife)
	g.prompts, g.time, g.host, g.steps, g.x, g.xx, g.xt = g.prompts*f, g.time*f, g.host*f, g.steps*f, g.x*f, g.xx*f, g.xt*f
	if e.between > 0 { // an idle window does not know
		g.between, g.base, g.seq = e.between, e.between, 0
		if e.betweenSeq > 0 {
			g.base, g.seq = e.betweenBase, e.betweenSeq
		}
	}
	i, _ := slices.BinarySearchFunc(t.main, w0, func(r record, at int64) int { return cmp.Compare(r.rs, at) })
	for i < len(t.main) && t.main[i].rs < w1 {
		rs, prefill, n, tokens := t.main[i].rs, t.main[i].prefill, 0.0, 0.0
		known := true
		for ; i < len(t.main) && t.main[i].rs == rs; i++ {
			known = known && t.main[i].has(hasFirst|hasIn) && t.main[i].prefill == prefill
			n++
			tokens += float64(t.main[i].in)
		}
		if !known || prefill <= 0 {
			continue
		}
		d := float64(prefill)
		g.prompts += n
		g.time += d
		g.host += g.between
		g.steps++
		g.x += tokens
		g.xx += tokens * tokens
		g.xt += tokens * d
	}
}

// share is what a prompt takes of the time of a full engine with such a batch, over what it took so far; out is the mean output.
func (g *prefillSteps) share(batch, out float64) float64 {
	if g.steps < enoughRoom || !(out > 0) {
		return 1
	}
	perToken := 0.0 // of a step, s
	if det := g.steps*g.xx - g.x*g.x; det > 1e-9*g.steps*g.xx {
		perToken = min(max((g.steps*g.xt-g.x*g.time)/det, 0), g.time/g.x)
	}
	perStep := (g.time-perToken*g.x)/g.steps + max(g.base+g.seq*batch, 0)
	ended := batch / out                 // requests that end in a decode step
	steps := -math.Expm1(-ended) / ended // for each prompt: one for all that ended
	return (steps*perStep + perToken*g.x/g.prompts) / ((g.time + g.host) / g.prompts)
}
