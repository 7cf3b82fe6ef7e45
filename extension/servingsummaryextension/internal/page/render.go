// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// Which page is shown for which report, and the frame around it.

import (
	"embed"
	"html/template"
	"io"
	"net/url"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

//go:embed templates
var templateFiles embed.FS

// Options of all pages.
type Options struct {
	// Title heads the page; empty: "Serving summary".
	Title string
	// TraceURL has {trace_id} and {span_id} in it; empty: no links to traces.
	TraceURL string
	// Refresh is how often a page fetches new figures; 0: never.
	Refresh time.Duration
	// Asset is the relative address of a file by its name.
	Asset func(name string) string
}

// View is what one request asks for.
type View struct {
	Report *summary.Report
	// Engine is the one to show; nil: the fleet.
	Engine *summary.EngineReport
	// Source is the component that reports Engine.
	Source summary.Source
	// Sort is a column of the fleet's table; empty or unknown: by need of attention.
	Sort       string
	Descending bool
	// Fragment is without the frame, for a page that is open already.
	Fragment bool
}

// Renderer writes pages. Its methods may be called at once.
type Renderer struct {
	options   Options
	templates *template.Template
}

// NewRenderer reads the templates.
func NewRenderer(options Options) (*Renderer, error) {
	if options.Title == "" {
		options.Title = "Serving summary"
	}
	t, err := template.New("").Funcs(template.FuncMap{
		"icon":       icon,
		"confidence": confidence,
		"percent":    percent,
		"seconds":    seconds,
		"count":      count,
		"clock":      clock,
		"iso":        iso,
		"asset":      options.Asset,
		"prose":      prose,
		"breakable":  breakable,
		"webLink":    webLink,
		"cause":      causeText,
	}).ParseFS(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	return &Renderer{options: options, templates: t}, nil
}

// frame is what every page has.
type frame struct {
	Title   string
	Heading string
	// Root leads from the address of the page to that of the first one.
	Root           string
	RefreshSeconds float64
	Report         *summary.Report

	Fleet  *fleetView
	Engine *engineView
	Setup  *setupView
	Error  *errorView

	// Links to the same in other forms; empty where there is none.
	Markdown, JSON, Permalink string
	// More than one engine is known.
	Many bool
}

type errorView struct {
	Status        int
	Text, Message string
}

// Render writes the page of v.
func (r *Renderer) Render(w io.Writer, v View) error {
	f := frame{
		Title: r.options.Title, Heading: r.options.Title, Report: v.Report, RefreshSeconds: r.options.Refresh.Seconds(),
		Many:     len(v.Report.Engines) > 1,
		Markdown: "?format=markdown", JSON: "api/v1/summary", Permalink: "./",
	}
	switch {
	case v.Engine != nil:
		e := &v.Engine.Engine
		f.Engine = newEngineView(v, r.options)
		f.Title = engineName(e) + " – " + r.options.Title
		query := engineQuery(v.Report, e)
		f.Permalink = "?" + query.Encode()
		query.Set("format", "markdown")
		f.Markdown = "?" + query.Encode()
		f.JSON = "api/v1/engines/" + url.PathEscape(e.Key)
		if query.Has("source") {
			f.JSON += "?" + url.Values{"source": {e.Source}}.Encode()
		}
	case len(v.Report.Engines) == 0:
		f.Setup = newSetupView(v.Report)
	default:
		f.Fleet = newFleetView(v)
		if v.Sort != "" {
			f.Permalink = f.Fleet.sortLink(v.Sort, v.Descending)
		}
	}
	name := "page"
	if v.Fragment {
		name = "content"
	}
	return r.templates.ExecuteTemplate(w, name, &f)
}

// Error writes a page that says what is wrong with a request. Root is empty in it, so it links from the host's root.
func (r *Renderer) Error(w io.Writer, root string, status int, text, message string) error {
	return r.templates.ExecuteTemplate(w, "page", &frame{
		Title: text + " – " + r.options.Title, Heading: r.options.Title, Root: root, Error: &errorView{status, text, message},
	})
}

// engineQuery leads to one engine. The source is in it only where another source has an engine of the same key.
func engineQuery(report *summary.Report, e *summary.Engine) url.Values {
	query := url.Values{"engine": {e.Key}}
	for i := range report.Engines {
		if o := &report.Engines[i]; o.Key == e.Key && o.Source != e.Source {
			query.Set("source", e.Source)
		}
	}
	return query
}

// clock is the time of day in UTC. A script makes it the reader's own.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
