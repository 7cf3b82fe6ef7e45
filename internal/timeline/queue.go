// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Who waits without having been seen yet.
//
// A request that waits longer than the longest grace is known only after the windows in which it
// waited were closed. Engines serve in the order of arrival, though: where the newest request that
// must have been seen by now arrived at A, everybody who arrived before A is known, and whoever arrived after is
// still unseen. How many they are follows from the rate at which requests arrived before A.

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

// unseen is what is known about requests that wait unseen: those that arrived after since, at a rate per
// second.
type unseen struct {
	since       int64
	rate, sigma float64
}

const (
	minRateTime = 240 // least time, s, that the rate of arrivals is taken from
	rateBlock   = 60  // s
	// maxScheduleGap is the longest time, s, in which an engine with a queue schedules nobody.
	maxScheduleGap = 10
	// shortWait is the wait, s, up to which nobody else is thought to wait where the rate of arrivals is not known yet.
	shortWait = 1
	// maxWaitingError is the expected error of the waiting requests, relative and in requests, above which they are withheld.
	maxWaitingError = 0.1
)

// unseen looks for who waits in a window that ends at w1 without having been seen, when ends have
// been seen up to seen. It is not known where the rate of arrivals is not.
func (t *Timeline) unseen(w1, seen int64) (unseen, bool) {
	all := unseen{since: math.MaxInt64}
	if seen == math.MaxInt64 || t.lengths.n == 0 {
		return all, true
	}
	w1 = min(w1, seen) // of what comes after nothing is known at all
	// What was scheduled before has ended.
	scheduled := max(seen-int64(t.lengths.quantile(0.98)*sec), w1)
	i := sort.Search(len(t.main), func(i int) bool { return t.main[i].rs > scheduled })
	if i == 0 || t.main[i-1].rs < scheduled-maxScheduleGap*sec {
		return all, true // nobody has waited since
	}
	since := int64(math.MinInt64)
	for k := max(i-16, 0); k < i; k++ {
		since = max(since, t.main[k].arrival())
	}
	since += scheduled - t.main[i-1].rs
	if since >= w1 {
		return all, true
	}
	rate, sigma, ok := t.queue.rate(since, float64(w1-since)/sec)
	if !ok && w1-since < shortWait*sec {
		return all, true // who was scheduled last had hardly waited
	}
	return unseen{since, rate, sigma}, ok
}

// waiting is the mean number of requests unseen that wait in [w0, w1).
func (u unseen) waiting(w0, w1 int64) float64 {
	if u.since >= w1 {
		return 0
	}
	a := max(u.since, w0)
	return u.rate * (float64(a-u.since) + float64(w1-u.since)) / 2 / sec * float64(w1-a) / float64(w1-w0)
}
