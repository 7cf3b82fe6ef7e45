// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Findings about the input: that it is more than one engine's, a sample, rounded, or that its
// steps yield several tokens.

import "math"

// detector keeps decayed counts of the signs.
type detector struct {
	close, closeExpected float64 // stamps too near to be of one engine
	one, oneExpected     float64 // ends one step apart
	unattendedTime       float64 // s waited while nothing ran
	unattendedN          float64
	round, roundN        float64
}

// roundedCount counts requests whose durations are whole multiples of 0.1 ms.
type roundedCount struct{ round, n float64 }

func isRound(s float64) bool {
	x := s * 1e4
	return math.Abs(x-math.Round(x)) < 2e-3+1e-3*0.5*math.Abs(x)*1e-3
}

func (c *roundedCount) add(r *record) {
	// A float32 cannot tell whether a long wait is round.
	if r.flags&(hasQueue|hasFirst) != hasQueue|hasFirst || r.queue > 10 {
		return
	}
	c.n++
	if isRound(float64(r.queue)) && isRound(float64(r.re-r.arrival())/sec) {
		c.round++
	}
}

// halfLife of the findings.
const halfLife = 30 * 60 * sec

func (d *detector) rounded(c roundedCount, window int64) {
	fade := math.Exp2(-float64(window) / (5 * 60 * sec))
	d.round = d.round*fade + c.round
	d.roundN = d.roundN*fade + c.n
}

func (d *detector) isRounded() bool { return d.roundN >= 20 && d.round > 0.8*d.roundN }

// One engine stamps the first schedules, and the first tokens, of a step at one moment each (V0),
// or hands out the last tokens of a step at one moment (V1). Two such stamps are equal or a step
// apart; stamps of several engines know nothing of each other. nearLo and nearHi are the gaps, in
// shortest mean steps of a request, that one engine cannot make.
const (
	nearLo = 0.05
	nearHi = 0.25
)

// clock looks at the gaps between the sorted stamps of a window.
func (d *detector) clock(stamps []int64, window int64, minStep float64) {
	if minStep <= 0 || d.roundN >= 20 && d.round > 0.3*d.roundN {
		return
	}
	lo, hi := int64(minStep*nearLo*sec), int64(minStep*nearHi*sec)
	for i := 1; i < len(stamps); i++ {
		if g := stamps[i] - stamps[i-1]; g > lo && g < hi {
			d.close++
		}
	}
	// Two engines of equal load: half of the neighbours are the other's.
	n := float64(len(stamps))
	d.closeExpected += n * n / float64(window) * float64(hi-lo) / 2
}

// steps looks for requests that end in consecutive steps, if a step is one token.
func (d *detector) steps(ends []int64, window int64, wall float64) {
	if wall <= 0 || len(ends) == 0 {
		return
	}
	n := 1.0 // groups of ends in one step
	first := ends[0]
	for _, end := range ends[1:] {
		g := float64(end-first) / sec
		if g < 0.5*wall {
			continue
		}
		if g < 1.35*wall {
			d.one++
		}
		n++
		first = end
	}
	d.oneExpected += n * n / float64(window) * wall * sec
}

func (d *detector) fade(window int64) {
	f := math.Exp2(-float64(window) / halfLife)
	d.close *= f
	d.closeExpected *= f
	d.one *= f
	d.oneExpected *= f
}

func (d *detector) mixed() bool { return d.close >= 3 && d.close > 0.2*d.closeExpected }

func (d *detector) speculative() bool {
	return d.oneExpected >= 20 && d.one < 0.05*d.oneExpected && !d.mixed()
}

// unattended notes the time in which requests waited and none ran: of one engine, all of whose
// requests are seen, that is no longer than a pass of its scheduler.
func (d *detector) unattended(waiting, occupied []span, w0, w1 int64, n int) {
	fade := math.Exp2(-float64(w1-w0) / halfLife)
	d.unattendedTime *= fade
	d.unattendedN *= fade
	d.unattendedN += float64(n)
	k := 0
	for _, x := range waiting {
		alone := x.b - x.a
		for k > 0 && occupied[k-1].b > x.a {
			k--
		}
		for ; k < len(occupied) && occupied[k].a < x.b; k++ {
			if o := min(x.b, occupied[k].b) - max(x.a, occupied[k].a); o > 0 {
				alone -= o
			}
		}
		d.unattendedTime += float64(alone) / sec
	}
}

func (d *detector) sampled() bool {
	return d.unattendedN >= 50 && d.unattendedTime > 0.1*d.unattendedN
}
