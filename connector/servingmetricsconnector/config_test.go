// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsconnector

import (
	"path/filepath"
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
	all := createDefaultConfig().(*Config)
	m := &all.Metrics
	m.Interval = 10 * time.Second
	m.Temporality = serving.Delta
	m.Dimensions = []serving.Dimension{{Name: "llmisvc.name", Default: &unknown}}
	m.Histograms = serving.HistogramConfig{
		Type: serving.Explicit, MaxSize: 80,
		Buckets: map[string][]float64{"llm.serving.request.time_in_queue": {0.001, 0.01, 0.1, 1}},
	}
	m.Exemplars.MaxPerPoint = 2
	m.Engine.Key = []string{"service.instance.id"}
	m.Engine.ResourceAttributes = []string{"cloud.region"}
	m.Engine.Models = map[string]string{"my-service": "my-org/my-model"}
	m.Engine.MaxNumSeqs, m.Engine.KVCacheTokens = 256, 80000
	m.Timeline = serving.TimelineConfig{Window: 30 * time.Second, Grace: serving.Grace(time.Minute)}
	m.SLO = serving.SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond, E2E: 30 * time.Second}
	m.Limits = serving.LimitConfig{Series: 100, Engines: 10, SeriesExpiration: 5 * time.Minute}
	m.Dedupe = serving.DedupeConfig{Window: time.Minute, MaxEntries: 1000}
	m.Diagnosis.Period, m.Diagnosis.HostWait = 10*time.Minute, .5
	page := component.MustNewIDWithName("serving_summary", "page")
	m.Summary = &page
	m.Compatibility = []string{"vllm"}

	for id, want := range map[string]component.Config{
		"serving_metrics":     createDefaultConfig(),
		"serving_metrics/all": all,
	} {
		t.Run(id, func(t *testing.T) {
			cfg, err := loadConfig(t, id)
			require.NoError(t, err)
			require.NoError(t, confmap.Validate(cfg))
			assert.Equal(t, want, cfg)
		})
	}
}

func TestConfigErrors(t *testing.T) {
	for id, want := range map[string]string{
		"annotate":      "annotate: a connector never changes the spans it is given; remove it, or use the serving_metrics processor",
		"annotate_only": "annotate_only: a connector only derives metrics; remove it, or use the serving_metrics processor",
		"shared_key":    "interval: 1ms is too short; use 100ms or more, such as 15s",
		"diagnosis":     "diagnosis::period: 48h0m0s is out of range; use 1m to 24h, such as 5m",
	} {
		t.Run(id, func(t *testing.T) {
			cfg, err := loadConfig(t, "serving_metrics/"+id)
			require.NoError(t, err)
			// as the Collector does it
			err = confmap.Validate(struct {
				Connectors map[component.ID]component.Config `mapstructure:"connectors"`
			}{map[component.ID]component.Config{component.MustNewIDWithName("serving_metrics", id): cfg}})
			assert.EqualError(t, err, "connectors::serving_metrics/"+id+": "+want)
		})
	}
	_, err := loadConfig(t, "serving_metrics/unknown_key")
	require.ErrorContains(t, err, "intervall")
}
