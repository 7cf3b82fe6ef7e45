// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// The pace of decoding: how many steps the engine made in each moment.
//
// A request of n + 1 tokens proves that the engine made n decode steps between its first and its
// last token. With r the steps per second of decoding time u, the integral of r over the request's
// decoding is n; many requests that begin and end at different moments leave r little freedom. It is
// found bin by bin as the least squares of simultaneous iterative reconstruction (SIRT: Gilbert, J. Theor.
// Biol. 36, 1972), by a few conjugate gradients (Hestenes and Stiefel, J. Res. NBS 49, 1952), each of which goes as
// far as several of SIRT's sweeps, starting from what the window before came to.
//
// Time spent on prompts is not decoding time. With prompts in steps of their own it is known from
// the requests' prefill windows. With prompts in the steps that decode it is the tokens of the
// prompts that ran meanwhile times what a prompt token takes, which is learnt from the requests.

import (
	"math"
	"slices"
)

const (
	paceBin       = 500 * 1000_000 // ns, about: a whole part of a window
	pacePerWindow = 128            // bins at most
	paceLen       = 1024           // bins kept
	paceBack      = 240            // bins before the window that take part
	// What starts up to paceAhead after the window takes part, until with all that started before it is paceEnough requests: then up to
	// paceSoon, but where prompts take paceRead of the time, for of them few requests tell much.
	paceAhead, paceSoon  = 30 * sec, 2 * sec
	paceEnough, paceRead = 150, 0.5
	// paceSweeps are the corrections of the pace, and pacePerSweep the bins of a window that take one more: fewer windows come back
	// to each.
	paceSweeps, pacePerSweep = 3, 20
	// paceNear is the decoding time, s, beyond which a request's word on any one moment weighs less, and below which it is
	// rough: where in a step it begins matters.
	paceNear = 1
	// paceNoise is what the requests' steps are off by, root mean square, where nothing is left to be corrected.
	paceNoise = 0.05
	// paceDamp keeps the pace near to what it was where the requests hardly tell: the prior's weight over theirs.
	paceDamp = 0.01
	// paceLeast is the slowest pace, steps/s, and leastTime the share of a bin that is at least decoding time. Both are there to divide by.
	paceLeast, leastTime = 1, 0.002
	// A request can have made fewer steps than the engine, if it was preempted, but not more. Where it lacks more than
	// paceSlack steps, and more than others are off by in the other direction, it has little say; where that takes more than
	// paceLost of all say away, paceMore sweeps are made, and paceAgain times more: who lacks how much shows better each time.
	paceSlack, paceLost, paceMore, paceAgain = 3, 0.05, 9, 2
	// finePerBin divides a bin for the tokens of prompts.
	finePerBin = 8
	fineLen    = paceLen * finePerBin
)

type pace struct {
	bin         int64 // ns
	first, next int64 // numbers of the oldest bin with a pace, and of the one after the newest
	rate        [paceLen]float32

	tokens   []float32 // of prompts, by fine bins; nil where nobody asked
	fineNext int64

	// Lasting, learnt.
	laws      [2]stepLaw // decoding time of a step by the batch, in mixed and in masked mode: until the mode is found, steps are others
	perToken  regression // decode time: per step, per step and batch, per prompt token
	learnt    float64    // requests in perToken
	tokenTime float64    // what a prompt token takes of a step, s
	in, out   float64    // tokens of requests
	prefill   float64    // s in prefill steps
	made      float64    // output tokens meanwhile
	share     float64    // of the last window's time that went into prompts
	read      float64    // prompt tokens per second of the last window
	lost      float64    // share of say that requests lost in the last window that had made fewer steps than the engine
	spread    float64    // steps that requests made more than they seemed to have, mean of those that did
	unusual   int        // windows in a row whose step contradicts the law

	// Of the last window solved.
	masked  bool
	lo, hi  int64   // bins
	perBin  float64 // 1 / bin, and of a fine bin
	perFine float64
	u       []float32 // decoding time of each bin, s
	doubt   float64   // steps by which the window's may be off, by what its requests are

	from int64 // bin; of the last window weighed
	*paceScratch
}

