// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The step law: how a step grows with the batch, and how full that makes the engine.
//
// step = a + b batch is the common model of continuous batching. The law is learnt from the decode steps of windows and, for the
// prompts that come with as many tokens, their time per output token is added to b. So it is the wall time per output token
// in a lasting load, and M/(a + b M) the throughput of a full engine. Prompts are taken apart first: how
// they come with a batch depends on how it grew, and a burst is not a full engine.

import "math"

const (
	lawPerOctave = 4
	lawBins      = 14 * lawPerOctave
)

// stepLaw keeps the mean step of windows for each size of their mean batch, so that rare loads count.
type stepLaw struct {
	weight, batch, step [lawBins]float32
}

func (l *stepLaw) add(batch, step float64) {
	if batch < 0.5 || step <= 0 {
		return
	}
	b := min(max(int(math.Log2(batch)*lawPerOctave)+1, 0), lawBins-1)
	// A bin remembers about the last 256 windows of its size.
	l.weight[b] = min(l.weight[b]+1, 256)
	l.batch[b] += (float32(batch) - l.batch[b]) / l.weight[b]
	l.step[b] += (float32(step) - l.step[b]) / l.weight[b]
}

// fit is least squares over the bins of two windows or more, relative error weighted, a and b not negative; lo and hi are the
// least and the largest batch of a bin.
func (l *stepLaw) fit() (a, b, lo, hi float64, ok bool) {
	var n, x, y, xx, xy float64
	lo = math.Inf(1)
	for i, wt := range l.weight {
		if wt < 2 {
			continue
		}
		bx, by := float64(l.batch[i]), float64(l.step[i])
		w := math.Sqrt(float64(wt)) / (by * by)
		n, x, y = n+w, x+w*bx, y+w*by
		xx, xy = xx+w*bx*bx, xy+w*bx*by
		lo, hi = min(lo, bx), max(hi, bx)
	}
	if n == 0 {
		return 0, 0, 0, 0, false
	}
	det := n*xx - x*x
	if det <= 1e-9*n*xx {
		return 0, 0, lo, hi, false
	}
	b = (n*xy - x*y) / det
	a = (y - b*x) / n
	if b < 0 {
		a, b = y/n, 0
	}
	if a < 0 {
		a, b = 0, xy/xx
	}
	return a, b, lo, hi, true
}

// capacity sets the figures of the work axis.
func (t *Timeline) capacity(w *Window, occ, batch, waiting float64) {
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
	t.full.add(w, t, out, m, waiting)
	if m <= 0 {
		return
	}
	w.Guard = GuardNarrow
	c, prompts, known := t.pace.full(m)
	measured := t.full.time > minFull
	limit := mostlyPrompts
	if !known && t.full.time > 0 {
		// By what was seen, which had other times in it than full ones.
		perToken, _ := t.pace.prompts()
		prompts, limit = perToken*t.full.tokens/t.full.time, halfPrompts
	}
	if prompts > limit {
		// The output of such an engine goes up and down with the prompts that come. With prompts first it has
		// no rate of its own at all; else it takes long to be known.
		measured = t.full.time > minFullPrompts && !t.pace.masked
		known = false
	}
	switch {
	case measured:
		c = t.full.rate()
	case !known || hi < m/4 || hi < 1.25*lo && hi < 0.8*m:
		return
	case t.full.limited > minLimited:
		return // requests waited while the batch was smaller: it will not get to m
	case c > 1.1*t.best*max(m/hi, 1):
		// From the largest batch seen to a full one, throughput grows by no more than the batch does. A law that
		// promises more is contradicted by what was seen.
		return
	}
	w.Guard = GuardOK
	w.Set(Capacity, c)
	w.Set(CapacityFit, out/c)
}

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
	prompts      float64 // s of it that went into prompts, decayed
	// The same of all windows, full or not, since the batch has had time to get the mix of a lasting load.
	allTokens, allPrompts float64
	age                   float64 // s
	masked                bool
	limited               float64 // s of it with a batch well below MaxNumSeqs, decayed
	streak                float64 // s
}

// rate is the output tokens per second of a full engine with the prompts that come in the long run: it is full when
// many come.
func (f *full) rate() float64 {
	if !(f.allTokens > 0) || f.prompts > mostlyPrompts*f.time {
		return f.tokens / f.time
	}
	return 1 / ((f.time-f.prompts)/f.tokens + f.allPrompts/f.allTokens)
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
	if f.age += length; f.age > 2*max(20, t.lengths.residual()) {
		f.allTokens += out * length
		f.allPrompts += t.pace.share * length
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
		f.prompts += t.pace.share * length
	}
	if w.Value(RunningMax) < 0.85*m && (lasting || t.pace.share < unmetPrompts) {
		f.limited += length
	}
	f.streak += length
}
