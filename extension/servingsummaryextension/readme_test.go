// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingsummaryextension

// README.md is held to the code: its examples are configurations that the extension takes, its table has every key of its
// own with the default it has.

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"
)

func readme(t *testing.T) string {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

func TestReadmeExamples(t *testing.T) {
	text := readme(t)
	blocks := regexp.MustCompile("(?s)<!-- (testdata/examples/\\S+) -->\n```yaml\n(.*?)```\n").FindAllStringSubmatch(text, -1)
	require.Len(t, blocks, strings.Count(text, "```yaml"), "every example names its file")
	files, err := filepath.Glob(filepath.Join("testdata", "examples", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, blocks, len(files), "every file is an example")
	for _, block := range blocks {
		file, err := os.ReadFile(filepath.FromSlash(block[1]))
		require.NoError(t, err)
		assert.Equal(t, string(file), block[2], block[1])
		all, err := confmaptest.LoadConf(filepath.FromSlash(block[1]))
		require.NoError(t, err)
		extensions, err := all.Sub("extensions")
		require.NoError(t, err)
		conf, err := extensions.Sub("serving_summary")
		require.NoError(t, err)
		cfg := createDefaultConfig()
		require.NoError(t, conf.Unmarshal(cfg), block[1])
		require.NoError(t, confmap.Validate(cfg), block[1])
	}
}

func TestReadmeConfigTable(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (none|`([^`]*)`) \\| ").FindAllStringSubmatch(readme(t), -1)
	defaults := map[string]any{}
	var keys []string
	for _, row := range rows {
		keys = append(keys, row[1])
		if row[2] != "none" {
			var value any
			require.NoError(t, yaml.Unmarshal([]byte(row[3]), &value))
			defaults[row[1]] = value
		}
	}
	assert.ElementsMatch(t, []string{"endpoint", "title", "trace_url", "refresh", "read_timeout", "read_header_timeout", "write_timeout"}, keys)
	cfg := createDefaultConfig().(*Config)
	want := *cfg
	cfg.NetAddr.Endpoint, cfg.Refresh, cfg.ReadTimeout, cfg.ReadHeaderTimeout, cfg.WriteTimeout = "", 0, 0, 0, 0
	require.NoError(t, confmap.NewFromStringMap(defaults).Unmarshal(cfg))
	assert.Equal(t, want.NetAddr.Endpoint, cfg.NetAddr.Endpoint)
	assert.Equal(t, want.Refresh, cfg.Refresh)
	assert.Equal(t, want.ReadTimeout, cfg.ReadTimeout)
	assert.Equal(t, want.ReadHeaderTimeout, cfg.ReadHeaderTimeout)
	assert.Equal(t, want.WriteTimeout, cfg.WriteTimeout)
}
