// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.FixedZone("", 3600))

type reporter struct {
	id      string
	engines []summary.Engine
}

func (r *reporter) Source() summary.Source             { return summary.Source{ID: r.id} }
func (r *reporter) Engines(time.Time) []summary.Engine { return r.engines }
func (r *reporter) Engine(key string, _ time.Time) (summary.EngineReport, bool) {
	for _, e := range r.engines {
		if e.Key == key {
			return summary.EngineReport{Engine: e}, true
		}
	}
	return summary.EngineReport{}, false
}

func engine(key, verdict, confidence string, waiting float64) summary.Engine {
	e := summary.Engine{Key: key, Status: summary.StatusCurrent}
	e.Diagnosis.Verdict, e.Diagnosis.Confidence = verdict, confidence
	if waiting >= 0 {
		e.Figures.Waiting = &waiting
	}
	return e
}

// Where requests wait comes before where fewer do, be their number known or not.
func TestOrderByQueues(t *testing.T) {
	bracket := func(key string, lower, upper float64) summary.Engine {
		e := engine(key, "overload_building", "high", -1)
		e.Figures.WaitingLower = &lower
		if upper > 0 {
			e.Figures.WaitingUpper = &upper
		}
		return e
	}
	r := New(summary.Collector{})
	r.Register(&reporter{"a", []summary.Engine{
		engine("a number", "overload_building", "high", 50), bracket("a bracket", 60, 90), bracket("the least", 80, 0), engine("none", "overload_building", "high", -1),
	}})
	assert.Equal(t, []string{"the least", "a bracket", "a number", "none"}, keys(r.Report(time.Unix(0, 0))))
}

func keys(r summary.Report) (k []string) {
	for _, e := range r.Engines {
		k = append(k, e.Key)
	}
	return k
}

func TestOrder(t *testing.T) {
	stale := engine("stale", "overload_building", "high", 50)
	stale.Status = summary.StatusStale
	r := New(summary.Collector{Name: "c", Version: "1"})
	r.Register(&reporter{"b", []summary.Engine{
		engine("healthy", "healthy", "high", 0), engine("no verdict", "no_verdict", "none", -1), engine("host, unsure", "host_bound", "low", 3), stale,
		engine("new kind", "something_new", "high", 0),
	}})
	r.Register(&reporter{"a", []summary.Engine{
		engine("overload", "overload_building", "medium", 4), engine("host, waiting", "host_bound", "high", 2), engine("host", "host_bound", "high", 1), engine("idle", "idle", "high", 0),
	}})
	report := r.Report(now)
	assert.Equal(t, []string{"overload", "host, waiting", "host", "host, unsure", "new kind", "idle", "stale", "no verdict", "healthy"}, keys(report))
	assert.Equal(t, []summary.Source{{ID: "a"}, {ID: "b"}}, report.Sources)
	assert.Equal(t, summary.SchemaVersion, report.SchemaVersion)
	assert.Equal(t, time.UTC, report.Time.Location())
	assert.True(t, now.Equal(report.Time))
	assert.Equal(t, summary.Collector{Name: "c", Version: "1"}, report.Collector)
	assert.Equal(t, "a", report.Engines[0].Source)
	assert.Equal(t, "b", report.Engines[8].Source)
}

// An engine whose requests no longer end has no verdict, and comes before those that only waste a device.
func TestOrderOfStopped(t *testing.T) {
	stopped := engine("stopped", "no_verdict", "none", -1)
	stopped.Diagnosis.Cause = diagnosis.CauseStopped
	r := New(summary.Collector{})
	r.Register(&reporter{"a", []summary.Engine{engine("no verdict", "no_verdict", "none", -1), engine("past the knee", "device_bound_past_knee", "high", 0), stopped, engine("full", "device_bound_full", "low", 0)}})
	assert.Equal(t, []string{"full", "stopped", "past the knee", "no verdict"}, keys(r.Report(time.Unix(0, 0))))
}

// Each verdict has a place of its own in the order.
func TestEveryVerdictHasItsPain(t *testing.T) {
	seen := map[int]diagnosis.Verdict{}
	for v := range diagnosis.NumVerdicts {
		rank, ok := pains[v.String()]
		require.True(t, ok, v.String())
		require.NotContains(t, seen, rank, v.String())
		seen[rank] = v
	}
}

func TestNoReporter(t *testing.T) {
	report := New(summary.Collector{}).Report(now)
	assert.NotNil(t, report.Engines, "[] in JSON")
	assert.NotNil(t, report.Sources)
	assert.Empty(t, report.Engines)
}

func TestEngineOfSource(t *testing.T) {
	r := New(summary.Collector{})
	for _, id := range []string{"a", "b"} {
		r.Register(&reporter{id, []summary.Engine{{Key: "same", Source: id}}})
	}
	for _, want := range []string{"a", "b"} {
		report, from, ok := r.Engine("same", want, now)
		require.True(t, ok)
		assert.Equal(t, want, report.Engine.Source)
		assert.Equal(t, want, from.ID)
	}
	report, _, ok := r.Engine("same", "", now)
	require.True(t, ok)
	assert.Equal(t, "a", report.Engine.Source)
	assert.Equal(t, summary.SchemaVersion, report.SchemaVersion)
	_, _, ok = r.Engine("same", "c", now)
	assert.False(t, ok)
	_, _, ok = r.Engine("other", "", now)
	assert.False(t, ok)
}

func TestAtOnce(t *testing.T) {
	r := New(summary.Collector{})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 100 {
				leave := r.Register(&reporter{"x", []summary.Engine{{Key: "k"}}})
				_, _, ok := r.Engine("k", "", now)
				assert.True(t, ok)
				assert.NotEmpty(t, r.Report(now).Engines)
				leave()
			}
		})
	}
	wait.Wait()
	assert.Empty(t, r.Report(now).Sources)
}
