// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
)

func TestDefaultConfig(t *testing.T) {
	c := NewDefaultConfig()
	require.NoError(t, c.Validate())
	// As the README has them.
	assert.Equal(t, 15*time.Second, c.Interval)
	assert.Equal(t, Cumulative, c.Temporality)
	assert.Equal(t, HistogramConfig{Type: Explicit, MaxSize: 160}, c.Histograms)
	assert.Equal(t, ExemplarConfig{MaxPerPoint: 4}, c.Exemplars)
	assert.Equal(t, LimitConfig{Series: 20000, Engines: 1000, SeriesExpiration: 30 * time.Minute}, c.Limits, "expiry is on")
	assert.Equal(t, DedupeConfig{Window: 5 * time.Minute, MaxEntries: 1_000_000}, c.Dedupe)
	assert.Equal(t, "service.instance.id", c.Engine.Key[0])
	assert.Empty(t, c.Dimensions)
	assert.Empty(t, c.Compatibility)
	assert.Equal(t, SLOConfig{}, c.SLO)
}

func TestConfigKeys(t *testing.T) {
	c := NewDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"interval": "5s", "temporality": "delta",
		"dimensions": []any{map[string]any{"name": "llmisvc.name", "default": "unknown"}, map[string]any{"name": "tenant"}},
		"histograms": map[string]any{"type": "explicit", "buckets": map[string]any{"llm.serving.request.time_in_queue": []any{0.001, 0.01, 0.1, 1}}},
		"exemplars":  map[string]any{"max_per_point": 2},
		"engine": map[string]any{
			"key": []any{"service.instance.id"}, "resource_attributes": []any{"cloud.region"}, "models": map[string]any{"my-service": "my-org/my-model"},
		},
		"slo":           map[string]any{"ttft": "1s", "tpot": "100ms", "e2e": "0s"},
		"limits":        map[string]any{"series": 10, "engines": 2, "series_expiration": "1m"},
		"dedupe":        map[string]any{"window": "1m", "max_entries": 1000},
		"compatibility": []any{"vllm"},
	}).Unmarshal(&c))
	require.NoError(t, c.Validate())
	assert.Equal(t, 5*time.Second, c.Interval)
	assert.Equal(t, Delta, c.Temporality)
	require.Len(t, c.Dimensions, 2)
	assert.Equal(t, "unknown", *c.Dimensions[0].Default)
	assert.Nil(t, c.Dimensions[1].Default)
	assert.Equal(t, []float64{0.001, 0.01, 0.1, 1}, c.Histograms.Buckets["llm.serving.request.time_in_queue"])
	assert.EqualValues(t, 160, c.Histograms.MaxSize)
	assert.Equal(t, 2, c.Exemplars.MaxPerPoint)
	assert.Equal(t, EngineConfig{
		Key: []string{"service.instance.id"}, ResourceAttributes: []string{"cloud.region"}, Models: map[string]string{"my-service": "my-org/my-model"},
	}, c.Engine)
	assert.Equal(t, SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond}, c.SLO)
	assert.Equal(t, LimitConfig{Series: 10, Engines: 2, SeriesExpiration: time.Minute}, c.Limits)
	assert.Equal(t, DedupeConfig{Window: time.Minute, MaxEntries: 1000}, c.Dedupe)
	assert.Equal(t, []string{"vllm"}, c.Compatibility)
}

