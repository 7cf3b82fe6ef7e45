// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Windows of simulated engines as metrics: their values, sums, times, and ends.

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

// simulated records what engines of a kind send in d, and collects every 15 s of simulated time. It returns the
// collects, the last one after Close, and the truth.
func simulated(t *testing.T, preset string, load float64, d time.Duration, change func(*Config)) ([]pmetric.Metrics, *enginesim.Result, *Aggregator, *fakeClock) {
	t.Helper()
	engine, err := enginesim.Preset(preset)
	require.NoError(t, err)
	workload := enginesim.Workload{Lengths: "chat", Arrivals: "poisson"}
	result, err := enginesim.Run(engine, workload, load, d)
	require.NoError(t, err)

	a, clock := newTestAggregator(t, func(c *Config) {
		c.Timeline.Window = 10 * time.Second
		c.Engine.MaxNumSeqs = engine.MaxNumSeqs
		if change != nil {
			change(c)
		}
	})
	var collects []pmetric.Metrics
	next := result.Exports[0].At.Add(15 * time.Second)
	for _, export := range result.Exports {
		for export.At.After(next) {
			collects = append(collects, tick(a, clock))
			next = next.Add(15 * time.Second)
		}
		a.Record(export.Traces, false)
	}
	a.Close()
	collects = append(collects, tick(a, clock))
	return collects, result, a, clock
}

// removeWindows leaves the metrics of requests.
func removeWindows(md pmetric.Metrics) {
	window := map[string]bool{}
	for _, d := range windowDefinitions() {
		window[d.Name] = true
	}
	for _, rm := range md.ResourceMetrics().All() {
		rm.ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool { return window[m.Name()] })
	}
}

// windowPoints are the points of a metric in all collects, by its attribute's value, in order.
func windowPoints(collects []pmetric.Metrics, name string) map[string][]pmetric.NumberDataPoint {
	out := map[string][]pmetric.NumberDataPoint{}
	for _, md := range collects {
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				if m.Name() != name {
					continue
				}
				points := pmetric.NumberDataPointSlice{}
				if m.Type() == pmetric.MetricTypeGauge {
					points = m.Gauge().DataPoints()
				} else {
					points = m.Sum().DataPoints()
				}
				for _, dp := range points.All() {
					value := ""
					for _, v := range dp.Attributes().All() {
						value = v.AsString()
					}
					out[value] = append(out[value], dp)
				}
			}
		}
	}
	return out
}

func TestWindowMetrics(t *testing.T) {
	collects, result, _, _ := simulated(t, "v0-default", 0.6, 10*time.Minute, nil)
	truth := result.Truth(0)

	utilization := windowPoints(collects, deviceUtilization.Name)[""]
	require.Greater(t, len(utilization), 40)
	var off float64
	judged := 0
	for i, dp := range utilization {
		end := int64(dp.Timestamp())
		assert.Zero(t, end%int64(10*time.Second), "aligned to the window")
		if i > 0 {
			assert.Greater(t, dp.Timestamp(), utilization[i-1].Timestamp(), "once each, in order")
		}
		if i < 12 || i > len(utilization)-20 {
			continue // while the engine warms up, and where the end of the run cuts requests off
		}
		judged++
		off += math.Abs(dp.DoubleValue() - truth.Times(end-int64(10*time.Second), end).Forward().Seconds()/10)
	}
	assert.Less(t, off/float64(judged), 0.03, "mean error of device utilization")

	lower, upper := windowPoints(collects, deviceLower.Name)[""], windowPoints(collects, deviceUpper.Name)[""]
	require.Len(t, lower, len(utilization))
	require.Len(t, upper, len(utilization))
	for i := range utilization {
		assert.LessOrEqual(t, lower[i].DoubleValue(), utilization[i].DoubleValue()+1e-9)
		assert.GreaterOrEqual(t, upper[i].DoubleValue(), utilization[i].DoubleValue()-1e-9)
	}

	// Everything that is defined comes out, with its unit and its attribute.
	seen := map[string]pmetric.Metric{}
	for _, md := range collects {
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			seen[m.Name()] = m
		}
	}
	for _, d := range windowDefinitions() {
		m, ok := seen[d.Name]
		if !assert.True(t, ok, d.Name) {
			continue
		}
		assert.Equal(t, []string{d.Unit, d.Description}, []string{m.Unit(), m.Description()})
		for _, p := range pointsOf(m, "") {
			assert.Len(t, p.attributes, len(d.Attributes), d.Name)
			for _, name := range d.Attributes {
				assert.Contains(t, p.attributes, name, d.Name)
			}
		}
	}
}