// paceScratch is of the window that is being computed.
type paceScratch struct {
	between    []float64 // what a prefill step takes outside of its window, s, by bins
	cover      []int64   // at the start of each bin, as prefills.cover
	covered    []int
	cumTokens  []float64 // at the start of each fine bin
	rawTokens  []float64 // the same before smooth
	cum        []float64 // steps at the start of each bin
	uneven     []float64 // by which a bin's mean pace is higher than its requests'; empty where it is not worth a look
	crowd      []float64 // decoding requests in each fine bin
	off, say   []float64 // what requests are off by, brought back to the bins, and the say that they have in each
	perSay     []float64 // 1 / say; 0 without any
	along      []float64 // the direction in which the pace is corrected
	back       []float64 // what that changes of off
	rows       []paceRow
	short      []int32   // requests that made all their tokens at about the same moment
	sumS, sumB []float64 // of weigh
	sumK, sumP []float64 // the same of prefill steps: how many, and the requests in them
}

// paceRow is one request: where its first and its last token are, its decode steps, its decoding
// time, its say on each of its moments for each s of that, and its place among the requests.
type paceRow struct {
	from, to   pacePlace
	n, u, each float32
	i          int32
}

// pacePlace is a place in decoding time: a bin, counted from lo, and the part of it that is over. The end of a bin belongs to it.
type pacePlace struct {
	bin  int32
	part float32
}

func (p *pace) memory() int { return cap(p.tokens)*4 + cap(p.u)*4 }

// restart forgets what belongs to moments, for the engine's clock was set back.
func (p *pace) restart() {
	p.first, p.next, p.fineNext = 0, 0, 0
	clear(p.tokens)
	p.u = p.u[:0]
}

// binOf is the length of a bin for windows of win.
func binOf(win int64) int64 {
	return max(win/min(max((win+paceBin-1)/paceBin, 1), pacePerWindow), finePerBin)
}

// prompt notes when a prompt ran.
func (p *pace) prompt(r *record, win int64) {
	p.bin = binOf(win)
	if !r.has(hasFirst|hasIn) || r.in == 0 {
		return
	}
	if p.tokens == nil {
		p.tokens = make([]float32, fineLen)
	}
	fine := p.bin / finePerBin
	a, b := r.rs, r.first()
	i, j := a/fine, b/fine
	if j >= p.fineNext {
		for k := max(p.fineNext, j-fineLen+1); k <= j; k++ {
			p.tokens[k%fineLen] = 0
		}
		p.fineNext = j + 1
	}
	if i <= p.fineNext-fineLen {
		return
	}
	if i == j {
		p.tokens[i%fineLen] += float32(r.in)
		return
	}
	per := float64(r.in) / float64(b-a)
	for k := i; k <= j; k++ {
		p.tokens[k%fineLen] += float32(per * float64(min(b, (k+1)*fine)-max(a, k*fine)))
	}
}

// tokensAt is the prompt tokens before t, counted from the start of the range.
func (p *pace) tokensAt(t int64) float64 {
	fine := p.bin / finePerBin
	d := t - p.lo*p.bin
	if d <= 0 || len(p.cumTokens) == 0 {
		return 0
	}
	k := int(quotient(d, fine, p.perFine))
	if k >= len(p.cumTokens)-1 {
		return p.cumTokens[len(p.cumTokens)-1]
	}
	f := float64(d-int64(k)*fine) / float64(fine)
	return p.cumTokens[k] + f*(p.cumTokens[k+1]-p.cumTokens[k])
}

// part is the decoding time from the start of a bin of the range to a moment in it, s.
func (p *pace) part(m *prefills, b, at int64) float64 {
	d := float64(at-b*p.bin) / sec
	i := b - p.lo
	if p.masked {
		c, k := m.coverIn(at, p.covered[i], p.covered[i+1])
		return p.uncovered(d, i, covered{c, k})
	}
	if p.tokenTime == 0 {
		return d
	}
	return d - p.tokenTime*(p.tokensAt(at)-p.cumTokens[i*finePerBin])
}

// uncovered is what prefill steps leave of the first d s of bin i of the range, at the end of which the mask has covered c.
func (p *pace) uncovered(d float64, i int64, c covered) float64 {
	return d - float64(c.ns-p.cover[i])/sec - p.between[i]*float64(c.k-p.covered[i])
}

// atCovered is at where what the mask has covered is known, and prompts have steps of their own.
func (p *pace) atCovered(ns int64, c covered) pacePlace {
	d := ns - p.lo*p.bin
	i := quotient(d, p.bin, p.perBin)
	if i >= p.hi-p.lo {
		return p.end()
	}
	return p.within(i, p.uncovered(float64(d-i*p.bin)/sec, i, c))
}

