// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Spans that nobody means well with: too many, too long, broken, repeated, absurd. Each request counts once, every value
// that cannot be true is counted as rejected, and nothing that a request says of itself becomes a label.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// hostileConfig has everything on that reads attributes.
func hostileConfig(c *Config) {
	c.Timeline.Window = 10 * time.Second
	c.Compatibility = []string{"vllm"}
	c.SLO.TTFT = time.Second
	c.Dimensions = []Dimension{{Name: "tenant"}}
	c.Engine.ResourceAttributes = []string{"zone"}
}

// figures are the attributes that a figure is read from, by what the reader makes of them.
var figures = []string{
	"gen_ai.latency.e2e", "gen_ai.latency.time_to_first_token", "gen_ai.latency.time_in_queue", "gen_ai.latency.time_in_scheduler",
	"gen_ai.latency.time_in_model_forward", "gen_ai.latency.time_in_model_execute", "gen_ai.latency.time_in_model_prefill",
	"gen_ai.latency.time_in_model_decode", "gen_ai.latency.time_in_model_inference",
	"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.request.max_tokens",
}

func TestHostileSpans(t *testing.T) {
	megabyte := strings.Repeat("x", 1<<20)
	names := []string{"tenant", "gen_ai.response.model", "gen_ai.operation.name", "error.type"}
	resourceNames := []string{"service.name", "service.namespace", "service.instance.id", "host.name", "k8s.pod.name", "zone"}
	setAll := func(td ptrace.Traces, set func(pcommon.Value)) {
		rs := td.ResourceSpans().At(0)
		for _, name := range resourceNames {
			set(rs.Resource().Attributes().PutEmpty(name))
		}
		for _, name := range names {
			set(rs.ScopeSpans().At(0).Spans().At(0).Attributes().PutEmpty(name))
		}
	}
	span := func(td ptrace.Traces) ptrace.Span { return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0) }
	figure := func(set func(pcommon.Value)) func(ptrace.Traces) {
		return func(td ptrace.Traces) {
			for _, name := range figures {
				set(span(td).Attributes().PutEmpty(name))
			}
		}
	}
	times := func(start, end uint64) func(ptrace.Traces) {
		return func(td ptrace.Traces) {
			span(td).SetStartTimestamp(pcommon.Timestamp(start))
			span(td).SetEndTimestamp(pcommon.Timestamp(end))
		}
	}

	for name, test := range map[string]struct {
		change func(ptrace.Traces)
		// rejected values, and attribute values that are cut, at least
		rejected, cut int64
		// mixed: the order of attributes, of which the first counts, differs from request to request
		mixed bool
	}{
		"ten thousand attributes": {change: func(td ptrace.Traces) {
			name := func(i int) string { return fmt.Sprintf("attribute.%d", i) }
			fill(span(td).Attributes(), name, func(i int) any { return strconv.Itoa(i) })
			fill(td.ResourceSpans().At(0).Resource().Attributes(), name, func(i int) any { return i })
		}},
		"a name of a megabyte": {change: func(td ptrace.Traces) {
			span(td).SetName(megabyte)
			span(td).Attributes().PutStr(megabyte, "x")
			td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName(megabyte)
		}},
		"values of a megabyte": {
			change: func(td ptrace.Traces) { setAll(td, func(v pcommon.Value) { v.SetStr(megabyte) }) },
			cut:    int64(len(names) + len(resourceNames)),
		},
		"lists of a megabyte": {change: func(td ptrace.Traces) {
			setAll(td, func(v pcommon.Value) {
				list := v.SetEmptySlice()
				for range 1 << 14 {
					list.AppendEmpty().SetStr("xxxxxxxx")
				}
			})
		}},
		"nested a thousand times": {change: func(td ptrace.Traces) {
			setAll(td, func(v pcommon.Value) {
				for range 1000 {
					v = v.SetEmptySlice().AppendEmpty()
				}
				v.SetStr("deep")
			})
		}},
		"invalid UTF-8": {change: func(td ptrace.Traces) { setAll(td, func(v pcommon.Value) { v.SetStr("a\xff\xc0\x80" + "b") }) }},
		"invalid UTF-8 where it is cut": {
			change: func(td ptrace.Traces) {
				setAll(td, func(v pcommon.Value) { v.SetStr(strings.Repeat("\xe2\x82", 300)) })
			},
			cut: int64(len(names) + len(resourceNames)),
		},
		"control characters": {change: func(td ptrace.Traces) { setAll(td, func(v pcommon.Value) { v.SetStr("\x00\n\"\\{}") }) }},
		"empty values":       {change: func(td ptrace.Traces) { setAll(td, func(v pcommon.Value) { v.SetStr("") }) }},
		"no values":          {change: func(td ptrace.Traces) { setAll(td, func(pcommon.Value) {}) }},

		"figures as text":     {change: figure(func(v pcommon.Value) { v.SetStr("0.5") }), rejected: int64(len(figures))},
		"figures as booleans": {change: figure(func(v pcommon.Value) { v.SetBool(true) }), rejected: int64(len(figures))},
		"figures as bytes":    {change: figure(func(v pcommon.Value) { v.SetEmptyBytes().Append(1, 2, 3) }), rejected: int64(len(figures))},
		"figures as maps":     {change: figure(func(v pcommon.Value) { v.SetEmptyMap().PutInt("a", 1) }), rejected: int64(len(figures))},
		"figures without a value": {
			change: figure(func(pcommon.Value) {}), rejected: int64(len(figures)),
		},
		"not a number":      {change: figure(func(v pcommon.Value) { v.SetDouble(math.NaN()) }), rejected: int64(len(figures))},
		"infinite":          {change: figure(func(v pcommon.Value) { v.SetDouble(math.Inf(1)) }), rejected: int64(len(figures))},
		"negative":          {change: figure(func(v pcommon.Value) { v.SetDouble(-3) }), rejected: int64(len(figures))},
		"the largest float": {change: figure(func(v pcommon.Value) { v.SetDouble(math.MaxFloat64) }), rejected: int64(len(figures))},
		"the largest int":   {change: figure(func(v pcommon.Value) { v.SetInt(math.MaxInt64) }), rejected: int64(len(figures))},
		"the smallest int":  {change: figure(func(v pcommon.Value) { v.SetInt(math.MinInt64) }), rejected: int64(len(figures))},

		"a figure ten thousand times": {
			change: func(td ptrace.Traces) {
				fill(span(td).Attributes(), twin("gen_ai.latency.time_in_queue"), func(i int) any { return float64(i+1) / 1e6 })
				unite(td)
			},
			rejected: 9999, // all but the first
		},
		"a dimension ten thousand times": {mixed: true, change: func(td ptrace.Traces) {
			fill(span(td).Attributes(), twin("tenant"), func(i int) any { return strconv.Itoa(i) })
			fill(td.ResourceSpans().At(0).Resource().Attributes(), twin("service.instance.id"), func(i int) any { return strconv.Itoa(i) })
			unite(td)
		}},

		"no times":             {change: times(0, 0), rejected: 1},
		"no start":             {change: times(0, 1), rejected: 1},
		"ends before it began": {change: times(2e18, 1e18), rejected: 1},
		"the end of time":      {change: times(math.MaxUint64-1, math.MaxUint64)},
		"the beginning":        {change: times(1, 2e9)},
		"lasts for ever":       {change: times(1, math.MaxUint64)},
	} {
		t.Run(name, func(t *testing.T) {
			a, clock := newTestAggregator(t, hostileConfig)
			const requests = 3
			for n := range uint64(requests) {
				td, spans := payload("engine")
				addV1(spans, n+1)
				test.change(td)
				a.Record(td, true)
				a.Record(td, false) // what annotate added does no harm either
			}
			clock.advance(time.Hour)
			md := tick(a, clock)
			stats := a.Stats()
			assert.EqualValues(t, requests, total(md, countName))
			assert.EqualValues(t, requests, stats.Duplicates)
			atMost := int64(1)
			if test.mixed {
				atMost = requests
			}
			assert.LessOrEqual(t, stats.Engines, atMost)
			assert.LessOrEqual(t, stats.Series, atMost)
			rejected := int64(0)
			for _, n := range stats.Rejected {
				rejected += n
			}
			assert.GreaterOrEqual(t, rejected, requests*test.rejected)
			if test.rejected == 0 && !strings.Contains(name, "time") {
				assert.LessOrEqual(t, rejected, int64(requests), "good figures are not rejected, but for what times contradict")
			}
			assert.GreaterOrEqual(t, stats.Cut, requests*test.cut)
			assertHarmless(t, md)
		})
	}
}

