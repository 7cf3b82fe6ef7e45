// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTroublesAreFound is the table in short: the trouble that is built in comes out, at the stated size of data. The troubles are
// those that no seed of the full table misses.
func TestTroublesAreFound(t *testing.T) {
	var some []scenario
	have := map[diagnosis.Verdict]int{}
	causes := map[string]bool{}
	for _, s := range scenarios {
		if s.expect == diagnosis.DeviceBoundFull && s.preset != "v0-chunked" {
			continue
		}
		if have[s.expect] > 0 && (s.cause == "" || causes[s.cause]) {
			continue
		}
		have[s.expect]++
		causes[s.cause] = true
		some = append(some, s)
	}
	for v := diagnosis.NoVerdict; v < diagnosis.NumVerdicts; v++ {
		require.Positive(t, have[v], "no trouble for %s", v)
	}
	results, err := runAll(some, 0, 2, nil)
	require.NoError(t, err)
	var all tally
	for i := range results {
		r := &results[i]
		if r.size < statedSize {
			if !r.right() {
				assert.NotEqual(t, diagnosis.High, r.Confidence, "%s at %v: a minute is not enough to be so sure of %s", r.scenario.name, r.size, r.Verdict)
			}
			continue
		}
		all.add(r)
		assert.True(t, r.right(), "%s (%s, seed %d, %v): want %s %s, got %s %s: %s", r.scenario.name, r.scenario.preset, r.seed, r.size, r.scenario.expect, r.scenario.cause, r.Verdict, r.Cause, r.Sentence)
		assert.Equal(t, r.scenario.expect, r.tracked, "%s, with hysteresis", r.scenario.name)
	}
	assert.Equal(t, len(some)*2*2, all.all)
}

// TestTroublesAreThere: the truth of the simulation has the trouble, before anything is estimated.
func TestTroublesAreThere(t *testing.T) {
	for i := range scenarios {
		s := &scenarios[i]
		if s.expect != diagnosis.HostBound && s.expect != diagnosis.QueueBoundKV && s.expect != diagnosis.QueueBoundAdmission && s.name != "few requests" && s.name != "code completion" {
			continue
		}
		if i > 0 && scenarios[i-1].expect == s.expect && s.cause == "" { // one of each is enough
			continue
		}
		cfg, err := s.config(0)
		require.NoError(t, err)
		rate, _, err := s.rates(cfg)
		require.NoError(t, err)
		sim, err := enginesim.New(cfg, s.workload, rate)
		require.NoError(t, err)
		from := cfg.Start.Add(warmUp)
		to := from.Add(10 * time.Minute)
		sim.Advance(to)
		a, b := from.UnixNano(), to.UnixNano()
		truth := sim.Truth(0)
		times, occupied := truth.Times(a, b), truth.Occupied(a, b).Seconds()
		running, _ := truth.Running(a, b)
		waiting, _ := truth.Waiting(a, b)
		switch s.expect {
		case diagnosis.HostBound:
			assert.Greater(t, 1-times.Forward().Seconds()/occupied, .4, s.name)
		case diagnosis.QueueBoundKV:
			assert.Greater(t, waiting, 1., s.name)
			assert.Less(t, running, .7*float64(cfg.MaxNumSeqs), s.name)
		case diagnosis.QueueBoundAdmission:
			assert.Greater(t, waiting, 1., s.name)
			assert.Greater(t, running, .9*float64(cfg.MaxNumSeqs), s.name)
		case diagnosis.Idle:
			assert.Less(t, occupied/to.Sub(from).Seconds(), .27, s.name)
		case diagnosis.PrefillHeavy:
			assert.Greater(t, times[enginesim.ForwardPrefill].Seconds()/times.Forward().Seconds(), .5, s.name)
		}
	}
}

func TestCommand(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, command([]string{"-short", "-only", "no requests any more", "-details"}, &out, io.Discard))
	assert.Contains(t, out.String(), "2 troubles and states, 1 runs each")
	assert.Contains(t, out.String(), "| no requests any more | v1 | idle |")

	assert.ErrorContains(t, command([]string{"-only", "moon phase"}, &out, io.Discard), "no such trouble")
	assert.ErrorContains(t, command([]string{"-seeds", "0"}, &out, io.Discard), "-seeds 0")
	assert.ErrorContains(t, command([]string{"extra"}, &out, io.Discard), `unexpected argument "extra"`)
	assert.Error(t, command([]string{"-bogus"}, &out, io.Discard))
	assert.Error(t, command([]string{"-write", filepath.Join(t.TempDir(), "none.md")}, &out, io.Discard))
}

// TestDocument: the published table is of all troubles that there are, and meets the aim it states.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile("../../../docs/diagnosis.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), section.Begin)
	require.True(t, ok)
	table, _, ok := strings.Cut(rest, section.End)
	require.True(t, ok)
	for _, s := range scenarios {
		assert.Contains(t, table, "| "+s.name+" | "+s.preset+" | "+s.expect.String())
	}
	assert.Regexp(t, `the first verdict is right in \*\*(9\d\.\d|100\.0) %\*\*`, table)
	rows := regexp.MustCompile(`(?m)^\| (1|5|15) min \| .*, (\d+) \|$`).FindAllStringSubmatch(table, -1)
	assert.NotEmpty(t, rows)
	for _, row := range rows {
		if row[1] == "1" || strings.Contains(row[0], "below 30") || strings.Contains(row[0], "30–99") {
			assert.Equal(t, "0", row[2], "wrong with high confidence on thin data: %s", row[0])
		}
	}
}

func TestQuantiles(t *testing.T) {
	q := quantiles([]float64{3, 1, 2, 4})
	assert.Equal(t, diagnosis.Quantiles{Count: 4, Mean: 2.5, P50: 3, P90: 4, P95: 4, P99: 4}, q)
	assert.Zero(t, quantiles(nil).Count)
}
