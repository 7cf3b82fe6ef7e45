// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flat are the samples of five minutes in which nothing grows.
func flat() (samples []sample) {
	for at := 10 * time.Second; at <= 5*time.Minute; at += 10 * time.Second {
		samples = append(samples, sample{
			at: at, sent: int64(at / time.Millisecond), heap: 40 + float64(at/(10*time.Second)%3), goroutines: 31,
			engines: maxEngines, series: maxSeries, overflow: 5, duplicates: 5,
		})
	}
	return samples
}

func TestJudge(t *testing.T) {
	require.NoError(t, judge(flat()))
	for want, change := range map[string]func(i int, s *sample){
		"the heap grows":             func(i int, s *sample) { s.heap += float64(i) / 4 },
		"goroutines grow":            func(i int, s *sample) { s.goroutines += i },
		"series, the limit is":       func(i int, s *sample) { s.series += i / 25 },
		"engines, the limit is":      func(i int, s *sample) { s.engines += i / 25 },
		"no limit was ever":          func(_ int, s *sample) { s.overflow = 0 },
		"no span was resent":         func(_ int, s *sample) { s.duplicates = 0 },
		"only 0 samples after warm-": func(_ int, s *sample) { s.at = time.Second },
	} {
		samples := flat()
		for i := range samples {
			change(i, &samples[i])
		}
		assert.ErrorContains(t, judge(samples), want)
	}
}