// within is the place at so much decoding time of bin i of the range.
func (p *pace) within(i int64, decoding float64) pacePlace {
	return pacePlace{int32(i), min(max(float32(decoding)/p.u[i], 0), 1)} //nolint:gosec // below paceLen
}

// end is the end of the range.
func (p *pace) end() pacePlace { return pacePlace{int32(p.hi - p.lo - 1), 1} } //nolint:gosec // below paceLen

// at is the place of a moment.
func (p *pace) at(m *prefills, ns int64) pacePlace {
	i := quotient(ns-p.lo*p.bin, p.bin, p.perBin)
	if i >= p.hi-p.lo {
		return p.end()
	}
	return p.within(i, p.part(m, p.lo+i, ns))
}

// quotient is n / d for an n that is not negative and a result below 2^50, with inverse about 1 / d: dividing integers takes
// much of the time that a request takes.
func quotient(n, d int64, inverse float64) int64 {
	q := int64(float64(n) * inverse)
	switch r := n - q*d; {
	case r < 0:
		return q - 1
	case r >= d:
		return q + 1
	}
	return q
}

// has reports whether a request says how many steps there were.
func (p *pace) has(r *record) bool { return r.has(hasSteps) && r.out > 1 }

// lay chooses the bins and the requests for a window, and places the requests in the bins.
func (p *pace) lay(t *Timeline, w0, w1 int64, e *estimate) bool {
	oldest := (w0/p.bin - paceBack) * p.bin
	rows, short := p.rows[:0], p.short[:0]
	first, last := w0, w1-1
	for i := range t.main[:t.paced] {
		r := &t.main[i]
		if !p.has(r) {
			continue
		}
		if r.rs < first {
			f := r.first()
			if f < oldest {
				continue
			}
			first = min(first, f)
		}
		last = max(last, r.re)
	}
	p.lo = first / p.bin
	p.hi = min(last/p.bin+1, p.lo+paceLen)
	n := int(p.hi - p.lo)

	p.cumTokens = p.cumTokens[:0]
	least := leastTime * float64(p.bin) / sec
	u, cum := slices.Grow(p.u[:0], n), append(slices.Grow(p.cum[:0], n+1), 0)
	switch {
	case p.masked:
		p.cover, p.covered = p.cover[:0], p.covered[:0]
		c, k := t.mask.cover(p.lo * p.bin)
		cover, covered := append(slices.Grow(p.cover[:0], n+1), c), append(slices.Grow(p.covered[:0], n+1), k)
		for b := p.lo + 1; b <= p.hi; b++ {
			c, k = t.mask.coverFrom(b*p.bin, k)
			cover, covered = append(cover, c), append(covered, k)
		}
		p.cover, p.covered = cover, covered
		p.layBetween(t, e)
	case p.tokens != nil:
		c := 0.0
		cumTokens := append(slices.Grow(p.cumTokens, n*finePerBin+1), c)
		for k := p.lo * finePerBin; k < p.hi*finePerBin; k++ {
			if k < p.fineNext && k > p.fineNext-fineLen {
				c += float64(p.tokens[uint64(k)%fineLen]) //nolint:gosec // not negative
			}
			cumTokens = append(cumTokens, c)
		}
		p.cumTokens = cumTokens
		p.smooth()
	}
	c := 0.0
	for b := p.lo; b < p.hi; b++ {
		var d float64
		if i := b - p.lo; p.masked {
			d = float64(p.bin-(p.cover[i+1]-p.cover[i]))/sec - p.between[i]*float64(p.covered[i+1]-p.covered[i])
		} else {
			d = p.part(&t.mask, b, (b+1)*p.bin)
		}
		d = max(d, least)
		c += d
		u, cum = append(u, float32(d)), append(cum, c)
	}
	p.u, p.cum = u, cum
	var known []covers
	if p.masked {
		known = t.device.covers
	}
	for i := range t.main[:t.paced] {
		r := &t.main[i]
		if !p.has(r) {
			continue
		}
		f := r.first()
		if f < oldest {
			continue
		}
		x := paceRow{n: float32(r.out - 1), i: int32(i)} //nolint:gosec // below MaxRequests
		for len(known) > 0 && known[0].i < x.i {
			known = known[1:]
		}
		if len(known) > 0 && known[0].i == x.i {
			x.from, x.to = p.atCovered(f, known[0].first), p.atCovered(r.re, known[0].end)
		} else {
			x.from, x.to = p.at(&t.mask, f), p.at(&t.mask, r.re)
		}
		if float32(x.to.bin-x.from.bin)+(x.to.part-x.from.part) < 1e-3 {
			short = append(short, x.i)
			continue
		}
		x.u = float32(x.to.before(cum) - x.from.before(cum))
		rows = append(rows, x)
	}
	p.rows, p.short = rows, short
	return len(rows) > 0 && n > 0
}