func TestConfigErrors(t *testing.T) {
	many := make([]string, maxResourceAttributes)
	for i := range many {
		many[i] = fmt.Sprint("attribute.", i)
	}
	buckets := func(bounds ...float64) func(*Config) {
		return func(c *Config) { c.Histograms.Buckets = map[string][]float64{durationName: bounds} }
	}
	tooMany := make([]float64, maxBuckets+1)
	for i := range tooMany {
		tooMany[i] = float64(i)
	}
	for _, test := range []struct {
		change     func(*Config)
		field, fix string
	}{
		{func(c *Config) { c.Interval = 0 }, "interval: 0s", "use 100ms or more"},
		{func(c *Config) { c.Temporality = "lowmemory" }, `temporality: "lowmemory"`, "use cumulative or delta"},
		{func(c *Config) { c.Dimensions = []Dimension{{}} }, "dimensions::0::name: is empty", "name a span or resource attribute"},
		{func(c *Config) { c.Dimensions = []Dimension{{Name: "rid"}} }, `dimensions::0::name: "rid"`, "remove it"},
		{func(c *Config) { c.Dimensions = []Dimension{{Name: "job"}} }, `dimensions::0::name: "job"`, "remove it"},
		{func(c *Config) { c.Dimensions = []Dimension{{Name: "a"}, {Name: "a"}} }, `dimensions::1::name: "a" is already used by dimensions::0`, "remove it"},
		{func(c *Config) { c.Histograms.Type = "summary" }, `histograms::type: "summary"`, "use explicit or exponential"},
		{func(c *Config) { c.Histograms.MaxSize = 7 }, "histograms::max_size: 7", "use 8 to 1024"},
		{func(c *Config) { c.Histograms.MaxSize = 1025 }, "histograms::max_size: 1025", "use 8 to 1024"},
		{func(c *Config) { c.Histograms.Buckets = map[string][]float64{"latency": {1}} }, `histograms::buckets: "latency"`, "see docs/metrics.md"},
		{buckets(), "histograms::buckets::" + durationName + ": 0 bounds", "use 1 to 250"},
		{buckets(tooMany...), "histograms::buckets::" + durationName + ": 251 bounds", "use 1 to 250"},
		{buckets(1, 1), "histograms::buckets::" + durationName, "ascending, and bound 1 is 1"},
		{buckets(-1), "histograms::buckets::" + durationName, "not negative"},
		{buckets(math.NaN()), "histograms::buckets::" + durationName, "finite"},
		{buckets(1, math.Inf(1)), "histograms::buckets::" + durationName, "bound 1 is +Inf"},
		{func(c *Config) { buckets(1)(c); c.Histograms.Type = Exponential }, "histograms::buckets::" + durationName, "or use histograms::type explicit"},
		{func(c *Config) { c.Exemplars.MaxPerPoint = -1 }, "exemplars::max_per_point: -1", "use 0 (none) to 64"},
		{func(c *Config) { c.Exemplars.MaxPerPoint = 65 }, "exemplars::max_per_point: 65", "use 0 (none) to 64"},
		{func(c *Config) { c.Engine.Key = nil }, "engine::key:", "name at least one resource attribute"},
		{func(c *Config) { c.Engine.Key = []string{"process.pid"} }, "engine::key:", "use service.instance.id"},
		{func(c *Config) { c.Engine.ResourceAttributes = many }, "engine::resource_attributes: 64 names", "use 50 at most"},
		{func(c *Config) { c.Engine.ResourceAttributes = []string{""} }, "engine::resource_attributes: a name is empty", "remove it"},
		{func(c *Config) { c.Engine.ResourceAttributes = []string{"process.pid"} }, `engine::resource_attributes: "process.pid"`, "remove it"},
		{func(c *Config) { c.Engine.ResourceAttributes = []string{"telemetry.sdk.name"} }, `engine::resource_attributes: "telemetry.sdk.name"`, "remove it"},
		{func(c *Config) { c.SLO.TTFT = -1 }, "slo::ttft: -1ns", "use a duration such as 500ms"},
		{func(c *Config) { c.SLO.TTFT = 1 }, "slo::ttft: 1ns is too short", "write a unit, such as 1s"},
		{func(c *Config) { c.Dedupe.Window = 5 }, "dedupe::window: 5ns is too short", "write a unit, such as 5m"},
		{func(c *Config) { c.Timeline.Grace = 30 }, "timeline::grace: 30ns is too short", "write a unit, such as 30s"},
		{func(c *Config) { c.Timeline.Grace = -1 }, "timeline::grace: -1ns is out of range", "use auto"},
		{func(c *Config) { c.Timeline.Window = 1 }, "timeline::window: 1ns is out of range", "use 1s to 1h"},
		{func(c *Config) { c.Engine.MaxNumSeqs = -1 }, "engine::max_num_seqs: -1 is negative", "or 0 if it is unknown"},
		{func(c *Config) { c.Engine.KVCacheTokens = -1 }, "engine::kv_cache_tokens: -1 is negative", "or 0 if they are unknown"},
		{func(c *Config) { c.SLO.TPOT = -1 }, "slo::tpot: -1ns", "or 0s for no objective"},
		{func(c *Config) { c.SLO.E2E = -1 }, "slo::e2e: -1ns", "or 0s for no objective"},
		{func(c *Config) { c.Limits.Series = 0 }, "limits::series: 0", "use 1 or more"},
		{func(c *Config) { c.Limits.Engines = 0 }, "limits::engines: 0", "use 1 or more"},
		{func(c *Config) { c.Limits.SeriesExpiration = time.Second }, "limits::series_expiration: 1s", "such as 30m"},
		{func(c *Config) { c.Dedupe.Window = -1 }, "dedupe::window: -1ns", "use a duration such as 5m, or 0s"},
		{func(c *Config) { c.Dedupe.MaxEntries = 0 }, "dedupe::max_entries: 0", "or dedupe::window 0s"},
		{func(c *Config) { c.Dedupe.MaxEntries = 1<<28 + 1 }, "dedupe::max_entries: 268435457", "use 1 to 268435456"},
		{func(c *Config) { id := component.MustNewIDWithName("zpages", "x"); c.Summary = &id }, "summary: zpages/x shows no summary", "name an extension of type serving_summary"},
		{func(c *Config) { c.Compatibility = []string{"sglang"} }, `compatibility: "sglang"`, "use vllm"},
	} {
		c := NewDefaultConfig()
		test.change(&c)
		err := c.Validate()
		require.ErrorContains(t, err, test.field)
		require.ErrorContains(t, err, test.fix)
		assert.NotContains(t, err.Error(), "\n", "%s: one fault, one line", test.field)
	}

	c := Config{}
	assert.Greater(t, len(strings.Split(c.Validate().Error(), "\n")), 5, "everything that is wrong, at once")
	_, err := New(&c, Settings{})
	require.Error(t, err)
	c = NewDefaultConfig()
	c.Dedupe = DedupeConfig{} // off needs no number of entries
	require.NoError(t, c.Validate())
}
