// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// The recordings of real engines, what is made of them, and what the aggregator says of itself, as golden
// files: testdata/<recording>/input.yaml, <case>.yaml and <case>.txt. After a wanted change:
// go test ./internal/serving -run TestRecordings -update

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/internal/spanlog"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recording reads a file of the repository's testdata.
func recording(tb testing.TB, name string) ptrace.Traces {
	tb.Helper()
	r, err := spanlog.Open(filepath.Join("..", "..", "testdata", "spans", name))
	require.NoError(tb, err)
	defer func() { require.NoError(tb, r.Close()) }()
	td, err := r.Next()
	require.NoError(tb, err)
	return td
}

const (
	recordedV0 = "vllm_v0_detailed.debug.log"
	recordedV1 = "vllm_v1_concurrency8.otlp.json"
)

var goldenCases = []struct {
	name   string
	change func(*Config)
}{
	{"cumulative", func(*Config) {}},
	{"exponential", func(c *Config) { c.Histograms.Type = Exponential }},
	{"delta", func(c *Config) { c.Temporality = Delta }},
	{"compatibility", func(c *Config) { c.Compatibility = []string{"vllm"} }},
	{"dimensions_slo", func(c *Config) {
		none := "none"
		c.Dimensions = []Dimension{{Name: "gen_ai.request.max_tokens"}, {Name: "tenant", Default: &none}, {Name: "zone"}}
		c.SLO = SLOConfig{TTFT: 50 * time.Millisecond, TPOT: 20 * time.Millisecond, E2E: 500 * time.Millisecond}
		c.Histograms.Buckets = map[string][]float64{durationName: {0.5, 1, 5}}
		c.Engine.Models = map[string]string{"vllm": "org/model"}
	}},
}

func TestRecordings(t *testing.T) {
	for _, rec := range []struct{ dir, file string }{{"v0", recordedV0}, {"v1", recordedV1}} {
		td := recording(t, rec.file)
		input := filepath.Join("testdata", rec.dir, "input.yaml")
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(input), 0o755))
			require.NoError(t, golden.WriteTracesToFile(input, td))
		}
		want, err := golden.ReadTraces(input)
		require.NoError(t, err)
		require.NoError(t, ptracetest.CompareTraces(want, td), "the input is the recording")

		for _, test := range goldenCases {
			t.Run(rec.dir+"/"+test.name, func(t *testing.T) {
				a, clock := newTestAggregator(t, test.change)
				a.Record(td, false)
				a.Record(td, false) // resent
				got := tick(a, clock)
				stats := statsText(a)
				output := filepath.Join("testdata", rec.dir, test.name)
				if *update {
					require.NoError(t, golden.WriteMetricsToFile(output+".yaml", got, golden.SkipMetricTimestampNormalization()))
					require.NoError(t, os.WriteFile(output+".txt", []byte(stats), 0o644))
				}
				want, err := golden.ReadMetrics(output + ".yaml")
				require.NoError(t, err)
				require.NoError(t, pmetrictest.CompareMetrics(want, got, pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))
				require.NoError(t, pmetrictest.ValidateMetrics(got))
				wantStats, err := os.ReadFile(output + ".txt")
				require.NoError(t, err)
				assert.Equal(t, string(wantStats), stats)
			})
		}
	}
}

// statsText is what the aggregator says of itself: what is not zero, a line each.
func statsText(a *Aggregator) string {
	s := a.Stats()
	var b strings.Builder
	line := func(name string, n int64) {
		if n != 0 {
			fmt.Fprintf(&b, "%s %d\n", name, n)
		}
	}
	for kind := range s.Requests {
		for generation, n := range s.Requests[kind] {
			line(fmt.Sprintf("requests{kind=%s,generation=%s}", llmrequest.Kind(kind), llmrequest.Generation(generation)), n)
		}
	}
	for reason, n := range s.Rejected {
		line(fmt.Sprintf("rejected{reason=%s}", llmrequest.Reason(reason)), n)
	}
	line("duplicates", s.Duplicates)
	line("forgotten", s.Forgotten)
	line("overflow", s.Overflow)
	line("cut", s.Cut)
	line("dropped", s.Dropped)
	line("lost", s.Lost)
	line("engines", s.Engines)
	line("series", s.Series)
	return b.String()
}

func inEpsilon(t *testing.T, want, got float64, what string) {
	t.Helper()
	assert.LessOrEqual(t, math.Abs(got-want), 1e-9*math.Abs(want), "%s: want %v, got %v", what, want, got)
}

// one is the only point of a metric.
func one(t *testing.T, md pmetric.Metrics, name string) found {
	t.Helper()
	points := find(md, name)
	require.Len(t, points, 1, name)
	return points[0]
}