// fill adds ten thousand attributes.
func fill(m pcommon.Map, key func(i int) string, value func(i int) any) {
	raw := m.AsRaw()
	for i := range 10_000 {
		raw[key(i)] = value(i)
	}
	if err := m.FromRaw(raw); err != nil {
		panic(err)
	}
}

// twin makes keys that unite makes key: a map refuses to have one twice, and the wire does not.
func twin(key string) func(i int) string {
	return func(i int) string { return fmt.Sprintf("twin%d:%s", i, key) }
}

var twins = regexp.MustCompile(`"twin[0-9]+:`)

func unite(td ptrace.Traces) {
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	if err != nil {
		panic(err)
	}
	united, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(twins.ReplaceAll(text, []byte(`"`)))
	if err != nil {
		panic(err)
	}
	united.CopyTo(td)
}

func clean(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// assertHarmless asserts that any backend takes md.
func assertHarmless(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	texts := func(what string, m pcommon.Map) {
		for key, v := range m.All() {
			text := v.AsString()
			assert.LessOrEqual(t, len(text), maxValueLength, "%s: %s", what, key)
			assert.NotEmpty(t, text, "%s: %s", what, key)
			assert.True(t, utf8.ValidString(key) && clean(text), "%s: %s=%q", what, key, text)
		}
	}
	for _, rm := range md.ResourceMetrics().All() {
		texts("resource", rm.Resource().Attributes())
	}
	for name, points := range allPoints(md) {
		for i := range points {
			p := &points[i]
			for key, v := range p.attributes {
				text, ok := v.(string)
				assert.True(t, !ok || clean(text) && len(text) <= maxValueLength, "%s: %s=%q", name, key, v)
			}
			assert.False(t, math.IsNaN(p.value) || math.IsInf(p.value, 0) || p.value < 0, "%s: %v", name, p.value)
			checkPoint(t, name, p)
		}
	}
	_, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
}

// TestHostileCardinality: what is over a limit is counted where it belongs, and nothing grows over it.
func TestHostileCardinality(t *testing.T) {
	for name, change := range map[string]func(td ptrace.Traces, span ptrace.Span, n string){
		"models": func(_ ptrace.Traces, span ptrace.Span, n string) {
			span.Attributes().PutStr("gen_ai.response.model", n)
		},
		"errors":  func(_ ptrace.Traces, span ptrace.Span, n string) { span.Attributes().PutStr("error.type", n) },
		"tenants": func(_ ptrace.Traces, span ptrace.Span, n string) { span.Attributes().PutStr("tenant", n) },
		"engines": func(td ptrace.Traces, _ ptrace.Span, n string) {
			td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.instance.id", n)
		},
		"pods": func(td ptrace.Traces, _ ptrace.Span, n string) {
			td.ResourceSpans().At(0).Resource().Attributes().PutStr("k8s.pod.name", n)
		},
		"models of engines": func(td ptrace.Traces, span ptrace.Span, n string) {
			td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.instance.id", n[len(n)-2:])
			span.Attributes().PutStr("gen_ai.response.model", n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const series, engines, requests = 50, 20, 5000
			a, clock := newTestAggregator(t, func(c *Config) {
				hostileConfig(c)
				c.Limits.Series, c.Limits.Engines = series, engines
			})
			for n := range uint64(requests) {
				td, spans := payload("engine")
				change(td, addV1(spans, n+1), fmt.Sprintf("value-%d", n))
				a.Record(td, false)
			}
			stats := a.Stats()
			assert.LessOrEqual(t, stats.Series, int64(series))
			assert.LessOrEqual(t, stats.Engines, int64(engines))
			md := tick(a, clock)
			assert.EqualValues(t, requests, total(md, countName), "the sum is whole")
			// An overflow series for each engine, and that of all engines over the limit.
			assert.LessOrEqual(t, len(find(md, countName)), series+engines+1)
			if name == "pods" {
				assert.EqualValues(t, 1, stats.Engines, "a pod's name describes an engine and tells none apart")
			} else {
				assert.Positive(t, stats.Overflow)
			}
			assertHarmless(t, md)
		})
	}
}

// TestRequestsAreNoLabels: what a request says of itself (its ID, prompt, parameters, user) is on no metric, whatever
// attribute of whatever dialect has it and wherever it stands.
func TestRequestsAreNoLabels(t *testing.T) {
	keys := attributesOfDialects(t)
	for _, name := range []string{recordedV0, recordedV1} {
		keys = append(keys, attributesOf(recording(t, name))...)
	}
	// What other engines and instrumentations call them.
	keys = append(keys,
		"rid", "x_request_id", "triton.request_id", "parameters", "session.id", "user.id", "enduser.id", "client.address", "http.request.body",
		"gen_ai.request.id", "gen_ai.response.id", "gen_ai.conversation.id", "gen_ai.request.seed", "gen_ai.request.temperature", "gen_ai.request.stop_sequences",
		"gen_ai.prompt", "gen_ai.completion", "gen_ai.prompt.0.content", "gen_ai.completion.0.content", "gen_ai.input.messages", "gen_ai.output.messages",
		"gen_ai.system_instructions", "gen_ai.tool.call.arguments", "gen_ai.tool.definitions", "gen_ai.tool.call.result",
		"llm.prompts", "llm.completions", "llm.request.parameters", "input.value", "output.value", "traceloop.entity.input", "url.full", "url.query",
		"total_time", "validation_time", "queue_time", "inference_time", "time_per_token", "seed",
	)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	require.Greater(t, len(keys), 60)

	// Who serves is no secret, and how it went is what metrics are for.
	allowed := map[string]bool{"gen_ai.response.model": true, "gen_ai.request.model": true, "gen_ai.operation.name": true, "error.type": true, "llmisvc.name": true}
	for _, name := range resourceAttributes {
		allowed[name] = true
	}
	// A canary in every attribute on every level, one at a time in the figures that make a request one.
	const canary = "canary"
	for _, key := range keys {
		for _, generation := range []string{"V0", "V1"} {
			a, clock := newTestAggregator(t, func(c *Config) { hostileConfig(c); c.Dimensions = nil })
			td, spans := payload("engine")
			span := spanOf(generation, spans, 1)
			rs := td.ResourceSpans().At(0)
			span.SetName(canary + "-name")
			span.TraceState().FromRaw("k=" + canary)
			span.Status().SetMessage(canary + "-status")
			event := span.Events().AppendEmpty()
			event.SetName(canary + "-event")
			for _, m := range []pcommon.Map{rs.Resource().Attributes(), rs.ScopeSpans().At(0).Scope().Attributes(), span.Attributes(), event.Attributes(), span.Links().AppendEmpty().Attributes()} {
				m.PutStr(key, canary+"-"+key)
			}
			a.Record(td, true)
			clock.advance(time.Hour)
			md := tick(a, clock)
			require.EqualValues(t, 1, total(md, countName), key)
			text, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
			require.NoError(t, err)
			if !allowed[key] {
				assert.NotContains(t, string(text), canary, "%s of a %s request", key, generation)
			}
			for _, points := range allPoints(md) {
				for i := range points {
					if exemplars := points[i].exemplars; exemplars != (pmetric.ExemplarSlice{}) {
						for _, e := range exemplars.All() {
							assert.Zero(t, e.FilteredAttributes().Len(), key)
						}
					}
				}
			}
		}
	}
	// The look-up does find canaries where they may be.
	a, clock := newTestAggregator(t, nil)
	recordOne(a, "engine", 1, func(span ptrace.Span) { span.Attributes().PutStr("gen_ai.response.model", canary) })
	text, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(tick(a, clock))
	require.NoError(t, err)
	require.Contains(t, string(text), canary)
}

// TestRequestsAreNoDimensions: an operator cannot make a label of a request's identity or figures by mistake either.
func TestRequestsAreNoDimensions(t *testing.T) {
	for _, name := range append([]string{
		"gen_ai.request.id", "gen_ai.response.id", "rid", "x_request_id", "triton.request_id", "parameters", "gen_ai.prompt", "gen_ai.completion", "gen_ai.prompt.0.content",
		"gen_ai.completion.1.role", "gen_ai.tool.call.arguments", "llm.prompts.0", "llm.completions.0", "input.value", "output.value", "traceloop.entity.input", "http.request.body",
		"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "llm.serving.request.queue.share",
	}, figures[:11]...) {
		c := NewDefaultConfig()
		c.Dimensions = []Dimension{{Name: name}}
		assert.ErrorContains(t, c.Validate(), "dimensions::0::name", name)
	}
}

// attributesOfDialects are the attribute keys that the source of llmrequest's dialects knows.
func attributesOfDialects(t *testing.T) (keys []string) {
	_, here, _, _ := runtime.Caller(0)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(here), "..", "llmrequest", "dialect*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	dialects := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(node ast.Node) bool {
			if kv, ok := node.(*ast.KeyValueExpr); ok {
				if name, ok := kv.Key.(*ast.Ident); ok && name.Name == "attributes" {
					dialects++
				}
			}
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if key, err := strconv.Unquote(literal.Value); err == nil && attributeKey.MatchString(key) {
				keys = append(keys, key)
			}
			return true
		})
	}
	require.Positive(t, dialects)
	require.Contains(t, keys, "gen_ai.latency.e2e")
	return keys
}

