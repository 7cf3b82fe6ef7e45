// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What a Timeline can be told.

import "time"

// Config are the settings of a Timeline. The zero value has usable defaults.
type Config struct {
	// Window is the length of a window; windows start at whole multiples of it in Unix time.
	// Default 10 s.
	Window time.Duration
	// Grace is how long after a window's end the requests that count in it may have ended.
	// 0: what all but a thousandth of the recent requests took in all, between MinGrace and
	// MaxGrace.
	Grace time.Duration
	// MinGrace and MaxGrace bound the automatic grace. Defaults 10 s and 180 s.
	MinGrace, MaxGrace time.Duration
	// Disorder is by how much requests may arrive out of the order they ended in, without any
	// effect: a window closes when a request has been seen that ended Grace + Disorder after
	// it. Default 10 s, twice the export delay of an OpenTelemetry SDK.
	Disorder time.Duration
	// Silence is the wall time without a request after which Advance moves event time on.
	// Default 30 s.
	Silence time.Duration
	// IdleTimeout is how long an engine that finishes no request is reported as idle before it
	// counts as vanished and its windows stop. Default 15 min.
	IdleTimeout time.Duration
	// MaxNumSeqs is the engine's limit of requests in one batch. 0: unknown, and what needs it
	// is absent.
	MaxNumSeqs int
	// KVCacheTokens is how many tokens the engine's KV cache holds. 0: unknown. Where it has not room for MaxNumSeqs
	// requests, it is what limits the batch.
	KVCacheTokens int
	// MaxRequests bounds the requests retained. Beyond it every second one is let go, the others
	// count double, and the device's figures are withheld. Default 16384 (about 1 MiB).
	MaxRequests int
	// MaxWindows bounds the closed windows that wait for Drain; beyond it the oldest quarter goes.
	// Default 16384.
	MaxWindows int
	// FromStart says that the first request seen is the first the engine ever had, as in a
	// recording. Otherwise the first window is the one in which the first request ended, for
	// what ended before was not seen.
	FromStart bool
	// SamplingProbability is the share of requests that get here, in (0, 1]. 0 means 1. Below 1
	// counts are divided by it and what cannot be corrected is withheld.
	SamplingProbability float64
	// Budget, if set, bounds the windows that are closed; those beyond it are skipped, the oldest first.
	Budget *Budget
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Window, 10*time.Second)
	def(&c.MinGrace, 10*time.Second)
	def(&c.MaxGrace, 180*time.Second)
	def(&c.Disorder, 10*time.Second)
	def(&c.Silence, 30*time.Second)
	def(&c.IdleTimeout, 15*time.Minute)
	c.Window = max(c.Window, time.Millisecond)
	c.MaxGrace = max(c.MaxGrace, c.MinGrace)
	if c.MaxRequests <= 0 {
		c.MaxRequests = 16384
	}
	c.MaxRequests = max(c.MaxRequests, 16)
	if c.MaxWindows <= 0 {
		c.MaxWindows = 16384
	}
	if !(c.SamplingProbability > 0 && c.SamplingProbability <= 1) {
		c.SamplingProbability = 1
	}
	return c
}
