// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Device utilisation from forward times: the split ratio and the vote on the mode.
//
// A request's forward time F is the integral of the device's activity over the time in which the
// request was scheduled. With prompts and decoding in the same steps (mixed) that is its whole
// run; with prompts first (masked) it is its own prefill window and its decoding less everybody
// else's prefill windows, all of which the spans tell. Sums over the requests that overlap the
// window, weighted by how local each is to it, then give the activity's density outside the
// prefill windows, delta; inside them it is one but for a host part per prefill step.

import (
	"math"
)

// vote is one request that ended in the window.
type vote struct {
	f, p, q, l float64
	n, host    float64 // decode steps and host part in the executor; n < 0: unknown
	others     float64 // prefill windows of others
	rest       float64 // decode time outside of the executor and the scheduler; < 0: unknown
	sched      float64 // time in the scheduler; < 0: unknown
	execute    float64 // < 0: unknown
	batch      float64 // mean running requests of its life; 0: unknown
	crowd      float64 // the same of the prefill steps of others
	followed   bool    // another's prefill window follows its own at once
}

// ended is one request that ended in the window: its place, the mean batch of its decode steps (0: unknown), its decode time
// without the prefill windows of others, and how many those are.
type ended struct {
	i                int32
	batch, q, others float64
}

type device struct {
	mask    *prefills
	batches *history
	pace    *pace
	ended   []ended
	votes   []vote
	near    int     // in the mask, of the last request's first token
	density float64 // entries of the mask per ns
	covers  []covers

	// Sums of the window over the requests that overlap it, weighted.
	sw, swAll       float64 // of those with forward time; of all
	masked, mixed   ratioSums
	steps, decode   float64 // decode steps and decode wall time, of all
	fSteps, fDecode float64 // the same less the prompts of others, of those with forward time
	others          float64 // prefill windows of others in the decode time
	hostN, hostW    float64 // decode steps and requests with a known host part in the executor
	host, maskedN   float64
	followed        float64 // of maskedN, those whose prefill window another's follows at once
	schedN, sched   float64 // S/L
	passes, passed  float64 // passes of the scheduler, and their time
	minPerStep      float64

	// Lasting.
	minStepSeen       float64
	maskedRes, mixRes float64    // decayed residuals of the vote
	hostLaw           regression // E - F: per step, per step and batch
	hostPart          regression // E - F: per request, per decode step, per decode step and batch
	// p - F: the same; the first is the prefill window's part without a forward pass, less what it was thought to be.
	maskPart regression
	after    regression // the host's time after a step: per step, per decode step and batch, per prefill step and batch
	afterN   float64
	passLaw  regression // the scheduler's time: per pass, per pass and batch
	cycles   regression // q: per decode step, per step and batch, per prefill window of another
	part     float64    // of the last window, and at least what the host takes of a step of few requests
	small    float64    // requests of a prefill step
	lawN     float64    // requests in cycles
	// With asynchronous output processing: runs of prefill windows that follow each other at once, per window; the time of the
	// engine's loop outside of executor and scheduler, per step.
	runs, loop  float64
	swallowed   float64 // decayed share of ends inside another's prefill window
	ends        float64
	forwardSeen bool
}

// covered is what cover says of a moment: ns before it, in so many entries.
type covered struct {
	ns int64
	k  int
}

// covers is that of the first token and the end of a request that ran in the window.
type covers struct {
	i          int32
	first, end covered
}

type ratioSums struct{ num, den float64 }

// nextStep is what a prefill window ends with where output is processed during the next step: the time from the
// scheduler's pass to the forward pass, s, if that step decodes, and if it runs another prompt.
type nextStep struct{ decode, prefill float64 }

// shorter is by how much a prefill window is shorter where another follows it at once.
func (n nextStep) shorter() float64 { return n.decode - n.prefill }

const (
	// prepareShare is the part of the host's time in the executor that comes before the forward pass.
	prepareShare = 0.6
	// loopRate is by how much of a preparation one request can move what is known of the loop.
	loopRate = 0.02
)

