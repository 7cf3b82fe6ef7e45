// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package web

// The routes. People get the page, programs JSON or Markdown of the same figures.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/markdown"
	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/page"
	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/schema"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// Reporter is where the figures come from; internal/registry is one.
type Reporter interface {
	Report(now time.Time) summary.Report
	Engine(key, source string, now time.Time) (summary.EngineReport, summary.Source, bool)
}

// Options of the handler.
type Options struct {
	// Title heads the page; empty: its own.
	Title string
	// TraceURL has {trace_id} and {span_id} in it; empty: no links.
	TraceURL string
	// Refresh is how often an open page fetches new figures; 0: never.
	Refresh time.Duration
	// LoopbackOnly: the listener can be reached from this machine only, so that a foreign host name in a request is an attack.
	LoopbackOnly bool
	// Now is the clock.
	Now func() time.Time
	// Failed is told of what went wrong here, and not in the request.
	Failed func(error)
}

type handler struct {
	reporter Reporter
	options  Options
	renderer *page.Renderer
	assets   assets
}

// New makes the handler of everything below /.
func New(reporter Reporter, options Options) (http.Handler, error) {
	a := newAssets()
	renderer, err := page.NewRenderer(page.Options{
		Title:    options.Title,
		TraceURL: options.TraceURL,
		Refresh:  options.Refresh,
		Asset:    a.path,
	})
	if err != nil {
		return nil, err
	}
	h := &handler{reporter: reporter, options: options, renderer: renderer, assets: a}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", h.page)
	mux.HandleFunc("/api/v1/summary", h.apiSummary)
	mux.HandleFunc("/api/v1/engines/{key}", h.apiEngine)
	mux.HandleFunc("/api/v1/schema", h.apiSchema)
	mux.HandleFunc("/static/{name}", h.static)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusNotFound, "There is nothing at this address.")
	})
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1024), gzhttp.ContentTypeFilter(gzhttp.DefaultContentTypeFilter))
	if err != nil {
		return nil, err
	}
	return compress(h.guard(mux)), nil
}

// page is /: the fleet, or one engine of it.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		h.fail(w, r, http.StatusBadRequest, "The part of the address behind the question mark cannot be read.")
		return
	}
	now := h.options.Now()
	report := h.reporter.Report(now)
	key, source := query.Get("engine"), query.Get("source")
	if key == "" && len(report.Engines) == 1 && query.Get("view") != "fleet" {
		key, source = report.Engines[0].Key, report.Engines[0].Source
	}
	var engine *summary.EngineReport
	var from summary.Source
	if key != "" {
		one, src, ok := h.reporter.Engine(key, source, now)
		if !ok {
			h.fail(w, r, http.StatusNotFound, "No engine with this key is known now. It may have been silent for so long that it was forgotten.")
			return
		}
		engine, from = &one, src
	}
	var body bytes.Buffer
	switch format := query.Get("format"); format {
	case "", "html":
		view := page.View{Report: &report, Engine: engine, Source: from, Sort: query.Get("sort"), Descending: query.Get("dir") == "desc", Fragment: query.Get("fragment") == "1"}
		if err := h.renderer.Render(&body, view); err != nil {
			h.broken(w, r, err)
			return
		}
		h.send(w, r, "text/html; charset=utf-8", body.Bytes())
	case "json":
		if engine != nil {
			h.json(w, r, engine)
			return
		}
		h.json(w, r, report)
	case "markdown":
		if engine != nil {
			markdown.Engine(&body, engine, from)
		} else {
			markdown.Fleet(&body, &report)
		}
		h.send(w, r, "text/markdown; charset=utf-8", body.Bytes())
	default:
		h.fail(w, r, http.StatusBadRequest, "The format must be html, json or markdown.")
	}
}

func (h *handler) apiSummary(w http.ResponseWriter, r *http.Request) {
	h.json(w, r, h.reporter.Report(h.options.Now()))
}

func (h *handler) apiEngine(w http.ResponseWriter, r *http.Request) {
	report, _, ok := h.reporter.Engine(r.PathValue("key"), r.URL.Query().Get("source"), h.options.Now())
	if !ok {
		h.fail(w, r, http.StatusNotFound, "No engine with this key is known now.")
		return
	}
	h.json(w, r, report)
}

func (h *handler) apiSchema(w http.ResponseWriter, r *http.Request) {
	h.send(w, r, "application/schema+json", schema.JSON)
}

func (h *handler) static(w http.ResponseWriter, r *http.Request) {
	a, ok := h.assets[r.PathValue("name")]
	if !ok {
		h.fail(w, r, http.StatusNotFound, "There is no such file. The page may be of an older version: reload it.")
		return
	}
	// The name has a hash of the content in it.
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	write(w, r, http.StatusOK, a.contentType, a.content)
}

func (h *handler) json(w http.ResponseWriter, r *http.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		h.broken(w, r, err)
		return
	}
	h.send(w, r, "application/json", append(body, '\n'))
}

// send answers with figures, which are old as soon as they are sent.
func (h *handler) send(w http.ResponseWriter, r *http.Request, contentType string, body []byte) {
	w.Header().Set("Cache-Control", "no-store")
	write(w, r, http.StatusOK, contentType, body)
}

func write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client went away
}

func (h *handler) broken(w http.ResponseWriter, r *http.Request, err error) {
	h.options.Failed(fmt.Errorf("%s: %w", r.URL.Path, err))
	h.fail(w, r, http.StatusInternalServerError, "The figures are there, but could not be written. The Collector's log says why.")
}

// fail says what is wrong. Nothing of the request is repeated in it.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, message string) {
	w.Header().Set("Cache-Control", "no-store")
	if strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Query().Get("format") == "json" {
		type problem struct {
			Status  int    `json:"status"`
			Message string `json:"message"`
		}
		body, _ := json.Marshal(map[string]problem{"error": {status, message}}) // an int and a string
		write(w, r, status, "application/json", append(body, '\n'))
		return
	}
	var body bytes.Buffer
	if err := h.renderer.Error(&body, root(r.URL.Path), status, http.StatusText(status), message); err != nil {
		h.options.Failed(err)
		body.Reset()
		body.WriteString(message)
	}
	write(w, r, status, "text/html; charset=utf-8", body.Bytes())
}

// root leads from path back to /, so that a proxy may put the whole under a path of its own.
func root(path string) string {
	if depth := strings.Count(path, "/") - 1; depth > 0 {
		return strings.Repeat("../", min(depth, 64))
	}
	return "./"
}
