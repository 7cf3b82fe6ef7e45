// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingmetricsprocessor

// README.md is held to the code: its examples are files that a Collector takes, its table has every key
// with the default it has.

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver"
)

func readme(t testing.TB) string {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

func TestReadmeExamples(t *testing.T) {
	var factories otelcol.Factories
	var err error
	factories.Receivers, err = otelcol.MakeFactoryMap(llmspanreceiver.NewFactory(), otlpreceiver.NewFactory())
	require.NoError(t, err)
	factories.Processors, err = otelcol.MakeFactoryMap(NewFactory())
	require.NoError(t, err)
	factories.Exporters, err = otelcol.MakeFactoryMap(otlpexporter.NewFactory(), prometheusexporter.NewFactory())
	require.NoError(t, err)
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
		// what the validate command does: load, validate, build the pipelines
		require.NoError(t, collectortest.New(t, factories, filepath.FromSlash(block[1])).DryRun(), block[1])
	}
	clear(sharedByConfig) // a dry run builds and lets go of nothing
}

// The defaults of the table make the default configuration, and each key of the configuration is there, but for the keys of diagnosis,
// which docs/diagnosis.md describes and internal/diagnosis tests.
func TestReadmeConfigTable(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z_0-9:]+)` \\| (none|`([^`]*)`) \\| ").FindAllStringSubmatch(readme(t), -1)
	defaults := map[string]any{}
	documented := map[string]bool{}
	for _, row := range rows {
		require.False(t, documented[row[1]], row[1])
		documented[row[1]] = true
		if row[2] == "none" {
			continue
		}
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(row[3]), &value))
		at := defaults
		path := strings.Split(row[1], confmap.KeyDelimiter)
		for _, name := range path[:len(path)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[path[len(path)-1]] = value
	}
	cfg := Config{Metrics: MetricsConfig{Diagnosis: diagnosis.NewDefaultConfig()}}
	require.NoError(t, confmap.NewFromStringMap(defaults).Unmarshal(&cfg))
	assert.Equal(t, createDefaultConfig(), &cfg)

	keys := slices.DeleteFunc(configKeys(reflect.TypeFor[Config](), ""), func(key string) bool { return strings.HasPrefix(key, "diagnosis::") })
	assert.ElementsMatch(t, keys, slices.Collect(maps.Keys(documented)))
}

// configKeys are the keys of a struct and of those in it, except of lists and maps, which the table describes as a whole.
func configKeys(typ reflect.Type, prefix string) (keys []string) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case !field.IsExported():
		case options == "squash":
			keys = append(keys, configKeys(field.Type, prefix)...)
		case field.Type.Kind() == reflect.Struct:
			keys = append(keys, configKeys(field.Type, prefix+name+confmap.KeyDelimiter)...)
		default:
			keys = append(keys, prefix+name)
		}
	}
	return keys
}