// estimate is what a window's forward times come to. Times in s.
type estimate struct {
	ok   bool
	mode Mode
	busy float64 // share of the window

	delta       float64 // density of forward passes in the decode steps
	part        float64 // time of a prefill window without a forward pass
	step, wall  float64 // decode step; the same with the prompts of others
	gap         float64 // host gap of a decode step
	prefillWall float64 // time of prefill steps in the window
	between     float64 // time of a prefill step outside its window
	// The same by the requests that run, where it is known: so much, and so much for each.
	betweenBase, betweenSeq float64

	prefill, decode        float64
	executeHost, scheduler float64
}

func (d *device) begin(m *prefills, h *history, p *pace) {
	d.mask, d.batches, d.pace, d.density = m, h, p, m.density()
	d.votes, d.ended, d.covers, d.near = d.votes[:0], d.ended[:0], d.covers[:0], 0
	d.sw, d.swAll = 0, 0
	d.masked, d.mixed = ratioSums{}, ratioSums{}
	d.steps, d.decode, d.fSteps, d.fDecode, d.others = 0, 0, 0, 0, 0
	d.hostN, d.hostW, d.host, d.maskedN, d.followed = 0, 0, 0, 0, 0
	d.schedN, d.sched, d.passes, d.passed = 0, 0, 0, 0
	d.minPerStep = math.Inf(1)
}

// locality is a request's weight: the longer it ran the less it says about any one moment.
func locality(l float64) float64 { return 1 / (1 + l*l/4) }

// add takes a request that ran in the window with its weight, and whether it ended in it.
func (d *device) add(r *record, i int32, w float64, over bool) float64 {
	l := float64(r.re-r.rs) / sec
	d.swAll += w
	dec := max(l-float64(r.prefill), 0) // prefill is rounded
	if r.has(hasSteps) && r.out > 1 {
		d.steps += w * float64(r.out-1)
		d.decode += w * dec
		if r.out > 8 {
			d.minPerStep = min(d.minPerStep, dec/float64(r.out-1))
		}
		if over {
			b := d.batchOf(r)
			d.ended = append(d.ended, ended{i: i, batch: b, q: dec})
		}
	}
	if !r.has(hasForward | hasFirst) {
		return 0
	}
	d.forwardSeen = true
	d.sw += w
	// The requests come by their start.
	first := r.first()
	covered1, k1 := d.mask.coverNear(first, d.near)
	d.near = k1
	// Where entries lie close to each other all the time it ends about as many of them later.
	covered2, k2 := d.mask.coverNear(r.re, k1+int(float64(r.re-first)*d.density))
	d.covers = append(d.covers, covers{i, covered{covered1, k1}, covered{covered2, k2}})
	q := max(dec-float64(covered2-covered1)/sec, 0)
	f, p := float64(r.forward), float64(r.prefill)
	if r.has(hasScheduler) && l > 0 {
		d.schedN += w
		d.sched += w * float64(r.scheduler) / l
	}
	n, m, host := float64(r.out)-1, float64(k2-k1), -1.0
	if r.has(hasSteps) {
		d.fSteps += w * n
		d.fDecode += w * q
		d.others += w * m
		if r.has(hasScheduler) {
			d.passes += w * (n + 1 + m)
			d.passed += w * float64(r.scheduler)
		}
		if r.has(hasExecute) {
			host = max(0, float64(r.execute)-f)
			d.hostN += w * n
			d.hostW += w
			d.host += w * host
		}
	}
	d.mixed.num += w * min(f, l)
	d.mixed.den += w * l
	d.masked.num += w * (f - p)
	d.masked.den += w * q
	d.maskedN += w
	followed := d.async() && d.mask.followed(first, k1)
	if followed {
		d.followed += w
	}
	if over {
		v := vote{f: f, p: p, q: q, l: l, n: -1, host: host, rest: -1, sched: -1, execute: -1, followed: followed}
		if r.has(hasSteps) {
			v.n, v.others = n, m
			if r.has(hasScheduler) {
				v.sched = float64(r.scheduler)
			}
			if r.has(hasExecute | hasScheduler) {
				v.rest = max(q-(float64(r.execute)-p)-float64(r.scheduler)*(n+m)/(n+m+1), 0)
				v.execute = float64(r.execute)
			}
		}
		if k := len(d.ended) - 1; k >= 0 && d.ended[k].i == i {
			v.batch = d.ended[k].batch
			d.ended[k].q, d.ended[k].others = q, v.others
		} else {
			v.batch = d.batchOf(r)
		}
		v.crowd = v.batch
		if v.others > 0 {
			if b, ok := d.pace.prefillBatch(first, r.re); ok {
				v.crowd = b
			}
		}
		d.votes = append(d.votes, v)
		if r.has(hasSteps) && r.out > 1 {
			d.ends++
			if k := k2 - 1; k >= 0 && r.re-d.mask.entries[k].start > sameStep &&
				d.mask.entries[k].start+d.mask.length(k)-r.re > sameStep {
				d.swallowed++
			}
		}
	}
	return d.blocked(float64(covered2-covered1)/sec, float64(k2-k1))
}

