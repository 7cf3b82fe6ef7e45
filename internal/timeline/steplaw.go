// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The step law: how a step grows with the batch, and how full that makes the engine.
//
// step = a + b batch is the common model of continuous batching. The step here is the wall time
// per output token of a request, with the time lost to the prompts of others, so that its slope
// has the prompts' cost in it and M/(a + b M) is the engine's throughput when full.

import "math"

const (
	lawPerOctave = 4
	lawBins      = 14 * lawPerOctave
)

// stepLaw keeps the mean step of requests for each size of the mean batch of their lives, so that
// rare loads count.
type stepLaw struct {
	weight, batch, step [lawBins]float32
	peak                float64 // highest throughput, tokens/s
	n                   float64 // requests
}

func (l *stepLaw) add(batch, step float64) {
	if batch < 0.5 || step <= 0 {
		return
	}
	l.n = min(l.n+1, 1e6)
	b := min(max(int(math.Log2(batch)*lawPerOctave)+1, 0), lawBins-1)
	// A bin remembers about the last 256 requests of its size.
	l.weight[b] = min(l.weight[b]+1, 256)
	l.batch[b] += (float32(batch) - l.batch[b]) / l.weight[b]
	l.step[b] += (float32(step) - l.step[b]) / l.weight[b]
}

// fit is least squares over the bins, relative error weighted, a and b not negative.
func (l *stepLaw) fit() (a, b, lo, hi float64, ok bool) {
	var n, x, y, xx, xy float64
	lo = math.Inf(1)
	for i, wt := range l.weight {
		if wt < 5 {
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
func (t *Timeline) capacity(w *Window, occ, batch float64) {
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
	t.law.peak = max(t.law.peak*math.Exp2(-float64(t.win)/(24*3600*sec)), out)
	if t.law.peak > 0 {
		w.Set(CapacityPeak, min(out/t.law.peak, 1))
	}
	a, b, lo, hi, ok := t.law.fit()
	if !ok {
		return
	}
	w.Set(StepLawA, a)
	w.Set(StepLawB, b)
	if occ > 0 && a+b*batch > 0 {
		w.Set(MarginalRatio, b*batch/(a+b*batch))
	}
	if m <= 0 {
		return
	}
	w.Guard = GuardNarrow
	if hi >= m/3 && (hi >= 1.5*lo || hi >= 0.8*m) {
		// From the largest batch seen to a full one, throughput grows by no more than the batch does. A law that
		// promises more is contradicted by what was seen: time goes into prompts, which it does not know.
		c := m / (a + b*m)
		if c > 1.1*t.law.peak*max(m/hi, 1) {
			return
		}
		w.Guard = GuardOK
		w.Set(Capacity, c)
		w.Set(CapacityFit, out/c)
	}
}
