// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// All engines: how many need attention, the worst ones with what to do, where all of them lie, and a table.

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// strips is how many engines have their verdict told in a sentence above the table.
const strips = 6

type fleetView struct {
	Severity Severity
	Title    string
	Lead     string
	Counts   []severityCount
	Strips   []stripView
	More     int // engines in need that have no strip
	Map      template.HTML
	OnMap    int
	Rows     []rowView
	Columns  []columnView
	Overflow bool
	// SortedBy is the name of the column that orders the table.
	SortedBy string
}

type severityCount struct {
	Severity Severity
	Count    int
	Label    string
}

type stripView struct {
	Severity                    Severity
	Name, Kind, Link            string
	Label, Title, Sentence      string
	Confidence                  string
	Action                      *summary.Action
	Gain, GainLabel             string
	Busy, Capacity              string
	BusyBar, CapacityBar        template.HTML
	BusyFormula, CapacityDetail string
}

type columnView struct {
	Name, Label, Title string
	Link               string
	Sort               string // aria-sort
	Class              string
}

type rowView struct {
	Severity           Severity
	Name, Sub, Link    string
	Verdict            string
	Confidence         string
	Busy, Capacity     string
	BusyBar, CapBar    template.HTML
	Occupied           string
	Waiting, TTFT      string
	Rate, Status       string
	Stale              bool
	BusyNote, CapTitle string
}

// columns of the table, each with the order in which one looks for trouble.
var columns = []struct {
	name, label, title, class string
	descending                bool
	value                     func(*summary.Engine) float64
}{
	{"engine", "Engine", "service and instance", "", false, nil},
	{"verdict", "Verdict", "what it suffers from; sorted by need of attention", "", false, nil},
	{"busy", "Device busy", "time of forward passes / wall time", "num", true, func(e *summary.Engine) float64 { return orNaN(e.Figures.Utilization) }},
	{"capacity", "Capacity used", "output tokens per second / those of a full engine", "num", true, func(e *summary.Engine) float64 { v, _ := capacityOf(&e.Figures); return v }},
	{"occupied", "Occupied", "time with a running request / wall time", "num wide", true, func(e *summary.Engine) float64 { return orNaN(e.Figures.Occupancy) }},
	{"waiting", "Waiting", "mean number of requests before their first step; a range where some of them have not been seen yet", "num", true, func(e *summary.Engine) float64 { return e.Figures.WaitingCount().Value() }},
	{"ttft", "TTFT p95", "time to first token that 95 % of requests stay below", "num", true, func(e *summary.Engine) float64 {
		if e.Requests.TTFT == nil {
			return math.NaN()
		}
		return e.Requests.TTFT.P95
	}},
	{"rate", "Requests/s", "finished requests per second", "num wide", true, func(e *summary.Engine) float64 { return orNaN(e.Requests.Rate) }},
	{"age", "Figures", "how old they are", "wide", true, func(e *summary.Engine) float64 { return orNaN(e.AgeSeconds) }},
}

func newFleetView(v View) *fleetView {
	engines := v.Report.Engines
	f := &fleetView{SortedBy: "need of attention"}
	counts := map[Severity]int{}
	for i := range engines {
		counts[engineSeverity(&engines[i])]++
	}
	for _, c := range []severityCount{
		{Critical, 0, "critical"}, {Warning, 0, "losing speed"}, {Info, 0, "could be smaller"}, {Unknown, 0, "no verdict"}, {OK, 0, "healthy"},
	} {
		if c.Count = counts[c.Severity]; c.Count > 0 {
			f.Counts = append(f.Counts, c)
		}
	}
	need := counts[Critical] + counts[Warning]
	switch {
	case need > 0:
		f.Severity = Warning
		if counts[Critical] > 0 {
			f.Severity = Critical
		}
		f.Title = fmt.Sprintf("%d of %d engines need attention", need, len(engines))
		if need == 1 {
			f.Title = fmt.Sprintf("1 of %d engines needs attention", len(engines))
		}
	case counts[Unknown] == len(engines):
		f.Severity, f.Title = Unknown, fmt.Sprintf("%d engines, and no verdict yet", len(engines))
	case counts[Info] > 0:
		f.Severity, f.Title = Info, fmt.Sprintf("No trouble, but %d of %d engines could be smaller", counts[Info], len(engines))
	default:
		f.Severity, f.Title = OK, fmt.Sprintf("All %d engines are well", len(engines))
		if counts[Unknown] > 0 {
			f.Title = "No trouble found so far"
		}
	}
	if unknown := counts[Unknown]; unknown > 0 && unknown < len(engines) {
		f.Title += fmt.Sprintf("; %d of %d without a verdict", unknown, len(engines))
	}
	f.Lead = commonTrouble(engines)

	var points []point
	for i := range engines {
		e := &engines[i]
		link := "?" + engineQuery(v.Report, e).Encode()
		severity := engineSeverity(e)
		if severity == Critical || severity == Warning {
			if len(f.Strips) < strips {
				f.Strips = append(f.Strips, newStrip(e, severity, link))
			} else {
				f.More++
			}
		}
		if capacity, basis := capacityOf(&e.Figures); known(e.Figures.Utilization) && basis == "fit" && e.Status != summary.StatusStale {
			points = append(points, point{
				name: engineName(e), href: link, severity: severity, busy: *e.Figures.Utilization, capacityUsed: capacity,
				lower: math.NaN(), upper: math.NaN(),
			})
		}
	}
	if f.OnMap = len(points); f.OnMap > 0 {
		f.Map = axesMap("fleet-map", points, true)
	}
	for _, s := range v.Report.Sources {
		f.Overflow = f.Overflow || s.Overflow
	}
	f.table(v)
	return f
}

