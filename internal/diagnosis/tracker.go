// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// Verdicts over time: one that comes and goes within a window changes nothing.

import (
	"slices"
	"time"
)

// Tracker keeps the verdict of one engine from flickering: a new one comes into force when it was the first in two of the last
// three evaluations, of those since the one in force came: two that take turns do not take turns in force. It is not safe for
// concurrent use.
type Tracker struct {
	c      *Config
	recent []Verdict // first verdicts since the change of the one in force, the newest last, at most remembered
	last   time.Time
	// inForce is the finding in force as it was last found, since its time.
	inForce Finding
	since   time.Time
}

const remembered, needed = 3, 2

// NewTracker makes a Tracker. It keeps c.
func NewTracker(c *Config) *Tracker { return &Tracker{c: c, recent: make([]Verdict, 0, remembered)} }

// Observe is Evaluate with hysteresis; call it once per closed window, in order. The first evaluation counts at once, and so does
// NoVerdict where the data are unusable. While another verdict is in force than the one found first, that one is among Also.
// After more than a period without a call the past is forgotten.
func (t *Tracker) Observe(in *Input) Diagnosis {
	d, unusable := evaluate(t.c, in)
	if gap := d.Time.Sub(t.last); len(t.recent) > 0 && (gap > t.c.Period || gap < -t.c.Period) {
		t.recent = t.recent[:0]
	}
	t.last = d.Time
	first := len(t.recent) == 0
	if len(t.recent) == remembered {
		t.recent = slices.Delete(t.recent, 0, 1)
	}
	t.recent = append(t.recent, d.Verdict)

	votes := 0
	for _, v := range t.recent {
		if v == d.Verdict {
			votes++
		}
	}
	switch {
	case first || unusable || votes >= needed:
		if first || d.Verdict != t.inForce.Verdict {
			t.since = d.Time
			t.recent = append(t.recent[:0], d.Verdict)
		}
		t.inForce = d.Finding
	case d.Verdict == t.inForce.Verdict:
		t.inForce = d.Finding
	default:
		t.hold(&d)
	}
	d.Since = t.since
	return d
}

// hold puts the verdict in force before the one that was found.
func (t *Tracker) hold(d *Diagnosis) {
	kept := t.inForce
	if !slices.ContainsFunc(d.Also, func(x Finding) bool { return x.Verdict == kept.Verdict }) {
		kept.Caveats = append(slices.Clone(kept.Caveats), "The last window no longer says so; a verdict changes when two of three windows agree.")
		if kept.Confidence != None {
			kept.Confidence = Low
		}
	}
	also := make([]Finding, 0, len(d.Also)+1)
	if d.Verdict != NoVerdict && d.Verdict != Healthy { // those are the absence of others
		also = append(also, d.Finding)
	}
	for _, x := range d.Also {
		if x.Verdict == kept.Verdict {
			kept, t.inForce = x, x // with the present figures
			continue
		}
		also = append(also, x)
	}
	d.Finding, d.Also = kept, also
}
