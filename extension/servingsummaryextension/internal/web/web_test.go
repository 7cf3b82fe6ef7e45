// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package web

// Requests to the handler, over every state.

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/internal/registry"
	"github.com/otelcol-serving/otelcol-serving/extension/servingsummaryextension/schema"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
	"github.com/otelcol-serving/otelcol-serving/test/browser/fixtures"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newHandler(t testing.TB, state string, change ...func(*Options)) http.Handler {
	s, ok := fixtures.Named(state)
	require.True(t, ok, state)
	r := registry.New(summary.Collector{Name: "otelcol-serving", Version: "0.1.0"})
	for _, reporter := range s.Make(fixtures.Epoch) {
		r.Register(reporter)
	}
	o := Options{
		TraceURL: "https://traces.example.com/{trace_id}?span={span_id}", Refresh: 5 * time.Second, LoopbackOnly: true,
		Now: func() time.Time { return fixtures.Epoch }, Failed: func(err error) { t.Errorf("failed: %v", err) },
	}
	for _, c := range change {
		c(&o)
	}
	h, err := New(r, o)
	require.NoError(t, err)
	return h
}

func do(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.Host = "localhost:8686"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// addresses of a state's pages: the first one, and that of each engine.
func addresses(t testing.TB, h http.Handler) []string {
	w := do(h, http.MethodGet, "/api/v1/summary")
	require.Equal(t, http.StatusOK, w.Code)
	var report summary.Report
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &report))
	all := []string{"/"}
	for i := range report.Engines {
		if i < 12 {
			all = append(all, "/?engine="+escape(report.Engines[i].Key))
		}
	}
	return all
}

func escape(s string) string {
	return strings.NewReplacer("%", "%25", "&", "%26", "<", "%3C", ">", "%3E", "=", "%3D", " ", "%20").Replace(s)
}

func TestEveryPage(t *testing.T) {
	for _, state := range fixtures.States() {
		t.Run(state.Name, func(t *testing.T) {
			h := newHandler(t, state.Name)
			for _, address := range addresses(t, h) {
				w := do(h, http.MethodGet, address)
				require.Equal(t, http.StatusOK, w.Code, address)
				assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
				body := w.Body.String()
				assert.LessOrEqual(t, len(body), 500_000, address)
				checkPage(t, h, body)
				fragment := do(h, http.MethodGet, withQuery(address, "fragment=1")).Body.String()
				assert.False(t, strings.Contains(fragment, "<html"), address)
				assert.True(t, strings.Contains(body, strings.TrimSpace(fragment)), "the fragment is what the page has in it: %s", address)
				text := do(h, http.MethodGet, withQuery(address, "format=markdown"))
				assert.Equal(t, "text/markdown; charset=utf-8", text.Header().Get("Content-Type"))
				assert.True(t, strings.HasPrefix(text.Body.String(), "# "), address)
				assert.False(t, strings.Contains(text.Body.String(), "NaN"), address)
			}
		})
	}
}

// checkPage holds a page to its own policy: nothing inline, nothing from elsewhere; and to what a screen reader needs.
func checkPage(t *testing.T, h http.Handler, body string) {
	t.Helper()
	for _, bad := range []string{"NaN", "ZgotmplZ", "%!"} {
		assert.False(t, strings.Contains(body, bad), bad)
	}
	root, err := html.Parse(strings.NewReader(body))
	require.NoError(t, err)
	ids, count := map[string]bool{}, map[string]int{}
	var references []string
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		count[n.Data]++
		attributes := map[string]string{}
		for _, a := range n.Attr {
			attributes[a.Key] = a.Val
			assert.False(t, a.Key == "style" || strings.HasPrefix(a.Key, "on"), "%s %s", n.Data, a.Key)
			switch a.Key {
			case "id":
				assert.False(t, ids[a.Val], "id twice: %s", a.Val)
				ids[a.Val] = true
			case "aria-labelledby":
				references = append(references, strings.Fields(a.Val)...)
			case "href", "src":
				u, err := url.Parse(a.Val)
				require.NoError(t, err, a.Val)
				switch {
				case n.Data == "a":
					assert.Contains(t, []string{"", "https"}, u.Scheme, a.Val)
				default:
					require.True(t, strings.HasPrefix(a.Val, "static/"), a.Val)
					assert.Equal(t, http.StatusOK, do(h, http.MethodGet, "/"+a.Val).Code, a.Val)
				}
			}
		}
		switch n.Data {
		case "script":
			assert.NotEmpty(t, attributes["src"])
			assert.Nil(t, n.FirstChild, "an inline script")
		case "style", "img", "iframe", "object", "embed", "form", "base":
			t.Errorf("<%s> in a page", n.Data)
		case "svg":
			assert.True(t, attributes["aria-hidden"] == "true" || attributes["role"] != "" || isNested(n), "a drawing without a role: %v", n.Attr)
		case "table":
			assert.True(t, n.FirstChild != nil && hasChild(n, "caption"), "a table without a caption")
		}
	}
	for _, name := range []string{"h1", "main", "header"} {
		assert.Equal(t, 1, count[name], name)
	}
	for _, id := range references {
		assert.True(t, ids[id], "no such id: %s", id)
	}
}

