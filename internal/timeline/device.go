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
	"slices"
)

// vote is one request that ended in the window.
type vote struct {
	f, p, q, l float64
	n, host    float64 // decode steps and host part in the executor; n < 0: unknown
	others     float64 // prefill windows of others
	batch      float64 // mean running requests of its life; 0: unknown
}

// wall is one request that ended in the window: its mean batch, decode steps and decode time.
type wall struct{ batch, n, time float64 }

type device struct {
	law     *stepLaw
	walls   []wall
	mask    *prefills
	batches *history
	votes   []vote

	// Sums of the window over the requests that overlap it, weighted.
	sw, swAll       float64 // of those with forward time; of all
	masked, mixed   ratioSums
	steps, decode   float64 // decode steps and decode wall time, of all
	fSteps, fDecode float64 // the same less the prompts of others, of those with forward time
	others          float64 // prefill windows of others in the decode time
	hostN, hostW    float64 // decode steps and requests with a known host part in the executor
	host, maskedN   float64
	schedN, sched   float64 // S/L
	passes, passed  float64 // passes of the scheduler, and their time
	minPerStep      float64

	// Lasting.
	minStepSeen       float64
	maskedRes, mixRes float64    // decayed residuals of the vote
	hostLaw           regression // E - F: per step, per step and batch
	hostPart          regression // E - F: per request, per decode step, per decode step and batch
	maskPart          regression // p - F: the same; the first is the prefill window's part without a forward pass
	cycles            regression // q: per decode step, per step and batch, per prefill window of another
	part              float64    // of the last window
	small             float64    // requests of a prefill step
	lawN              float64    // requests in cycles
	lawNow            [3]float64 // the law they gave at the last window
	actual, predicted float64    // decayed sums of q and of what the law says it is
	wallAct, wallPred float64    // the same of the wall time
	clockN, clockR    float64    // decayed, of clockRatio
	gaps              []float64  // scratch
	swallowed         float64    // decayed share of ends inside another's prefill window
	ends              float64
	forwardSeen       bool
}

type ratioSums struct{ num, den float64 }

// estimate is what a window's forward times come to. Times in s.
type estimate struct {
	ok   bool
	mode Mode
	busy float64 // share of the window

	delta      float64 // density of forward passes in the decode steps
	part       float64 // time of a prefill window without a forward pass
	step, wall float64 // decode step; the same with the prompts of others
	gap        float64 // host gap of a decode step

	prefill, decode        float64
	executeHost, scheduler float64
}

func (d *device) begin(m *prefills, h *history) {
	d.mask, d.batches = m, h
	d.votes, d.walls = d.votes[:0], d.walls[:0]
	d.sw, d.swAll = 0, 0
	d.masked, d.mixed = ratioSums{}, ratioSums{}
	d.steps, d.decode, d.fSteps, d.fDecode, d.others = 0, 0, 0, 0, 0
	d.hostN, d.hostW, d.host, d.maskedN = 0, 0, 0, 0
	d.schedN, d.sched, d.passes, d.passed = 0, 0, 0, 0
	d.minPerStep = math.Inf(1)
}

// locality is a request's weight: the longer it ran the less it says about any one moment.
func locality(l float64) float64 { return 1 / (1 + l*l/4) }

