// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// The spans as each vLLM version sends them, and when.

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

func exportsOf(t testing.TB, cfg Config, w Workload, rate float64, d time.Duration) []Export {
	s, err := New(cfg, w, rate)
	require.NoError(t, err)
	out := s.Advance(cfg.Start.Add(d))
	return append(out, s.Close()...)
}

func keys(m pcommon.Map) []string {
	var out []string
	for k, v := range m.All() {
		out = append(out, k+" "+v.Type().String())
	}
	slices.Sort(out)
	return out
}

func TestDialects(t *testing.T) {
	v0 := []string{
		"gen_ai.latency.e2e Double", "gen_ai.latency.time_in_model_execute Double", "gen_ai.latency.time_in_model_forward Double",
		"gen_ai.latency.time_in_queue Double", "gen_ai.latency.time_in_scheduler Double", "gen_ai.latency.time_to_first_token Double",
		"gen_ai.request.id Str", "gen_ai.request.max_tokens Int", "gen_ai.request.n Int", "gen_ai.request.temperature Double",
		"gen_ai.request.top_p Double", "gen_ai.response.model Str", "gen_ai.usage.completion_tokens Int",
		"gen_ai.usage.num_sequences Int", "gen_ai.usage.prompt_tokens Int",
	}
	v1 := []string{
		"gen_ai.latency.e2e Double", "gen_ai.latency.time_in_model_decode Double", "gen_ai.latency.time_in_model_inference Double",
		"gen_ai.latency.time_in_model_prefill Double", "gen_ai.latency.time_in_queue Double", "gen_ai.latency.time_to_first_token Double",
		"gen_ai.request.id Str", "gen_ai.request.max_tokens Int", "gen_ai.request.n Int", "gen_ai.request.top_p Double",
		"gen_ai.usage.completion_tokens Int", "gen_ai.usage.prompt_tokens Int",
	}
	sdk := []string{"service.instance.id Str", "service.name Str", "telemetry.sdk.language Str", "telemetry.sdk.name Str", "telemetry.sdk.version Str"}
	without := func(list []string, drop ...string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(drop, s) })
	}
	with := func(list []string, more ...string) []string {
		out := append(slices.Clone(list), more...)
		slices.Sort(out)
		return out
	}
	for _, c := range []struct {
		name            string
		preset          string
		change          func(*Config)
		attrs, resource []string
		temperature     bool // zero is left out
		scope           string
	}{
		{"v0.5.5", "v0-hostbound", func(*Config) {}, with(v0, "gen_ai.request.best_of Int"), sdk, false, "vllm.llm_engine"},
		{"v0.6.4", "v0-default", func(*Config) {}, v0, sdk, false, "vllm.llm_engine"},
		{"no details", "v0-default", func(c *Config) { c.Detail = DetailNone }, without(v0, "gen_ai.latency.time_in_model_forward Double", "gen_ai.latency.time_in_model_execute Double"), sdk, false, "vllm.llm_engine"},
		{"model details", "v0-default", func(c *Config) { c.Detail = DetailModel }, without(v0, "gen_ai.latency.time_in_model_execute Double"), sdk, false, "vllm.llm_engine"},
		{"no identity", "v0-default", func(c *Config) { c.NoInstanceID = true }, v0, without(sdk, "service.instance.id Str"), false, "vllm.llm_engine"},
		{"v0.10.2", "v1", func(c *Config) { c.Dialect = VLLM0102 }, v1, sdk, true, "vllm.llm_engine"},
		{"v0.16", "v1", func(c *Config) { c.ResourceAttributes = map[string]string{"k8s.pod.name": "a"} }, v1, with(sdk, "vllm.process_id Str", "vllm.instrumenting_module_name Str", "k8s.pod.name Str"), true, "vllm.tracing.otel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := preset(t, c.preset, c.change)
			exports := exportsOf(t, cfg, Workload{}, 5, time.Minute)
			omitted, given := 0, 0
			for _, e := range exports {
				require.Equal(t, 1, e.Traces.ResourceSpans().Len())
				rs := e.Traces.ResourceSpans().At(0)
				assert.Equal(t, c.resource, keys(rs.Resource().Attributes()))
				require.Equal(t, 1, rs.ScopeSpans().Len())
				assert.Equal(t, c.scope, rs.ScopeSpans().At(0).Scope().Name())
				assert.Empty(t, rs.ScopeSpans().At(0).Scope().Version())
			}
			spans := spansOf(exports)
			require.Greater(t, len(spans), 50)
			for _, s := range spans {
				assert.Equal(t, "llm_request", s.Name())
				assert.Equal(t, ptrace.SpanKindServer, s.Kind())
				assert.Equal(t, ptrace.StatusCodeUnset, s.Status().Code())
				assert.False(t, s.TraceID().IsEmpty() || s.SpanID().IsEmpty())
				want := c.attrs
				if v, ok := s.Attributes().Get("gen_ai.request.temperature"); c.temperature && ok {
					given++
					assert.NotZero(t, v.Double())
					want = with(want, "gen_ai.request.temperature Double")
				} else if c.temperature {
					omitted++
				}
				assert.Equal(t, want, keys(s.Attributes()))
				e2e, ttft, queue := attr(t, s, "latency.e2e"), attr(t, s, "latency.time_to_first_token"), attr(t, s, "latency.time_in_queue")
				assert.True(t, 0 < queue && queue < ttft && ttft <= e2e, "%v %v %v", queue, ttft, e2e)
				assert.GreaterOrEqual(t, attr(t, s, "request.max_tokens"), attr(t, s, "usage.completion_tokens"))
				late := float64(s.EndTimestamp()-s.StartTimestamp())/1e9 - e2e
				assert.True(t, late > .0001 && late < .0014, "the span ends %v s after the last token", late)
				if c.temperature {
					p, d, i := attr(t, s, "latency.time_in_model_prefill"), attr(t, s, "latency.time_in_model_decode"), attr(t, s, "latency.time_in_model_inference")
					assert.InDelta(t, i, p+d, 1e-6)
					front := e2e - queue - i // tokenising, and the way there and back
					assert.True(t, front > .0008 && front < .1, "front end %v s", front)
				}
			}
			if c.temperature {
				assert.Positive(t, omitted)
				assert.Positive(t, given)
			}
		})
	}
}

