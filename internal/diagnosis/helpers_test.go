// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// Inputs made by hand for the tests.

import (
	"math"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

var epoch = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// figures are what every window of an Input says.
type figures map[timeline.Figure]float64

// windowsOf makes n windows of 10 s that all say the same. States are shares of the window.
func windowsOf(n int, f figures, states map[timeline.State]float64, mode timeline.Mode) []timeline.Window {
	ws := make([]timeline.Window, n)
	for i := range ws {
		w := &ws[i]
		w.Start = epoch.Add(time.Duration(i) * 10 * time.Second)
		w.End = w.Start.Add(10 * time.Second)
		w.Mode, w.Guard = mode, timeline.GuardOK
		for k, v := range f {
			w.Set(k, v)
		}
		rest := 10 * time.Second
		for s, share := range states {
			w.States[s] = time.Duration(share * 1e10)
			rest -= w.States[s]
		}
		w.States[timeline.StateIdle] += rest
	}
	return ws
}

func unknownQuantiles() Quantiles {
	nan := math.NaN()
	return Quantiles{Mean: nan, P50: nan, P90: nan, P95: nan, P99: nan}
}

func quantilesOf(n int64, v float64) Quantiles {
	return Quantiles{Count: n, Mean: v, P50: v, P90: v, P95: v, P99: v}
}

// requestsOf are n requests of a healthy vLLM V0.
func requestsOf(n int64) Requests {
	return Requests{
		Count: n, Rate: float64(n) / 300, TTFT: quantilesOf(n, .2), TPOT: quantilesOf(n, .02), E2E: quantilesOf(n, 4),
		Input: quantilesOf(n, 200), Output: quantilesOf(n, 180),
		QueueShare: .001, QueueTTFTShare: .05, FrontendShare: math.NaN(), PrefillShare: .05, SchedulerShare: .02, ExecuteHostShare: .05,
		TTFTSlope: 0, TTFTSlopeError: .001,
	}
}

// unknownRequests are n requests of which nothing is known.
func unknownRequests(n int64) Requests {
	nan := math.NaN()
	return Requests{
		Count: n, Rate: nan, TTFT: unknownQuantiles(), TPOT: unknownQuantiles(), E2E: unknownQuantiles(), Input: unknownQuantiles(), Output: unknownQuantiles(),
		QueueShare: nan, QueueTTFTShare: nan, FrontendShare: nan, PrefillShare: nan, SchedulerShare: nan, ExecuteHostShare: nan, TTFTSlope: nan, TTFTSlopeError: nan,
	}
}

// healthyInput is an engine with nothing wrong: V0, 60 % of its capacity used.
func healthyInput() *Input {
	return &Input{
		Windows: windowsOf(30, healthyFigures(), healthyStates(), timeline.ModeMasked), Requests: requestsOf(1500),
		Kind: "vllm", Generation: "v0", MaxNumSeqs: 256,
	}
}

func healthyFigures() figures {
	return figures{
		timeline.Occupancy: 1, timeline.QueuePressure: .1, timeline.RunningMean: 80, timeline.RunningMax: 100, timeline.WaitingMean: .1, timeline.WaitingMax: 2,
		timeline.DeviceUtilization: .78, timeline.DeviceLower: .7, timeline.DeviceUpper: .85, timeline.StepDuration: .025, timeline.HostGap: .005,
		timeline.CapacityFit: .6, timeline.CapacityPeak: .7, timeline.Capacity: 5000, timeline.OutputThroughput: 3000, timeline.InputThroughput: 3200,
		timeline.StepLawA: .015, timeline.StepLawB: .000125, timeline.Completeness: .999,
	}
}

func healthyStates() map[timeline.State]float64 {
	return map[timeline.State]float64{
		timeline.StatePrefill: .15, timeline.StateDecode: .63, timeline.StateExecuteHost: .12, timeline.StateScheduler: .05, timeline.StateHostOther: .05,
	}
}

// with changes figures of every window.
func (in *Input) with(changes figures) *Input {
	for i := range in.Windows {
		for f, v := range changes {
			if math.IsNaN(v) {
				in.Windows[i].Unset(f)
				continue
			}
			in.Windows[i].Set(f, v)
		}
	}
	return in
}

// states sets shares of every window.
func (in *Input) states(shares map[timeline.State]float64) *Input {
	w := windowsOf(len(in.Windows), nil, shares, 0)
	for i := range in.Windows {
		in.Windows[i].States = w[i].States
	}
	return in
}

// v1 takes away what vLLM V1 does not report.
func (in *Input) v1() *Input {
	nan := math.NaN()
	in.Generation = "v1"
	in.with(figures{timeline.DeviceUtilization: nan, timeline.DeviceLower: nan, timeline.DeviceUpper: nan, timeline.HostGap: nan})
	for i := range in.Windows {
		in.Windows[i].Mode = timeline.ModeUnknown
		in.Windows[i].States = [timeline.NumStates]time.Duration{timeline.StateOccupied: 10 * time.Second}
	}
	in.Requests.FrontendShare = .02
	return in
}