func isNested(n *html.Node) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == "svg" {
			return true
		}
	}
	return false
}

func hasChild(n *html.Node, name string) bool {
	for c := range n.ChildNodes() {
		if c.Data == name {
			return true
		}
	}
	return false
}

func withQuery(address, query string) string {
	if strings.Contains(address, "?") {
		return address + "&" + query
	}
	return address + "?" + query
}

// Text from spans that tries to be HTML stays text. What checkPage finds would be its escape.
func TestHostileText(t *testing.T) {
	h := newHandler(t, "hostile")
	body := do(h, http.MethodGet, "/?engine=evil-1").Body.String()
	assert.Contains(t, body, "&lt;script&gt;alert(1)&lt;/script&gt;")
	assert.Contains(t, body, "https://traces.example.com/%22%3E%3Cscript%3E")
	assert.NotContains(t, body, `href="javascript:`)
	for _, address := range addresses(t, h) {
		text := do(h, http.MethodGet, withQuery(address, "format=markdown")).Body.String()
		for line := range strings.Lines(text) {
			// Outside of code, each < has a backslash before it.
			plain := regexp.MustCompile("`[^`]*`").ReplaceAllString(line, "")
			assert.NotRegexp(t, `(^|[^\\])<[a-z]`, plain, address)
		}
	}
}

func TestHeaders(t *testing.T) {
	h := newHandler(t, "host_bound")
	for _, address := range []string{"/", "/api/v1/summary", "/api/v1/schema", "/nothing", "/api/v1/engines/none", "/static/none.js"} {
		header := do(h, http.MethodGet, address).Header()
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			assert.Contains(t, policy, part, address)
		}
		assert.NotContains(t, policy, "unsafe", address)
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), address)
		assert.Equal(t, "no-referrer", header.Get("Referrer-Policy"), address)
		assert.Equal(t, "no-store", header.Get("Cache-Control"), address)
	}
}

func TestMethods(t *testing.T) {
	h := newHandler(t, "host_bound")
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, http.MethodConnect, "BREW"} {
		for _, address := range []string{"/", "/api/v1/summary", "/nothing"} {
			w := do(h, method, address)
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), method)
		}
	}
	for _, address := range []string{"/", "/api/v1/summary", "/api/v1/engines/llama-8b-0"} {
		get, head := do(h, http.MethodGet, address), do(h, http.MethodHead, address)
		assert.Equal(t, http.StatusOK, head.Code)
		assert.Empty(t, head.Body.Bytes())
		assert.Equal(t, get.Header().Get("Content-Type"), head.Header().Get("Content-Type"))
	}
}

func TestHosts(t *testing.T) {
	h := newHandler(t, "host_bound")
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8686": 200, "LOCALHOST:1": 200, "localhost.": 200, "a.localhost:80": 200, "127.0.0.1:8686": 200, "[::1]:8686": 200, "[::1]": 200, "10.0.0.7": 200,
		"evil.example.com": 421, "evil.example.com:8686": 421, "localhost.example.com": 421, "127.0.0.1.example.com": 421, "": 421, "notlocalhost": 421,
	} {
		assert.Equal(t, want, do(h, http.MethodGet, "/", "Host", host).Code, host)
		assert.Equal(t, want, do(h, http.MethodGet, "/api/v1/summary", "Host", host).Code, host)
	}
	open := newHandler(t, "host_bound", func(o *Options) { o.LoopbackOnly = false })
	assert.Equal(t, 200, do(open, http.MethodGet, "/", "Host", "summary.example.com").Code)
}

