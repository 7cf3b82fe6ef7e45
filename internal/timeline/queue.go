// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Who waits, with those who have not been seen yet.
//
// A request is seen when it has ended. Of those scheduled at a moment the running times of others say how many should have ended by
// now, and each that was seen stands for the inverse of that share (Horvitz and Thompson, J. Am. Stat. Assoc. 47, 1952).
// Engines serve in the order of arrival: where the newest request of a moment from which most must have been seen arrived at A, everybody
// who arrived before A was scheduled by then, and whoever arrived after is still unseen. How many they are follows from the rate at which
// requests arrived before A. Both counts have a variance; it decides whether there is a figure, and how wide its bracket is.

import (
	"math"
	"sort"
)

const (
	arrivalBins = 1024
	arrivalBin  = 1250 * 1000_000 // ns, about: 20 minutes are remembered
)

// arrivals are the requests of the last time by when they arrived.
type arrivals struct {
	count [arrivalBins]float32
	bin   int64 // ns
	next  int64 // bin number after the newest
	first int64 // bin number of the first request
}

func (q *arrivals) add(at int64, weight float64, win int64) {
	if q.bin == 0 {
		q.bin = max(win/max((win+arrivalBin-1)/arrivalBin, 1), 1)
	}
	b := at / q.bin
	switch {
	case q.next == 0 || b >= q.next+arrivalBins:
		q.count = [arrivalBins]float32{}
		q.next, q.first = b+1, b
	case b >= q.next:
		for ; q.next <= b; q.next++ {
			q.count[q.next%arrivalBins] = 0
		}
	case b < q.next-arrivalBins:
		return
	}
	q.first = min(q.first, b)
	q.count[b%arrivalBins] += float32(weight)
}

// rate is the arrivals per second in the time before at, and the standard deviation of the arrivals in as
// long a time after it, judged by how blocks of a minute differ. It is not known where too little has been seen.
func (q *arrivals) rate(at int64, gap float64) (rate, sigma float64, ok bool) {
	if q.bin == 0 {
		return 0, 0, false
	}
	end := min(at/q.bin, q.next) // the bin that at is in does not count
	first := max(q.next-arrivalBins, q.first+1)
	use := max(end-int64(max(gap, minRateTime)*sec/float64(q.bin)), first)
	block := max(int64(rateBlock*sec)/q.bin, 1)
	if end-first < 4*block {
		return 0, 0, false
	}
	var n, blocks, sum, squares, in float64
	for b := end - 1; b >= first; b-- {
		c := float64(q.count[b%arrivalBins])
		if b >= use {
			n += c
		}
		in += c
		if (end-b)%block == 0 {
			blocks++
			sum += in
			squares += in * in
			in = 0
		}
	}
	used := float64((end-use)*q.bin) / sec
	mean := sum / blocks
	// No process that is worth waiting for is steadier than Poisson's.
	dispersion := 1.0
	if mean > 0 {
		dispersion = (squares/blocks - mean*mean) * blocks / (blocks - 1) / mean
		// Of few minutes that are alike little follows: two standard deviations of a variance of so many.
		dispersion = max(dispersion*(1+2*math.Sqrt(2/(blocks-1))), 1)
	}
	rate = n / used
	return rate, math.Sqrt(dispersion * rate * gap * (1 + gap/used)), true
}

const (
	minRateTime = 240 // least time, s, that the rate of arrivals is taken from
	rateBlock   = 60  // s
	// maxScheduleGap is the longest time, s, in which an engine with a queue schedules nobody.
	maxScheduleGap = 10
	// shortWait is the wait, s, up to which nobody else is thought to wait where the rate of arrivals is not known yet.
	shortWait = 1
	// mostEnded is the share of the requests scheduled at a moment that must have ended for the newest to be known: from there on
	// counting them by those that did is no worse than by the rate of arrivals.
	mostEnded = 0.75
	// maxWaitingError is the standard deviation of the waiting requests above which they are withheld.
	maxWaitingError = 1
	// maxGrowth is by how much running times may have grown since the requests that ended lately, and the same in buckets of them.
	maxGrowth     = 1.3
	growthBuckets = 3
	// bracketSigmas is how many standard deviations a bracket is wide on either side.
	bracketSigmas = 3
)

// unseen is who waits without having been seen: those who arrived after since, at a rate per second where it is known.
type unseen struct {
	since       int64
	rate, sigma float64
	known       bool
}