// batchOf is the mean number of running requests in a request's decode steps; 0 is unknown.
func (d *device) batchOf(r *record) float64 {
	if b, ok := d.pace.batch(r.first(), r.re); ok {
		return b
	}
	b, _ := d.batches.mean(r.rs, r.re)
	return b
}

// blocked is the least forward time of the prompts of others that held a request up for covered s
// in n windows, none of which is in the request's own. It is 0 unless every request that ended
// lately speaks for masked mode, and leaves three times the usual host part to the host.
func (d *device) blocked(covered, n float64) float64 {
	if d.ends < 10 || d.async() || d.maskedRes > 0.25*d.mixRes {
		return 0
	}
	return max(0, covered-n*(3*d.part+0.001))
}

// minStep is the shortest mean step of a request seen lately, s; 0 if none.
func (d *device) minStep() float64 { return d.minStepSeen }

// async reports whether output is processed during the next step. Requests then end, and prefill
// windows too, within that step: nothing can end in another's prefill window otherwise.
func (d *device) async() bool { return d.ends > 10 && d.swallowed > 0.02*d.ends }

// estimate closes the window's sums. started is the number of requests whose
// prompt ran, ends are the requests' ends in the window, sorted.
func (d *device) estimate(occupied, w0, w1 int64, batch, started float64) estimate {
	var e estimate
	if d.steps > 0 {
		e.wall = d.decode / d.steps
	}
	if !math.IsInf(d.minPerStep, 1) {
		if d.minStepSeen == 0 {
			d.minStepSeen = d.minPerStep
		}
		d.minStepSeen = min(d.minStepSeen*1.001, d.minPerStep)
	}
	if occupied == 0 {
		e.ok = d.forwardSeen
		e.mode = d.mode()
		return e
	}
	if d.sw < 0.8*d.swAll || d.sw <= 0 {
		return e
	}
	length := float64(w1-w0) / sec
	occ := float64(occupied) / sec
	c0, k0 := d.mask.cover(w0)
	c1, k1 := d.mask.cover(w1)
	inPrefill := min(float64(c1-c0)/sec, occ)
	nPrefill := float64(k1 - k0)
	outside := max(occ-inPrefill, 0)

	// The host parts of a prefill window and of a decode step.
	if d.runs == 0 {
		d.runs = 1
	}
	if d.small = max(d.small, 1); nPrefill > 0 {
		d.small += 0.2 * (max(1, started/nPrefill) - d.small)
	}
	pass := 0.0
	if d.passes > 0 {
		pass = d.passed / d.passes
	}
	inExecutor, perStep, small := 0.0, 0.0, 0.0
	if d.hostW > 0 {
		mean := d.host / (d.hostN + d.hostW)
		inExecutor = mean
		// A prefill step costs what a decode step of its batch would, until short requests tell better.
		if h, ok := d.hostLaw.solve([3]prior{{mean, 10}, {0, 0.0005}, {0, 1}}); ok {
			inExecutor = min(max(h[0]+h[1]*d.small, 0.1*mean), mean)
		}
		small = inExecutor
		if c, ok := d.hostPart.solve([3]prior{{inExecutor, 0.2*inExecutor + 1e-5}, {0, 1}, {0, 0.0005}}); ok {
			inExecutor = min(max(c[0], 0), 0.5)
		}
		if d.hostN > 0 {
			perStep = max(0, d.host-inExecutor*d.hostW) / d.hostN
		}
	}
	async := d.async()
	e.part = inExecutor
	d.part = small
	var next nextStep
	thought := 0.0 // the part, before the requests are asked
	if async || d.hostW == 0 {
		thought = 0.002
		doubt := 0.2 * thought
		if async {
			next = nextStep{decode: prepareShare * perStep, prefill: prepareShare * inExecutor}
			thought = inExecutor + pass + d.loop + next.decode
			if doubt = 0.2*perStep + 1e-5; d.hostW == 0 { // all but the share is measured
				doubt = 0.2*thought + 1e-5
			}
		}
		if c, ok := d.maskPart.solve([3]prior{{0, doubt}, {0, 1}, {0, 0.001}}); ok {
			e.part = min(max(thought+c[0], inExecutor), 0.5)
		}
	}

	density := func(num, den float64) float64 {
		if den <= 0 {
			return 0
		}
		return min(max(num/den, 0), 1)
	}
	d.part = max(d.part, e.part)
	delta := density(d.masked.num+e.part*d.maskedN-next.shorter()*d.followed, d.masked.den)
	mixed := density(d.mixed.num, d.mixed.den)
	runs := nPrefill
	if async && nPrefill > 0 {
		runs = float64(d.mask.runs(k0, k1))
		d.runs += 0.2 * (runs/nPrefill - d.runs)
	}
	d.castVotes(delta, mixed, e.part, thought, next, length)

	e.ok = true
	e.mode = d.mode()
	if e.mode == ModeMixed {
		e.delta = mixed
		e.busy = mixed * occ / length
		e.decode = mixed * occ
		e.step = e.wall
		e.gap = e.step * (1 - mixed)
		e.executeHost = density(d.host, d.mixed.den) * occ
	} else {
		e.delta = delta
		// Windows that follow each other overlap by the later one's preparation; one of a run ends with a decode step's.
		e.prefill = max(0, inPrefill-nPrefill*e.part+max(0, nPrefill-runs)*next.decode)
		e.decode = delta * outside
		steps := 0.0
		if d.fSteps > 0 && d.fDecode > 0 {
			// A first estimate, of the requests' whole lives; what was made when is the pace's to say.
			n, m := d.fSteps, d.others
			forward := delta * d.fDecode / n
			between := d.between(pass, pass-(e.part-inExecutor))
			if async && d.hostW > 0 {
				between = -d.runs * next.decode
			}
			e.between = between
			if a, ok := d.afterPrefill(batch); ok && !async {
				e.between = pass + a.at(batch)
				if c, ok := d.passLaw.solve([3]prior{{pass, pass + 1e-5}, {0, 0.0005}, {0, 1}}); ok && c[1] > 0 {
					// The mean pass is kept: it is measured.
					e.betweenSeq = min(c[1], pass/max(batch, 1)) + a.seq
					e.betweenBase = e.between - e.betweenSeq*batch
				}
			}
			other := max((d.fDecode-n*(forward+perStep+pass)-m*between)/n, 0)
			e.step = forward + perStep + pass + other
			e.gap = e.step - forward
			steps = outside * d.fSteps / d.fDecode
		}
		e.busy = (e.prefill + e.decode) / length
		e.executeHost = inExecutor*nPrefill + perStep*steps
	}
	e.prefillWall = inPrefill + nPrefill*e.between
	if d.schedN > 0 {
		e.scheduler = d.sched / d.schedN * occ
	}
	return e
}