func TestErrors(t *testing.T) {
	h := newHandler(t, "fleet")
	for address, want := range map[string]int{
		"/?engine=none": 404, "/nothing": 404, "/a/b/c": 404, "/?format=xml": 400, "/?%zz=1": 400, "/api/v1/engines/none": 404, "/api/v2/summary": 404, "/?engine=none&format=json": 404,
		"/static/app.css": 404, "/static/../web.go": 307, "/?engine=%00%ff": 404,
	} {
		w := do(h, http.MethodGet, address)
		assert.Equal(t, want, w.Code, address)
		if want == http.StatusTemporaryRedirect {
			continue
		}
		if strings.HasPrefix(address, "/api/") || strings.Contains(address, "format=json") {
			assert.Equal(t, "application/json", w.Header().Get("Content-Type"), address)
			validate(t, "Error", w.Body.Bytes())
			continue
		}
		assert.Contains(t, w.Body.String(), "<h1>", address)
		style := regexp.MustCompile(`<link rel="stylesheet" href="([^"]*app[^"]*)"`).FindStringSubmatch(w.Body.String())
		require.NotNil(t, style, address)
		path, _, _ := strings.Cut(address, "?")
		base := path[:strings.LastIndex(path, "/")+1]
		for strings.HasPrefix(style[1], "../") {
			style[1] = style[1][3:]
			base = base[:strings.LastIndex(strings.TrimSuffix(base, "/"), "/")+1]
		}
		assert.True(t, strings.HasPrefix(base+strings.TrimPrefix(style[1], "./"), "/static/"), address)
	}
}

func TestNothingIsReflected(t *testing.T) {
	h := newHandler(t, "fleet")
	const evil = "zzq<b>"
	for _, address := range []string{"/?engine=", "/?sort=", "/?format=", "/?source=x&engine=", "/", "/api/v1/engines/", "/static/"} {
		body := do(h, http.MethodGet, address+escape(evil)).Body.String()
		assert.NotContains(t, body, "zzq<b>", address)
	}
	assert.Contains(t, do(h, http.MethodGet, "/?sort="+escape(evil)).Body.String(), "need attention")
}

func TestOneEngineIsShownAtOnce(t *testing.T) {
	one := newHandler(t, "host_bound")
	assert.Contains(t, do(one, http.MethodGet, "/").Body.String(), "The device waits for its host")
	assert.Contains(t, do(one, http.MethodGet, "/?view=fleet").Body.String(), "1 of 1 engines needs attention")
	validate(t, "EngineReport", do(one, http.MethodGet, "/?format=json").Body.Bytes())
	validate(t, "Report", do(newHandler(t, "fleet"), http.MethodGet, "/?format=json").Body.Bytes())
}

// Two components with an engine of the same key: each link leads to its own.
func TestSameKeyTwice(t *testing.T) {
	s, _ := fixtures.Named("host_bound")
	r := registry.New(summary.Collector{})
	for i, id := range []string{"processor/a", "connector/b"} {
		reporter := s.Make(fixtures.Epoch)[0].(*fixtures.Reporter)
		reporter.From.ID = id
		reporter.Known[0].Engine.Source = id
		reporter.Known[0].Engine.Diagnosis.Title = []string{"Title of a", "Title of b"}[i]
		r.Register(reporter)
	}
	h, err := New(r, Options{Now: func() time.Time { return fixtures.Epoch }, Failed: func(error) {}})
	require.NoError(t, err)
	links := regexp.MustCompile(`href="(\?engine=[^"]*source=[^"]*)"`).FindAllStringSubmatch(do(h, http.MethodGet, "/").Body.String(), -1)
	require.NotEmpty(t, links)
	seen := map[string]bool{}
	for _, link := range links {
		address := "/" + strings.ReplaceAll(link[1], "&amp;", "&")
		body := do(h, http.MethodGet, address).Body.String()
		for i, id := range []string{"processor%2Fa", "connector%2Fb"} {
			title := []string{"Title of a", "Title of b"}[i]
			assert.Equal(t, strings.Contains(address, id), strings.Contains(body, title), address)
			seen[title] = seen[title] || strings.Contains(body, title)
		}
	}
	assert.Len(t, seen, 2)
	assert.Contains(t, do(h, http.MethodGet, "/api/v1/engines/llama-8b-0?source=connector/b").Body.String(), "Title of b")
}