// The states of engine.time add up to wall time, cumulative and delta, and both are the same time.
func TestEngineTimeIsWallTime(t *testing.T) {
	total := map[Temporality]float64{}
	for _, temporality := range []Temporality{Cumulative, Delta} {
		collects, _, _, _ := simulated(t, "v0-hostbound", 0.4, 5*time.Minute, func(c *Config) { c.Temporality = temporality })
		type at struct{ start, end int64 }
		sums := map[at]float64{}
		for _, points := range windowPoints(collects, engineTime.Name) {
			for _, dp := range points {
				sums[at{int64(dp.StartTimestamp()), int64(dp.Timestamp())}] += dp.DoubleValue()
			}
		}
		require.Greater(t, len(sums), 20)
		for times, sum := range sums {
			wall := time.Duration(times.end - times.start).Seconds()
			assert.InDelta(t, wall, sum, 1e-9)
			if temporality == Delta {
				assert.InDelta(t, 10, wall, 1e-9, "a window each")
				total[temporality] += sum
			} else {
				total[temporality] = max(total[temporality], sum)
			}
		}
	}
	assert.InDelta(t, total[Cumulative], total[Delta], 1e-6)
}

// vLLM V1 reports no forward time: what is honest is there, and nothing of the device.
func TestWindowsOfV1(t *testing.T) {
	collects, _, _, _ := simulated(t, "v1", 0.6, 5*time.Minute, nil)
	for _, d := range []Definition{deviceUtilization, deviceLower, deviceUpper, deviceWait, stepHostGap} {
		assert.Empty(t, windowPoints(collects, d.Name), d.Name)
	}
	for _, d := range []Definition{occupancy, queuePressure, requestsRunning, requestsWaiting, stepDuration, batchUtilization, tokenThroughput, completeness} {
		assert.NotEmpty(t, windowPoints(collects, d.Name), d.Name)
	}
	states := windowPoints(collects, engineTime.Name)
	assert.Contains(t, states, "occupied")
	for _, state := range []string{"prefill", "decode", "execute_host", "scheduler", "host_other"} {
		assert.NotContains(t, states, state)
	}
}

// An engine that finishes nothing is idle, device utilization 0, until it has expired; then all that it had ends.
func TestWindowsOfAVanishedEngine(t *testing.T) {
	collects, _, a, clock := simulated(t, "v0-default", 0.3, 3*time.Minute, func(c *Config) { c.Limits.SeriesExpiration = 10 * time.Minute })
	require.NotEmpty(t, collects)
	var idle []pmetric.Metrics
	for range 4 * 12 {
		idle = append(idle, tick(a, clock))
	}
	points := windowPoints(idle, deviceUtilization.Name)[""]
	require.NotEmpty(t, points)
	last := points[len(points)-1]
	assert.True(t, last.Flags().NoRecordedValue(), "the gauge ends")
	for _, dp := range points[1 : len(points)-1] {
		assert.False(t, dp.Flags().NoRecordedValue())
		assert.Zero(t, dp.DoubleValue())
	}
	for _, set := range []string{finding.Name, verdict.Name} {
		for state, points := range windowPoints(idle, set) {
			ends := 0
			for _, dp := range points {
				if dp.Flags().NoRecordedValue() {
					ends++
				}
			}
			assert.Equal(t, 1, ends, "%s %s ends once, and with the engine", set, state)
			assert.True(t, points[len(points)-1].Flags().NoRecordedValue(), "%s %s", set, state)
		}
	}
	assert.Zero(t, a.Stats().Engines)
	after := []pmetric.Metrics{tick(a, clock)}
	assert.Empty(t, windowPoints(after, deviceUtilization.Name))
	assert.Empty(t, windowPoints(after, verdict.Name))
}

// Four engines under one name are told, and the figures of the device that were there before end.
func TestWindowsOfMixedEngines(t *testing.T) {
	engine, err := enginesim.Preset("v0-default")
	require.NoError(t, err)
	engine.Engines, engine.Pooled = 4, true
	result, err := enginesim.Run(engine, enginesim.Workload{Lengths: "chat", Arrivals: "poisson"}, 0.5, 6*time.Minute)
	require.NoError(t, err)
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second })
	var collects []pmetric.Metrics
	for i, export := range result.Exports {
		a.Record(export.Traces, false)
		if i%20 == 0 {
			collects = append(collects, tick(a, clock))
		}
	}
	a.Close()
	collects = append(collects, tick(a, clock))
	mixed := windowPoints(collects, finding.Name)["mixed_engines"]
	// Of the window after the run only the last steps of some engines are known, which tell nothing.
	end := pcommon.NewTimestampFromTime(result.Now())
	mixed = slices.DeleteFunc(mixed, func(dp pmetric.NumberDataPoint) bool { return dp.Timestamp() > end })
	require.NotEmpty(t, mixed)
	assert.EqualValues(t, 1, mixed[len(mixed)-1].IntValue())
	if utilization := windowPoints(collects, deviceUtilization.Name)[""]; len(utilization) > 0 {
		assert.True(t, utilization[len(utilization)-1].Flags().NoRecordedValue(), "withheld, and ended")
	}
}

