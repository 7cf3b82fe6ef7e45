// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Whether an engine that seems to rest does.
//
// A request that runs for longer than the grace is not seen when its windows are closed, and where nothing else runs the engine
// seems to rest. But requests go on to come: an engine that rests schedules one at once, an engine that works when its step is
// over, half a step later on average. So the time in queue of who arrives where nothing seems to run tells whether something does;
// and if it is not seen by now, it has run ever since it began.

import "math"

type idle struct {
	usual    float64 // median time in queue, s, of those who arrive where nothing seems to run
	n        float64 // of them, up to a bound
	arrivals []idleArrival
}

// idleArrival ends a time in which nothing seems to run.
type idleArrival struct {
	a, b   int64
	worked int // what it says of the engine having been at work then: more or less than 0
}

const (
	// idleSteps is how many of its shortest steps after its last request's end an engine is thought to rest.
	idleSteps = 3
	// idleDelay is the part of a step by which a time in queue must exceed twice the usual one for the engine to have been at work.
	idleDelay = 0.1
	// restedPerWorked is how many who found the engine at rest outweigh one who did not: a step may end just when a request comes.
	restedPerWorked = 2
)

// doubt is the time in [w0, w1), ns, in which nothing seems to run and something may, by who came later. requests are
// sorted by their first schedule, and are those seen that ended after w0, the next few who came after the window among them; open says that
// others may still run. A window in which nothing is seen to run at all is not in doubt for that nobody came after it.
func (d *idle) doubt(requests []record, w0, w1 int64, minStep float64, open bool) (doubt int64) {
	rest := int64(idleSteps * minStep * sec)
	reach := w0
	d.arrivals = d.arrivals[:0]
	for i := range requests {
		r := &requests[i]
		if r.rs > reach {
			q := float64(r.queue)
			x := idleArrival{a: reach, b: r.rs}
			if r.has(hasQueue) && r.arrival() > reach+rest {
				if x.worked = -1; q > 2*d.usual+idleDelay*minStep {
					x.worked = restedPerWorked
				}
				if r.rs >= w0 && r.rs < w1 {
					d.learn(q)
				}
			}
			d.arrivals = append(d.arrivals, x)
		}
		reach = max(reach, r.re)
	}
	if open && reach > w0 && reach < w1 {
		doubt = w1 - reach // nobody came after: nobody tells
	}
	score, worked := 0, false
	for i := len(d.arrivals) - 1; i >= 0; i-- {
		x := &d.arrivals[i]
		score += x.worked
		worked = worked || x.worked > 0
		if x.a < w1 && score >= 0 && worked {
			doubt += min(x.b, w1) - x.a
		}
	}
	return doubt
}

// learn moves the median.
func (d *idle) learn(q float64) {
	if d.n == 0 {
		d.usual = q
	}
	d.n = min(d.n+1, 20)
	if f := math.Exp2(1 / d.n); q > d.usual {
		d.usual *= f
	} else {
		d.usual /= f
	}
}

// newest is the request that was scheduled last, s: who waits behind it is not known.
type newest struct {
	rs   int64
	wait float32
}

func (n *newest) add(r *record) {
	if r.rs >= n.rs {
		n.rs, n.wait = r.rs, r.queue
	}
}

// cutOff reports whether requests stopped coming while the engine was busy, rather than it ran out of work: up to a moment nothing has
// ended for long, the last to be scheduled had queued, and the last end came sooner after it than half of the requests take. Of a batch that is
// served to its end somebody takes longer. What ran and waited since then nobody has seen.
func (t *Timeline) cutOff(seen int64) bool {
	return seen != math.MaxInt64 && seen > t.watermark && t.newest.wait > shortWait &&
		float64(t.watermark-t.newest.rs)/sec < t.lengths.quantile(0.5)
}
