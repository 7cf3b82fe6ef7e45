// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The shipped configuration, scraped by a real Prometheus, asked in PromQL.

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// What the request of the V0 recording reports, in s.
const (
	v0E2E       = 3.775825023651123
	v0TTFT      = 0.2345738410949707
	v0Queue     = 0.012117147445678711
	v0Scheduler = 0.017550230026245117
	v0Forward   = 3.151565277099609
	v0Execute   = 3.6468167304992676
	v0Running   = v0E2E - v0Queue
)

func TestPrometheus(t *testing.T) {
	t.Parallel()
	prometheus := tool(t, "E2E_PROMETHEUS")
	traces := startSink(t)
	options := collectorOptions{
		env: []string{"TRACES_ENDPOINT=" + program.Address(traces.grpc)},
		set: []string{
			"processors.serving_metrics.interval=200ms",
			"processors.serving_metrics.slo.ttft=60ms",
			"processors.serving_metrics.compatibility=[vllm]",
		},
	}
	v0 := startCollector(t, shippedConfig, options)
	v1 := startCollector(t, shippedConfig, options)
	// The recordings are too short for a window of an engine to be closed.
	sim := startCollector(t, shippedConfig, collectorOptions{
		env: options.env,
		set: slices.Concat(options.set, []string{"processors.serving_metrics.engine.max_num_seqs=" + strconv.Itoa(maxNumSeqs)}),
	})
	db := startPrometheus(t, prometheus, map[string]string{
		"V0_METRICS": v0.metrics, "V0_SELF": v0.self, "V1_METRICS": v1.metrics, "V1_SELF": v1.self, "SIM_METRICS": sim.metrics, "SIM_SELF": sim.self,
	})
	v0.replay(t, recordingV0)
	v1.replayTo(t, program.Address(v1.http), "--protocol", "http", recordingV1)
	truthFile := filepath.Join(t.TempDir(), "truth.jsonl")
	out, err := run(t, nil, servingctl(t), "simulate", "--engine", "v0-hostbound", "--engines", "2", "--load", "0.8", "--duration", "10m",
		"--speed", "0", "--endpoint", program.Address(sim.grpc), "--truth", truthFile)
	require.NoError(t, err, out)
	simulated := float64(spansSent(t, out))

	db.await(t, `sum by (recording) (llm_serving_request_count_total)`, map[string]float64{"v0": 1, "v1": 12, "sim": simulated})
	db.await(t, `sum by (recording) (otelcol_serving_metrics_requests)`, map[string]float64{"v0": 1, "v1": 12, "sim": simulated})
	db.await(t, `count by (recording) (llm_serving_device_utilization_ratio)`, map[string]float64{"sim": 2})

	t.Run("values", func(t *testing.T) {
		v1 := addUpV1(t)
		for _, c := range []struct {
			query string
			want  float64
		}{
			// vLLM V0 reports what a request's running time is made of.
			{`llm_serving_request_time_in_queue_seconds_sum{recording="v0"}`, v0Queue},
			{`gen_ai_server_request_duration_seconds_sum{recording="v0"}`, v0E2E},
			{`gen_ai_server_time_to_first_token_seconds_sum{recording="v0"}`, v0TTFT},
			{`gen_ai_server_time_per_output_token_seconds_sum{recording="v0"}`, (v0E2E - v0TTFT) / 255},
			{`gen_ai_server_time_per_output_token_seconds_count{recording="v0"}`, 1},
			{`llm_serving_request_queue_share_sum{recording="v0"}`, v0Queue / v0E2E},
			{`llm_serving_request_scheduler_share_sum{recording="v0"}`, v0Scheduler / v0Running},
			{`llm_serving_request_forward_share_sum{recording="v0"}`, v0Forward / v0Running},
			{`llm_serving_request_execute_share_sum{recording="v0"}`, v0Execute / v0Running},
			{`llm_serving_request_execute_host_share_sum{recording="v0"}`, (v0Execute - v0Forward) / v0Running},
			{componentShare("v0", "scheduler"), v0Scheduler / v0Running},
			{componentShare("v0", "forward"), v0Forward / v0Running},
			{componentShare("v0", "execute_host"), (v0Execute - v0Forward) / v0Running},
			{`sum(llm_serving_request_component_time_seconds_total{recording="v0"})`, v0Running},
			{`sum(llm_serving_request_stage_time_seconds_total{recording="v0"})`, v0E2E},
			{`sum(llm_serving_request_stage_time_seconds_total{recording="v0"}) / sum(gen_ai_server_request_duration_seconds_sum{recording="v0"})`, 1},
			{`llm_serving_token_count_total{recording="v0",gen_ai_token_type="input"}`, 2106},
			{`llm_serving_token_count_total{recording="v0",gen_ai_token_type="output"}`, 256},
			{`llm_serving_request_goodput_total{recording="v0",slo="ttft"} + 1`, 1}, // 0.23 s missed 60 ms
			{`histogram_quantile(1, llm_serving_request_time_in_queue_seconds_bucket{recording="v0"})`, 0.025},

			// vLLM V1 reports stages.
			{`llm_serving_request_count_total{recording="v1"}`, 12},
			{`gen_ai_server_request_duration_seconds_sum{recording="v1"}`, v1.e2e},
			{`gen_ai_server_time_to_first_token_seconds_sum{recording="v1"}`, v1.ttft},
			{`gen_ai_server_time_per_output_token_seconds_sum{recording="v1"}`, (v1.e2e - v1.ttft) / 127},
			{`llm_serving_request_time_in_queue_seconds_sum{recording="v1"}`, v1.queue},
			{`llm_serving_request_time_in_model_prefill_seconds_sum{recording="v1"}`, v1.prefill},
			{`llm_serving_request_time_in_model_decode_seconds_sum{recording="v1"}`, v1.decode},
			{`llm_serving_request_time_in_model_inference_seconds_sum{recording="v1"}`, v1.inference},
			{`llm_serving_request_frontend_share_count{recording="v1"}`, 12},
			{`llm_serving_request_frontend_share_sum{recording="v1"}`, v1.frontendShares},
			{`llm_serving_request_queue_share_sum{recording="v1"}`, v1.queueShares},
			{`llm_serving_request_stage_time_seconds_total{recording="v1",stage="frontend"}`, v1.e2e - v1.queue - v1.inference},
			{`sum(llm_serving_request_stage_time_seconds_total{recording="v1"})`, v1.e2e},
			{`llm_serving_token_count_total{recording="v1",gen_ai_token_type="input"}`, 12 * 512},
			{`llm_serving_token_count_total{recording="v1",gen_ai_token_type="output"}`, 12 * 128},
			{`llm_serving_request_goodput_total{recording="v1",slo="ttft"}`, 8}, // four waited 80 ms
			{`{__name__="vllm:e2e_request_latency_seconds_sum",recording="v1"}`, v1.e2e},

			// The 4 model-loading spans are in none of them.
			{`max({recording="v1",__name__=~"(gen_ai|llm_serving|vllm).*_count"})`, 12},
			{`min({recording="v1",__name__=~"(gen_ai|llm_serving|vllm).*_count"})`, 12},
			{`sum(llm_serving_request_count_total{recording="v1"})`, 12},

			// Engines and what tells them apart.
			{`llm_serving_engine_info_ratio{recording="v0",gen_ai_provider_name="vllm",llm_serving_engine_generation="v0"}`, 1},
			{`llm_serving_engine_info_ratio{recording="v1",gen_ai_provider_name="vllm",llm_serving_engine_generation="v1"}`, 1},
			{`target_info{recording="v1",job="vllm",instance="vllm/127.0.0.1"}`, 1},

			// The collector's own health.
			{`otelcol_receiver_llm_span_requests{recording="v0",engine_kind="vllm",engine_generation="v0"}`, 1},
			{`otelcol_receiver_llm_span_requests{recording="v1",engine_kind="vllm",engine_generation="v1"}`, 12},
			{`otelcol_receiver_llm_span_other_spans{recording="v1",outcome="kept"}`, 4},
			{`otelcol_serving_metrics_requests{recording="v1",kind="vllm",generation="v1"}`, 12},
			{`otelcol_serving_metrics_engines{recording="v1"}`, 1},
			{`otelcol_serving_metrics_series{recording="v1"}`, 1},
			{`otelcol_serving_metrics_requests_duplicate{recording="v1"} + 1`, 1},
		} {
			db.equal(t, c.query, c.want)
		}
	})

	t.Run("engines", func(t *testing.T) {
		for i, instance := range []string{"vllm-0", "vllm-1"} {
			device := fmt.Sprintf(`sum(llm_serving_engine_time_seconds_total{recording="sim",instance=%q,state=~"prefill|decode"})`, instance)
			wall := fmt.Sprintf(`sum(llm_serving_engine_time_seconds_total{recording="sim",instance=%q})`, instance)
			db.equal(t, fmt.Sprintf(`round(%s / 10) / (%[1]s / 10)`, wall), 1) // whole windows
			share := db.value(t, device+" / "+wall)
			truths := readTruth(t, truthFile, i)
			n := int(math.Round(db.value(t, wall) / window.Seconds()))
			require.LessOrEqual(t, n, len(truths))
			closed := truths[:n] // the first requests ended in the first of them
			want := 0.0
			for _, truth := range closed {
				want += truth.DeviceUtilization / float64(len(closed))
			}
			assert.InDelta(t, want, share, maxUtilizationMAE, "%s: a utilisation is a ratio of rates", instance)
			t.Logf("%s: device utilization %.4f of true %.4f in %d windows", instance, share, want, len(closed))
			for _, query := range []string{
				`llm_serving_device_utilization_lower_ratio{instance=%q} <= llm_serving_device_utilization_ratio <= llm_serving_device_utilization_upper_ratio`,
				`llm_serving_device_wait_ratio{instance=%q} > 0.4`,
				`llm_serving_estimate_finding_ratio{instance=%q,finding="mixed_engines"} == 0`,
				`llm_serving_engine_requests_running{instance=%q,stat="mean"} <= ignoring(stat) llm_serving_engine_requests_running{stat="max"}`,
				`llm_serving_engine_info_ratio{instance=%q,llm_serving_engine_step_mode="masked"} == 1`,
			} {
				db.value(t, fmt.Sprintf(query, instance))
			}
		}
	})

	t.Run("absent", func(t *testing.T) {
		for _, query := range []string{
			// vLLM V1 does not report these, so nothing is said about them, not even 0.
			`{recording="v1",__name__=~".*(scheduler|forward|execute).*"}`,
			`{recording="v1",component!=""}`,
			`{recording="v0",__name__=~".*(frontend|inference|time_in_model_prefill|time_in_model_decode).*"}`,
			`{recording="v0",stage="frontend"}`,
			`otelcol_serving_metrics_values_rejected`,
			// A process is no engine.
			`{job="vllm",vllm_process_id!=""}`,
			`{job="vllm",telemetry_sdk_language!=""}`,
		} {
			db.absent(t, query)
		}
	})

	t.Run("documented", func(t *testing.T) {
		names := db.names(t)
		documented := documentedMetrics(t)
		require.Greater(t, len(documented), 20, "docs/metrics.md has lost its tables")
		for _, name := range documented {
			assert.True(t, names[name] || names[name+"_count"], "docs/metrics.md has %s, which no recording gives", name)
		}
		for name := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if strings.HasPrefix(name, "gen_ai_") || strings.HasPrefix(name, "llm_serving_") || strings.HasPrefix(name, "vllm:") {
				assert.True(t, slices.Contains(documented, name) || slices.Contains(documented, base), "%s is not in docs/metrics.md", name)
			}
		}
	})

	t.Run("spans", func(t *testing.T) {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Equal(c, 1+16+int(simulated), len(spansOf(traces.grpcTraces.AllTraces()...)))
		}, patience, poll, "every span goes on, requests or not")
	})
}

