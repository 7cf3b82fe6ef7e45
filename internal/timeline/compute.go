// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// One window: the sweep over what ran and waited, and the figures that follow from it.

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// scratch is memory that compute uses again and again.
type scratch struct {
	spans        []span
	occupied     []span
	decoding     []span
	waiting      []span
	starts, ends []int64
	qStarts      []int64
	qEnds        []int64
	ran          []ran
	firsts       []int64
	shares       shares
	waits        waits

	main    []record
	moved   []record // that window's, as they came, and their order
	order   []place
	keys    []int64
	sorter  sorter
	merge   []span // of the mask
	entries []prefillEntry
	votes   []vote // of the device
	ended   []ended
	covers  []covers
	bracket bracket
	pace    paceScratch
}

// ran is a request that ran in the window.
type ran struct {
	i        int32
	locality float64
}

// tokenRate is n tokens spread evenly over [a, b), as far as that is in [w0, w1).
func tokenRate(n float64, a, b, w0, w1 int64) float64 {
	if b <= a {
		if a >= w0 && a < w1 {
			return n
		}
		return 0
	}
	lo, hi := max(a, w0), min(b, w1)
	if hi <= lo {
		return 0
	}
	return n * float64(hi-lo) / float64(b-a)
}

// minRunningSeen is the completeness below which running requests and the tokens made in that time are withheld.
const minRunningSeen = 0.3

// minCompleteness is the completeness below which states and device figures are withheld.
const minCompleteness = 0.8

