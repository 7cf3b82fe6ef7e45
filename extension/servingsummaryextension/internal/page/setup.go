// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// What is shown while no engine is known: what arrived, what is missing, and what to do about it.

import "github.com/otelcol-serving/otelcol-serving/internal/summary"

type setupView struct {
	// Sources are configured to report here.
	Sources                []summary.Source
	Spans, Dropped         int64
	NoSource, SpansNoMatch bool
	// NoWindows: requests came, but windows are turned off.
	NoWindows    bool
	Requests     int64
	Title, Lead  string
	SpansText    string
	DroppedTitle string
}

func newSetupView(r *summary.Report) *setupView {
	v := &setupView{Sources: r.Sources}
	windows := false
	for _, s := range r.Sources {
		v.Spans += s.Spans
		v.Dropped += s.Dropped
		v.Requests += s.Requests
		windows = windows || s.WindowSeconds > 0
	}
	v.SpansText = plural(v.Spans, "span")
	switch {
	case len(r.Sources) == 0:
		v.NoSource = true
		v.Title = "No component reports here yet"
		v.Lead = "The page runs. What is missing is one line in the configuration of serving_metrics that names it."
	case v.Requests > 0 && !windows:
		v.NoWindows = true
		v.Title = plural(v.Requests, "request") + ", but no windows"
		v.Lead = "Windows are turned off (timeline::window: 0s), and without them nothing can be said about an engine over time."
	case v.Requests > 0:
		v.Title = "The first requests are here"
		v.Lead = plural(v.Requests, "request") + " arrived. Their engine is shown as soon as its first window begins."
	case v.Spans > 0:
		v.SpansNoMatch = true
		v.Title = plural(v.Spans, "span") + ", none is a request"
		if v.Spans == 1 {
			v.Title = "1" + nbsp + "span, and it is no request"
		}
		v.Lead = "Spans arrive, but none of them has what an inference engine reports of a finished request."
	default:
		v.Title = "Ready, and nothing has arrived"
		v.Lead = "This Collector listens. No span has come yet: let an engine send to it, or simulate one."
	}
	return v
}