func TestDeterminism(t *testing.T) {
	for _, name := range Presets() {
		t.Run(name, func(t *testing.T) {
			cfg := preset(t, name, func(c *Config) {
				c.Engines, c.AbortRate, c.Sampling, c.TraceState, c.Pooled = 3, .1, .5, true, name == "v1"
				if name == "v1" {
					c.APIServers = 2
				}
			})
			w := Workload{Lengths: LengthsAzureConv, Arrivals: Recorded}
			bytesOf := func(cfg Config, slice time.Duration) ([]byte, []Export) {
				s, err := New(cfg, w, 30)
				require.NoError(t, err)
				var exports []Export
				for s.Now().Before(cfg.Start.Add(90 * time.Second)) {
					exports = append(exports, s.Advance(s.Now().Add(slice))...)
					require.True(t, len(exports) == 0 || !exports[len(exports)-1].At.After(s.Now()), "nothing comes before its time")
				}
				exports = append(exports, s.Close()...)
				var all []byte
				var last time.Time
				for _, e := range exports {
					assert.False(t, e.At.Before(last), "in order")
					last = e.At
					b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(e.Traces)
					require.NoError(t, err)
					all = append(binary.BigEndian.AppendUint64(append(all, byte(e.Engine), byte(e.Process)), uint64(e.At.UnixNano())), b...)
				}
				return all, exports
			}
			one, exports := bytesOf(cfg, 90*time.Second)
			require.NotEmpty(t, exports)
			for _, slice := range []time.Duration{90 * time.Second, 5 * time.Second, 90 * time.Millisecond} {
				again, _ := bytesOf(cfg, slice)
				require.Equal(t, one, again, "sliced by %v", slice)
			}
			cfg.Seed++
			other, _ := bytesOf(cfg, 90*time.Second)
			assert.NotEqual(t, one, other)
			// Every parent is sampled and says at which rate.
			for _, s := range spansOf(exports) {
				assert.Equal(t, "ot=th:8", s.TraceState().AsRaw())
				assert.False(t, s.ParentSpanID().IsEmpty())
				id := s.TraceID()
				assert.GreaterOrEqual(t, id[9], byte(0x80), "the randomness is over the threshold")
			}
			senders := map[[2]int]bool{}
			for _, e := range exports {
				senders[[2]int{e.Engine, e.Process}] = true
			}
			if name == "v1" {
				assert.Equal(t, map[[2]int]bool{{-1, 0}: true, {-1, 1}: true}, senders)
			} else {
				assert.Equal(t, map[[2]int]bool{{0, 0}: true, {1, 0}: true, {2, 0}: true}, senders)
			}
		})
	}
}