// compute fills w for [w0, w1). Ends have been seen up to seen.
func (t *Timeline) compute(w *Window, w0, w1, seen int64) {
	s := t.scratch
	s.occupied, s.waiting = s.occupied[:0], s.waiting[:0]
	s.starts, s.ends, s.qStarts, s.qEnds = s.starts[:0], s.ends[:0], s.qStarts[:0], s.qEnds[:0]
	dev := &t.device
	dev.begin(&t.mask, &t.batches, &t.pace)
	t.bracket.reset()

	var (
		running                    float64 // ns, weighted
		runBase, waitBase          int     // at w0
		requests                   float64
		inTokens, outTokens        float64
		hasIns, hasOuts, queueless bool
		clocked                    int
		rounded                    roundedCount
	)
	s.ran, s.firsts, s.decoding = s.ran[:0], s.firsts[:0], append(s.decoding[:0], span{w0, w0})
	s.shares.begin(w1 - w0)
	t.begun.grow(&t.running, &t.lengths, seen)
	s.waits.begin(&t.running, t.unseen(w1, seen), w0, w1, seen)
	bin := binOf(t.win)
	paced := (w0/bin - paceBack) * bin
	for i := range t.main {
		r := &t.main[i]
		q := r.rs
		if r.queue > 0 {
			q = r.arrival()
		}
		if q < w1 {
			weight := r.weight()
			if r.flags&hasQueue == 0 {
				queueless = true
			} else if a, b := max(q, w0), min(r.rs, w1); a < b {
				s.waits.add(q, r.rs, b-a, weight)
				s.waiting = append(s.waiting, span{a, b})
				if q < w0 {
					waitBase++
				} else {
					s.qStarts = append(s.qStarts, q)
				}
				if r.rs < w1 {
					s.qEnds = append(s.qEnds, r.rs)
				}
			}
			if a, b := max(r.rs, w0), min(r.re, w1); a < b {
				running += float64(b-a) * weight
				if k := len(s.occupied) - 1; k >= 0 && a <= s.occupied[k].b {
					s.occupied[k].b = max(s.occupied[k].b, b)
				} else {
					s.occupied = append(s.occupied, span{a, b})
				}
				if r.rs < w0 {
					runBase++
				} else {
					s.starts = append(s.starts, r.rs)
				}
				if r.re < w1 {
					s.ends = append(s.ends, r.re)
				}
				if r.has(hasSteps) {
					// Those that did when it began are one, the first.
					last := &s.decoding[len(s.decoding)-1]
					switch a := r.first(); {
					case a >= b:
					case a <= w0:
						s.decoding[0].b = max(s.decoding[0].b, b)
					case a >= last.a && a <= last.b:
						last.b = max(last.b, b)
					default:
						s.decoding = append(s.decoding, span{a, b})
					}
				}
				if r.has(stepClock | hasFirst) {
					clocked++
					if f := r.first(); f >= w0 && f < w1 {
						s.firsts = append(s.firsts, f)
					}
				}
				l := float64(r.re-r.rs) / sec
				local := locality(l)
				s.shares.add(a-w0, b-w0, l*local)
				s.ran = append(s.ran, ran{int32(i), local}) //nolint:gosec // below MaxRequests
			}
			if r.re >= w0 && r.re < w1 {
				requests += weight
				rounded.add(r)
			}
			if r.has(hasOut) && r.out > 0 {
				hasOuts = true
				switch {
				case t.pace.has(r) && r.first() >= paced:
					// Tokens are made when steps are: below.
				case r.has(hasFirst):
					f := r.first()
					outTokens += weight * (tokenRate(1, f, f, w0, w1) + tokenRate(float64(r.out)-1, f, r.re, w0, w1))
				default:
					outTokens += weight * tokenRate(float64(r.out), r.rs, r.re, w0, w1)
				}
			}
			if r.has(hasIn) {
				hasIns = true
				b := r.re
				if r.has(hasFirst) {
					b = r.first()
				}
				inTokens += weight * tokenRate(float64(r.in), r.rs, b, w0, w1)
			}
		}
	}

	// The second look, with every moment of the window given the same weight in all.
	var bins [historyPerWindow]float64
	s.shares.end(&bins)
	t.batches.add(w0, w1, &bins)
	oldest := w0
	if len(t.main) > 0 {
		oldest = min(oldest, t.main[0].rs)
	}
	t.pace.weigh(&t.batches, &t.mask, oldest, w1)
	for _, x := range s.ran {
		r := &t.main[x.i]
		blocked := dev.add(r, x.i, x.locality*s.shares.of(max(r.rs, w0)-w0, min(r.re, w1)-w0), r.re < w1)
		if r.has(hasForward) {
			t.bracket.add(r, w0, w1, blocked)
		}
	}
	w.Requests = int64(math.Round(requests))

	// Completeness: what of a request running at a moment is expected to have ended since.
	complete, least := 1.0, 1.0 // least: if running times have grown
	if seen != math.MaxInt64 {
		complete, least = 0, 0
		const points = 5
		for k := range points {
			at := w0 + (w1-w0)*int64(2*k+1)/(2*points)
			age := float64(seen-at) / sec
			complete += t.running.seen(age) / points
			least += t.running.seen(age/maxGrowth) / points
		}
	}
	w.Set(Completeness, complete)
	if complete == 0 {
		w.States[StateUnknown] = time.Duration(w1 - w0)
		return // the engine was cut off before
	}

	p := t.cfg.SamplingProbability
	thinned := t.shift > 0
	scale := 1 / (max(complete, 0.05) * p)
	length := float64(w1 - w0)
	var occupied int64
	for _, o := range s.occupied {
		occupied += o.b - o.a
	}
	s.sorter.sort(s.ends)
	t.ran(w, running/length, float64(peak(runBase, s.starts, s.ends))*float64(uint32(1)<<t.shift), complete, least, s.waits.seen/length, seen)
	occ := float64(occupied) / length
	if p == 1 {
		w.Set(Occupancy, occ)
	}
	if !queueless {
		s.sorter.sort(s.qStarts)
		lower, mean, upper, precise, last := s.waits.end(p)
		w.Set(WaitingLower, lower)
		if !math.IsInf(upper, 1) {
			w.Set(WaitingUpper, upper)
		}
		if precise {
			w.Set(WaitingMean, mean)
			w.Set(WaitingMax, max(float64(peak(waitBase, s.qStarts, s.qEnds))*float64(uint32(1)<<t.shift)/p+last, mean))
		}
		waited := unionByEnd(s.waiting)
		if p == 1 {
			w.Set(QueuePressure, float64(sum(s.waiting[waited:]))/length)
		}
		if 2*clocked > len(s.ran) {
			t.find.unattended(s.waiting[waited:], s.occupied, w0, w1, len(s.qEnds))
		}
	}
	if (hasIns || len(s.ran) == 0) && complete >= minRunningSeen {
		w.Set(InputThroughput, inTokens/length*sec*scale)
	}

	// The device, and what speaks against believing it.
	s.decoding = union(s.decoding)
	est := dev.estimate(occupied, w0, w1, running/max(float64(occupied), 1), float64(len(s.starts)))
	t.find.rounded(rounded, w1-w0)
	t.find.steps(s.ends, w1-w0, est.wall)
	if 2*clocked > len(s.ran) {
		s.sorter.sort(s.firsts)
		t.find.clock(s.starts, w1-w0, dev.minStep())
		t.find.clock(s.firsts, w1-w0, dev.minStep())
	} else {
		t.find.clock(s.ends, w1-w0, dev.minStep())
	}
	t.find.fade(w1 - w0)
	if t.find.mixed() {
		w.Flags |= MixedEngines
	}
	if t.find.speculative() {
		w.Flags |= SpeculativeDecoding
	}
	if t.find.isRounded() {
		w.Flags |= RoundedTimestamps
	}
	if p < 1 || t.find.sampled() {
		w.Flags |= Sampled
	}
	if thinned {
		w.Flags |= Thinned
	}
	w.Mode = est.mode
	if dev.async() && !w.Flags.Has(MixedEngines) && est.mode == ModeMasked {
		w.Flags |= AsyncOutput
	}
	withheld := w.Flags&(MixedEngines|Sampled|Thinned) != 0 || complete < minCompleteness ||
		w.Flags.Has(RoundedTimestamps) && est.mode == ModeMasked
	forward := est.step - est.gap // of a decode step
	steps := 0.0
	if t.pace.solve(t, w0, w1, &est) {
		step, n, ok := t.pace.step(t, w0, w1, s.decoding)
		steps = n
		if ok {
			t.pace.observe(w0, w1, step, steps, running/float64(max(occupied, 1)))
		}
		if ok && est.step > 0 {
			est.gap *= step / est.step
			est.step = step
		}
		est.wall = step
		if !ok {
			est.step, est.wall = 0, 0 // hardly a step was made
		}
	} else {
		est.step, est.wall = 0, 0 // none that took any time
	}
	outTokens += t.pace.tokensMade(t, w0, w1)
	doubtful := est.wall > 0 && t.pace.doubtful(w0, w1, est.wall, steps, est.prefillWall)
	for k := range dev.ended {
		x := &dev.ended[k]
		if u := x.q - x.others*est.between; x.batch > 0 && u > 0 {
			t.pace.learn(&t.main[x.i], x.batch)
		}
	}
	if hasOuts || len(s.ran) == 0 {
		out := outTokens / length * sec * scale
		if complete >= minRunningSeen {
			w.Set(OutputThroughput, out)
		}
		t.pace.share, t.pace.read = est.prefillWall/length*sec, inTokens/length*sec
		if est.mode != ModeMasked {
			t.pace.share = t.pace.tokenTime * t.pace.read
		}
		t.pace.prefill += est.prefillWall
		t.pace.made += out * length / sec
	}
	if est.wall > 0 && !doubtful {
		switch {
		case est.step > 0 && !withheld:
			w.Set(StepDuration, est.step)
		case est.mode == ModeUnknown && w.Flags&MixedEngines == 0:
			w.Set(StepDuration, est.wall)
		}
	}
	// Spans do not show the step that an engine with asynchronous output processing runs in vain after
	// the last request of a busy period.
	vain := 0.0
	if est.mode != ModeUnknown {
		vain = vainTime(s.occupied, w1, forward) / float64(w1-w0)
	}
	if w.Flags.Has(AsyncOutput) && est.ok {
		est.busy += vain
		est.decode += vain * length / sec
		occupied = min(occupied+int64(vain*length), w1-w0)
	}
	t.states(w, est, occupied, w1-w0, withheld)
	if est.ok && !withheld {
		lo, hi, sound := t.bracket.solve(w0, w1, s.occupied, len(s.ends))
		lo, hi = lo*sec/length, min(hi*sec/length+(1-complete)*(1-occ), 1)
		if !sound {
			// They prove nothing then but that the device rests while nothing runs.
			w.Flags |= Contradiction
			lo, hi = 0, min(occ+(1-complete)*(1-occ), 1)
		}
		if occ < 1 {
			doubt := t.idle.doubt(t.main, w0, w1, dev.minStep(), seen != math.MaxInt64)
			if t.lengths.n < enough && occ > 0 {
				doubt = w1 - w0 - occupied // how long requests may run unseen is not known yet
			}
			hi = min(hi+float64(doubt)/length, 1)
		}
		hi = min(hi+vain, 1)                  // whether it is one cannot always be told
		est.busy = min(max(est.busy, lo), hi) // what the spans prove binds the estimate too
		w.Set(DeviceLower, lo)
		w.Set(DeviceUpper, hi)
		w.Set(DeviceUtilization, est.busy)
		if occ > 0 {
			w.Set(DeviceWaitRatio, min(max(1-est.busy/occ, 0), 1))
		}
		if est.step > 0 && !doubtful {
			w.Set(HostGap, est.gap)
		}
	}
	t.capacity(w, &est, occ, running/length/max(occ, 1e-9)*scale, s.waits.known/length)
}

