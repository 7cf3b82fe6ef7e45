// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// An engine with much to do whose requests no longer end.

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// stoppedInput is a full engine that stops before the last n of 30 windows, as its windows are closed then: it may run all that its batch
// has room for, or nothing.
func stoppedInput(n int) *Input {
	nan := math.NaN()
	in := healthyInput().with(figures{timeline.RunningMean: 250, timeline.RunningLower: 250, timeline.RunningUpper: 250, timeline.WaitingMean: 150, timeline.WaitingLower: 150, timeline.WaitingUpper: 150})
	end := in.Windows[30-n].Start
	after := &Input{Windows: in.Windows[30-n:]}
	after.with(figures{
		timeline.RunningMean: nan, timeline.RunningLower: 2, timeline.RunningUpper: 256, timeline.Occupancy: .1, timeline.Completeness: .02,
		timeline.WaitingMean: nan, timeline.WaitingLower: nan, timeline.WaitingUpper: nan, timeline.OutputThroughput: nan, timeline.StepDuration: nan,
	})
	in.LastEnd = end
	in.Requests.Count = int64(50 * (30 - n))
	return in
}

func TestStopped(t *testing.T) {
	for _, test := range []struct {
		name, title string
		change      func(*Input)
		windows     int
	}{
		{"2 min", "No request finishes any more", nil, 12},
		{"the whole period", "No request finishes any more", func(in *Input) { in.LastEnd = in.Windows[0].Start.Add(-time.Minute); in.Requests.Count = 0 }, 29},
		{"a minute less 10 s", "Too little seen yet", func(in *Input) { in.with(figures{timeline.Completeness: .1}) }, 5},
		{"a minute", "No request finishes any more", func(in *Input) { in.with(figures{timeline.Completeness: .1}) }, 6},
		{"requests that seldom end", "Too little seen yet", func(in *Input) { in.Requests.Count = 14 }, 12},
		{"a few more", "No request finishes any more", func(in *Input) { in.Requests.Count = 15 }, 12},
		{"nobody says when", "Too little seen yet", func(in *Input) { in.LastEnd = time.Time{} }, 12},
		{"all seen", "Requests wait for a place in the batch", func(in *Input) { in.with(figures{timeline.Completeness: 1}) }, 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := stoppedInput(test.windows)
			if test.change != nil {
				test.change(in)
			}
			d := evaluateDefault(in)
			assert.Equal(t, test.title, d.Title)
			assert.Equal(t, test.title == "No request finishes any more", d.Cause == CauseStopped)
		})
	}
	d := evaluateDefault(stoppedInput(12))
	assert.Equal(t, NoVerdict, d.Verdict)
	assert.Equal(t, "No request has finished since 09:03:00 UTC, when about 250 ran and 150 waited: the engine hangs or was stopped, or its spans are lost.", d.Sentence)
	assert.InDelta(t, 120, d.Evidence[0].Value, 0)
	in := stoppedInput(12)
	(&Input{Windows: in.Windows[18:20]}).with(figures{timeline.RunningMean: 3, timeline.Completeness: .9})
	assert.Contains(t, evaluateDefault(in).Sentence, "when about 250 ran and 150 waited", "not of a window after the end, of which enough was seen")
	assert.NotEmpty(t, d.Actions)
}

func TestStoppedFigures(t *testing.T) {
	f := Summarize(stoppedInput(12))
	assert.InDelta(t, 250, f.Batch, 1e-9, "not over the limit by the middle of what may run, in the time that was seen")
	assert.InDelta(t, 150, f.Waiting, 1e-9, "18 of 30 windows")
	f = Summarize(stoppedInput(16))
	for name, v := range map[string]float64{
		"waiting": f.Waiting, "least": f.WaitingLower, "most": f.WaitingUpper, "output": f.OutputThroughput,
		"fit": f.CapacityFit, "peak": f.CapacityPeak, "capacity, least": f.CapacityLeast, "capacity, most": f.CapacityMost,
	} {
		assert.True(t, math.IsNaN(v), "%s: 14 of 30 windows say nothing of all", name)
	}
}

func TestNothingOfADeviceThatIsSeveral(t *testing.T) {
	for _, flag := range []timeline.Flags{timeline.MixedEngines, timeline.Sampled} {
		in := healthyInput()
		in.Windows[29].Flags |= flag
		f := Summarize(in)
		for name, v := range map[string]float64{
			"utilization": f.Utilization, "lower": f.Lower, "upper": f.Upper, "wait": f.Wait, "step": f.Step, "gap": f.HostGap, "a": f.StepLawA, "b": f.StepLawB,
			"marginal": f.Marginal, "fit": f.CapacityFit, "peak": f.CapacityPeak, "capacity": f.Capacity,
		} {
			assert.True(t, math.IsNaN(v), name)
		}
		assert.False(t, math.IsNaN(f.Running))
	}
}

// TestFullOnlyIfSoUsed: a batch that is full while requests wait is no full engine where a good part of the capacity is known to be free.
func TestFullOnlyIfSoUsed(t *testing.T) {
	full := func(used float64) bool {
		in := healthyInput().with(figures{timeline.RunningMean: 250, timeline.WaitingMean: 20, timeline.QueuePressure: 1, timeline.CapacityFit: used, timeline.Capacity: 5000, timeline.OutputThroughput: 5000 * used})
		in.Requests.QueueTTFTShare = .8
		d := evaluateDefault(in)
		for _, x := range append(d.Also, d.Finding) {
			if x.Verdict == DeviceBoundFull {
				return true
			}
		}
		return false
	}
	assert.False(t, full(.6))
	assert.True(t, full(.8))
}

// TestRoomIsALowerBound: what is not used in any case is the least there is room for.
func TestRoomIsALowerBound(t *testing.T) {
	in := healthyInput().with(figures{
		timeline.Occupancy: .05, timeline.CapacityFit: math.NaN(), timeline.Capacity: math.NaN(),
		timeline.OutputThroughput: 100, timeline.CapacityLower: 250, timeline.CapacityUpper: 5000, timeline.RunningMean: 1, timeline.WaitingMean: 0,
	})
	d := evaluateDefault(in)
	assert.Equal(t, Idle, d.Verdict)
	if assert.NotNil(t, d.Gain) {
		assert.True(t, d.Gain.AtLeast)
		assert.InDelta(t, 2.5, d.Gain.Factor, 1e-9)
	}
}