// TestBatchSpanProcessor: spans wait at most the delay, and at most a batch goes out at once.
func TestBatchSpanProcessor(t *testing.T) {
	cfg := preset(t, "v1", func(c *Config) { c.ExportBatch, c.Engines = 20, 2 })
	full, timed := 0, 0
	for _, e := range exportsOf(t, cfg, Workload{}, 16, 3*time.Minute) {
		spans := spansOf([]Export{e})
		assert.NotEmpty(t, spans)
		assert.LessOrEqual(t, len(spans), 20)
		if len(spans) == 20 {
			full++
			assert.Equal(t, cfg.ExportTime, e.At.Sub(spans[19].EndTimestamp().AsTime()), "a full batch does not wait")
		} else {
			timed++
		}
		for i, s := range spans {
			wait := e.At.Sub(s.EndTimestamp().AsTime())
			assert.True(t, wait > 0 && wait <= cfg.ExportDelay+4*cfg.ExportTime, "%v", wait)
			if i > 0 {
				assert.GreaterOrEqual(t, s.EndTimestamp(), spans[i-1].EndTimestamp())
			}
		}
	}
	assert.Positive(t, full)
	assert.Positive(t, timed)
}

// TestFrontEnd: what a slow API server takes is on V1 spans the difference of wall clock and engine core.
func TestFrontEnd(t *testing.T) {
	share := func(name string) float64 {
		var all, core float64
		for _, s := range spansOf(exportsOf(t, preset(t, name), Workload{}, 8, 2*time.Minute)) {
			all += attr(t, s, "latency.e2e")
			core += attr(t, s, "latency.time_in_queue") + attr(t, s, "latency.time_in_model_inference")
		}
		return 1 - core/all
	}
	assert.Less(t, share("v1"), .02)
	assert.Greater(t, share("v1-frontend"), .15)

	// Outputs that the front end cannot keep up with wait for it.
	slow := preset(t, "v1", func(c *Config) { c.FrontEnd.OutputPerSeq = 2 * time.Millisecond })
	var late float64
	for _, s := range spansOf(exportsOf(t, slow, Workload{}, 8, 2*time.Minute)) {
		late = max(late, attr(t, s, "latency.e2e")-attr(t, s, "latency.time_in_model_inference"))
	}
	assert.Greater(t, late, 1.)
}

// TestReadable: the distribution reads every simulated span as what it is, and doubts no figure.
func TestReadable(t *testing.T) {
	for _, name := range Presets() {
		cfg := preset(t, name, func(c *Config) { c.AbortRate = .1 })
		want := llmrequest.GenerationV0
		if cfg.Dialect.V1() {
			want = llmrequest.GenerationV1
		}
		n := 0
		for _, e := range exportsOf(t, cfg, Workload{}, 18, 2*time.Minute) {
			rs := e.Traces.ResourceSpans().At(0)
			source := llmrequest.NewSource(rs.Resource().Attributes(), rs.ScopeSpans().At(0).Scope().Name())
			for _, s := range rs.ScopeSpans().At(0).Spans().All() {
				var r llmrequest.Request
				require.True(t, llmrequest.Read(s, &source, &r))
				assert.Equal(t, llmrequest.KindVLLM, r.Kind)
				assert.Equal(t, want, r.Generation)
				assert.Empty(t, r.Rejections(), name)
				assert.Equal(t, !cfg.Dialect.V1(), r.HasAll(llmrequest.Scheduler, llmrequest.Forward, llmrequest.Execute))
				assert.Equal(t, cfg.Dialect.V1(), r.HasAll(llmrequest.Prefill, llmrequest.Decode, llmrequest.Inference))
				n++
			}
		}
		assert.Greater(t, n, 500)
	}
}

func TestThreshold(t *testing.T) {
	assert.Equal(t, "8", threshold(.5))
	assert.Equal(t, "c", threshold(.25))
	assert.Len(t, threshold(.1), 14)
}