// sumsV1 are what the 12 requests of the V1 recording report, added up, in s, and two kinds of shares.
type sumsV1 struct{ e2e, ttft, queue, prefill, decode, inference, frontendShares, queueShares float64 }

// addUpV1 reads the recording without any code of the product.
func addUpV1(t *testing.T) (s sumsV1) {
	t.Helper()
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(readFile(t, recordingV1))
	require.NoError(t, err)
	for _, span := range spansOf(td) {
		if !isRequest(span) {
			continue
		}
		get := func(name string) float64 {
			v, ok := span.Attributes().Get("gen_ai.latency." + name)
			require.True(t, ok, name)
			return v.Double()
		}
		s.e2e += get("e2e")
		s.ttft += get("time_to_first_token")
		s.queue += get("time_in_queue")
		s.prefill += get("time_in_model_prefill")
		s.decode += get("time_in_model_decode")
		s.inference += get("time_in_model_inference")
		s.frontendShares += 1 - (get("time_in_queue")+get("time_in_model_inference"))/get("e2e")
		s.queueShares += get("time_in_queue") / get("e2e")
	}
	return s
}

// componentShare is the share of a component in the running time, as docs/metrics.md has it but without rates.
func componentShare(recording, component string) string {
	return fmt.Sprintf(`sum(llm_serving_request_component_time_seconds_total{recording=%q,component=%q}) / sum(llm_serving_request_component_time_seconds_total{recording=%[1]q})`,
		recording, component)
}