// ran sets the running requests, of which so many were seen while so many waited. complete is the share of them that should have been seen,
// least the same if running times have grown.
func (t *Timeline) ran(w *Window, running, most, complete, least, waiting float64, seen int64) {
	p, m := t.cfg.SamplingProbability, float64(t.cfg.MaxNumSeqs)
	lower := running / p
	if lower > m {
		m = 0 // it holds more than it is said to
	}
	bound := func(estimate, seen float64) float64 {
		if m <= 0 {
			return estimate
		}
		return min(estimate, max(m, seen))
	}
	mean := bound(lower/max(complete, 0.05), lower)
	w.Set(RunningLower, lower)
	young := seen != math.MaxInt64 && waiting >= 1 && !(m > 0 && mean >= 0.99*m) && t.begun.young(&t.running, seen)
	if young || complete < minRunningSeen {
		// Either something else than its limit keeps it from a larger batch, or long requests are still unseen; or most are.
		if m > 0 {
			w.Set(RunningUpper, max(m, lower))
		}
		return
	}
	w.Set(RunningMean, mean)
	w.Set(RunningMax, max(mean, bound(most/p/max(complete, 0.05), most/p)))
	least = max(least, 0.05)
	w.Set(RunningUpper, max(mean, bound(lower/least+bracketSigmas*math.Sqrt(lower*(1-least))/least, lower)))
}

