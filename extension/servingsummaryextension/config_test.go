// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingsummaryextension

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

func loadConfig(t *testing.T, id string) (*Config, error) {
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	require.True(t, all.IsSet(id), "no such case")
	conf, err := all.Sub(id)
	require.NoError(t, err)
	cfg := createDefaultConfig()
	if err := conf.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg.(*Config), confmap.Validate(cfg)
}

func TestConfig(t *testing.T) {
	cfg, err := loadConfig(t, "serving_summary")
	require.NoError(t, err)
	assert.Equal(t, "localhost:8686", cfg.NetAddr.Endpoint)
	assert.Equal(t, 5*time.Second, cfg.Refresh)
	assert.Positive(t, cfg.ReadHeaderTimeout)
	assert.Positive(t, cfg.ReadTimeout)
	assert.Positive(t, cfg.WriteTimeout)

	cfg, err = loadConfig(t, "serving_summary/all")
	require.NoError(t, err)
	assert.Equal(t, "0.0.0.0:9000", cfg.NetAddr.Endpoint)
	assert.Equal(t, "Serving, cluster west", cfg.Title)
	assert.Equal(t, 30*time.Second, cfg.Refresh)
	assert.Equal(t, "https://traces.example.com/trace/{trace_id}?span={span_id}", cfg.TraceURL)
	assert.Equal(t, 3*time.Second, cfg.ReadTimeout)

	cfg, err = loadConfig(t, "serving_summary/no_refresh")
	require.NoError(t, err)
	assert.Zero(t, cfg.Refresh)
}

func TestConfigErrors(t *testing.T) {
	for id, want := range map[string]string{
		"empty_endpoint":   "endpoint is empty; give a host and port, such as localhost:8686",
		"no_port":          `endpoint: "localhost" is no host and port; write one such as localhost:8686`,
		"port_too_large":   `endpoint: "localhost:99999" is no host and port`,
		"too_often":        "refresh: 10ms is too often; use 1s or more, or 0 for never",
		"negative_refresh": "refresh: -1s is too often",
		"long_title":       "title has 110 characters; use at most 100",
		"trace_no_id":      "trace_url does not contain {trace_id}",
		"trace_script":     "trace_url must begin with http:// or https://",
		"trace_no_host":    "trace_url has no host",
		"trace_unknown":    "trace_url has a placeholder that is neither {trace_id} nor {span_id}",
		"trace_host":       "trace_url has a placeholder in its host",
		"trace_no_url":     "trace_url is not a URL",
		"unknown_key":      "titel",
	} {
		t.Run(id, func(t *testing.T) {
			_, err := loadConfig(t, "serving_summary/"+id)
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}
