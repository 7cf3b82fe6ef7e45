// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// TestSummarizeWeights has two windows of unlike length; a third that knows nothing must not count.
func TestSummarizeWeights(t *testing.T) {
	window := func(start, seconds int, f figures) timeline.Window {
		w := timeline.Window{Start: epoch.Add(time.Duration(start) * time.Second)}
		w.End = w.Start.Add(time.Duration(seconds) * time.Second)
		for k, v := range f {
			w.Set(k, v)
		}
		return w
	}
	a := window(0, 10, figures{
		timeline.Occupancy: 1, timeline.DeviceUtilization: .5, timeline.DeviceLower: .4, timeline.DeviceUpper: .6, timeline.RunningMean: 10, timeline.RunningMax: 12, timeline.WaitingMean: 4,
		timeline.StepDuration: .01, timeline.HostGap: .004, timeline.OutputThroughput: 1000, timeline.Capacity: 2000, timeline.CapacityUpper: 4000, timeline.CapacityLower: 1500, timeline.Completeness: 1, timeline.StepLawA: 1, timeline.StepLawB: 1,
	})
	a.States[timeline.StateDecode], a.States[timeline.StateIdle] = 5*time.Second, 5*time.Second
	a.Flags, a.Mode = timeline.AsyncOutput, timeline.ModeMasked
	b := window(10, 30, figures{
		timeline.Occupancy: .5, timeline.DeviceUtilization: .1, timeline.DeviceLower: .1, timeline.DeviceUpper: .2, timeline.RunningMean: 2, timeline.RunningMax: 5, timeline.WaitingMean: 0,
		timeline.StepDuration: .02, timeline.HostGap: .01, timeline.OutputThroughput: 100, timeline.Capacity: 1000, timeline.CapacityUpper: 2000, timeline.CapacityLower: 500, timeline.Completeness: .8, timeline.StepLawA: .01, timeline.StepLawB: .001,
	})
	b.States[timeline.StateIdle] = 30 * time.Second
	b.Guard = timeline.GuardOK
	c := window(40, 10, nil)
	c.States[timeline.StateUnknown] = 10 * time.Second

	f := Summarize(&Input{Windows: []timeline.Window{a, b, c}, MaxNumSeqs: 20, Requests: Requests{Count: 7}})
	near := func(want, got float64) { t.Helper(); assert.InDelta(t, want, got, 1e-12) }
	assert.Equal(t, 3, f.Windows)
	assert.Equal(t, 50*time.Second, f.Covered)
	assert.EqualValues(t, 7, f.Requests)
	near((10*1+30*.5)/40, f.Occupancy)
	near((10*.5+30*.1)/40, f.Utilization)
	near((10*.4+30*.1)/40, f.Lower)
	near((10*.6+30*.2)/40, f.Upper)
	near(1-(10*.5+30*.1)/(10*1+30*.5), f.Wait)
	near((10*10+30*2)/40., f.Running)
	near(12, f.RunningMax)
	assert.True(t, math.IsNaN(f.WaitingMax))
	near((10*4)/40., f.Waiting)
	near((10*10+30*2.)/(10*1+30*.5), f.Batch)
	near(f.Batch/20, f.Fill)
	near(10./20, f.FillWaiting) // all that waited saw ten
	near((10+15)/(10/.01+15/.02), f.Step)
	near((.004*1000+.01*750)/1750, f.HostGap)
	near((10*1000+30*100.)/(10*2000+30*1000), f.CapacityFit)
	near((10*1000+30*100.)/(10*4000+30*2000), f.CapacityLeast)
	near((10*1000+30*100.)/(10*1500+30*500), f.CapacityMost)
	near((10*2000+30*1000)/40., f.Capacity)
	near((10*1000+30*100)/40., f.OutputThroughput)
	assert.True(t, math.IsNaN(f.InputThroughput))
	near(.01, f.StepLawA)
	near(.001*f.Batch/(.01+.001*f.Batch), f.Marginal)
	near((10*1+30*.8)/40, f.Completeness)
	near(5./50, f.States[timeline.StateDecode])
	near(10./50, f.States[timeline.StateUnknown])
	assert.Equal(t, timeline.AsyncOutput, f.Flags)
	assert.Equal(t, timeline.ModeMasked, f.Mode, "the last that is known")
	assert.Equal(t, timeline.GuardUnknown, f.Guard, "the last window's")

	// Of windows that know a bracket only its middle counts.
	x := window(0, 10, figures{timeline.RunningLower: 10, timeline.RunningUpper: 20, timeline.WaitingLower: 100, timeline.WaitingUpper: 140})
	y := window(10, 10, figures{timeline.RunningMean: 16, timeline.RunningLower: 16, timeline.RunningUpper: 17, timeline.WaitingMean: 80, timeline.WaitingLower: 80, timeline.WaitingUpper: 80})
	z := window(20, 10, figures{timeline.WaitingLower: 70})
	f = Summarize(&Input{Windows: []timeline.Window{x, y, z}})
	near((15+16)/2., f.Running)
	near((10+16)/2., f.RunningLower)
	near((20+17)/2., f.RunningUpper)
	near((120+80)/2., f.Waiting)
	near((100+80+70)/3., f.WaitingLower)
	near((140+80)/2., f.WaitingUpper)

	// A window without a utilization counts in neither sum of Wait.
	d := window(50, 50, figures{timeline.Occupancy: 1, timeline.RunningMean: 1})
	f = Summarize(&Input{Windows: []timeline.Window{a, b, d}})
	near(1-(10*.5+30*.1)/(10*1+30*.5), f.Wait)

	none := Summarize(&Input{})
	assert.True(t, math.IsNaN(none.Occupancy))
	assert.True(t, math.IsNaN(none.Wait))
	assert.True(t, math.IsNaN(none.States[0]))
}