const (
	// promptBound is the share of the time that prompts take of the bins around one, smoothBins on either side, from which on their
	// tokens are smoothed, by smoothFine fine bins on either side.
	promptBound = 0.65
	smoothBins  = 6
	smoothFine  = 10
)

// smooth evens out the tokens of prompts where these take most of the time. What is left for decoding is a small
// difference there, and a prompt's tokens are not read as evenly over its prefill as they are counted.
func (p *pace) smooth() {
	if p.tokenTime == 0 {
		return
	}
	bins, last := int(p.hi-p.lo), int(p.hi-p.lo)*finePerBin
	p.rawTokens = p.rawTokens[:0]
	for i := range bins {
		a, b := max(i-smoothBins, 0), min(i+smoothBins+1, bins)
		c := p.cumTokens
		if len(p.rawTokens) > 0 {
			c = p.rawTokens
		}
		if p.tokenTime*(c[b*finePerBin]-c[a*finePerBin]) < promptBound*float64(int64(b-a)*p.bin)/sec {
			continue
		}
		if len(p.rawTokens) == 0 {
			p.rawTokens = append(p.rawTokens, p.cumTokens...)
			c = p.rawTokens
		}
		from, to := i*finePerBin, (i+1)*finePerBin
		lo, hi, sum := from, from, 0.0 // sum of c[lo:hi]
		for k := from; k < to; k++ {
			for ; hi <= min(k+smoothFine, last); hi++ {
				sum += c[hi]
			}
			for lo < k-smoothFine {
				sum -= c[lo]
				lo++
			}
			for lo > max(k-smoothFine, 0) {
				lo--
				sum += c[lo]
			}
			p.cumTokens[k] = sum / float64(hi-lo)
		}
	}
	if len(p.rawTokens) == 0 {
		return
	}
	// Where smooth meets rough the count must not go back.
	for k := 1; k <= last; k++ {
		p.cumTokens[k] = max(p.cumTokens[k], p.cumTokens[k-1])
	}
}

// layBetween says what a prefill step takes outside of its window in each bin, by the requests that ran then.
func (p *pace) layBetween(t *Timeline, e *estimate) {
	p.between = p.between[:0]
	between := e.between
	if e.betweenSeq <= 0 {
		for b := p.lo; b < p.hi; b++ {
			p.between = append(p.between, between)
		}
		return
	}
	at, known := t.batches.at(p.lo * p.bin)
	for b := p.lo; b < p.hi; b++ {
		next, ok := t.batches.at((b + 1) * p.bin)
		if known && ok {
			between = max(e.betweenBase+e.betweenSeq*(next-at)/(float64(p.bin)/sec), 0)
		} // else it is as before
		p.between = append(p.between, between)
		at, known = next, ok
	}
}

// before is what cum is at a place.
func (x pacePlace) before(cum []float64) float64 {
	a := cum[x.bin]
	return a + float64(x.part)*(cum[x.bin+1]-a)
}

// split gives v to the edges of a place's bin, by how far they are.
func (x pacePlace) split(edges []float64, v float64) {
	part := v * float64(x.part)
	edges[x.bin] += v - part
	edges[x.bin+1] += part
}

