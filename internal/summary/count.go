// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package summary

// How many requests wait or run, of which some have not been seen yet.

import "math"

// Count is a number of requests, a mean over time. What is not known is NaN.
type Count struct {
	// Mean is the number, or the middle of its bracket where more is not known.
	Mean float64
	// Lower and Upper bracket it. Lower alone is known until the rate of arrivals is.
	Lower, Upper float64
}

// RunningCount is the number of running requests.
func (f *Figures) RunningCount() Count { return newCount(f.Running, f.RunningLower, f.RunningUpper) }

// WaitingCount is the number of waiting requests.
func (f *Figures) WaitingCount() Count { return newCount(f.Waiting, f.WaitingLower, f.WaitingUpper) }

// CountAt is the count of one window from the columns of a History.
func (h *History) CountAt(name string, i int) Count {
	at := func(end string) *float64 {
		if c := h.Figures[name+end]; i < len(c) {
			return c[i]
		}
		return nil
	}
	return newCount(at("_mean"), at("_lower"), at("_upper"))
}

func newCount(mean, lower, upper *float64) Count {
	c := Count{finite(mean), finite(lower), finite(upper)}
	if math.IsNaN(c.Mean) {
		c.Mean = (c.Lower + c.Upper) / 2
	}
	return c
}

func finite(v *float64) float64 {
	if v == nil || math.IsInf(*v, 0) {
		return math.NaN()
	}
	return *v
}

// AtLeast reports whether Lower is all that is known: there is no Mean, or it is of other windows, before the number grew.
func (c Count) AtLeast() bool {
	return !math.IsNaN(c.Lower) && (math.IsNaN(c.Mean) || c.Lower-c.Mean > 1+0.05*c.Mean)
}

// Wide reports whether the bracket is wider than one request and a twentieth to either side: too wide for one number to stand for it.
func (c Count) Wide() bool { return !c.AtLeast() && c.Upper-c.Lower > 2+0.1*c.Mean }

// Value is one number to sort, to compare and to draw by: Mean, or Lower where that is all that is known.
func (c Count) Value() float64 {
	if c.AtLeast() {
		return c.Lower
	}
	return c.Mean
}
