// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

func loadConfig(t testing.TB, id string) (*Config, error) {
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	require.True(t, all.IsSet(id), "no such case")
	conf, err := all.Sub(id)
	require.NoError(t, err)
	cfg := createDefaultConfig()
	err = conf.Unmarshal(cfg)
	return cfg.(*Config), err
}

func TestConfig(t *testing.T) {
	unknown := "unknown"
	page := component.MustNewIDWithName("serving_summary", "page")
	with := func(change func(*Config)) *Config {
		cfg := createDefaultConfig().(*Config)
		change(cfg)
		return cfg
	}
	for id, want := range map[string]*Config{
		"serving_metrics": with(func(*Config) {}),
		"serving_metrics/all": with(func(c *Config) {
			m := &c.Metrics
			m.Interval = 10 * time.Second
			m.Temporality = serving.Delta
			m.Dimensions = []serving.Dimension{{Name: "llmisvc.name", Default: &unknown}, {Name: "tenant"}}
			m.Histograms = serving.HistogramConfig{
				Type: serving.Explicit, MaxSize: 80,
				Buckets: map[string][]float64{"llm.serving.request.time_in_queue": {0.001, 0.01, 0.1, 1}},
			}
			m.Exemplars.MaxPerPoint = 2
			m.Engine.Key = []string{"service.instance.id", "host.name+service.name"}
			m.Engine.ResourceAttributes = []string{"cloud.region"}
			m.Engine.Models = map[string]string{"my-service": "my-org/my-model"}
			m.Engine.MaxNumSeqs, m.Engine.KVCacheTokens = 256, 80000
			m.Timeline = serving.TimelineConfig{Window: 30 * time.Second, Grace: serving.Grace(time.Minute)}
			m.SLO = serving.SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond, E2E: 30 * time.Second}
			m.Limits = serving.LimitConfig{Series: 100, Engines: 10, SeriesExpiration: 5 * time.Minute}
			m.Dedupe = serving.DedupeConfig{Window: time.Minute, MaxEntries: 1000}
			m.Diagnosis.Period, m.Diagnosis.HostWait = 10*time.Minute, .5
			m.Summary = &page
			m.Compatibility = []string{"vllm"}
		}),
		"serving_metrics/annotate_only":  with(func(c *Config) { c.AnnotateOnly = true }),
		"serving_metrics/exponential":    with(func(c *Config) { c.Metrics.Histograms.Type = serving.Exponential }),
		"serving_metrics/without_dedupe": with(func(c *Config) { c.Metrics.Dedupe = serving.DedupeConfig{} }),
	} {
		t.Run(id, func(t *testing.T) {
			cfg, err := loadConfig(t, id)
			require.NoError(t, err)
			require.NoError(t, confmap.Validate(cfg))
			assert.Equal(t, want, cfg)
		})
	}
}

// Every message as a person sees it: the component, the key, what is wrong, and what to write.
func TestConfigErrors(t *testing.T) {
	for id, want := range map[string][]string{
		"annotate_nothing":       {"annotate_only: true together with annotate: false does nothing; remove one of them"},
		"interval":               {"interval: 1ms is too short; use 100ms or more, such as 15s"},
		"temporality":            {`temporality: "lowmemory" is unknown; use cumulative or delta`},
		"dimension_empty":        {"dimensions::0::name: is empty; name a span or resource attribute"},
		"dimension_per_request":  {`dimensions::0::name: "gen_ai.request.id"`, "; remove it"},
		"dimension_taken":        {`dimensions::0::name: "gen_ai.response.model" is already used`, "; remove it"},
		"dimension_twice":        {`dimensions::1::name: "tenant_id" is already used by dimensions::0`, "; remove it"},
		"histogram_type":         {`histograms::type: "native" is unknown; use explicit or exponential`},
		"histogram_max_size":     {"histograms::max_size: 1 is out of range; use "},
		"buckets_unknown":        {`histograms::buckets: "llm.serving.request.time" is no histogram`, "see docs/metrics.md"},
		"buckets_order":          {"histograms::buckets::llm.serving.request.time_in_queue: ", "must be", "ascending"},
		"buckets_empty":          {"histograms::buckets::llm.serving.request.time_in_queue: 0 bounds; use 1 to 250"},
		"buckets_of_exponential": {"histograms::buckets::llm.serving.request.time_in_queue: ", "remove it, or use histograms::type explicit"},
		"exemplars":              {"exemplars::max_per_point: -1 is out of range; use 0 (none) to 64"},
		"engine_key":             {`engine::key: "process.pid": a process is no engine`, "use service.instance.id"},
		"engine_key_empty":       {"engine::key: no key: name at least one resource attribute"},
		"resource_attributes":    {`engine::resource_attributes: "process.pid"`, "; remove it"},
		"slo":                    {"slo::ttft: -1s is negative; use a duration such as 500ms"},
		"limits_series":          {"limits::series: 0 is not positive; use 1 or more, such as 20000"},
		"limits_engines":         {"limits::engines: -1 is not positive; use 1 or more, such as 1000"},
		"series_expiration":      {"limits::series_expiration: 1s is shorter than", "; use "},
		"max_num_seqs":           {"engine::max_num_seqs: -1 is negative; use the engine's --max-num-seqs"},
		"kv_cache_tokens":        {"engine::kv_cache_tokens: -1 is negative; use the tokens that the engine's KV cache holds"},
		"timeline_window":        {"timeline::window: 10ms is out of range; use 1s to 1h"},
		"timeline_grace":         {"timeline::grace: -1s is out of range; use auto"},
		"dedupe_window":          {"dedupe::window: -1s is negative; use a duration such as 5m"},
		"dedupe_max_entries":     {"dedupe::max_entries: 0 is out of range; use 1 to "},
		"compatibility":          {`compatibility: "sglang" is unknown; use vllm, or leave the list empty`},
		"diagnosis":              {"diagnosis::period: 1s is out of range", "diagnosis::host_wait: 2 is out of range; use 0 to 1"},
		"summary_of_nothing":     {"summary: serving_summary has nothing to show with annotate_only: true; remove one of them"},
		"summary_of_other_type":  {"summary: zpages shows no summary; name an extension of type serving_summary, such as serving_summary or serving_summary/page"},
		"summary_no_windows":     {"summary: serving_summary has nothing to show without windows; remove timeline::window 0s, or summary"},
		"several":                {"interval: 0s is too short", `temporality: "both" is unknown`},
	} {
		t.Run(id, func(t *testing.T) {
			cfg, err := loadConfig(t, "serving_metrics/"+id)
			require.NoError(t, err)
			// as the Collector does it
			all := struct {
				Processors map[component.ID]component.Config `mapstructure:"processors"`
			}{map[component.ID]component.Config{component.MustNewIDWithName("serving_metrics", id): cfg}}
			err = confmap.Validate(all)
			require.Error(t, err)
			assert.True(t, strings.HasPrefix(err.Error(), "processors::serving_metrics/"+id+": "+want[0]), err.Error())
			for _, text := range want {
				assert.Contains(t, err.Error(), text)
			}
			// The Collector calls every Validate there is, and puts fields that are no keys in front of what it says.
			assert.NotContains(t, err.Error(), "::metrics::")
		})
	}
}

func TestConfigUnknownKey(t *testing.T) {
	_, err := loadConfig(t, "serving_metrics/unknown_key")
	require.ErrorContains(t, err, "intervall")
}

// Every case of the file is in one of the tests.
func TestConfigCasesAreAllTested(t *testing.T) {
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	assert.Len(t, all.ToStringMap(), 5+33+1)
}