// documentedMetrics are the names in the last column of the tables of docs/metrics.md.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `[a-z][^|]*\\|.*\\| `([a-zA-Z0-9_:]+)` \\|$")
	var names []string
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, filepath.Join("..", "..", "docs", "metrics.md"))), -1) {
		names = append(names, m[1])
	}
	return names
}

// promDB is a running Prometheus.
type promDB struct {
	*process
	url string
}

// startPrometheus scrapes what testdata/prometheus.yml says, with the ports put in.
func startPrometheus(t *testing.T, binary string, ports map[string]string) *promDB {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := os.Expand(string(readFile(t, testConfig("prometheus.yml"))), func(name string) string { return ports[name] })
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	port := program.FreePort()
	db := &promDB{url: "http://" + program.Address(port)}
	db.process = start(t, nil, binary,
		"--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+program.Address(port), "--log.level=warn")
	db.awaitOK(t, db.url+"/-/ready")
	return db
}

type promSample struct {
	labels map[string]string
	value  float64
}

// query is the answer to an instant query.
func (db *promDB) query(ctx context.Context, query string) ([]promSample, error) {
	body, err := program.Fetch(ctx, db.url+"/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", query, err, body)
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	var samples []promSample
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		samples = append(samples, promSample{r.Metric, value})
	}
	return samples, nil
}