// unseen looks for who waits in a window that ends at w1 without having been seen, when ends have been seen up to seen.
func (t *Timeline) unseen(w1, seen int64) unseen {
	nobody := unseen{since: math.MaxInt64, known: true}
	if seen == math.MaxInt64 || t.lengths.n == 0 {
		return nobody
	}
	cut := t.cutOff(seen + 1) // seen is the last end then
	if cut && w1 > seen {
		return unseen{since: math.MinInt64}
	}
	w1 = min(w1, seen) // of what comes after nothing is known at all
	scheduled := max(seen-int64(t.lengths.quantile(mostEnded)*sec), w1)
	i := sort.Search(len(t.kept), func(i int) bool { return t.kept[i].rs() > scheduled })
	if i == 0 || t.kept[i-1].rs() < scheduled-maxScheduleGap*sec && !cut {
		return nobody // nobody has waited since
	}
	since := int64(math.MinInt64)
	for k := max(i-16, 0); k < i; k++ {
		since = max(since, t.kept[k].arrival())
	}
	since += scheduled - t.kept[i-1].rs()
	if since >= w1 {
		return nobody
	}
	rate, sigma, ok := t.queue.rate(since, float64(w1-since)/sec)
	if !ok && w1-since < shortWait*sec {
		return nobody // who was scheduled last had hardly waited
	}
	return unseen{since, rate, sigma, ok}
}

// waiting is the mean number of requests unseen that wait in [w0, w1).
func (u *unseen) waiting(w0, w1 int64) float64 {
	if u.since >= w1 {
		return 0
	}
	a := max(u.since, w0)
	return u.rate * (float64(a-u.since) + float64(w1-u.since)) / 2 / sec * float64(w1-a) / float64(w1-w0)
}

// waits adds up who waits in a window.
type waits struct {
	unseen
	w0, w1, ends int64 // the window, and up to when ends have been seen

	lengths *lengths
	certain int   // the bucket from which on all requests have ended
	recent  int64 // what was scheduled before it needs no look at its bucket: all have ended
	// ended is the share of the requests that have ended of those scheduled from a moment on and before another, doubt its error by how few
	// they are.
	ended, doubt float64
	from, until  int64

	seen, known          float64 // ns: who was seen; the same with those who should have been
	variance, systematic float64 // of known: of counts (ns²), and by what is not known about running times (ns)
}

func (s *waits) begin(h *lengths, u unseen, w0, w1, seen int64) {
	s.unseen, s.w0, s.w1, s.ends = u, w0, w1, seen
	s.seen, s.known, s.variance, s.systematic = 0, 0, 0, 0
	s.lengths, s.certain = h, min(h.top+growthBuckets+1, lengthsBuckets)
	if seen == math.MaxInt64 || h.n <= 0 {
		s.certain = 0
		return
	}
	s.recent = seen - int64(1.001*bucketEnd(s.certain)*sec)
	s.from, s.until = 0, 0
}

// of makes ended and doubt those of requests scheduled at rs.
func (s *waits) of(rs int64) {
	if rs >= s.from && rs < s.until {
		return // they come by their start: most are of the same bucket as the one before
	}
	b := lengthsBucket(float64(s.ends-rs) / sec)
	s.from, s.until = s.ends-int64(bucketEnd(b)*sec), s.ends-int64(bucketEnd(b-1)*sec)
	if b >= s.certain {
		s.ended, s.doubt = 1, 1/s.lengths.n
		return
	}
	var c, longest float64
	for i := range b + 1 {
		c += float64(s.lengths.count[i])
	}
	for i := max(b-growthBuckets+1, 0); i <= b; i++ {
		longest += float64(s.lengths.count[i])
	}
	f := min(c/s.lengths.n, 1)
	s.ended, s.doubt = max(f, minEndedShare), math.Sqrt(f*(1-f)/s.lengths.n)+(1+longest)/s.lengths.n
}

// add takes a request that arrived at q, was scheduled at rs and waited for d of the window.
func (s *waits) add(q, rs, d int64, weight float64) {
	x := float64(d) * weight
	s.seen += x
	if q > s.since {
		return // counted by the rate
	}
	if s.certain == 0 {
		s.known += x
		return
	}
	f, doubt := 1.0, 1/s.lengths.n
	if rs >= s.recent {
		s.of(rs)
		f, doubt = s.ended, s.doubt
	}
	s.known += x / f
	s.variance += float64(d) * x * (1 - f) / (f * f)
	s.systematic += x / f * doubt
}

// minEndedShare bounds what a request may stand for.
const minEndedShare = 0.05

// end is the bracket and the mean of the waiting requests of which a share p gets here, whether the mean is known to about one request, and
// how many of those who wait at the end of the window are unseen. upper is infinite where it is not known.
func (s *waits) end(p float64) (lower, mean, upper float64, precise bool, last float64) {
	length := float64(s.w1 - s.w0)
	lower = s.seen / length / p
	if !s.unseen.known {
		return lower, 0, math.Inf(1), false, 0
	}
	sampling := s.known / length * (1 - p) // the variance of a part chosen at random
	sigma, systematic := math.Sqrt(s.variance/length/length+s.sigma*s.sigma+sampling)/p, s.systematic/length/p
	mean = max((s.known/length+s.waiting(s.w0, s.w1))/p, lower)
	half := bracketSigmas*sigma + systematic
	return max(lower, mean-half), mean, mean + half, sigma+systematic <= maxWaitingError, s.waiting(s.w1-1, s.w1) / p
}