// states divides the window's time; est.busy and its parts are shares of the occupied time.
func (t *Timeline) states(w *Window, est estimate, occupied, length int64, withheld bool) {
	rest := length
	take := func(s State, ns int64) {
		ns = min(max(ns, 0), rest)
		w.States[s] += time.Duration(ns)
		rest -= ns
	}
	if c := w.Value(Completeness); c < minCompleteness || w.Flags.Has(Sampled) {
		take(StateUnknown, rest)
		return
	}
	take(StateIdle, length-occupied)
	switch {
	case withheld:
		take(StateUnknown, rest)
	case !est.ok:
		take(StateOccupied, rest)
	default:
		take(StatePrefill, int64(est.prefill*sec))
		take(StateDecode, int64(est.decode*sec))
		take(StateScheduler, int64(est.scheduler*sec))
		take(StateExecuteHost, int64(est.executeHost*sec))
		take(StateHostOther, rest)
	}
}

// peak is the highest count, from base at the start, of what starts and ends; both sorted.
func peak(base int, starts, ends []int64) int {
	best, c, e := base, base, 0
	for _, s := range starts {
		for e < len(ends) && ends[e] <= s {
			c--
			e++
		}
		c++
		best = max(best, c)
	}
	return best
}

// unionByEnd makes spans, sorted by end, disjoint in place; the union is what starts at the
// index returned, ascending.
func unionByEnd(s []span) int {
	k := len(s)
	for i := len(s) - 1; i >= 0; i-- {
		if k < len(s) && s[i].b >= s[k].a {
			s[k].a = min(s[k].a, s[i].a)
			continue
		}
		k--
		s[k] = s[i]
	}
	return k
}