// zeros is s with n elements, all zero.
func zeros[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// solve brings the pace up to date with the requests known, for a window.
func (p *pace) solve(t *Timeline, w0, w1 int64, e *estimate) bool {
	p.rows, p.short = p.rows[:0], p.short[:0]
	masked := e.mode == ModeMasked
	p.bin, p.masked = binOf(t.win), masked
	p.perBin, p.perFine = 1/float64(p.bin), 1/float64(p.bin/finePerBin)
	fade := math.Exp2(-float64(w1-w0) / (5 * 60 * sec))
	p.perToken.fade(fade)
	p.learnt *= fade
	fade = math.Exp2(-float64(w1-w0) / (30 * 60 * sec))
	p.in, p.out, p.prefill, p.made = p.in*fade, p.out*fade, p.prefill*fade, p.made*fade
	p.tokenTime = 0
	if law, ok := p.perToken.solve([3]prior{{0, 1}, {0, 0.001}, {0, 0.001}}); ok && p.learnt > 30 && !masked {
		p.tokenTime = max(law[2], 0)
	}
	if !p.lay(t, w0, w1, e) {
		return false
	}
	n := len(p.u)
	rate := func(i int) *float32 { return &p.rate[(p.lo+int64(i))%paceLen] }

	// Where nothing is known yet the pace goes on as it was.
	if p.next <= p.lo || p.next > p.hi+paceLen {
		var steps, time float64
		for i := range p.rows {
			steps += float64(p.rows[i].n)
			time += float64(p.rows[i].u)
		}
		p.first, p.next = p.lo, p.lo+1
		*rate(0) = float32(steps / time)
	}
	for ; p.first > p.lo; p.first-- {
		p.rate[(p.first-1)%paceLen] = p.rate[p.first%paceLen]
	}
	for ; p.next < p.hi; p.next++ {
		p.rate[p.next%paceLen] = p.rate[(p.next-1)%paceLen]
	}
	p.first = max(p.first, p.next-paceLen)

	sweeps := paceSweeps + int((w1-w0)/p.bin)/pacePerSweep
	if len(p.rows) > paceEnough && p.share <= paceRead {
		sweeps--
	}
	p.lost = p.correct(sweeps, !masked)
	for again := 0; p.lost > paceLost && again < paceAgain; again++ {
		p.lost = max(p.correct(paceMore, true), paceLost+1e-9)
	}
	for i := range n {
		if r := rate(i); *r < paceLeast {
			*r = paceLeast
		}
	}
	p.sum()
	return true
}

// correct brings the pace nearer to what the requests say, in so many sweeps. With deficits, requests may have made fewer steps than the
// engine; it reports the share of all say that this takes away.
func (p *pace) correct(sweeps int, deficits bool) (lost float64) {
	n, rows := len(p.u), p.rows
	p.sum()
	cum, say, off := p.cum, zeros(p.say, n+1), zeros(p.off, n+1)
	p.say, p.off = say, off
	limit := max(p.spread, paceSlack)
	var left, noise, all, deficit float64
	for i := range rows {
		x := &rows[i]
		miss := float64(x.n) - (x.to.before(cum) - x.from.before(cum))
		u := float64(x.u)
		w := u / ((paceNear + u) * (paceNear + u))
		all += w
		if deficits && -miss > limit {
			y := limit / miss
			deficit += w * (1 - y*y)
			w *= y * y
		}
		each := w / u
		x.each = float32(each)
		x.from.split(say, w)
		x.to.split(say, -w)
		e := miss * each
		left += miss * e
		noise += paceNoise * paceNoise * each
		x.from.split(off, e)
		x.to.split(off, -e)
	}
	if lost = deficit / max(all, 1e-9); lost > paceLost {
		sweeps += paceMore
	}
	p.along, p.back, p.perSay = zeros(p.along, n), zeros(p.back, n+1), zeros(p.perSay, n)
	along, back, perSay, size := p.along, p.back, p.perSay, 0.0
	const none = 1e-9 // of say: a bin without requests
	for i, u := range p.u {
		if i > 0 {
			say[i] += say[i-1]
			off[i] += off[i-1]
		}
		if say[i] > none {
			perSay[i] = 1 / say[i]
			size += float64(u) * off[i] * off[i] * perSay[i]
		}
	}
	last := 0.0
	for range sweeps {
		if !(left > noise) || !(size > 0) {
			break
		}
		keep := 0.0
		if last > 0 {
			keep = size / last
		}
		c, curve := 0.0, 0.0
		cum = append(cum[:0], 0)
		for i, m := range perSay {
			d, u := keep*along[i]+off[i]*m, float64(p.u[i])
			if m > 0 {
				curve += paceDamp * u * say[i] * d * d
			}
			along[i] = d
			c += d * u
			cum = append(cum, c)
		}
		clear(back)
		for i := range rows {
			x := &rows[i]
			steps := x.to.before(cum) - x.from.before(cum)
			e := steps * float64(x.each)
			curve += steps * e
			x.from.split(back, e)
			x.to.split(back, -e)
		}
		if !(curve > 0) {
			break
		}
		far := size / curve
		left -= far * size
		last, size, c = size, 0, 0
		for i, m := range perSay {
			c += back[i]
			off[i] -= far * (c + paceDamp*say[i]*along[i])
			size += float64(p.u[i]) * off[i] * off[i] * m
			r := &p.rate[uint64(p.lo+int64(i))%paceLen] //nolint:gosec // not negative
			*r += float32(far * along[i])
		}
	}
	p.cum = cum
	return lost
}

// minPaceSteps is the decode steps of a window below which nothing is said about their mean.
const minPaceSteps = 3

// sum makes cum the steps.
func (p *pace) sum() {
	cum, c := append(p.cum[:0], 0), 0.0
	for i, u := range p.u {
		c += float64(u) * float64(p.rate[uint64(p.lo+int64(i))%paceLen]) //nolint:gosec // not negative
		cum = append(cum, c)
	}
	p.cum = cum
}

// step is the mean step of the window just solved: of the time in which requests decode, decoding, what
// steps that decode take, over their number.
func (p *pace) step(t *Timeline, w0, w1 int64, decoding []span) (step, steps float64, ok bool) {
	m := &t.mask
	p.level(t, w0, w1)
	time := 0.0
	for _, s := range decoding {
		for a := s.a; a < s.b; {
			b := a / p.bin
			e := min(s.b, (b+1)*p.bin)
			d := max(p.part(m, b, e)-p.part(m, b, a), 0)
			if p.masked {
				time += d
			} else {
				time += float64(e-a) / sec // prompts are part of the steps
			}
			r := float64(p.rate[b%paceLen])
			if i := b - w0/p.bin; len(p.uneven) > 0 {
				r *= p.uneven[i]
			}
			steps += d * r
			a = e
		}
	}
	if !(steps >= minPaceSteps) {
		return 0, 0, false
	}
	return time / steps, steps, true
}

// level finds by how much the mean pace of each of the window's bins is higher than that of the requests in it: in a bin, moments with
// many requests are slow ones, and more requests speak of them. It is worth a look where requests are not much longer than a bin; the law
// says by how much a crowd slows a step. With prompts in the steps that decode, more than the crowd slows them.
func (p *pace) level(t *Timeline, w0, w1 int64) {
	p.uneven = p.uneven[:0]
	var length float64
	for i := range p.rows {
		length += float64(p.rows[i].u)
	}
	if !p.masked || length > levelBelow*float64(p.bin)/sec*float64(len(p.rows)) {
		return
	}
	a, b, _, _, ok := p.law().fit(p.tokenTime)
	a = max(a, 0.5*t.device.minStep())
	if !ok || !(a > 0) || b <= 0 {
		return
	}
	first, fine := w0/p.bin, p.bin/finePerBin
	bins := (w1+p.bin-1)/p.bin - first
	n := int(bins) * finePerBin
	p.crowd = p.crowd[:0]
	for range n + 2 {
		p.crowd = append(p.crowd, 0)
	}
	edge := func(at int64, by float64) {
		x := max(float64(at-first*p.bin)/float64(fine), 0)
		if x >= float64(n) {
			return
		}
		k := int(x)
		f := x - float64(k)
		p.crowd[k] += by * (1 - f)
		p.crowd[k+1] += by * f
	}
	for i := range p.rows {
		r := &t.main[p.rows[i].i]
		edge(r.first(), r.weight())
		edge(r.re, -r.weight())
	}
	crowd, k := 0.0, 0
	for i := first; i < first+bins; i++ {
		var time, steps, ofAll, stepsOfAll, last float64
		for j := int64(1); j <= finePerBin; j++ {
			crowd += p.crowd[k]
			k++
			now := p.part(&t.mask, i, i*p.bin+min(j*fine, p.bin))
			d := max(now-last, 0)
			last = now
			if crowd < 1e-6 {
				continue
			}
			rate := d / (a + b*max(crowd, 1))
			some := min(crowd, 1)
			time, steps = time+d*some, steps+rate*some
			ofAll, stepsOfAll = ofAll+d*crowd, stepsOfAll+rate*crowd
		}
		f := 1.0
		if time > 0 && stepsOfAll > 0 {
			f = max(steps/time*ofAll/stepsOfAll, 1)
		}
		p.uneven = append(p.uneven, f)
	}
}

// levelBelow is the mean decoding time of requests, in bins, below which bins are levelled.
const levelBelow = 5

// tokensMade is the output tokens of the window just solved, of the requests that say how many steps there
// were: tokens are made when steps are, not evenly over a request's life.
func (p *pace) tokensMade(t *Timeline, w0, w1 int64) float64 {
	n := 0.0
	more, less, nMore, nLess, beyond := 0.0, 0.0, 0.0, 0.0, 3*max(p.spread, paceSlack)
	p.doubt = 0
	for _, i := range p.short {
		r := &t.main[i]
		n += r.weight() * tokenRate(float64(r.out), r.first(), r.re, w0, w1)
	}
	if len(p.rows) == 0 {
		return n
	}
	a, b := p.at(&t.mask, w0).before(p.cum), p.at(&t.mask, w1).before(p.cum)
	for i := range p.rows {
		x := &p.rows[i]
		r := &t.main[x.i]
		if r.re <= w0 || r.rs >= w1 {
			continue
		}
		if f := r.first(); f >= w0 && f < w1 {
			n += r.weight()
		}
		from, to := x.from.before(p.cum), x.to.before(p.cum)
		if lo, hi := max(from, a), min(to, b); hi > lo {
			n += r.weight() * float64(x.n) * (hi - lo) / (to - from)
			switch miss := float64(x.n) - (to - from); {
			case miss > 0:
				more += miss
				nMore++
			default:
				less += min(-miss, beyond) // they lack what they lack
				nLess++
			}
		}
	}
	if rows := nMore + nLess; rows > 0 {
		p.spread = more / max(nMore, 1)
		p.doubt = p.spread + (more+less)/rows
	}
	return n
}

// learn takes a request that ended in the window just solved, with the mean batch of its
// decode steps.
func (p *pace) learn(r *record, batch float64) {
	p.in += float64(r.in)
	p.out += float64(r.out)
	if p.masked || len(p.cumTokens) == 0 || r.first() < p.lo*p.bin || r.re > p.hi*p.bin {
		return
	}
	n, y := float64(r.out-1), float64(r.re-r.first())/sec
	prompts := p.tokensAt(r.re) - p.tokensAt(r.first())
	p.perToken.add(n, n*batch, prompts, y, 1/(0.002*0.002+0.03*0.03*y*y))
	p.learnt++
}

// observe takes the window just solved, with its mean decode step, the number of them and the mean batch. The law is that of
// windows and not that of requests: a batch changes more in the life of a request, and a mean over such changes on both axes
// hides how the one depends on the other.
func (p *pace) observe(w0, w1 int64, step, steps, batch float64) {
	if steps < minLawSteps {
		return
	}
	if b, known := p.batch(w0, w1); known {
		batch = b
	}
	tokens := 0.0
	if !p.masked {
		tokens = (p.tokensAt(w1) - p.tokensAt(w0)) / steps
	}
	p.law().add(batch, step, tokens)
}

// maxDoubt is the relative error to be expected of a window's step beyond which it is not given, and maxDoubtLost the same where requests were
// preempted: they are off by less then, for those that lack steps are not believed.
const maxDoubt, maxDoubtLost = 0.03, 0.017

// mostLost is the share of all say from which on it is not preemption that takes it away: 0.35 at most where every second request is preempted,
// and 0.6 where output tokens are wrong at random.
const mostLost = 0.5

const (
	// doubtPerStep is the error of a window's steps for each step that its requests are off by: found by simulation.
	doubtPerStep = 0.8
	// mostlyRead is the time of prompts over that left for decoding from which on a prompt more or less, of a request not seen, shows in the step, and
	// unusualStep by how much it then is off those of windows with as many requests. So many windows in a row, an engine has
	// changed.
	mostlyRead, unusualStep, unusualWindows = 3, 0.04, 6
)

// doubtful reports whether the step of the window just solved is to be expected to be off by more than maxDoubt: its requests
// contradict each other, or it is what prompts have left of the time and contradicts what is known. prompts is their time, s.
func (p *pace) doubtful(w0, w1 int64, step, steps, prompts float64) bool {
	limit := maxDoubt
	switch {
	case p.lost > mostLost:
		return true
	case p.lost > paceLost:
		limit = maxDoubtLost
	}
	if doubtPerStep*p.doubt > limit*steps {
		return true
	}
	if !p.masked || prompts < mostlyRead*step*steps {
		return false
	}
	batch, known := p.batch(w0, w1)
	usual, seen := p.law().near(batch)
	if !known || !seen || math.Abs(step-usual) <= unusualStep*usual {
		p.unusual = 0
		return false
	}
	p.unusual++
	return p.unusual <= unusualWindows
}

// near is the mean step of windows of about this batch, brought to it, and whether there were enough of them.
func (l *stepLaw) near(batch float64) (float64, bool) {
	k := min(max(int(math.Log2(max(batch, 0.5))*lawPerOctave)+1, 0), lawBins-1)
	if l.weight[k] < 4 {
		return 0, false
	}
	// Within a bin, a quarter of an octave, more than half of a step grows with the batch at most.
	return float64(l.step[k]) * (1 + 0.6*(batch/float64(l.batch[k])-1)), true
}

func (p *pace) law() *stepLaw {
	if p.masked {
		return &p.laws[1]
	}
	return &p.laws[0]
}

// minLawSteps are the decode steps of a window below which it says nothing about the law.
const minLawSteps = 20

// wall is the step law of wall time per output token, a + b batch, by the steps of decoding and the prompts that come with
// as many tokens: those of a batch take the batch's multiple of perToken, which is in b. lo and hi are the least and the largest
// batch seen.
func (p *pace) wall() (a, b, lo, hi, perToken float64, ok bool) {
	a, b, lo, hi, ok = p.law().fit(p.tokenTime)
	perToken, known := p.prompts()
	return a, b + perToken, lo, hi, perToken, ok && known && a+b+perToken > 0
}

// prompts is the time that goes into prompts for each output token, s.
func (p *pace) prompts() (perToken float64, ok bool) {
	if p.masked {
		return p.prefill / p.made, p.made > 0
	}
	return p.tokenTime * p.in / p.out, p.in > 0 && p.out > 0
}

// weigh sums up, for the bins from one moment to another, the decode steps and the requests in them, and the same of the prefill steps of
// others, as far as they are known.
func (p *pace) weigh(h *history, m *prefills, from, to int64) {
	var s, b, k, kb float64
	begin := func(bin int64) {
		p.from = bin
		s, b, k, kb = 0, 0, 0, 0
		p.sumS, p.sumB = append(p.sumS[:0], 0), append(p.sumB[:0], 0)
		p.sumK, p.sumP = append(p.sumK[:0], 0), append(p.sumP[:0], 0)
	}
	lo := p.lo
	if p.bin > 0 {
		lo = max(lo, from/p.bin)
	}
	begin(lo)
	last, known := h.at(lo * p.bin)
	_, entry := m.cover(lo * p.bin)
	for i := lo; i < p.lo+int64(len(p.u)) && (i+1)*p.bin <= to; i++ {
		n := float64(p.u[i-p.lo]) * float64(p.rate[i%paceLen])
		now, ok := h.at((i + 1) * p.bin)
		before := entry
		_, entry = m.coverFrom((i+1)*p.bin, entry)
		if !known || !ok {
			last, known = now, ok
			begin(i + 1)
			continue
		}
		batch, prefills := (now-last)*p.perBin*sec, float64(entry-before)
		s += n
		b += n * batch
		k += prefills
		kb += prefills * batch
		last = now
		p.sumS, p.sumB = append(p.sumS, s), append(p.sumB, b)
		p.sumK, p.sumP = append(p.sumK, k), append(p.sumP, kb)
	}
}

// batch is the mean number of running requests in the decode steps of a time, and whether it is known.
func (p *pace) batch(a, b int64) (float64, bool) { return p.meanBatch(p.sumS, p.sumB, a, b) }

// prefillBatch is the same of the prefill steps.
func (p *pace) prefillBatch(a, b int64) (float64, bool) { return p.meanBatch(p.sumK, p.sumP, a, b) }

// meanBatch is what product grows by for what steps grow by.
func (p *pace) meanBatch(steps, product []float64, a, b int64) (float64, bool) {
	last := int64(len(steps) - 1)
	if last < 1 || a < p.from*p.bin || b > (p.from+last)*p.bin {
		return 0, false
	}
	place := func(t int64) (int64, float64) {
		d := t - p.from*p.bin
		i := min(quotient(d, p.bin, p.perBin), last-1)
		return i, float64(d-i*p.bin) * p.perBin
	}
	i, inI := place(a)
	j, inJ := place(b)
	grown := func(sums []float64) float64 {
		return sums[j] + inJ*(sums[j+1]-sums[j]) - (sums[i] + inI*(sums[i+1]-sums[i]))
	}
	n := grown(steps)
	if n <= 0 {
		return 0, false
	}
	return grown(product) / n, true
}
