// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What is constant of an engine, learnt from its requests: small least squares, decayed.

import "math"

// regression is y = b0 x0 + b1 x1 + b2 x2, weighted and decayed.
type regression struct {
	xx [6]float64 // 00 01 02 11 12 22
	xy [3]float64
}

func (g *regression) fade(f float64) {
	for i := range g.xx {
		g.xx[i] *= f
	}
	for i := range g.xy {
		g.xy[i] *= f
	}
}

func (g *regression) add(x0, x1, x2, y, w float64) {
	g.xx[0] += w * x0 * x0
	g.xx[1] += w * x0 * x1
	g.xx[2] += w * x0 * x2
	g.xx[3] += w * x1 * x1
	g.xx[4] += w * x1 * x2
	g.xx[5] += w * x2 * x2
	g.xy[0] += w * x0 * y
	g.xy[1] += w * x1 * y
	g.xy[2] += w * x2 * y
}

// prior is what a coefficient is thought to be, and the standard deviation of that thought.
type prior struct{ mean, sigma float64 }

// solve is the coefficients, given a thought on each; sigma 0 means none.
func (g *regression) solve(priors [3]prior) ([3]float64, bool) {
	a := [3][4]float64{
		{g.xx[0], g.xx[1], g.xx[2], g.xy[0]},
		{g.xx[1], g.xx[3], g.xx[4], g.xy[1]},
		{g.xx[2], g.xx[4], g.xx[5], g.xy[2]},
	}
	for i, p := range priors {
		if p.sigma > 0 {
			w := 1 / (p.sigma * p.sigma)
			a[i][i] += w
			a[i][3] += w * p.mean
		}
	}
	// Scaled to a unit diagonal, so that the test for rank has no unit.
	var d [3]float64
	for i := range 3 {
		if a[i][i] <= 0 {
			return d, false
		}
		d[i] = 1 / math.Sqrt(a[i][i])
	}
	for i := range 3 {
		for j := range 3 {
			a[i][j] *= d[i] * d[j]
		}
		a[i][3] *= d[i]
	}
	for k := range 3 {
		if a[k][k] < 1e-9 {
			return [3]float64{}, false
		}
		for i := range 3 {
			if i == k {
				continue
			}
			f := a[i][k] / a[k][k]
			for j := k; j < 4; j++ {
				a[i][j] -= f * a[k][j]
			}
		}
	}
	return [3]float64{a[0][3] / a[0][0] * d[0], a[1][3] / a[1][1] * d[1], a[2][3] / a[2][2] * d[2]}, true
}

// history is the integral of the running requests over the last windows, so that the mean batch
// in a request's life is known when it ends.
type history struct {
	cum    [historyLen]float64 // request seconds at the end of each bin
	bin    int64               // ns
	perBin float64             // 1 / bin
	next   int64               // bin number after the newest, counted from Unix time 0
	n      int64               // bins known
}

const (
	historyPerWindow = 16
	historyLen       = 48 * historyPerWindow
)

// add appends a window's bins: the request seconds of each.
func (h *history) add(w0, w1 int64, seconds *[historyPerWindow]float64) {
	h.bin = (w1 - w0) / historyPerWindow
	if h.bin == 0 {
		return
	}
	h.perBin = 1 / float64(h.bin)
	first := w0 / h.bin
	last := 0.0
	if first != h.next || h.n == 0 {
		h.n = 0
	} else {
		last = h.cum[(first-1)%historyLen]
	}
	for i, s := range seconds {
		last += s
		h.cum[(first+int64(i))%historyLen] = last
	}
	h.next = first + historyPerWindow
	h.n = min(h.n+historyPerWindow, historyLen-1)
}

// mean is the mean number of running requests in [a, b), and whether it is known.
func (h *history) mean(a, b int64) (float64, bool) {
	if h.bin == 0 || b <= a {
		return 0, false
	}
	ca, ok1 := h.at(a)
	cb, ok2 := h.at(b)
	return (cb - ca) / (float64(b-a) / sec), ok1 && ok2
}

func (h *history) at(t int64) (float64, bool) {
	k := quotient(t, h.bin, h.perBin)
	in := t - k*h.bin
	// The value at the start of bin k is that at the end of the one before.
	if k >= h.next || k <= h.next-h.n {
		if k == h.next && in == 0 && h.n > 0 {
			return h.cum[(k-1)%historyLen], true
		}
		return 0, false
	}
	a, b := h.cum[(k-1)%historyLen], h.cum[k%historyLen]
	return a + (b-a)*float64(in)*h.perBin, true
}
