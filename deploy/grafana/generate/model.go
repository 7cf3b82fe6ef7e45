// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Dashboards as Grafana reads them (schema 38, Grafana 10.0), and what all of ours have in common.

import (
	"cmp"
	"fmt"
	"strings"
)

// object is a part of the schema that only some kind of panel has.
type object map[string]any

type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Timezone      string     `json:"timezone"`
	Templating    templating `json:"templating"`
	Annotations   object     `json:"annotations"`
	Links         []object   `json:"links"`
	Panels        []*panel   `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name        string      `json:"name"`
	Label       string      `json:"label"`
	Description string      `json:"description"`
	Type        string      `json:"type"`
	Query       any         `json:"query"`
	Datasource  *datasource `json:"datasource,omitempty"`
	Definition  string      `json:"definition,omitempty"`
	Refresh     int         `json:"refresh"`
	Sort        int         `json:"sort"`
	Multi       bool        `json:"multi"`
	IncludeAll  bool        `json:"includeAll"`
	AllValue    string      `json:"allValue,omitempty"`
	Current     object      `json:"current"`
	Hide        int         `json:"hide"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID              int          `json:"id"`
	Type            string       `json:"type"`
	Title           string       `json:"title"`
	Description     string       `json:"description,omitempty"`
	Datasource      *datasource  `json:"datasource,omitempty"`
	GridPos         gridPos      `json:"gridPos"`
	Collapsed       *bool        `json:"collapsed,omitempty"`
	Targets         []target     `json:"targets,omitempty"`
	FieldConfig     *fieldConfig `json:"fieldConfig,omitempty"`
	Options         object       `json:"options,omitempty"`
	Transformations []object     `json:"transformations,omitempty"`
	// Panels is that of a row which is not collapsed: empty, and there.
	Panels *[]*panel `json:"panels,omitempty"`
}

type gridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

type target struct {
	RefID        string      `json:"refId"`
	Datasource   *datasource `json:"datasource"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat"`
	Format       string      `json:"format"`
	Range        bool        `json:"range"`
	Instant      bool        `json:"instant"`
	Exemplar     bool        `json:"exemplar"`
}

type fieldConfig struct {
	Defaults  object     `json:"defaults"`
	Overrides []override `json:"overrides"`
}

