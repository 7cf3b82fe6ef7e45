// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The step law: how a step grows with the batch.
//
// step = a + b batch is the common model of continuous batching. The law is learnt from the decode steps of windows and, for the
// prompts that come with as many tokens, their time per output token is added to b. So it is the wall time per output token
// in a lasting load, and M/(a + b M) the throughput of a full engine with a batch of M. Prompts are taken apart first: how
// they come with a batch depends on how it grew, and a burst is not a full engine.

import "math"

const (
	lawPerOctave = 4
	lawBins      = 14 * lawPerOctave
)

// stepLaw keeps the mean step of windows for each size of their mean batch, so that rare loads count. Where steps have tokens of prompts in
// them, it keeps how many: what they take is known better later.
type stepLaw struct {
	weight, batch, step, tokens [lawBins]float32
}

func (l *stepLaw) add(batch, step, tokens float64) {
	if batch < 0.5 || step <= 0 {
		return
	}
	b := min(max(int(math.Log2(batch)*lawPerOctave)+1, 0), lawBins-1)
	// A bin remembers about the last 256 windows of its size.
	l.weight[b] = min(l.weight[b]+1, 256)
	l.batch[b] += (float32(batch) - l.batch[b]) / l.weight[b]
	l.step[b] += (float32(step) - l.step[b]) / l.weight[b]
	l.tokens[b] += (float32(tokens) - l.tokens[b]) / l.weight[b]
}

// fit is least squares over the bins of two windows or more, relative error weighted, a and b not negative; lo and hi are the
// least and the largest batch of a bin. tokenTime is what a token of a prompt takes of a step, s.
func (l *stepLaw) fit(tokenTime float64) (a, b, lo, hi float64, ok bool) {
	var n, x, y, xx, xy float64
	lo = math.Inf(1)
	for i, wt := range l.weight {
		if wt < 2 {
			continue
		}
		bx, by := float64(l.batch[i]), float64(l.step[i])-tokenTime*float64(l.tokens[i])
		if by <= 0 {
			continue
		}
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

// windows is the number of windows that fit takes into account.
func (l *stepLaw) windows() float64 {
	n := 0.0
	for _, w := range l.weight {
		if w >= 2 {
			n += float64(w)
		}
	}
	return n
}