// vainTime is the time in ns, up to w1, of one forward pass of so many s at the end of every span.
func vainTime(occupied []span, w1 int64, forward float64) float64 {
	var n float64
	for k, o := range occupied {
		rest := w1 - o.b
		if k+1 < len(occupied) {
			rest = occupied[k+1].a - o.b
		}
		n += min(float64(rest), forward*sec)
	}
	return n
}

// union sorts spans and makes them disjoint in place.
func union(s []span) []span {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.a, b.a) })
	k := 0
	for _, x := range s {
		if k > 0 && x.a <= s[k-1].b {
			s[k-1].b = max(s[k-1].b, x.b)
			continue
		}
		s[k] = x
		k++
	}
	return s[:k]
}

func sum(s []span) int64 {
	var n int64
	for _, x := range s {
		n += x.b - x.a
	}
	return n
}

// shares divides every moment of a window among the requests that ran: each gets a part
// proportional to its weight, so that crowded moments count no more than others.
type shares struct {
	bin  float64 // ns
	step [shareBins + 1]float64
	part [shareBins + 1]float64

	count, countPart [shareBins + 1]float64
	cum              [shareBins + 1]float64
}

const shareBins = 64

func (s *shares) begin(window int64) {
	s.bin = float64(window) / shareBins
	s.step, s.part = [shareBins + 1]float64{}, [shareBins + 1]float64{}
	s.count, s.countPart = [shareBins + 1]float64{}, [shareBins + 1]float64{}
}

// add gives [a, b), in ns from the window's start, a weight.
func (s *shares) add(a, b int64, w float64) {
	s.edge(a, w, 1)
	s.edge(b, -w, -1)
}

func (s *shares) edge(at int64, w, n float64) {
	x := float64(at) / s.bin
	i := min(int(x), shareBins-1)
	s.part[i] += w * (1 - (x - float64(i)))
	s.step[i+1] += w
	s.countPart[i] += n * (1 - (x - float64(i)))
	s.count[i+1] += n
}

// end sums up the shares, and the request seconds into bins.
func (s *shares) end(bins *[historyPerWindow]float64) {
	level, count := 0.0, 0.0
	for i := range shareBins {
		level += s.step[i]
		d := 0.0
		if g := level + s.part[i]; g > 1e-12 {
			d = s.bin / sec / g
		}
		s.cum[i+1] = s.cum[i] + d
		count += s.count[i]
		bins[i*historyPerWindow/shareBins] += (count + s.countPart[i]) * s.bin / sec
	}
}

// of is the share, s, of a request with weight one that ran in [a, b).
func (s *shares) of(a, b int64) float64 { return s.at(b) - s.at(a) }

func (s *shares) at(ns int64) float64 {
	x := float64(ns) / s.bin
	i := min(int(x), shareBins-1)
	return s.cum[i] + (s.cum[i+1]-s.cum[i])*(x-float64(i))
}