// commonTrouble says what most of those in need suffer from.
func commonTrouble(engines []summary.Engine) string {
	byVerdict := map[string]int{}
	var order []string
	for i := range engines {
		if s := engineSeverity(&engines[i]); s == Critical || s == Warning {
			label := strings.ToLower(findingLabel(&engines[i].Diagnosis.Finding))
			if byVerdict[label] == 0 {
				order = append(order, label)
			}
			byVerdict[label]++
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return byVerdict[b] - byVerdict[a] })
	var words []string
	for _, label := range order[:min(3, len(order))] {
		words = append(words, strconv.Itoa(byVerdict[label])+nbsp+"×"+nbsp+label)
	}
	if len(order) > 3 {
		words = append(words, "and others")
	}
	return strings.Join(words, ", ")
}

func newStrip(e *summary.Engine, severity Severity, link string) stripView {
	s := stripView{
		Severity: severity, Name: engineName(e), Kind: engineKind(e), Link: link,
		Label: findingLabel(&e.Diagnosis.Finding), Title: e.Diagnosis.Title, Sentence: e.Diagnosis.Sentence, Confidence: e.Diagnosis.Confidence,
		Gain: gainText(e.Diagnosis.Gain), GainLabel: gainLabel(e.Diagnosis.Gain), Busy: opt(e.Figures.Utilization, percent),
		BusyBar: bar("busy", e.Figures.Utilization, e.Figures.UtilizationLower, e.Figures.UtilizationUpper),
	}
	if len(e.Diagnosis.Actions) > 0 {
		s.Action = &e.Diagnosis.Actions[0]
	}
	value, basis := capacityOf(&e.Figures)
	s.Capacity, s.CapacityDetail = capacityText(&e.Figures)
	if basis == "fit" { // a bar would pass for a measured value
		s.CapacityBar = bar("capacity", &value, nil, nil)
	}
	return s
}

func (f *fleetView) table(v View) {
	engines := slices.Clone(v.Report.Engines)
	for _, c := range columns {
		view := columnView{Name: c.name, Label: c.label, Title: c.title, Class: c.class, Link: f.sortLink(c.name, c.descending)}
		if c.name == v.Sort || v.Sort == "" && c.name == "verdict" {
			view.Sort = "ascending"
			if v.Descending || v.Sort == "" {
				view.Sort = "descending"
			}
			view.Link = f.sortLink(c.name, !v.Descending)
			if v.Sort != "" {
				f.SortedBy = strings.ToLower(c.label)
			}
		}
		f.Columns = append(f.Columns, view)
		if c.name != v.Sort {
			continue
		}
		switch {
		case c.value != nil:
			slices.SortStableFunc(engines, func(a, b summary.Engine) int {
				x, y := c.value(&a), c.value(&b)
				if math.IsNaN(x) || math.IsNaN(y) { // unknown last, in both directions
					return cmp.Compare(b2i(math.IsNaN(x)), b2i(math.IsNaN(y)))
				}
				if v.Descending {
					x, y = y, x
				}
				return cmp.Compare(x, y)
			})
		case c.name == "engine":
			slices.SortStableFunc(engines, func(a, b summary.Engine) int { return strings.Compare(engineName(&a), engineName(&b)) })
			if v.Descending {
				slices.Reverse(engines)
			}
		case !v.Descending: // they come in the order of need
			slices.Reverse(engines)
		}
	}
	for i := range engines {
		e := &engines[i]
		value, basis := capacityOf(&e.Figures)
		row := rowView{
			Severity: engineSeverity(e), Name: engineName(e), Sub: strings.Join(append([]string{engineKind(e)}, e.Models...), " · "),
			Link: "?" + engineQuery(v.Report, e).Encode(), Verdict: findingLabel(&e.Diagnosis.Finding), Confidence: e.Diagnosis.Confidence,
			Busy: opt(e.Figures.Utilization, percent), Occupied: opt(e.Figures.Occupancy, percent),
			Waiting: countText(e.Figures.WaitingCount()), TTFT: absent, Rate: opt(e.Requests.Rate, digits),
			Status: statusLabels[e.Status], Stale: e.Status == summary.StatusStale,
			BusyBar: bar("busy", e.Figures.Utilization, nil, nil),
		}
		if e.Requests.TTFT != nil {
			row.TTFT = seconds(e.Requests.TTFT.P95)
		}
		row.Capacity, row.CapTitle = capacityText(&e.Figures)
		if basis == "fit" {
			row.CapBar = bar("capacity", &value, nil, nil)
		}
		if !known(e.Figures.Utilization) {
			row.BusyNote = "The engine's spans have no forward times"
		}
		switch {
		case e.Status == summary.StatusCollecting:
			row.Verdict = "Collecting"
		case known(e.AgeSeconds):
			row.Status = age(e)
		}
		f.Rows = append(f.Rows, row)
	}
}