// value is that of a query that gives one sample.
func (db *promDB) value(t *testing.T, query string) float64 {
	t.Helper()
	samples, err := db.query(t.Context(), query)
	require.NoError(t, err)
	require.Len(t, samples, 1, query)
	return samples[0].value
}

// equal checks that a query gives one sample, of the value to 1e-9 of it.
func (db *promDB) equal(t *testing.T, query string, want float64) {
	t.Helper()
	samples, err := db.query(t.Context(), query)
	require.NoError(t, err)
	if assert.Len(t, samples, 1, query) {
		assert.InEpsilon(t, want, samples[0].value, 1e-9, query)
		t.Logf("%-110s %v", query, samples[0].value)
	}
}

func (db *promDB) absent(t *testing.T, query string) {
	t.Helper()
	samples, err := db.query(t.Context(), query)
	require.NoError(t, err)
	assert.Empty(t, samples, query)
}

// await waits until a query gives these values by recording.
func (db *promDB) await(t *testing.T, query string, want map[string]float64) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		samples, err := db.query(t.Context(), query)
		assert.NoError(c, err)
		got := map[string]float64{}
		for _, s := range samples {
			got[s.labels["recording"]] = s.value
		}
		assert.Equal(c, want, got)
	}, patience, poll, query)
}

// names are those of all series.
func (db *promDB) names(t *testing.T) map[string]bool {
	t.Helper()
	body, err := program.Fetch(t.Context(), db.url+"/api/v1/label/__name__/values")
	require.NoError(t, err)
	var answer struct{ Data []string }
	require.NoError(t, json.Unmarshal(body, &answer))
	names := map[string]bool{}
	for _, name := range answer.Data {
		names[name] = true
	}
	return names
}