var attributeKey = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$`)

// attributesOf are the keys of all attributes of td.
func attributesOf(td ptrace.Traces) (keys []string) {
	add := func(m pcommon.Map) {
		for key := range m.All() {
			keys = append(keys, key)
		}
	}
	for _, rs := range td.ResourceSpans().All() {
		add(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				if llmrequest.IsRequest(span) {
					add(span.Attributes())
				}
			}
		}
	}
	return keys
}

// BenchmarkHostile: what nobody means well with costs at most twice what good spans do, per span or, where it has
// very many of them, per attribute.
func BenchmarkHostile(b *testing.B) {
	values := make([]string, 1<<17) // more than all limits
	for i := range values {
		values[i] = fmt.Sprintf("value-%d", i)
	}
	next := 0
	value := func() string { next++; return values[next%len(values)] }
	plain := strings.Repeat("x", 24)
	for _, test := range []struct {
		name   string
		change func(td ptrace.Traces, span ptrace.Span)
	}{
		{"good", func(td ptrace.Traces, span ptrace.Span) {
			span.Attributes().PutStr("gen_ai.response.model", plain)
			span.Attributes().PutStr("tenant", plain)
		}},
		{"models", func(_ ptrace.Traces, span ptrace.Span) { span.Attributes().PutStr("gen_ai.response.model", value()) }},
		{"tenants", func(_ ptrace.Traces, span ptrace.Span) { span.Attributes().PutStr("tenant", value()) }},
		{"engines", func(td ptrace.Traces, _ ptrace.Span) {
			td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.instance.id", value())
		}},
		{"long", func(_ ptrace.Traces, span ptrace.Span) { span.Attributes().PutStr("tenant", longValue) }},
		{"invalid", func(_ ptrace.Traces, span ptrace.Span) { span.Attributes().PutStr("tenant", "a\xffb") }},
		{"text_figures", func(_ ptrace.Traces, span ptrace.Span) {
			for _, name := range figures {
				span.Attributes().PutStr(name, "0.5")
			}
		}},
	} {
		b.Run(test.name, func(b *testing.B) {
			a := newRealAggregator(b, func(c *Config) {
				c.Dimensions = []Dimension{{Name: "tenant"}}
				c.Limits.Series, c.Limits.Engines = 2000, 200
				c.Dedupe.MaxEntries = 100_000
			})
			l := newLoad("V1", 4, 4)
			payload := func(i int) ptrace.Traces {
				td := l.next(i)
				for _, span := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
					test.change(td, span)
				}
				return td
			}
			for i := range 4000 {
				a.Record(payload(i), false)
			}
			i := 0
			for b.Loop() {
				b.StopTimer()
				td := payload(i)
				b.StartTimer()
				a.Record(td, false)
				i++
			}
			reportPerSpan(b)
		})
	}
}

var longValue = strings.Repeat("x", 1<<20)

// FuzzWindows: whatever requests say of their times, windows hold no figure that cannot be, and no request is lost. The
// fuzzing of payloads (FuzzRecord) hardly ever makes figures that are read, so here they are made of numbers.
func FuzzWindows(f *testing.F) {
	f.Add(int64(0), int64(1e9), 0.9, 0.1, 0.01, 0.09, 0.8, 0.89, 0.0, 0.0, 0.0, int64(512), int64(64), uint8(40), int64(15e9))
	f.Add(int64(0), int64(1e9), 0.9, 0.1, 0.01, 0.0, 0.0, 0.0, 0.5, 0.6, 0.05, int64(512), int64(64), uint8(40), int64(15e9))
	f.Add(int64(-1<<62), int64(1<<62), 1e300, 1e-300, -1.0, math.Inf(1), math.NaN(), 0.0, 5e-324, 1e18, 2.0, int64(-1), int64(math.MaxInt64), uint8(2), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, start, length int64, e2e, ttft, queue, prefill, decode, inference, forward, execute, scheduler float64, in, out int64, n uint8, step int64) {
		a, clock := newTestAggregator(t, func(c *Config) {
			hostileConfig(c)
			c.Engine.MaxNumSeqs = 8
		})
		// 1 to 256 requests one after the other, over at most 100 intervals.
		for i := range int(n) + 1 {
			td, spans := payload("engine")
			span := startSpan(spans, uint64(i)+1, time.Second)
			begin := uint64(testEpoch.UnixNano()) + uint64(start) + uint64(i)*uint64(length)/16
			span.SetStartTimestamp(pcommon.Timestamp(begin))
			span.SetEndTimestamp(pcommon.Timestamp(begin + uint64(length)))
			put := func(name string, v float64) {
				if v != 0 {
					span.Attributes().PutDouble("gen_ai.latency."+name, v)
				}
			}
			span.Attributes().PutDouble("gen_ai.latency.e2e", e2e)
			put("time_to_first_token", ttft)
			put("time_in_queue", queue)
			put("time_in_model_prefill", prefill)
			put("time_in_model_decode", decode)
			put("time_in_model_inference", inference)
			put("time_in_model_forward", forward)
			put("time_in_model_execute", execute)
			put("time_in_scheduler", scheduler)
			span.Attributes().PutInt("gen_ai.usage.prompt_tokens", in)
			span.Attributes().PutInt("gen_ai.usage.completion_tokens", out)
			a.Record(td, false)
			if i%16 == 15 {
				clock.advance(15 * time.Second)
				clock.step(time.Duration(step))
				assertPossible(t, a.Take().Metrics("test"))
			}
		}
		clock.advance(10 * time.Minute)
		md := tick(a, clock)
		assertPossible(t, md)
		assertHarmless(t, md)
		require.EqualValues(t, int(n)+1, total(md, countName))
	})
}

// assertPossible asserts that ratios are ratios and no time or number is below zero.
func assertPossible(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	for name, points := range allPoints(md) {
		for i := range points {
			v := points[i].value
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0) || v < 0, "%s: %v", name, v)
			switch name {
			case "llm.serving.device.utilization", "llm.serving.device.utilization.lower", "llm.serving.device.utilization.upper",
				"llm.serving.device.wait.ratio", "llm.serving.engine.occupancy", "llm.serving.engine.queue.pressure", "llm.serving.estimate.completeness":
				require.LessOrEqual(t, v, 1.0, name)
			}
		}
	}
}