func (*fleetView) sortLink(column string, descending bool) string {
	query := url.Values{"sort": {column}, "view": {"fleet"}}
	if descending {
		query.Set("dir", "desc")
	}
	return "?" + query.Encode() + "#engines"
}

// age is how old the figures of an engine are. Those of an engine that sends now and has another time are not old: its clock is
// off, or its spans are replayed or simulated.
func age(e *summary.Engine) string {
	const lag = 15 * time.Minute // windows of long requests close so late
	a := secondsOf(*e.AgeSeconds)
	switch live := e.Status == summary.StatusCurrent; {
	case a < -time.Minute:
		return "clock " + span(-a) + " ahead"
	case a < 0:
		return "now"
	case live && a > lag:
		return "clock " + span(a) + " behind"
	}
	return span(a) + " ago"
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// capacityOf is the capacity used and its basis: fit where it is known and still is, else the middle of its bracket, else peak. NaN: neither.
func capacityOf(f *summary.Figures) (value float64, basis string) {
	bracket := known(f.CapacityLower) && known(f.CapacityUpper)
	if known(f.CapacityFit) && !(bracket && f.StepLaw != nil && !f.StepLaw.Extrapolates) {
		return *f.CapacityFit, "fit"
	}
	if bracket {
		return (*f.CapacityLower + *f.CapacityUpper) / 2, "bracket"
	}
	if known(f.CapacityPeak) {
		return *f.CapacityPeak, "peak"
	}
	return math.NaN(), ""
}

// capacityText says on which side of the truth the figure can lie. The highest rate seen is at most what the engine can
// do, so that the share of it is at least the share used; a law fitted to small batches promises too much, the other way round.
func capacityText(f *summary.Figures) (text, title string) {
	value, basis := capacityOf(f)
	switch basis {
	case "fit":
		if f.StepLaw != nil && !f.StepLaw.Extrapolates {
			return "≥" + nbsp + percent(value), "output tokens per second / those of a full batch; batches seen were too small to be sure"
		}
		return percent(value), "output tokens per second / those of a full engine"
	case "bracket":
		return percents(*f.CapacityLower, *f.CapacityUpper), "output tokens per second / those of a full engine, which are known no better"
	case "peak":
		return "≤" + nbsp + percent(value), "output tokens per second / the most seen so far; the engine may be able to do more"
	default:
		return absent, "no output token counts, or no decode seen"
	}
}

// percents is from one share to another.
func percents(lower, upper float64) string {
	from, to := percent(lower), percent(upper)
	if from == to {
		return to
	}
	return strings.TrimSuffix(from, nbsp+"%") + "–" + to
}

func gainText(g *summary.Gain) string {
	if g == nil || g.Factor <= 0 || math.IsNaN(g.Factor) || math.IsInf(g.Factor, 0) {
		return ""
	}
	factor := trimZero(strconv.FormatFloat(g.Factor, 'f', 2, 64))
	if g.Factor >= 2 {
		factor = trimZero(strconv.FormatFloat(g.Factor, 'f', 1, 64))
	}
	if g.Factor < 1 {
		return "down to " + factor + "× " + g.Of
	}
	if g.AtLeast {
		return "at least " + factor + "× " + g.Of
	}
	return "up to " + factor + "× " + g.Of
}

func gainLabel(g *summary.Gain) string {
	if g != nil && g.Factor < 1 {
		return "To save"
	}
	return "To gain"
}