// add takes a request that ran in the window with its weight, and whether it ended in it.
func (d *device) add(r *record, w float64, ended bool) float64 {
	l := float64(r.re-r.rs) / sec
	d.swAll += w
	dec := l - float64(r.prefill)
	if r.has(hasSteps) && r.out > 1 {
		d.steps += w * float64(r.out-1)
		d.decode += w * dec
		if r.out > 8 {
			d.minPerStep = min(d.minPerStep, dec/float64(r.out-1))
		}
		if b, ok := d.batches.mean(r.rs, r.re); ended && ok {
			d.walls = append(d.walls, wall{b, float64(r.out - 1), dec})
		}
	}
	if !r.has(hasForward | hasFirst) {
		return 0
	}
	d.forwardSeen = true
	d.sw += w
	covered1, k1 := d.mask.cover(r.first())
	covered2, k2 := d.mask.cover(r.re)
	q := max(dec-float64(covered2-covered1)/sec, 0)
	f, p := float64(r.forward), float64(r.prefill)
	if r.has(hasScheduler) && l > 0 {
		d.schedN += w
		d.sched += w * float64(r.scheduler) / l
	}
	v := vote{f: f, p: p, q: q, l: l, n: -1}
	if r.has(hasSteps) {
		n := float64(r.out) - 1
		v.n, v.others, v.host = n, float64(k2-k1), -1
		d.fSteps += w * n
		d.fDecode += w * q
		d.others += w * float64(k2-k1)
		if r.has(hasScheduler) {
			d.passes += w * (n + 1 + float64(k2-k1))
			d.passed += w * float64(r.scheduler)
		}
		if r.has(hasExecute) {
			v.host = max(0, float64(r.execute)-f)
			d.hostN += w * n
			d.hostW += w
			d.host += w * v.host
		}
	}
	d.mixed.num += w * min(f, l)
	d.mixed.den += w * l
	d.masked.num += w * (f - p)
	d.masked.den += w * q
	d.maskedN += w
	if ended {
		v.batch, _ = d.batches.mean(r.rs, r.re)
		d.votes = append(d.votes, v)
		if n := float64(r.out); r.has(hasSteps) && n > 1 {
			d.ends++
			if k := k2 - 1; k >= 0 && r.re-d.mask.entries[k].start > sameStep &&
				d.mask.entries[k].start+d.mask.length(k)-r.re > sameStep {
				d.swallowed++
			}
		}
	}
	return d.blocked(float64(covered2-covered1)/sec, float64(k2-k1))
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
func (d *device) estimate(occupied, w0, w1 int64, batch, started float64, ends []int64) estimate {
	var e estimate
	if d.steps > 0 {
		e.wall = d.localWall(batch, float64(w1-w0)/sec)
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
	if d.small = max(d.small, 1); nPrefill > 0 {
		d.small += 0.2 * (max(1, started/nPrefill) - d.small)
	}
	pass := 0.0
	if d.passes > 0 {
		pass = d.passed / d.passes
	}
	inExecutor, perStep := 0.0, 0.0
	if d.hostW > 0 {
		mean := d.host / (d.hostN + d.hostW)
		inExecutor = mean
		// A prefill step costs what a decode step of its batch would, until short requests tell better.
		if h, ok := d.hostLaw.solve([3]prior{{mean, 10}, {0, 0.0005}, {0, 1}}); ok {
			inExecutor = min(max(h[0]+h[1]*d.small, 0.1*mean), mean)
		}
		if c, ok := d.hostPart.solve([3]prior{{inExecutor, 0.2*inExecutor + 1e-5}, {0, 1}, {0, 0.0005}}); ok {
			inExecutor = min(max(c[0], 0), 0.5)
		}
		if d.hostN > 0 {
			perStep = max(0, d.host-inExecutor*d.hostW) / d.hostN
		}
	}
	async := d.async()
	e.part = inExecutor
	if async || d.hostW == 0 {
		guess := 0.002
		if async {
			guess = inExecutor + pass + 0.6*perStep
		}
		if c, ok := d.maskPart.solve([3]prior{{guess, 0.2 * guess}, {0, 1}, {0, 0.001}}); ok {
			e.part = min(max(c[0], inExecutor), 0.5)
		}
	}

	density := func(num, den float64) float64 {
		if den <= 0 {
			return 0
		}
		return min(max(num/den, 0), 1)
	}
	d.part = e.part
	delta := density(d.masked.num+e.part*d.maskedN, d.masked.den)
	mixed := density(d.mixed.num, d.mixed.den)
	d.castVotes(delta, mixed, e.part, length)

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
		e.prefill = max(0, inPrefill-nPrefill*e.part)
		e.decode = delta * outside
		steps := 0.0
		if d.fSteps > 0 {
			// The time between prefill windows is decode steps, and per prefill window of another
			// the pass of the scheduler before it and the rest of the host after it. A window that
			// reaches into the next step has swallowed that step's gap instead.
			n, m := d.fSteps, d.others
			forward := delta * d.fDecode / n
			between := pass - (e.part - inExecutor)
			law, known := d.cycles.solve([3]prior{{0, 1}, {0, 0.001}, {between + 0.5*pass, pass + 0.001}})
			if known && d.lawN > 30 {
				between = law[2]
			}
			other := max((d.fDecode-n*(forward+perStep+pass)-m*between)/n, 0)
			cycle := forward + perStep + pass + other

			// Requests tell of their whole lives. What a step was like in the window follows from how
			// it goes with the batch, held against the requests that ended lately.
			d.lawNow = law
			if local := law[0] + law[1]*batch; known && d.lawN > 30 && d.predicted > 0 && local > 0 {
				local *= d.actual / d.predicted
				cycle = min(max(local, 0.5*cycle), 2*cycle)
			}
			// At full load steps and prompts come in a fixed ratio and cannot be told apart by the time
			// they take, but by the clock.
			if ratio, ok := d.clockRatio(ends, 0.85*(forward+perStep+pass), 1.45*cycle, cycle, length); ok {
				cycle *= min(max(ratio, 0.8), 1.05)
			}
			e.step = cycle
			e.gap = cycle * (1 - delta*d.fDecode/n/(forward+perStep+pass+other))
			steps = outside * d.fSteps / d.fDecode
		}
		e.busy = (e.prefill + e.decode) / length
		e.executeHost = inExecutor*nPrefill + perStep*steps
	}
	if d.schedN > 0 {
		e.scheduler = d.sched / d.schedN * occ
	}
	return e
}

// localWall is the wall time of a decode step in the window: what the requests that overlap it say
// of their lives, or, once the step law is known, that law at the window's batch, held against the
// requests that ended lately.
func (d *device) localWall(batch, length float64) float64 {
	mean := d.decode / d.steps
	f := math.Exp2(-length / 30)
	d.wallAct *= f
	d.wallPred *= f
	a, b, _, hi, ok := d.law.fit()
	for _, w := range d.walls {
		if ok {
			scale := 1 / (1 + w.time)
			d.wallAct += scale * w.time
			d.wallPred += scale * w.n * (a + b*w.batch)
		}
		d.law.add(w.batch, w.time/w.n)
	}
	if !ok || d.wallPred <= 0 || d.law.n < 30 || batch > 1.2*hi {
		return mean
	}
	return min(max((a+b*batch)*d.wallAct/d.wallPred, 0.5*mean), 2*mean)
}

// clockRatio is the duration of a decode step by the engine's clock over the expected one: requests
// end with steps, so that the smallest gaps between two ends, no prompt between them, are steps.
// What lies between lo and hi counts. It is not known where there are too few.
func (d *device) clockRatio(ends []int64, lo, hi, expected, length float64) (float64, bool) {
	if !(lo > 0 && expected > 0) {
		return 1, false
	}
	d.gaps = d.gaps[:0]
	// The ends of one step are stamped one after the other: their mean counts.
	prev, prevEnd := 0.0, int64(0)
	for i := 0; i < len(ends); {
		j, off := i+1, 0.0
		for ; j < len(ends) && float64(ends[j]-ends[i])/sec < 0.4*lo; j++ {
			off += float64(ends[j]-ends[i]) / sec
		}
		at := float64(ends[i]-ends[0])/sec + off/float64(j-i)
		if g := at - prev; prevEnd != 0 && g > lo && g < hi {
			a, _ := d.mask.cover(prevEnd)
			if b, _ := d.mask.cover(ends[i]); b == a {
				d.gaps = append(d.gaps, g)
			}
		}
		prev, prevEnd = at, ends[i]
		i = j
	}
	fade := math.Exp2(-length / 60)
	d.clockN *= fade
	d.clockR *= fade
	if n := len(d.gaps); n > 0 {
		slices.Sort(d.gaps)
		d.clockN += float64(n)
		d.clockR += float64(n) * (d.gaps[(n-1)/2] + d.gaps[n/2]) / 2 / expected
	}
	if d.clockN < 10 {
		return 1, false
	}
	return d.clockR / d.clockN, true
}

// castVotes lets every request that ended in the window, once, speak for a mode and about the
// host parts.
func (d *device) castVotes(masked, mixed, part, length float64) {
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
	d.lawN *= fade
	short := math.Exp2(-length / 30)
	d.actual *= short
	d.predicted *= short
	for _, v := range d.votes {
		scale := 1 / (v.l + 0.25)
		a := (v.f - max(0, v.p-part) - masked*v.q) * scale
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
		d.maskPart.add(1, v.n, v.n*v.batch, v.p-v.f, steep(v.p-v.f, 0.001))
		if v.n > 0 {
			d.cycles.add(v.n, v.n*v.batch, v.others, v.q, weight(v.q, 0.002))
			d.lawN++
			if x := v.n*(d.lawNow[0]+d.lawNow[1]*v.batch) + v.others*d.lawNow[2]; x > 0 {
				d.actual += v.q / (1 + v.l)
				d.predicted += x / (1 + v.l)
			}
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