// between is what a prefill step takes outside of its prefill window: the pass of the scheduler before it
// and the rest of the host after it. A window that reaches into the next step has swallowed
// that step's gap instead. guess is without the rest of the host.
func (d *device) between(pass, guess float64) float64 {
	law, ok := d.cycles.solve([3]prior{{0, 1}, {0, 0.001}, {guess + 0.5*pass, pass + 0.001}})
	if ok && d.lawN > 30 {
		return law[2]
	}
	return guess
}

// linear is so much, and so much for each running request.
type linear struct{ base, seq float64 }

func (l linear) at(batch float64) float64 { return max(l.base+l.seq*batch, 0) }

// afterPrefill is the host's time after a prefill step by the requests running, near so many, and whether it is known: decode
// steps and prefill steps have the same base and differ in what they take per request. At full load they come in a
// fixed ratio, so that no more is asked of the requests than they can tell: it is not more than after a
// decode step.
func (d *device) afterPrefill(batch float64) (linear, bool) {
	if d.afterN <= 30 {
		return linear{}, false
	}
	c, ok := d.after.solve([3]prior{{0, 0.1}, {0, 0.001}, {0, 0.001}})
	if !ok {
		return linear{}, false
	}
	slope := max(c[1], 0)
	c, ok = d.after.solve([3]prior{{0, 0.1}, {0, 0.001}, {0.4 * slope, 0.3*slope + 1e-7}})
	prefill, decode := linear{c[0], c[2]}, linear{c[0], c[1]}
	if prefill.at(batch) > decode.at(batch) {
		return decode, ok
	}
	return prefill, ok
}