func TestWindowsOff(t *testing.T) {
	collects, _, _, _ := simulated(t, "v0-default", 0.3, time.Minute, func(c *Config) { c.Timeline.Window = 0 })
	for _, d := range windowDefinitions() {
		assert.Empty(t, windowPoints(collects, d.Name), d.Name)
	}
}

// A consumer that refuses windows of delta temporality gets them later.
func TestRefusedWindowsGoOutLater(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second; c.Temporality = Delta })
	engine, err := enginesim.Preset("v0-default")
	require.NoError(t, err)
	result, err := enginesim.Run(engine, enginesim.Workload{Lengths: "chat", Arrivals: "poisson"}, 0.5, 4*time.Minute)
	require.NoError(t, err)
	half := len(result.Exports) / 2
	for _, export := range result.Exports[:half] {
		a.Record(export.Traces, false)
	}
	clock.advance(15 * time.Second)
	first := a.Take()
	refused := first.Detach()
	early := len(windowPoints([]pmetric.Metrics{first.Metrics("")}, occupancy.Name)[""])
	require.Positive(t, early)
	for _, export := range result.Exports[half:] {
		a.Record(export.Traces, false)
	}
	clock.advance(15 * time.Second)
	second := a.Take()
	late := len(windowPoints([]pmetric.Metrics{second.Metrics("")}, occupancy.Name)[""])
	require.Positive(t, late)
	whole := windowPoints([]pmetric.Metrics{second.Merge(refused).Metrics("")}, occupancy.Name)[""]
	require.Len(t, whole, early+late)
	for i := range whole[1:] {
		assert.Greater(t, whole[i+1].Timestamp(), whole[i].Timestamp())
	}
}

// An engine that is upgraded to vLLM V1 reports no forward time any more: the device's figures end, as an old value
// would pass for a new one.
func TestFiguresEndWhereTheyVanish(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Timeline.Window = 10 * time.Second })
	start := time.Time{}
	var collects []pmetric.Metrics
	for _, preset := range []string{"v0-default", "v1"} {
		engine, err := enginesim.Preset(preset)
		require.NoError(t, err)
		if !start.IsZero() {
			engine.Start = start.Add(4 * time.Minute)
		}
		start = engine.Start
		result, err := enginesim.Run(engine, enginesim.Workload{Lengths: "chat", Arrivals: "poisson"}, 0.3, 4*time.Minute)
		require.NoError(t, err)
		for _, export := range result.Exports {
			a.Record(export.Traces, false)
		}
		collects = append(collects, tick(a, clock))
	}
	a.Close()
	collects = append(collects, tick(a, clock))

	points := windowPoints(collects, deviceUtilization.Name)[""]
	require.Greater(t, len(points), 5)
	for i, dp := range points {
		assert.Equal(t, i == len(points)-1, dp.Flags().NoRecordedValue(), "the last point, and no other, has no value")
	}
	occupied := windowPoints(collects, occupancy.Name)[""]
	assert.Greater(t, occupied[len(occupied)-1].Timestamp(), points[len(points)-1].Timestamp(), "other figures go on")
}

// The bracket of the capacity is there at half load, and what the KV cache holds makes it narrower.
func TestCapacityBracket(t *testing.T) {
	width := func(cache int) float64 {
		collects, result, _, _ := simulated(t, "v1-preempt", 0.6, 12*time.Minute, func(c *Config) { c.Engine.KVCacheTokens = cache })
		lower, upper := windowPoints(collects, "llm.serving.engine.capacity.utilization.lower")[""], windowPoints(collects, "llm.serving.engine.capacity.utilization.upper")[""]
		require.Greater(t, len(lower), 20)
		require.Len(t, upper, len(lower))
		throughput := map[pcommon.Timestamp]float64{}
		for _, dp := range windowPoints(collects, tokenThroughput.Name)["output"] {
			throughput[dp.Timestamp()] = dp.DoubleValue()
		}
		sum := 0.0
		for i := range lower {
			require.Equal(t, lower[i].Timestamp(), upper[i].Timestamp())
			if lower[i].Flags() == noRecordedValue {
				assert.Equal(t, noRecordedValue, upper[i].Flags())
				continue
			}
			used := throughput[lower[i].Timestamp()] / result.Capacity.OutputTokens
			assert.LessOrEqual(t, lower[i].DoubleValue(), 1.05*used)
			assert.GreaterOrEqual(t, upper[i].DoubleValue(), 0.95*used)
			if used > 0 {
				sum += (upper[i].DoubleValue() - lower[i].DoubleValue()) / used
			}
		}
		return sum / float64(len(lower))
	}
	told, alone := width(80_000), width(0)
	assert.Less(t, told, 0.6*alone)
}
