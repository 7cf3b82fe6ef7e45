// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// Many windows become one set of figures.

import (
	"math"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// Summarize is the means of the windows of an Input, with these weights:
//
//   - Occupancy, QueuePressure, Utilization, Lower, Upper, Running, Waiting and their Lower and Upper, throughputs, CapacityPeak, Capacity and Completeness:
//     the windows' lengths, over the windows that have the figure. Waiting, its ends and throughputs are none of the period where
//     windows of less than half of its time have them.
//     Where only a bracket of the running or the waiting requests is known, its middle counts.
//   - Wait = 1 - Σ utilization / Σ occupancy, over the windows that have both, by their lengths.
//   - Batch = Σ running / Σ occupancy, the same, without windows of which hardly anything was seen: nobody knows for how much of
//     those the requests ran that may have.
//   - FillWaiting = Σ running x waiting / Σ waiting / MaxNumSeqs, without these: windows without a queue do not count. Where the number of waiting
//     requests is unknown, the queue pressure stands for it.
//   - Step and HostGap: the number of steps, Σ occupied time / Σ (occupied time / step).
//   - CapacityFit = Σ output tokens / Σ capacity, over the windows that have a capacity; CapacityLeast and CapacityMost the same over
//     the ends of its bracket. None of them, nor CapacityPeak, where the output throughput is none of the period.
//   - Where the requests are not one engine's, or only a part of them, nothing is said of the device, its steps or its capacity,
//     though windows before that was known did.
//   - States: Σ time in the state / Σ time.
//   - StepLawA and StepLawB: the last window's that has them, for the law is learnt over much longer than the period.
//   - Marginal = b Batch / (a + b Batch) by that law.
//   - WaitingSlope: least squares over the windows' means, its error from Student's t with the windows counted as fewer by the
//     autocorrelation of the residuals.
//
// Maxima are over all windows, Flags any window's, Guard the last one's, Mode the last that is known.
func Summarize(in *Input) Figures {
	nan := math.NaN()
	f := Figures{Windows: len(in.Windows), Requests: in.Requests.Count, RunningMax: nan, WaitingMax: nan, StepLawA: nan, StepLawB: nan}
	var occ, pressure, busy, lower, upper, running, runningLower, runningUpper, waiting, waitingLower, waitingUpper, inTok, outTok, peak, capacity, complete mean
	var wait, batch, seen, fit, lowest, highest, steps, gaps ratio
	var slope line
	var states [timeline.NumStates]time.Duration
	for i := range in.Windows {
		w := &in.Windows[i]
		d := w.End.Sub(w.Start).Seconds()
		if !(d > 0) {
			continue
		}
		f.Covered += w.End.Sub(w.Start)
		for s, t := range w.States {
			states[s] += max(t, 0)
		}
		f.Flags |= w.Flags
		f.Guard = w.Guard
		if w.Mode != timeline.ModeUnknown {
			f.Mode = w.Mode
		}
		get := func(x timeline.Figure) float64 {
			if v, ok := w.Get(x); ok && !math.IsInf(v, 0) {
				return v
			}
			return nan
		}
		or := func(v float64, ok bool) float64 {
			if !ok || math.IsInf(v, 0) {
				return nan
			}
			return v
		}
		o, r, u := get(timeline.Occupancy), or(w.Running()), get(timeline.DeviceUtilization)
		occ.add(o, d)
		pressure.add(get(timeline.QueuePressure), d)
		busy.add(u, d)
		lower.add(get(timeline.DeviceLower), d)
		upper.add(get(timeline.DeviceUpper), d)
		running.add(r, d)
		waits := or(w.Waiting())
		waiting.add(waits, d)
		runningLower.add(get(timeline.RunningLower), d)
		runningUpper.add(get(timeline.RunningUpper), d)
		waitingLower.add(get(timeline.WaitingLower), d)
		waitingUpper.add(get(timeline.WaitingUpper), d)
		slope.add(w.Start.Add(w.End.Sub(w.Start)/2), waits)
		f.RunningMax = maximum(f.RunningMax, get(timeline.RunningMax))
		f.WaitingMax = maximum(f.WaitingMax, get(timeline.WaitingMax))
		inTok.add(get(timeline.InputThroughput), d)
		out, c := get(timeline.OutputThroughput), get(timeline.Capacity)
		outTok.add(out, d)
		peak.add(get(timeline.CapacityPeak), d)
		capacity.add(c, d)
		fit.add(out*d, c*d)
		lowest.add(out*d, get(timeline.CapacityUpper)*d)
		highest.add(out*d, get(timeline.CapacityLower)*d)
		complete.add(get(timeline.Completeness), d)
		wait.add(u*d, o*d)
		by := waits
		if math.IsNaN(by) {
			by = get(timeline.QueuePressure)
		}
		if !(get(timeline.Completeness) < minSeen) { // also NaN
			batch.add(r*d, o*d)
			seen.add(r*by*d, by*d)
		}
		if step := get(timeline.StepDuration); step > 0 {
			n := o * d / step
			steps.add(o*d, n)
			gaps.add(get(timeline.HostGap)*n, n)
		}
		if a, b := get(timeline.StepLawA), get(timeline.StepLawB); !math.IsNaN(a) && !math.IsNaN(b) {
			f.StepLawA, f.StepLawB = a, b
		}
	}
	f.Occupancy, f.QueuePressure = occ.value(), pressure.value()
	f.Utilization, f.Lower, f.Upper = busy.value(), lower.value(), upper.value()
	f.Wait = 1 - wait.value()
	if f.Wait < 0 { // not for NaN
		f.Wait = 0
	}
	f.Running, f.RunningLower, f.RunningUpper = running.value(), runningLower.value(), runningUpper.value()
	covered := f.Covered.Seconds()
	f.Waiting, f.WaitingLower, f.WaitingUpper = waiting.mostly(covered), waitingLower.mostly(covered), waitingUpper.mostly(covered)
	f.WaitingSlope, f.WaitingSlopeError = slope.fit()
	f.Batch = batch.value()
	f.Fill, f.FillWaiting = nan, nan
	if in.MaxNumSeqs > 0 {
		f.Fill = f.Batch / float64(in.MaxNumSeqs)
		f.FillWaiting = seen.value() / float64(in.MaxNumSeqs)
	}
	f.Step, f.HostGap = steps.value(), gaps.value()
	f.CapacityFit, f.CapacityPeak, f.Capacity = fit.value(), peak.value(), capacity.value()
	f.CapacityLeast, f.CapacityMost = lowest.value(), highest.value()
	f.Marginal = finite(f.StepLawB * f.Batch / (f.StepLawA + f.StepLawB*f.Batch))
	f.InputThroughput, f.OutputThroughput = inTok.mostly(covered), outTok.mostly(covered)
	f.Completeness = complete.value()
	for s := range states {
		f.States[s] = finite(states[s].Seconds() / covered)
	}
	if math.IsNaN(f.OutputThroughput) {
		f.CapacityFit, f.CapacityPeak, f.CapacityLeast, f.CapacityMost = nan, nan, nan, nan
	}
	if f.Flags&(timeline.MixedEngines|timeline.Sampled) != 0 {
		for _, v := range []*float64{
			&f.Utilization, &f.Lower, &f.Upper, &f.Wait, &f.Step, &f.HostGap, &f.StepLawA, &f.StepLawB, &f.Marginal,
			&f.CapacityFit, &f.CapacityPeak, &f.Capacity, &f.CapacityLeast, &f.CapacityMost,
		} {
			*v = nan
		}
	}
	return f
}

// mean is a weighted mean of what is not NaN.
type mean struct{ sum, weight float64 }

func (m *mean) add(v, weight float64) {
	if v == v && weight > 0 { // not NaN
		m.sum += v * weight
		m.weight += weight
	}
}

// value is NaN where nothing was added.
func (m *mean) value() float64 { return finite(m.sum / m.weight) }

// mostly is value where what was added weighs at least half of all: the few windows before an engine stopped do not speak for those after.
func (m *mean) mostly(all float64) float64 {
	if m.weight < all/2 {
		return math.NaN()
	}
	return m.value()
}

// ratio is a ratio of sums over what has both.
type ratio struct{ above, below float64 }

func (r *ratio) add(above, below float64) {
	if above == above && below == below { // not NaN
		r.above += above
		r.below += below
	}
}

func (r *ratio) value() float64 { return finite(r.above / r.below) }

// minSeen is the completeness below which a window tells little of what ran in it; internal/timeline withholds its mean there.
const minSeen = .3

func finite(v float64) float64 {
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

func maximum(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return max(a, b)
}

// Slope is the least-squares slope of values over time, per second, and half of its 95 % interval, widened for values that
// remember those before them; NaN with fewer than five values. Values that are NaN are left out.
func Slope(at []time.Time, values []float64) (slope, half float64) {
	var l line
	for i := range min(len(at), len(values)) {
		l.add(at[i], values[i])
	}
	return l.fit()
}

// line is a straight line through points in time.
type line struct{ x, y []float64 }

func (l *line) add(at time.Time, v float64) {
	if v == v { // not NaN
		l.x = append(l.x, float64(at.UnixNano())/1e9)
		l.y = append(l.y, v)
	}
}

// minPoints is the fewest points that a slope is fitted to.
const minPoints = 5

// fit is the slope per second and half of its 95 % interval; NaN with fewer than minPoints points.
func (l *line) fit() (slope, half float64) {
	n := len(l.x)
	if n < minPoints {
		return math.NaN(), math.NaN()
	}
	var mx, my float64
	for i := range l.x {
		mx += (l.x[i] - l.x[0]) / float64(n) // from the first point, for Unix seconds leave few digits
		my += l.y[i] / float64(n)
	}
	var xx, xy float64
	for i := range l.x {
		dx := l.x[i] - l.x[0] - mx
		xx += dx * dx
		xy += dx * (l.y[i] - my)
	}
	if xx == 0 {
		return math.NaN(), math.NaN()
	}
	slope = xy / xx
	var rr, lag, last float64
	for i := range l.x {
		r := l.y[i] - my - slope*(l.x[i]-l.x[0]-mx)
		rr += r * r
		if i > 0 {
			lag += r * last
		}
		last = r
	}
	free := float64(n - 2)
	if rr > 0 {
		// A queue remembers: n windows are worth n (1-rho)/(1+rho) independent ones. Growth that is not straight looks like
		// memory too, so that no fewer than minPoints are counted.
		rho := min(max(lag/rr, 0), .95)
		free = max(float64(n)*(1-rho)/(1+rho), minPoints) - 2
	}
	return finite(slope), finite(student(free) * math.Sqrt(rr/free/xx))
}

// student is the 97.5 % quantile of Student's t with n degrees of freedom, by the Cornish-Fisher expansion; within 2 %
// from 3 degrees on, and too low by a third at 1.
func student(n float64) float64 {
	const z = 1.959964
	g1 := (z*z*z + z) / 4
	g2 := (5*math.Pow(z, 5) + 16*z*z*z + 3*z) / 96
	g3 := (3*math.Pow(z, 7) + 19*math.Pow(z, 5) + 17*z*z*z - 15*z) / 384
	return z + g1/n + g2/(n*n) + g3/(n*n*n)
}
