// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The work axis: how many output tokens per second a full engine makes, measured where it was full, else by the step law at the largest batch
// that it can have, and how far that can be off. How large that batch is, how far the law goes beyond the batches seen, and what prompts take
// of a full engine are all known only so well: what follows is a bracket, and one figure where that is narrow.

import "math"

// capacity sets the figures of the work axis.
func (t *Timeline) capacity(w *Window, est *estimate, occ, batch, waiting float64) {
	m := float64(t.cfg.MaxNumSeqs)
	if m > 0 && occ > 0 && w.Flags&MixedEngines == 0 {
		w.Set(BatchUtilization, min(batch/m, 1))
	} else if m > 0 && occ == 0 {
		w.Set(BatchUtilization, 0)
	}
	complete := w.Value(Completeness)
	if w.Flags&(MixedEngines|Sampled|Thinned) != 0 || complete < minCompleteness {
		return
	}
	out, ok := w.Get(OutputThroughput)
	if !ok {
		return
	}
	// An engine that has changed should not be held to a record of long ago.
	t.best = max(t.best*math.Exp2(-float64(t.win)/(24*3600*sec)), out)
	if t.best > 0 {
		w.Set(CapacityPeak, min(out/t.best, 1))
	}
	a, b, lo, hi, _, ok := t.pace.wall()
	if ok {
		w.Set(StepLawA, a)
		w.Set(StepLawB, b)
		if occ > 0 && a+b*batch > 0 {
			w.Set(MarginalRatio, b*batch/(a+b*batch))
		}
	}
	if t.pace.masked {
		t.prefillSteps.add(t, est, w.Start.UnixNano(), w.End.UnixNano())
	}
	most := t.largest()
	t.full.add(w, t, out, most.batch, waiting)
	if most.batch <= 0 {
		return
	}
	w.Guard = GuardNarrow
	if max(batch, hi) > wrongLimit*most.most {
		return // the engine is not what it is said to be, or its requests are not
	}
	lower, upper, ok := t.capacityBracket(most, stepRange{a, b, lo, hi, ok})
	if !ok {
		return
	}
	w.Set(CapacityLower, lower)
	w.Set(CapacityUpper, upper)
	// What is as far from both in proportion, and no further than half of the bracket.
	c := 2 / (1/lower + 1/upper)
	if upper-c > maxCapacityError*c {
		return
	}
	w.Guard = GuardOK
	w.Set(Capacity, c)
	w.Set(CapacityFit, out/c)
}

// largest is the largest batch that the engine can have in a lasting load.
type largest struct {
	batch, least, most float64 // requests; 0: unknown
	// cache: the KV cache may be what limits it. told: it is known whether.
	cache, told bool
}

func (t *Timeline) largest() largest {
	m := float64(t.cfg.MaxNumSeqs)
	batch, least, most, ok := t.room.batch(float64(t.cfg.KVCacheTokens))
	switch {
	case !ok:
		return largest{m, m, m, m > 0, false}
	case m <= 0 || most < m:
		return largest{batch, least, most, true, true}
	}
	return largest{min(batch, m), min(least, m), m, least < m, true}
}

// stepRange is a law of wall time per output token that was learnt from batches between lo and hi.
type stepRange struct {
	a, b, lo, hi float64
	known        bool
}

// capacityBracket is the least and the most output tokens per second of a full engine: measured, by the law, or what both say.
func (t *Timeline) capacityBracket(most largest, law stepRange) (lower, upper float64, ok bool) {
	perToken, _ := t.pace.prompts()
	measured, known := t.full.time > minFull && t.full.tokens > 0, law.known
	prompts, limit := most.batch*perToken/(law.a+law.b*most.batch), mostlyPrompts
	if !known && t.full.time > 0 {
		// By what was seen, which had other times in it than full ones.
		prompts, limit = perToken*t.full.tokens/t.full.time, halfPrompts
	}
	if prompts > limit {
		// The output of such an engine goes up and down with the prompts that come. With prompts first it has
		// no rate of its own at all; else it takes long to be known.
		measured = measured && t.full.time > minFullPrompts && !t.pace.masked
		known = false
	}
	if known {
		lower, upper, known = t.lawBracket(most, law)
	}
	if !measured {
		return lower, upper, known
	}
	c, doubt := t.full.rate(), measuredError+measuredSigmas*t.room.spread(t.full.tokens)
	least, top := c/(1+doubt), c*(1+doubt)
	if known && lower <= c && c <= upper { // else the law is contradicted
		return max(lower, least), min(upper, top), true
	}
	return least, top, true
}

