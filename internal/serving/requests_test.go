// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// What is counted of a request: objectives, vLLM's own families, definitions, and the aggregator's health.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func TestGoodput(t *testing.T) {
	all := SLOConfig{TTFT: 250 * time.Millisecond, TPOT: 12 * time.Millisecond, E2E: 4 * time.Second}
	for _, test := range []struct {
		name   string
		slo    SLOConfig
		change func(ptrace.Span)
		want   map[any]float64
	}{
		{"none configured", SLOConfig{}, nil, map[any]float64{}},
		{"all met", all, nil, map[any]float64{"ttft": 1, "tpot": 1, "e2e": 1, "all": 1}},
		{"only one configured", SLOConfig{E2E: 4 * time.Second}, nil, map[any]float64{"e2e": 1, "all": 1}},
		{"ttft missed", all, putDouble("gen_ai.latency.time_to_first_token", 0.3), map[any]float64{"ttft": 0, "tpot": 1, "e2e": 1, "all": 0}},
		{"met to the nanosecond", all, putDouble("gen_ai.latency.time_to_first_token", 0.25), map[any]float64{"ttft": 1, "tpot": 1, "e2e": 1, "all": 1}},
		{"failed", all, func(s ptrace.Span) { s.Status().SetCode(ptrace.StatusCodeError) }, map[any]float64{"ttft": 0, "tpot": 0, "e2e": 0, "all": 0}},
		{"one token has no time per output token", all, func(s ptrace.Span) {
			s.Attributes().PutInt("gen_ai.usage.completion_tokens", 1)
		}, map[any]float64{"ttft": 1, "tpot": 0, "e2e": 1, "all": 1}},
		{"what is not reported is not met", all, func(s ptrace.Span) {
			s.Attributes().Remove("gen_ai.latency.time_to_first_token")
		}, map[any]float64{"ttft": 0, "tpot": 0, "e2e": 1, "all": 0}},
		{"several sequences", all, func(s ptrace.Span) {
			s.Attributes().PutInt("gen_ai.usage.num_sequences", 2)
		}, map[any]float64{"ttft": 1, "tpot": 0, "e2e": 1, "all": 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, clock := newTestAggregator(t, func(c *Config) { c.SLO = test.slo })
			recordOne(a, "e", 1, test.change)
			got := map[any]float64{}
			for _, p := range find(tick(a, clock), "llm.serving.request.goodput") {
				got[p.attributes["slo"]] = p.value
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestCompatibilityVLLM(t *testing.T) {
	for _, kind := range []HistogramType{Explicit, Exponential} {
		a, clock := newTestAggregator(t, func(c *Config) { c.Compatibility = []string{"vllm"}; c.Histograms.Type = kind })
		td, spans := payload("e")
		addV1(spans, 1).Attributes().PutStr("gen_ai.response.model", "llama")
		addV1(spans, 2).Attributes().PutInt("gen_ai.usage.completion_tokens", 1)
		other := td.ResourceSpans().AppendEmpty() // an engine of another make has no vLLM metrics
		other.Resource().Attributes().PutStr("service.name", "other")
		foreign := startSpan(other.ScopeSpans().AppendEmpty().Spans(), 3, time.Second)
		foreign.SetName("Req")
		foreign.Attributes().PutDouble("gen_ai.latency.e2e", 0.5)
		a.Record(td, false)
		md := tick(a, clock)
		assert.ElementsMatch(t, []any{"vllm", "vllm", "unknown"}, values(find(md, durationName), attrProvider))

		families := map[string][]float64{}
		for _, d := range vllmDefinitions {
			points := find(md, d.Name)
			require.Len(t, points, 2, d.Name)
			for _, p := range points {
				require.NotEqual(t, pmetric.HistogramDataPoint{}, p.explicit, "dashboards read its buckets, whatever ours are")
				assert.Equal(t, d.Buckets, p.explicit.ExplicitBounds().AsRaw(), d.Name)
				assert.Equal(t, p.attributes["gen_ai.response.model"], p.attributes["model_name"], d.Name)
				families[d.Name] = append(families[d.Name], p.value)
			}
			assert.Equal(t, "llama", points[0].attributes["model_name"])
			assert.True(t, strings.HasPrefix(d.Name, "vllm:"))
		}
		first := find(md, "llm.serving.request.time_in_model_decode")[0].value
		assert.InEpsilon(t, first/127, families["vllm:request_time_per_output_token_seconds"][0], 1e-12)
		assert.Zero(t, families["vllm:request_time_per_output_token_seconds"][1], "as vLLM has it for a single token")
		assert.Equal(t, 128.0, families["vllm:request_params_max_tokens"][0])
		assert.Equal(t, 512.0, families["vllm:request_prompt_tokens"][0])
		for _, p := range find(md, durationName) {
			assert.NotContains(t, p.attributes, "model_name", "on vLLM's metrics only")
		}
	}

	a, clock := newTestAggregator(t, nil)
	recordOne(a, "e", 1, nil)
	for name := range allPoints(tick(a, clock)) {
		assert.NotContains(t, name, "vllm:")
	}
}

func TestDefinitions(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Definitions() {
		assert.False(t, seen[d.Name], d.Name)
		seen[d.Name] = true
		assert.NotEmpty(t, d.Description, d.Name)
		switch {
		case strings.HasPrefix(d.Name, "vllm:"):
			assert.Empty(t, d.Unit)
		case strings.HasSuffix(d.Name, ".share"), d.Name == infoName:
			assert.Equal(t, "1", d.Unit, d.Name)
		default:
			assert.Contains(t, []string{"1", "s", "{request}", "{token}", "{token}/s"}, d.Unit, d.Name)
		}
		if strings.HasPrefix(d.Name, "llm.serving.request.") {
			assert.NotContains(t, d.Name, "utilization", "shares of requests are none")
		}
		assert.Equal(t, d.Kind == "histogram", len(d.Buckets) > 0, d.Name)
		assert.LessOrEqual(t, len(d.Buckets), maxBuckets)
	}

	// Everything that is emitted is defined, with the same unit, kind and attributes, and the other way round.
	a, clock := newTestAggregator(t, func(c *Config) { c.Compatibility = []string{"vllm"}; c.SLO.E2E = time.Second })
	td, spans := payload("e")
	addV0(spans, 1, "llama")
	addV1(spans, 2)
	a.Record(td, false)
	emitted := map[string]pmetric.Metric{}
	for _, m := range tick(a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		_, twice := emitted[m.Name()]
		assert.False(t, twice, m.Name())
		emitted[m.Name()] = m
	}
	requests := Definitions()
	requests = requests[:len(requests)-len(windowDefinitions())] // the others: TestWindowMetrics
	assert.Len(t, emitted, len(requests))
	for _, d := range requests {
		m, ok := emitted[d.Name]
		require.True(t, ok, d.Name)
		assert.Equal(t, []string{d.Unit, d.Description}, []string{m.Unit(), m.Description()})
		kind := map[pmetric.MetricType]string{
			pmetric.MetricTypeHistogram: "histogram", pmetric.MetricTypeSum: "counter", pmetric.MetricTypeGauge: "gauge",
		}[m.Type()]
		assert.Equal(t, d.Kind, kind, d.Name)
		if m.Type() == pmetric.MetricTypeSum {
			assert.True(t, m.Sum().IsMonotonic())
		}
		for _, p := range pointsOf(m, "") {
			for _, name := range d.Attributes {
				assert.Contains(t, p.attributes, name, d.Name)
			}
		}
	}
}

func TestStats(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) {
		c.Limits.Series = 1
	})
	assert.Equal(t, Stats{}, a.Stats())
	long := strings.Repeat("ü", 200)
	td, spans := payload("e")
	addV0(spans, 1, long)
	addV1(spans, 2)
	addV1(spans, 3).Attributes().PutDouble("gen_ai.latency.time_in_queue", -1)
	addV1(spans, 3)
	a.Record(td, false)
	stats := a.Stats()
	assert.EqualValues(t, 1, stats.Requests[llmrequest.KindVLLM][llmrequest.GenerationV0])
	assert.EqualValues(t, 2, stats.Requests[llmrequest.KindVLLM][llmrequest.GenerationV1])
	assert.EqualValues(t, 1, stats.Rejected[llmrequest.ReasonSentinel])
	assert.EqualValues(t, 1, stats.Duplicates)
	assert.EqualValues(t, 2, stats.Overflow)
	assert.EqualValues(t, 1, stats.Cut)
	assert.EqualValues(t, 1, stats.Engines)
	assert.EqualValues(t, 1, stats.Series)
	assert.Zero(t, stats.Forgotten)
	assert.True(t, stats.LastCollect.IsZero())

	snapshot := a.Take()
	assert.False(t, snapshot.Empty())
	assert.True(t, a.Stats().LastCollect.IsZero(), "taken is not handed over")
	clock.advance(time.Second)
	snapshot.Succeeded()
	assert.Equal(t, testEpoch.Add(time.Second), a.Stats().LastCollect.UTC())

	forgetful, _ := newTestAggregator(t, func(c *Config) { c.Dedupe.MaxEntries = 16 }) // one per shard and generation
	for n := range uint64(500) {
		recordOne(forgetful, "e", n+10, nil)
	}
	assert.Positive(t, forgetful.Stats().Forgotten)
	empty, _ := newTestAggregator(t, nil)
	assert.True(t, empty.Take().Empty())
}

func TestLongAndInvalidValues(t *testing.T) {
	a, clock := newTestAggregator(t, func(c *Config) { c.Dimensions = []Dimension{{Name: "tenant"}} })
	for i, test := range []struct{ in, want string }{
		{strings.Repeat("a", 256), strings.Repeat("a", 256)},
		{strings.Repeat("a", 257), strings.Repeat("a", 256)},
		{"x" + strings.Repeat("ü", 200), "x" + strings.Repeat("ü", 127)}, // not within a character
		{"a\xffb", "a\uFFFDb"},
		{"a\nb\x00c\x7f\u0085", "a\uFFFDb\uFFFDc\uFFFD\uFFFD"},
		{"模型\t7B\x1b[31m", "模型\uFFFD7B\uFFFD[31m"},
		{"模型 ~\u00a0é", "模型 ~\u00a0é"},
		{"a\x01" + "\xff", "a\uFFFD\uFFFD"},
		{strings.Repeat("\r", 128), strings.Repeat("\uFFFD", 85)},
		{strings.Repeat("a\xff", 128), strings.Repeat("a\uFFFD", 64)}, // 3 bytes for one
		{strings.Repeat("\x80", 300), "\uFFFD"},
		{"nul\x00byte", "nul\uFFFDbyte"},
	} {
		recordOne(a, fmt.Sprint("engine-", i), uint64(i)+1, func(s ptrace.Span) { s.Attributes().PutStr("tenant", test.in) })
		points := find(tick(a, clock), countName)
		got := points[len(points)-1].attributes["tenant"].(string)
		assert.Equal(t, test.want, got)
		assert.LessOrEqual(t, len(got), 256)
	}
	assert.EqualValues(t, 3, a.Stats().Cut)
}

func TestPrintable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	alphabets := []string{"abc ~", "a\x1f", "a\x7f", "a\x80", "~\x00", "a\xff\x20"}
	for range 100_000 {
		alphabet := alphabets[r.IntN(len(alphabets))]
		value := []byte(strings.Repeat("~ ", r.IntN(20)))
		for range r.IntN(3) {
			if len(value) > 0 {
				value[r.IntN(len(value))] = alphabet[r.IntN(len(alphabet))]
			}
		}
		want := true
		for _, c := range value {
			want = want && c >= 0x20 && c <= 0x7e
		}
		require.Equal(t, want, printable(string(value)), "%q", value)
	}
	for c := range 256 { // each in each place
		for at := range 17 {
			value := []byte("0123456789abcdef~")
			value[at] = byte(c)
			require.Equal(t, c >= 0x20 && c <= 0x7e, printable(string(value)), "%q", value)
		}
	}
}

// Control characters make no series of their own: what tells series apart is what is emitted.
func TestControlCharactersOfOneSeries(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	td, spans := payload("engine-0")
	for i, model := range []string{"a\nb", "a\rb", "a\x7fb", "a\u0085b", "a\xffb"} {
		addV0(spans, uint64(i)+1, model)
	}
	a.Record(td, false)
	points := find(tick(a, clock), countName)
	require.Len(t, points, 1)
	assert.Equal(t, "a\uFFFDb", points[0].attributes["gen_ai.response.model"])
	assert.EqualValues(t, 5, points[0].value)
}

// Requests in a row that differ in no attribute of their series share its key, which must not hide one that differs, nor
// what is cut for each of them.
func TestRequestsOfOneSeriesInARow(t *testing.T) {
	a, clock := newTestAggregator(t, nil)
	td, spans := payload("engine-0")
	long := strings.Repeat("m", 300)
	want := map[any]float64{}
	for i, model := range []string{"a", "a", "b", "a", "a", long, long, long, "b"} {
		addV0(spans, uint64(i)+1, model)
		want[model[:min(len(model), 256)]]++
	}
	a.Record(td, false)
	got := map[any]float64{}
	for _, p := range find(tick(a, clock), countName) {
		got[p.attributes["gen_ai.response.model"]] += p.value
	}
	assert.Equal(t, want, got)
	assert.EqualValues(t, 3, a.Stats().Cut)
}