func TestSort(t *testing.T) {
	h := newHandler(t, "fleet")
	column := func(address string, n int) (values []string) {
		body := do(h, http.MethodGet, address).Body.String()
		body = body[strings.Index(body, "<tbody>"):]
		for _, row := range regexp.MustCompile(`(?s)<tr.*?</tr>`).FindAllString(body, -1) {
			cells := regexp.MustCompile(`(?s)<t[dh][^>]*>(.*?)(?:<svg.*?)?</t[dh]>`).FindAllStringSubmatch(row, -1)
			values = append(values, regexp.MustCompile(`<[^>]*>`).ReplaceAllString(cells[n][1], ""))
		}
		return values
	}
	waiting := column("/?sort=waiting&dir=desc", 5)
	require.Len(t, waiting, 8)
	assert.Equal(t, "1223–1589", waiting[0], "of which only a bracket is known")
	up := column("/?sort=waiting", 5)
	slices.Reverse(up)
	assert.Equal(t, waiting[0], up[0])
	assert.Equal(t, "–", column("/?sort=busy&dir=desc", 2)[7], "unknown last")
	assert.Equal(t, "–", column("/?sort=busy", 2)[7], "in both directions")
	names := column("/?sort=engine", 0)
	assert.True(t, slices.IsSorted(names), names)
	byNeed := column("/", 0)
	assert.Equal(t, byNeed, column("/?sort=nonsense", 0))
	reversed := column("/?sort=verdict", 0)
	slices.Reverse(reversed)
	assert.Equal(t, byNeed, reversed)
	assert.Contains(t, do(h, http.MethodGet, "/?sort=waiting&dir=desc").Body.String(), `aria-sort="descending"`)
}

func TestStatic(t *testing.T) {
	h := newHandler(t, "host_bound")
	body := do(h, http.MethodGet, "/").Body.String()
	found := regexp.MustCompile(`(?:src|href)="(static/[^"]+)"`).FindAllStringSubmatch(body, -1)
	require.Len(t, found, 6)
	types := map[string]string{".js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
	for _, f := range found {
		w := do(h, http.MethodGet, "/"+f[1])
		require.Equal(t, http.StatusOK, w.Code, f[1])
		assert.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		assert.Equal(t, types[f[1][len(f[1])-3:]], w.Header().Get("Content-Type"), f[1])
	}
}

func TestCompression(t *testing.T) {
	h := newHandler(t, "hundred")
	for _, address := range []string{"/", "/api/v1/summary"} {
		plain := do(h, http.MethodGet, address)
		assert.Empty(t, plain.Header().Get("Content-Encoding"))
		packed := do(h, http.MethodGet, address, "Accept-Encoding", "gzip")
		require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"), address)
		assert.Contains(t, packed.Header().Get("Vary"), "Accept-Encoding")
		assert.Less(t, packed.Body.Len()*4, plain.Body.Len(), address)
		r, err := gzip.NewReader(packed.Body)
		require.NoError(t, err)
		unpacked, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Equal(t, plain.Body.Bytes(), unpacked)
	}
}

var compiled = func() map[string]*jsonschema.Schema {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.JSON))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("summary.json", document); err != nil {
		panic(err)
	}
	all := map[string]*jsonschema.Schema{"": c.MustCompile("summary.json")}
	for _, name := range []string{"Report", "EngineReport", "Error"} {
		all[name] = c.MustCompile("summary.json#/$defs/" + name)
	}
	return all
}()

func validate(t *testing.T, name string, body []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, compiled[name].Validate(value))
	require.NoError(t, compiled[""].Validate(value), "the root")
}

func TestSchema(t *testing.T) {
	for _, state := range fixtures.States() {
		h := newHandler(t, state.Name)
		body := do(h, http.MethodGet, "/api/v1/summary")
		assert.Equal(t, "application/json", body.Header().Get("Content-Type"))
		validate(t, "Report", body.Body.Bytes())
		for _, address := range addresses(t, h)[1:] {
			validate(t, "EngineReport", do(h, http.MethodGet, "/api/v1/engines/"+strings.TrimPrefix(address, "/?engine=")).Body.Bytes())
		}
	}
	w := do(newHandler(t, "empty"), http.MethodGet, "/api/v1/schema")
	assert.Equal(t, "application/schema+json", w.Header().Get("Content-Type"))
	assert.Equal(t, schema.JSON, w.Body.Bytes())
}