// castVotes lets every request that ended in the window, once, speak for a mode and about the
// host parts. part is the prefill window's without a forward pass where no other window follows it at once, thought what it was
// thought to be before requests were asked (0: they are not).
func (d *device) castVotes(masked, mixed, part, thought float64, next nextStep, length float64) {
	if len(d.votes) == 0 {
		return
	}
	fade := math.Exp2(-length / 300)
	d.maskedRes *= fade
	d.mixRes *= fade
	d.hostLaw.fade(fade)
	d.hostPart.fade(fade)
	d.maskPart.fade(fade)
	d.cycles.fade(fade)
	d.after.fade(fade)
	d.passLaw.fade(fade)
	d.afterN *= fade
	d.lawN *= fade
	for _, v := range d.votes {
		scale := 1 / (v.l + 0.25)
		p := v.p
		if v.followed {
			p += next.shorter()
		}
		a := (v.f - max(0, p-part) - masked*v.q) * scale
		b := (v.f - mixed*v.l) * scale
		d.maskedRes += a * a
		d.mixRes += b * b
		if v.n < 0 || v.batch <= 0 {
			continue
		}
		// The noise of a sum of steps is about proportional to it.
		weight := func(y, floor float64) float64 { return 1 / (floor*floor + 0.03*0.03*y*y) }
		// What is found by extrapolation to no steps must not come from requests of many.
		steep := func(y, floor float64) float64 {
			x := 0.03 * y * (1 + 10*math.Abs(y))
			return 1 / (floor*floor + x*x)
		}
		if v.host >= 0 {
			d.hostLaw.add(v.n+1, v.n*v.batch+d.small, 0, v.host, weight(v.host, 0.0005))
			d.hostPart.add(1, v.n, v.n*v.batch, v.host, steep(v.host, 0.0005))
		}
		if thought > 0 {
			d.maskPart.add(1, v.n, v.n*v.batch, p-v.f-thought, steep(p-v.f, 0.001))
		}
		if v.sched >= 0 {
			n := v.n + v.others + 1
			d.passLaw.add(n, (v.n+1)*v.batch+v.others*v.crowd, 0, v.sched, weight(v.sched, 0.0001))
		}
		if next.decode > 0 && v.n > 0 && v.sched >= 0 && v.execute >= 0 {
			// Each run of prefill windows of others has swallowed a preparation, its own ends with one; the engine's scheduler
			// passed for its prompt, its steps, the prompts of others, and the step in which it ended.
			loop := (p + v.q - v.execute - v.sched*(v.n+1)/(v.n+v.others+2) + (v.others*d.runs-1)*next.decode) / (v.n + 1)
			// The lower quartile: prompts of others that are not known yet add to it.
			if loop > d.loop {
				d.loop += 0.25 * loopRate * next.decode
			} else {
				d.loop = max(d.loop-0.75*loopRate*next.decode, 0)
			}
		}
		if v.n > 0 && v.rest >= 0 {
			d.after.add(v.n+v.others+1, v.n*v.batch, v.others*v.crowd, v.rest, weight(v.rest, 0.0005))
			d.afterN++
		}
		if v.n > 0 {
			d.cycles.add(v.n, v.n*v.batch, v.others, v.q, weight(v.q, 0.002))
			d.lawN++
		}
	}
}

func (d *device) mode() Mode {
	switch {
	case !d.forwardSeen:
		return ModeUnknown
	case d.mixRes < d.maskedRes:
		return ModeMixed
	default:
		return ModeMasked
	}
}