// lawBracket is what the law says of the least and the largest batch that a full engine may have.
func (t *Timeline) lawBracket(most largest, law stepRange) (lower, upper float64, ok bool) {
	perToken, _ := t.pace.prompts()
	a, b, hi := law.a, law.b-perToken, law.hi
	// Of an engine that has just begun, those that ended are the short ones, with more prompts to their output than all. What
	// windows read and made knows of the long ones, but goes up and down with what arrives. It is both that may be.
	fewer, more := perToken, perToken
	if mix := t.full.each * t.full.allPrompts / t.full.allTokens; !t.pace.masked && t.full.allTokens > 0 {
		fewer, more = min(perToken, mix), max(perToken, mix)
	}
	share := func(batch float64) float64 { return t.prefillSteps.share(batch, t.room.mean()) }
	// Beyond the batches seen the step goes on by the law's slope, which is known the better the more windows were seen and the wider
	// apart their batches were, and the less the further it goes. A step does not grow by more than its batch.
	doubt := slopeError*(1+max(most.batch/hi, 1)/2) + lawTime/(t.pace.law().windows()*float64(t.win)/sec)
	if wide := hi / law.lo; wide < wideLaw {
		doubt += (wideLaw - wide) / (wideLaw - 1)
	}
	doubt = min(doubt, 1)
	seen := a + b*hi
	rate := func(batch, slope, perToken, again float64) float64 {
		step := a + b*batch
		if batch > hi {
			step = seen + min(slope, seen/hi)*(batch-hi)
		}
		return batch / (step + perToken*(share(batch)+again)*batch)
	}
	upper = rate(most.most, b*(1-doubt), fewer, 0) * (1 + lawError)
	if upper > (1.1+lawError)*t.best*max(most.most/hi, 1) {
		// From the largest batch seen to a full one, throughput grows by no more than the batch does. A law that
		// promises more is contradicted by what was seen.
		return 0, 0, false
	}
	least := most.least
	if !most.told || t.full.limited > minLimited {
		least = min(least, hi) // it may be full with that
	}
	again := shareError * (1 - share(least))
	if most.cache && (most.told || hi < 0.95*most.batch) {
		again += t.room.again(least)
	}
	// A slope of next to nothing is as doubtful as any: far beyond what was seen the step may grow as fast as the batch.
	lower = rate(least, b*(1+doubt)+doubt*doubt*seen/hi, more, again) / (1 + lawError)
	return lower, max(upper, lower), true
}

const (
	// wrongLimit is by how much larger than the largest batch batches that were seen make that one wrong. Requests that were put back seem to
	// run: in internal/enginesim up to 1.3 times as many as there is room for.
	wrongLimit = 1.5
	// maxCapacityError is the relative error up to which a capacity is one figure.
	maxCapacityError = 0.1
	// measuredError is that of a capacity that was measured, besides so many standard errors of the lengths counted; lawError that of the law where batches
	// were seen.
	measuredError  = 0.03
	measuredSigmas = 1.5
	lawError       = 0.04
	// slopeError is that of the law's slope where it goes no further; lawTime over the s of the windows that it was learnt from comes on
	// top, and the more the closer the largest batch was to the least one, where they are less than wideLaw apart.
	slopeError = 0.02
	lawTime    = 10
	wideLaw    = 1.4
	// shareError is by how much less than thought prompts may share steps.
	shareError = 0.25
)

const (
	// mostlyPrompts is the share of a full engine's time that goes into prompts from which on the law says little
	// about its output tokens.
	mostlyPrompts = 0.7
	// halfPrompts is the same where the law is not known.
	halfPrompts = 0.5
	// unmetPrompts is the share of a window's time that goes into prompts up to which requests that wait at a batch that is not full wait for
	// something else than their turn to be read.
	unmetPrompts = 0.5
	// minFull and minFullPrompts are the time, s, that an engine must have been full for its output to be
	// its capacity.
	minFull        = 30
	minFullPrompts = 300
	// minLimited is the time, s, in which requests waited at a batch that was not full from which on it is thought not to get full.
	minLimited = 5
)

// full is what the engine made while requests waited for it all the time: no law is needed then.
type full struct {
	tokens, time float64 // decayed
	// prompts is what was read meanwhile, decayed: the prompts' s where they have steps of their own, else their tokens, for what a token takes is
	// known better later. each is what one of either takes, s.
	prompts, each float64
	// The same of all windows, full or not, since the batch has had time to get the mix of a lasting load.
	allTokens, allPrompts float64
	age                   float64 // s
	masked                bool
	limited               float64 // s of it with a batch well below the largest, decayed
	streak                float64 // s
}

// rate is the output tokens per second of a full engine with the prompts that come in the long run: it is full when
// many come.
func (f *full) rate() float64 {
	prompts := f.each * f.prompts
	if !(f.allTokens > 0) || prompts > mostlyPrompts*f.time {
		return f.tokens / f.time
	}
	return 1 / ((f.time-prompts)/f.tokens + f.each*f.allPrompts/f.allTokens)
}

// add takes a window with its output tokens per second and its waiting requests.
func (f *full) add(w *Window, t *Timeline, out, m, waiting float64) {
	length := float64(t.win) / sec
	fade := math.Exp2(-length / (30 * 60))
	f.tokens, f.time, f.limited, f.prompts = f.tokens*fade, f.time*fade, f.limited*fade, f.prompts*fade
	f.allTokens, f.allPrompts = f.allTokens*fade, f.allPrompts*fade
	if f.masked != t.pace.masked { // it took prompts' time for something else
		*f = full{masked: t.pace.masked, limited: f.limited}
	}
	read := t.pace.share
	f.each = 1
	if !t.pace.masked {
		read, f.each = t.pace.read, t.pace.tokenTime
	}
	if f.age += length; f.age > 2*max(20, t.lengths.residual()) {
		f.allTokens += out * length
		f.allPrompts += read * length
	}
	if waiting < 2 || w.Value(QueuePressure) < 0.98 {
		f.streak = 0
		return
	}
	// First the batch gets the mix of a full engine, in which long requests are frequent.
	lasting := f.streak >= max(20, t.lengths.residual())
	if lasting {
		f.tokens += out * length
		f.time += length
		f.prompts += read * length
	}
	if most, ok := w.Get(RunningMax); ok && most < 0.85*m && (lasting || t.pace.share < unmetPrompts) {
		f.limited += length
	}
	f.streak += length
}