func TestSlope(t *testing.T) {
	at := make([]time.Time, 30)
	v := make([]float64, 30)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for i := range at {
		at[i] = epoch.Add(time.Duration(i) * 10 * time.Second)
		v[i] = 5 + 2*float64(i)*10
	}
	slope, half := Slope(at, v)
	assert.InDelta(t, 2, slope, 1e-9)
	assert.InDelta(t, 0, half, 1e-6)

	slope, half = Slope(at[:4], v[:4])
	assert.True(t, math.IsNaN(slope) && math.IsNaN(half), "four points")
	v[3] = math.NaN()
	slope, _ = Slope(at, v)
	assert.InDelta(t, 2, slope, 1e-9)
	slope, _ = Slope(at[:1:1], nil)
	assert.True(t, math.IsNaN(slope))
	same := []time.Time{epoch, epoch, epoch, epoch, epoch, epoch}
	slope, _ = Slope(same, []float64{1, 2, 3, 4, 5, 6})
	assert.True(t, math.IsNaN(slope), "no time passed")

	// Noise without memory: about one in twenty intervals leaves zero out.
	wrong := 0
	for range 2000 {
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		if s, h := Slope(at, v); math.Abs(s) > h {
			wrong++
		}
	}
	assert.InDelta(t, .05, float64(wrong)/2000, .03)

	// A random walk is what a queue at full load does; an interval without memory would leave zero out in most.
	wrong = 0
	for range 2000 {
		x := 0.
		for i := range v {
			x += rng.NormFloat64()
			v[i] = x
		}
		if s, h := Slope(at, v); math.Abs(s) > h {
			wrong++
		}
	}
	assert.Less(t, float64(wrong)/2000, .4)

	// Growth that speeds up is growth.
	for i := range v {
		v[i] = float64(i * i)
	}
	s, h := Slope(at, v)
	assert.Greater(t, s, h)
}

func TestStudent(t *testing.T) {
	for n, want := range map[float64]float64{3: 3.182, 5: 2.571, 10: 2.228, 28: 2.048, 1000: 1.962} {
		assert.InEpsilon(t, want, student(n), .02, "%v degrees", n)
	}
}