// A reporter that leaves lists out yields empty ones, as the schema wants.
func TestSchemaOfBareReport(t *testing.T) {
	r := registry.New(summary.Collector{})
	r.Register(&fixtures.Reporter{Known: []summary.EngineReport{{Engine: summary.Engine{Key: "k", Status: summary.StatusCollecting, Diagnosis: summary.Diagnosis{Finding: summary.Finding{Confidence: "none"}}, Certainty: summary.Certainty{Mode: "unknown", Tier: "occupancy"}}}}})
	h, err := New(r, Options{Now: time.Now, Failed: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	validate(t, "EngineReport", do(h, http.MethodGet, "/api/v1/engines/k").Body.Bytes())
	assert.Equal(t, http.StatusOK, do(h, http.MethodGet, "/").Code)
}

// Every field of the report is in the schema and the other way round, required where it is always there.
func TestSchemaHasEveryField(t *testing.T) {
	var document struct {
		Defs map[string]struct {
			Required   []string
			Properties map[string]struct{ Description string }
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(schema.JSON, &document))
	seen := map[string]bool{"Error": true}
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() || seen[typ.Name()] {
			return
		}
		seen[typ.Name()] = true
		var names, required []string
		for _, field := range reflect.VisibleFields(typ) {
			check(field.Type)
			name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				continue
			}
			names = append(names, name)
			if rest != "omitempty" {
				required = append(required, name)
			}
		}
		var got []string
		for name := range document.Defs[typ.Name()].Properties {
			got = append(got, name)
		}
		assert.ElementsMatch(t, names, got, typ.Name())
		assert.ElementsMatch(t, required, document.Defs[typ.Name()].Required, typ.Name())
	}
	check(reflect.TypeFor[summary.Report]())
	check(reflect.TypeFor[summary.EngineReport]())
	for name := range document.Defs {
		assert.True(t, seen[name], name)
	}
}

// Figures that JSON cannot hold are an error that is logged, and no half answer.
func TestBrokenFigures(t *testing.T) {
	r := registry.New(summary.Collector{})
	nan := math.NaN()
	r.Register(&fixtures.Reporter{Known: []summary.EngineReport{{Engine: summary.Engine{Key: "k", Figures: summary.Figures{Occupancy: &nan, Utilization: &nan}}}}})
	failed := errors.New("nothing failed")
	h, err := New(r, Options{Now: time.Now, Failed: func(err error) { failed = err }})
	require.NoError(t, err)
	w := do(h, http.MethodGet, "/api/v1/summary")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	validate(t, "Error", w.Body.Bytes())
	require.ErrorContains(t, failed, "/api/v1/summary")
	page := do(h, http.MethodGet, "/")
	assert.Equal(t, http.StatusOK, page.Code)
	assert.NotContains(t, page.Body.String(), "NaN")
}

func TestCollectingShowsNoEmptyTables(t *testing.T) {
	body := do(newHandler(t, "collecting"), http.MethodGet, "/").Body.String()
	assert.Contains(t, body, "What happens now")
	for _, heading := range []string{"What users felt", "Where the time went", "What to do", "Device busy"} {
		assert.NotContains(t, body, heading+"</h")
	}
}

func TestRefresh(t *testing.T) {
	for refresh, want := range map[time.Duration]string{5 * time.Second: `data-refresh="5"`, 1500 * time.Millisecond: `data-refresh="1.5"`, 0: `data-refresh="0"`} {
		h := newHandler(t, "host_bound", func(o *Options) { o.Refresh = refresh })
		assert.Contains(t, do(h, http.MethodGet, "/").Body.String(), want)
	}
}

func TestTitle(t *testing.T) {
	h := newHandler(t, "fleet", func(o *Options) { o.Title = "West <1>" })
	body := do(h, http.MethodGet, "/").Body.String()
	assert.Contains(t, body, "<title>West &lt;1&gt;</title>")
	assert.Contains(t, do(h, http.MethodGet, "/?engine=llama-70b-0").Body.String(), " – West &lt;1&gt;</title>")
}

func TestNoTraceLinks(t *testing.T) {
	h := newHandler(t, "host_bound", func(o *Options) { o.TraceURL = "" })
	assert.NotContains(t, do(h, http.MethodGet, "/").Body.String(), "traces.example.com")
	assert.Contains(t, do(newHandler(t, "host_bound"), http.MethodGet, "/").Body.String(), "https://traces.example.com/")
}