type override struct {
	Matcher    object     `json:"matcher"`
	Properties []property `json:"properties"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

// prometheus is whatever the variable datasource has.
var prometheus = &datasource{Type: "prometheus", UID: "${datasource}"}

const (
	uidOverview  = "llm-serving-overview"
	uidEngine    = "llm-serving-engine"
	uidCollector = "llm-serving-collector"

	repository = "https://github.com/otelcol-serving/otelcol-serving/blob/main/"
)

// newDashboard has the variable datasource and variables.
func newDashboard(uid, title, description string, variables ...variable) *dashboard {
	return &dashboard{
		UID: uid, Title: title, Description: description, Tags: []string{"llm-serving"},
		SchemaVersion: 38, Editable: true, GraphTooltip: 1, Refresh: "30s", Time: timeRange{From: "now-1h", To: "now"},
		Templating: templating{List: append([]variable{{
			Name: "datasource", Label: "Data source", Description: "A Prometheus that scrapes the collector.", Type: "datasource",
			Query: "prometheus", Refresh: 1, Current: object{},
		}}, variables...)},
		Annotations: object{"list": []object{}},
		Links: []object{
			{
				"type": "dashboards", "title": "LLM serving", "tags": []string{"llm-serving"}, "icon": "external link", "tooltip": "", "url": "",
				"asDropdown": true, "includeVars": true, "keepTime": true, "targetBlank": false,
			},
			page("Runbook", "docs/runbook.md"),
			page("Metrics", "docs/metrics.md"),
		},
	}
}

// page is a link to one of the repository.
func page(title, path string) object {
	return object{
		"type": "link", "title": title, "url": repository + path, "icon": "doc", "tooltip": path, "tags": []string{},
		"asDropdown": false, "includeVars": false, "keepTime": false, "targetBlank": true,
	}
}

// labelVariable offers the values of a label of a metric.
func labelVariable(name, label, description, metric, of string) variable {
	query := fmt.Sprintf("label_values(%s, %s)", metric, of)
	return variable{
		Name: name, Label: label, Description: description, Type: "query", Datasource: prometheus, Definition: query,
		Query: object{"qryType": 1, "query": query, "refId": "variable"}, Refresh: 2, Sort: 1, Current: object{},
	}
}

// several lets the user choose more than one value, or all, also series without the label.
func (v variable) several() variable {
	v.Multi, v.IncludeAll, v.AllValue = true, true, ".*"
	v.Current = object{"text": []string{"All"}, "value": []string{"$__all"}}
	return v
}

// add puts a row of panels, from left to right, under what is there.
func (d *dashboard) add(row string, panels ...*panel) {
	x, y, height := 0, d.bottom(), 0
	if row != "" {
		collapsed := false
		d.place(&panel{Type: "row", Title: row, Collapsed: &collapsed, Panels: &[]*panel{}, GridPos: gridPos{W: 24, H: 1}}, 0, y)
		y++
	}
	for _, p := range panels {
		if x+p.GridPos.W > 24 {
			x, y, height = 0, y+height, 0
		}
		d.place(p, x, y)
		x += p.GridPos.W
		height = max(height, p.GridPos.H)
	}
}

func (d *dashboard) place(p *panel, x, y int) {
	p.ID, p.GridPos.X, p.GridPos.Y = len(d.Panels)+1, x, y
	d.Panels = append(d.Panels, p)
}

func (d *dashboard) bottom() int {
	bottom := 0
	for _, p := range d.Panels {
		bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
	}
	return bottom
}

// about is what every panel says of itself.
type about struct {
	title string
	// text says what one sees and how to read it, formula the metric and how the figure is computed.
	text, formula string
	// unit is Grafana's name of it.
	unit string
	// absent says why there may be nothing to see.
	absent string
}

// newPanel is w columns (of 24) wide and h rows high.
func newPanel(kind string, w, h int, a about, targets ...target) *panel {
	for i := range targets {
		targets[i].RefID = string(rune('A' + i))
	}
	return &panel{
		Type: kind, Title: a.title, Description: a.text + "\n\n" + a.formula, Datasource: prometheus, GridPos: gridPos{W: w, H: h}, Targets: targets,
		FieldConfig: &fieldConfig{Defaults: object{"unit": a.unit, "noValue": cmp.Or(a.absent, "no data")}, Overrides: []override{}},
		Options:     object{},
	}
}

// over is a query over the time shown.
func over(legend, expr string) target {
	return target{Datasource: prometheus, Expr: flat(expr), LegendFormat: legend, Format: "time_series", Range: true}
}

// now is a query at the end of the time shown.
func now(legend, expr string) target {
	return target{Datasource: prometheus, Expr: flat(expr), LegendFormat: legend, Format: "time_series", Instant: true}
}

// cells is a query for a table.
func cells(expr string) target {
	return target{Datasource: prometheus, Expr: flat(expr), Format: "table", Instant: true}
}

// buckets is a query for a heatmap.
func buckets(expr string) target {
	return target{Datasource: prometheus, Expr: flat(expr), LegendFormat: "{{le}}", Format: "heatmap", Range: true}
}

// exemplars asks for exemplars too, which lead to traces.
func (t target) exemplars() target {
	t.Exemplar = true
	return t
}

// flat writes a query that was broken over lines in one.
func flat(expr string) string { return strings.Join(strings.Fields(expr), " ") }

// stat is one number.
func stat(w, h int, a about, targets ...target) *panel {
	p := newPanel("stat", w, h, a, targets...)
	p.Options = object{
		"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		"colorMode":     "value", "graphMode": "none", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
		"wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
	}
	return p
}

// series are lines over time.
func series(w, h int, a about, targets ...target) *panel {
	p := newPanel("timeseries", w, h, a, targets...)
	p.FieldConfig.Defaults["custom"] = object{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "showPoints": "never", "spanNulls": false, "axisSoftMin": 0,
	}
	p.Options = object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	return p
}

// stacked makes the lines areas on top of each other.
func (p *panel) stacked() *panel {
	custom := p.FieldConfig.Defaults["custom"].(object)
	custom["stacking"], custom["fillOpacity"], custom["lineWidth"] = object{"mode": "normal", "group": "A"}, 80, 0
	return p
}

// upTo ends the axis.
func (p *panel) upTo(limit float64) *panel {
	p.FieldConfig.Defaults["min"], p.FieldConfig.Defaults["max"] = 0, limit
	return p
}

// timeline is a state of each series over time.
func timeline(w, h int, a about, targets ...target) *panel {
	p := newPanel("state-timeline", w, h, a, targets...)
	p.FieldConfig.Defaults["custom"] = object{"lineWidth": 0, "fillOpacity": 80}
	p.Options = object{
		"mergeValues": true, "showValue": "auto", "alignValue": "left", "rowHeight": 0.8,
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": false, "calcs": []string{}},
		"tooltip": object{"mode": "single", "sort": "none"},
	}
	return p
}

// heatmap shows how the values of a Prometheus histogram are spread.
func heatmap(w, h int, a about, targets ...target) *panel {
	p := newPanel("heatmap", w, h, a, targets...)
	p.Options = object{
		"calculate": false, "cellGap": 1, "legend": object{"show": true}, "showValue": "never",
		"color":   object{"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "reverse": false, "fill": "dark-blue"},
		"yAxis":   object{"axisPlacement": "left", "unit": a.unit, "reverse": false},
		"tooltip": object{"mode": "single", "yHistogram": false, "showColorScale": false}, "rowsFrame": object{"layout": "auto"},
		"exemplars":    object{"color": "orange"},
		"filterValues": object{"le": 1e-9},
	}
	return p
}

// color gives a series its colour.
func (p *panel) color(name, color string) *panel {
	return p.override(name, property{"color", object{"mode": "fixed", "fixedColor": color}})
}

// band fills what is between the series upper and lower in the colour of line, the figure that they are the bracket of.
func (p *panel) band(line, upper, lower, color string) *panel {
	c := property{"color", object{"mode": "fixed", "fixedColor": color}}
	p.override(upper, c, property{"custom.lineWidth", 0}, property{"custom.fillOpacity", 20}, property{"custom.fillBelowTo", lower})
	p.override(lower, c, property{"custom.lineWidth", 0})
	return p.override(line, c, property{"custom.lineWidth", 2})
}

func (p *panel) override(name string, properties ...property) *panel {
	p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, override{object{"id": "byName", "options": name}, properties})
	return p
}

// steps colours values by the thresholds that they reach: base, then pairs of a threshold and a colour.
func (p *panel) steps(base string, steps ...any) *panel {
	list := []object{{"color": base, "value": nil}}
	for i := 0; i < len(steps); i += 2 {
		list = append(list, object{"value": steps[i], "color": steps[i+1]})
	}
	p.FieldConfig.Defaults["thresholds"] = object{"mode": "absolute", "steps": list}
	p.FieldConfig.Defaults["color"] = object{"mode": "thresholds"}
	return p
}

// link leads from each value to url.
func (p *panel) link(title, url string) *panel {
	p.FieldConfig.Defaults["links"] = []object{{"title": title, "url": url}}
	return p
}

// verdicts are the values of the attribute verdict, with a word for people and a colour by who has to do something.
var verdicts = []struct{ value, word, color string }{
	{"no_verdict", "no verdict", "#808080"},
	{"idle", "idle", "light-blue"},
	{"queue_bound_admission", "queue: batch limit", "orange"},
	{"queue_bound_kv", "queue below batch limit", "dark-orange"},
	{"host_bound", "host-bound", "purple"},
	{"device_bound_full", "full", "red"},
	{"device_bound_past_knee", "batch too large for SLO", "semi-dark-orange"},
	{"prefill_heavy", "prompts dominate", "yellow"},
	{"prefill_interference", "prompts stall decoding", "dark-yellow"},
	{"decode_headroom", "headroom", "light-green"},
	{"frontend_bound", "API server", "light-purple"},
	{"overload_building", "overload builds", "dark-red"},
	{"workload_shift", "workload changed", "blue"},
	{"imbalance", "uneven load", "dark-blue"},
	{"healthy", "healthy", "green"},
}

// verdictNumber is the place of the verdict in force in verdicts, from 1 on, for each engine: Grafana shows numbers over time.
func verdictNumber(selector string) string {
	var terms []string
	for i, v := range verdicts {
		terms = append(terms, fmt.Sprintf(`%d * max by (job, instance) (llm_serving_engine_verdict_ratio{%s,verdict=%q} == 1)`, i+1, selector, v.value))
	}
	return strings.Join(terms, " or ")
}

// verdictMappings turn verdict numbers, or with byName the attribute's values, into words.
func verdictMappings(byName bool) []object {
	options := object{}
	for i, v := range verdicts {
		key := fmt.Sprint(i + 1)
		if byName {
			key = v.value
		}
		options[key] = object{"text": v.word, "color": v.color, "index": i}
	}
	return []object{{"type": "value", "options": options}}
}

const (
	verdictAbsent  = "no verdict yet: the first windows take about a minute and a half"
	windowsAbsent  = "no closed window yet, or timeline::window is 0s"
	deviceAbsent   = "no device figures: vLLM V1 reports no forward time, V0 only with --collect-detailed-traces all"
	sloAbsent      = "no objectives: set slo in serving_metrics"
	capacityAbsent = "no capacity: set engine::max_num_seqs and engine::kv_cache_tokens; batches near a fourth of what they allow must have been seen"
	requestsAbsent = "no finished requests in this time"
)

// stateColors are those of the states of an engine: green where the device works, warm where its host does.
func (p *panel) stateColors() *panel {
	for _, s := range [][2]string{
		{"prefill", "dark-green"},
		{"decode", "green"},
		{"execute_host", "yellow"},
		{"scheduler", "orange"},
		{"host_other", "red"},
		{"occupied", "blue"},
		{"idle", "#606060"},
		{"unknown", "#303030"},
	} {
		p.color(s[0], s[1])
	}
	return p
}