// What the V0 recording says, computed by hand from its attributes.
func TestRecordedV0Figures(t *testing.T) {
	const (
		queue, ttft, e2e            = 0.012117147445678711, 0.2345738410949707, 3.775825023651123
		scheduler, forward, execute = 0.017550230026245117, 3.151565277099609, 3.6468167304992676
		running                     = e2e - queue
	)
	for _, kind := range []HistogramType{Explicit, Exponential} {
		a, clock := newTestAggregator(t, func(c *Config) { c.Histograms.Type = kind })
		a.Record(recording(t, recordedV0), false)
		md := tick(a, clock)
		for name, want := range map[string]float64{
			durationName: e2e, "gen_ai.server.time_to_first_token": ttft, "gen_ai.server.time_per_output_token": (e2e - ttft) / 255,
			"llm.serving.request.time_in_queue": queue, "llm.serving.request.time_in_scheduler": scheduler,
			"llm.serving.request.time_in_model_forward": forward, "llm.serving.request.time_in_model_execute": execute,
			"llm.serving.request.queue.share": queue / e2e, "llm.serving.request.scheduler.share": scheduler / running,
			"llm.serving.request.forward.share": forward / running, "llm.serving.request.execute.share": execute / running,
			"llm.serving.request.execute_host.share": (execute - forward) / running, "llm.serving.request.prefill.share": (ttft - queue) / running,
		} {
			p := one(t, md, name)
			assert.EqualValues(t, 1, p.count, name)
			inEpsilon(t, want, p.value, name)
		}
		for share, want := range map[string]float64{"scheduler": 0.0047, "forward": 0.8374, "execute": 0.9689} {
			inEpsilon(t, want, math.Round(one(t, md, "llm.serving.request."+share+".share").value*1e4)/1e4, share)
		}
		inEpsilon(t, e2e, total(md, "llm.serving.request.stage.time"), "the stages add up to e2e")
		inEpsilon(t, running, total(md, "llm.serving.request.component.time"), "the components add up to the running time")
		assert.Equal(t, []any{"queue", "prefill", "decode"}, values(find(md, "llm.serving.request.stage.time"), "stage"), "V0 cannot tell the front end")
		assert.Equal(t, []any{"input", "output"}, values(find(md, "llm.serving.token.count"), "gen_ai.token.type"))
		assert.Equal(t, 2106.0+256, total(md, "llm.serving.token.count"))
		for _, name := range []string{"time_in_model_prefill", "time_in_model_decode", "time_in_model_inference", "frontend.share"} {
			assert.Empty(t, find(md, "llm.serving.request."+name), "V0 does not report it")
		}
		exemplar := one(t, md, durationName).exemplars.At(0)
		assert.Equal(t, "e3e70682c2094cac629f6fbed82c07cd", exemplar.TraceID().String())
		assert.Equal(t, "0a5d2f346baa9455", exemplar.SpanID().String())
		assert.Equal(t, map[string]any{
			"gen_ai.provider.name": "vllm", "gen_ai.response.model": "/data-fast/s3/ml-dev-sfc-or-dev-misc1-k8s/yak/hf_models/meta-llama/Meta-Llama-3-70B",
		}, one(t, md, countName).attributes)
	}
}

func TestRecordedV1Figures(t *testing.T) {
	td := recording(t, recordedV1)
	assert.Equal(t, 16, td.SpanCount())
	a, clock := newTestAggregator(t, nil)
	a.Record(td, false)
	md := tick(a, clock)
	assert.Equal(t, 12.0, total(md, countName), "spans of loading are counted nowhere")
	assert.EqualValues(t, 12, a.Stats().Requests[llmrequest.KindVLLM][llmrequest.GenerationV1])
	for name, points := range allPoints(md) {
		for _, absent := range []string{"scheduler", "forward", "execute", "component"} {
			assert.NotContains(t, name, absent, "V1 does not report it")
		}
		for _, p := range points {
			if p.count > 0 && name != "llm.serving.request.tokens" {
				assert.EqualValues(t, 12, p.count, name)
			}
		}
	}
	sum := func(f func(r *llmrequest.Request) float64) float64 {
		sum := 0.0
		var r llmrequest.Request
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
				for _, span := range ss.Spans().All() {
					if llmrequest.Read(span, &src, &r) {
						sum += f(&r)
					}
				}
			}
		}
		return sum
	}
	e2e := sum(func(r *llmrequest.Request) float64 { return r.Value(llmrequest.E2E) })
	inEpsilon(t, e2e, one(t, md, durationName).value, "e2e")
	inEpsilon(t, e2e, total(md, "llm.serving.request.stage.time"), "the stages add up to e2e")
	inEpsilon(t, 5.32, math.Round(one(t, md, "llm.serving.request.time_in_model_inference").value*100)/100, "inference")
	inEpsilon(t, sum(func(r *llmrequest.Request) float64 {
		return 1 - (r.Value(llmrequest.Queue)+r.Value(llmrequest.Inference))/r.Value(llmrequest.E2E)
	}), one(t, md, "llm.serving.request.frontend.share").value, "frontend share")
	assert.Equal(t, []any{"queue", "prefill", "decode", "frontend"}, values(find(md, "llm.serving.request.stage.time"), "stage"))
	for _, p := range find(md, "llm.serving.request.stage.time") {
		assert.Positive(t, p.value, p.attributes)
	}
}
