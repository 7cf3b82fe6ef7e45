// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

func healthyAt(at time.Time) *Input {
	return shift(healthyInput(), at)
}

func hostAt(at time.Time) *Input {
	return shift(healthyInput().with(figures{timeline.DeviceUtilization: .4, timeline.DeviceLower: .3, timeline.DeviceUpper: .5}), at)
}

func fullAndHostAt(at time.Time) *Input {
	in := hostAt(at).with(figures{timeline.OutputThroughput: 5000})
	in.Peers = &Peers{Engines: 2, CapacityMin: .1, CapacityMax: 1}
	return in
}

func fullAt(at time.Time) *Input {
	in := healthyAt(at).with(figures{timeline.OutputThroughput: 5000})
	in.Peers = &Peers{Engines: 2, CapacityMin: .1, CapacityMax: 1}
	return in
}

func imbalanceAt(at time.Time) *Input {
	in := healthyAt(at)
	in.Peers = &Peers{Engines: 2, CapacityMin: .1, CapacityMax: 1}
	return in
}

func mixedAt(at time.Time) *Input {
	in := healthyAt(at)
	in.Windows[3].Flags |= timeline.MixedEngines
	return in
}

func fewAt(at time.Time) *Input {
	in := healthyAt(at)
	in.Requests.Count = 3
	return in
}

// shift moves the windows so that the last one ends at a moment.
func shift(in *Input, end time.Time) *Input {
	d := end.Sub(in.Windows[len(in.Windows)-1].End)
	for i := range in.Windows {
		in.Windows[i].Start, in.Windows[i].End = in.Windows[i].Start.Add(d), in.Windows[i].End.Add(d)
	}
	return in
}

type observation struct {
	in    func(time.Time) *Input
	want  Verdict
	since int // number of the observation
}

func observeAll(t *testing.T, all []observation) {
	t.Helper()
	c := NewDefaultConfig()
	tracker := NewTracker(&c)
	at := func(i int) time.Time { return epoch.Add(time.Hour + time.Duration(i)*10*time.Second) }
	for i, o := range all {
		d := tracker.Observe(o.in(at(i)))
		assert.Equal(t, o.want.String(), d.Verdict.String(), "observation %d", i)
		assert.Equal(t, at(i), d.Time)
		assert.Equal(t, at(o.since), d.Since, "observation %d", i)
	}
}

func TestTrackerHysteresis(t *testing.T) {
	observeAll(t, []observation{
		{healthyAt, Healthy, 0}, // the first counts at once
		{hostAt, Healthy, 0},    // one is a blip
		{healthyAt, Healthy, 0},
		{hostAt, HostBound, 3}, // two of three
		{healthyAt, HostBound, 3},
		{hostAt, HostBound, 3},
		{healthyAt, Healthy, 6},
		{healthyAt, Healthy, 6},
	})
}

func TestTrackerFlickerChangesNothing(t *testing.T) {
	observeAll(t, []observation{
		{healthyAt, Healthy, 0},
		{healthyAt, Healthy, 0},
		{hostAt, Healthy, 0},
		{imbalanceAt, Healthy, 0},
		{fullAt, Healthy, 0},
		{healthyAt, Healthy, 0},
	})
}

func TestTrackerUnusable(t *testing.T) {
	observeAll(t, []observation{
		{hostAt, HostBound, 0},
		{hostAt, HostBound, 0},
		{mixedAt, NoVerdict, 2}, // at once
		{hostAt, NoVerdict, 2},  // back only with two of three
		{hostAt, HostBound, 4},
		{fewAt, HostBound, 4}, // too few is no reason for haste
		{fewAt, NoVerdict, 6},
	})
}

// TestTrackerGap: after a pause longer than the period the past does not count.
func TestTrackerGap(t *testing.T) {
	c := NewDefaultConfig()
	tracker := NewTracker(&c)
	tracker.Observe(healthyAt(epoch))
	later := epoch.Add(c.Period + time.Second)
	d := tracker.Observe(hostAt(later))
	assert.Equal(t, HostBound, d.Verdict)
	assert.Equal(t, later, d.Since)
}

// TestTrackerKeepsEvidence: the verdict in force comes first with its present figures, the one found first among the others.
func TestTrackerKeepsEvidence(t *testing.T) {
	c := NewDefaultConfig()
	tracker := NewTracker(&c)
	at := func(i int) time.Time { return epoch.Add(time.Duration(i) * 10 * time.Second) }
	tracker.Observe(imbalanceAt(at(0)))
	d := tracker.Observe(fullAndHostAt(at(1)))
	assert.Equal(t, Imbalance, d.Verdict)
	assert.Contains(t, verdictsOf(d.Also), HostBound)
	assert.NotContains(t, verdictsOf(d.Also), Imbalance)
	assert.NotContains(t, d.Caveats, "The last window no longer says so; a verdict changes when two of three windows agree.")
	d = tracker.Observe(healthyAt(at(2)))
	assert.Equal(t, Imbalance, d.Verdict, "one each of three")
	assert.Equal(t, Low, d.Confidence)
	assert.Contains(t, d.Caveats, "The last window no longer says so; a verdict changes when two of three windows agree.")
	assert.Empty(t, d.Also, "healthy is no finding beside another")
}

func verdictsOf(all []Finding) []Verdict {
	var out []Verdict
	for _, f := range all {
		out = append(out, f.Verdict)
	}
	return out
}

// TestTrackerMemory: it keeps three verdicts, however long it runs.
func TestTrackerMemory(t *testing.T) {
	c := NewDefaultConfig()
	tracker := NewTracker(&c)
	for i := range 1000 {
		in := healthyAt
		if i%3 == 0 {
			in = hostAt
		}
		tracker.Observe(in(epoch.Add(time.Duration(i) * 10 * time.Second)))
	}
	assert.Len(t, tracker.recent, remembered)
	assert.LessOrEqual(t, cap(tracker.recent), 4)
	assert.Equal(t, NoVerdict, tracker.Observe(&Input{}).Verdict, "an empty input is no reason to panic")
}
