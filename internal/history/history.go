// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

// The history of an engine: requests and windows in, what a diagnosis looks at out.

import (
	"sync"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Config is how much is remembered.
type Config struct {
	// Period is what a diagnosis looks back on.
	Period time.Duration
	// Lag is how far windows may be behind requests.
	Lag time.Duration
	// Hour keeps an hour of windows and minutes and the slowest requests, for the page. Otherwise only Period is kept.
	Hour bool
}

// History is not safe for concurrent use.
type History struct {
	cfg     Config
	points  []Point // oldest first
	minutes slots[minute]
	hours   slots[hour]
	slowest slots[slowest]

	period  period
	day     day
	windows []timeline.Window
}

// period is the requests of the minutes from one time to another, Unix ns: the same for all windows that end within a minute,
// unless a request came late.
type period struct {
	from, to int64
	minute
	requests diagnosis.Requests
}

// day is the day before, which changes when a minute becomes a part of it or an hour drops out of it.
type day struct {
	hour   int64 // Unix hours; 0: to be added up
	before *diagnosis.Before

	// The hours but the newest, added up: those rarely change, and the newest does every minute.
	older       hour
	first, last int64 // start of the first and of the last of older; last 0: to be added up
	hours       int
}

// Point is one window and the verdict at its end.
type Point struct {
	timeline.Window
	Verdict diagnosis.Verdict
}

const (
	// maxPoints is an hour of windows of the default length.
	maxPoints = 360
	// minPoints are kept however short the period is beside a window.
	minPoints    = 3
	maxHours     = 25 // the day before the hour that is running
	slowestSpan  = 10 * time.Minute
	slowestSlots = 7
)

// New makes an empty History.
func New(cfg Config) *History {
	back := cfg.Period
	if cfg.Hour {
		back = max(back, time.Hour)
	}
	minutes := int((back+cfg.Lag)/time.Minute) + 3 // those at both ends, and one for a time that is wrong
	h := &History{
		cfg:     cfg,
		hours:   newSlots[hour](time.Hour, maxHours, nil),
		slowest: newSlots[slowest](slowestSpan, slowestSlots, nil),
	}
	h.minutes = newSlots(time.Minute, minutes, func(start int64, m *minute) {
		h.hours.at(start).addMinute(m)
		h.day.hour = 0
		if start < h.day.last+int64(time.Hour) {
			h.day.last = 0
		}
	})
	return h
}

// AddRequest takes in a finished request.
func (h *History) AddRequest(r *Request) {
	if r.End <= 0 {
		return
	}
	h.minutes.at(r.End).add(r)
	h.changed(r.End)
}

// AddWindow takes in a closed window, and its verdict when that is known: see SetVerdict.
func (h *History) AddWindow(w *timeline.Window) {
	limit := max(minPoints, int(h.cfg.Period/max(w.End.Sub(w.Start), time.Second))+1)
	if h.cfg.Hour {
		limit = max(limit, maxPoints)
	}
	if len(h.points) >= limit {
		n := copy(h.points, h.points[len(h.points)-limit+1:])
		h.points = h.points[:n]
	}
	h.points = append(h.points, Point{Window: *w})
	h.minutes.at(w.Start.UnixNano()).addWindow(w)
	h.changed(w.Start.UnixNano())
}

// changed says that the minute of t is not what it was.
func (h *History) changed(t int64) {
	if t < h.period.to {
		h.period.to = 0
	}
}

// SetVerdict sets the verdict at the end of the last window.
func (h *History) SetVerdict(v diagnosis.Verdict) {
	if n := len(h.points); n > 0 {
		h.points[n-1].Verdict = v
	}
}

// Points are the windows, oldest first. They are h's own.
func (h *History) Points() []Point { return h.points }

// Period fills in the windows, the requests and the day before of in, as of the end of the last window. The windows
// are valid until the next call.
func (h *History) Period(in *diagnosis.Input) {
	h.windows = h.windows[:0]
	if len(h.points) > 0 {
		end := h.points[len(h.points)-1].End
		from := end.Add(-h.cfg.Period)
		for i := range h.points {
			if p := &h.points[i]; !p.Start.Before(from) || i == len(h.points)-1 {
				h.windows = append(h.windows, p.Window)
			}
		}
		in.Requests = h.requests(end).requests
		in.Before = h.before(end)
	} else {
		in.Requests, in.Before = noRequests(), nil
	}
	in.Windows = h.windows
}

// requests adds up the whole minutes of the period before end; where there is none yet, those that there are.
func (h *History) requests(end time.Time) *period {
	to := end.Truncate(time.Minute)
	from := to.Add(-h.cfg.Period.Truncate(time.Minute))
	if h.cfg.Period < time.Minute {
		from = to.Add(-time.Minute)
	}
	if first := h.points[0].Start; first.After(from) {
		from = first.Truncate(time.Minute)
	}
	begun := !from.Before(to)
	if begun {
		to = to.Add(time.Minute)
	}
	p := &h.period
	if p.from == from.UnixNano() && p.to == to.UnixNano() {
		return p
	}
	p.from, p.to = from.UnixNano(), to.UnixNano()
	p.reset()
	h.minutes.each(p.from, p.to, func(_ int64, m *minute) { p.merge(m) })
	if begun { // requests are counted that finished after the windows
		p.covered = 0
	}
	p.requests = p.summary()
	p.requests.TTFTSlope, p.requests.TTFTSlopeError = h.slope(end)
	return p
}

// slope is by how much the mean time to first token grows from minute to minute, s/s, with half of its 95 % interval. NaN
// with fewer than five minutes in which a request finished.
func (h *History) slope(end time.Time) (slope, half float64) {
	to := end.Truncate(time.Minute)
	from := to.Add(-h.cfg.Period.Truncate(time.Minute))
	var at []time.Time
	var means []float64
	h.minutes.each(from.UnixNano(), to.UnixNano(), func(start int64, m *minute) {
		at = append(at, time.Unix(0, start))
		means = append(means, m.sums[ttft].mean())
	})
	return diagnosis.Slope(at, means)
}

// before is what is known of the day before, up to the minutes that are still kept one by one; nil where that is less
// than an hour.
func (h *History) before(end time.Time) *diagnosis.Before {
	if now := end.Unix() / 3600; now != h.day.hour {
		h.day.hour, h.day.before = now, h.addUp(end)
	}
	return h.day.before
}

// hourPool is for sums that are needed for a moment.
var hourPool = sync.Pool{New: func() any { return new(hour) }}

func (h *History) addUp(end time.Time) *diagnosis.Before {
	var starts [maxHours]int64
	var hours [maxHours]*hour
	n := 0
	h.hours.each(end.Add(-24*time.Hour).UnixNano(), end.UnixNano(), func(start int64, o *hour) {
		starts[n], hours[n] = start, o
		n++
	})
	if n == 0 {
		return nil
	}
	d, newest := &h.day, n-1
	if newest == 0 {
		d.last = 0
	}
	if newest > 0 && (d.last != starts[newest-1] || d.first != starts[0] || d.hours != newest) {
		d.older.reset()
		for _, o := range hours[:newest] {
			d.older.merge(o)
		}
		d.first, d.last, d.hours = starts[0], starts[newest-1], newest
	}
	all := hourPool.Get().(*hour)
	defer hourPool.Put(all)
	all.reset()
	if newest > 0 {
		all.merge(&d.older)
	}
	all.merge(hours[newest])
	if all.covered < 3600 {
		return nil
	}
	return &diagnosis.Before{
		Hours: all.covered / 3600, Rate: float64(all.requests) / all.covered,
		Input: all.input.quantiles(), Output: all.output.quantiles(),
		StepLawA: all.lawA.mean(), StepLawB: all.lawB.mean(),
	}
}
