// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// The README cannot say what is not so: its examples are tested files, and its table of
// configuration keys has the defaults of the code.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/otelcol/otelcoltest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
)

func readme(t *testing.T) string {
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(data)
}

var yamlBlock = regexp.MustCompile("(?s)(?:<!-- (\\S+) -->\n)?```yaml\n(.*?)```")

func TestReadmeExamplesAreTheTestedFiles(t *testing.T) {
	blocks := map[string]bool{}
	for _, m := range yamlBlock.FindAllStringSubmatch(readme(t), -1) {
		require.NotEmpty(t, m[1], "this example names no file:\n%s", m[2])
		file, err := os.ReadFile(m[1])
		require.NoError(t, err)
		assert.Equal(t, string(file), m[2], m[1])
		blocks[m[1]] = true
	}
	files, err := filepath.Glob("testdata/examples/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		assert.True(t, blocks[file], "%s is not in the README", file)
	}
	assert.Len(t, blocks, len(files))
}

// foreignConfig stands for the configuration of a component that is no dependency of this package.
// Its keys are not checked here.
type foreignConfig struct {
	Keys map[string]any `mapstructure:",remain"`
}

func newForeignConfig() component.Config { return &foreignConfig{} }

func TestExamplesLoad(t *testing.T) {
	kafka, serving := component.MustNewType("kafka"), component.MustNewType("serving_metrics")
	debug, token := debugexporter.NewFactory(), bearertokenauthextension.NewFactory()
	factories := otelcol.Factories{
		Receivers: map[component.Type]receiver.Factory{
			NewFactory().Type(): NewFactory(),
			kafka:               receiver.NewFactory(kafka, newForeignConfig),
		},
		Exporters: map[component.Type]exporter.Factory{
			debug.Type(): debug,
			kafka:        exporter.NewFactory(kafka, newForeignConfig),
		},
		Connectors: map[component.Type]connector.Factory{serving: connector.NewFactory(serving, newForeignConfig)},
		Extensions: map[component.Type]extension.Factory{token.Type(): token},
	}
	files, err := filepath.Glob("testdata/examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		cfg, err := otelcoltest.LoadConfigAndValidate(file, factories)
		require.NoError(t, err, file)
		assert.NotEmpty(t, cfg.Service.Pipelines, file)
	}
}

// What the Kafka example rests on: the exporter's queue and batches, as the example sets them, keep the engine's name
// where the exporter looks for its message key, and never put two engines into one batch.
func TestKafkaExampleKeepsTheKey(t *testing.T) {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "examples", "kafka_ingest.yaml"))
	require.NoError(t, err)
	key, _ := conf.Get("exporters::kafka::traces::message_key_from_metadata_key").(string)
	assert.Equal(t, EngineMetadataKey, key)
	sub, err := conf.Sub("exporters::kafka::sending_queue")
	require.NoError(t, err)
	queue := configoptional.Some(exporterhelper.NewDefaultQueueConfig())
	require.NoError(t, sub.Unmarshal(&queue))
	require.NoError(t, confmap.Validate(queue.Get()))

	got := make(chan string, 100)
	push := func(ctx context.Context, td ptrace.Traces) error {
		keys := client.FromContext(ctx).Metadata.Get(key)
		for _, rs := range td.ResourceSpans().All() {
			engine, _ := rs.Resource().Attributes().Get("service.instance.id")
			got <- fmt.Sprintf("%v has %s", keys, engine.Str())
		}
		return nil
	}
	exp, err := exporterhelper.NewTraces(t.Context(), exportertest.NewNopSettings(exportertest.NopType), &foreignConfig{}, push,
		exporterhelper.WithQueue(queue), exporterhelper.WithCapabilities(consumer.Capabilities{}))
	require.NoError(t, err)
	require.NoError(t, exp.Start(t.Context(), componenttest.NewNopHost()))
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), exp, nil)
	conn := s.grpcClient(t, nil)
	for i, engine := range []string{"a", "b", "a", "b", "a"} {
		require.NoError(t, exportGRPC(t.Context(), conn, payloadOf(i*3, 3, map[string]any{"service.instance.id": engine})))
	}
	require.NoError(t, exp.Shutdown(context.Background())) // sends what is left
	close(got)
	count := map[string]int{}
	for each := range got {
		count[each]++
	}
	assert.Equal(t, map[string]int{"[a] has a": 3, "[b] has b": 2}, count)
}

var configRow = regexp.MustCompile("(?m)^\\| `([a-z_:]+)` \\| `([^`]*)` \\|")

func TestReadmeConfigTableHasTheDefaults(t *testing.T) {
	conf := confmap.New()
	require.NoError(t, conf.Marshal(createDefaultConfig()))
	section := readme(t)
	section = section[strings.Index(section, "## Configuration"):]
	section = section[:strings.Index(section, "### TLS")]
	rows := configRow.FindAllStringSubmatch(section, -1)
	require.Len(t, rows, strings.Count(section, "\n| `"), "a row that the test cannot read")
	keys := map[string]bool{}
	for _, row := range rows {
		keys[strings.Split(row[1], "::")[0]] = true
		assert.Equal(t, row[2], fmt.Sprint(conf.Get(row[1])), row[1])
	}
	for key := range conf.ToStringMap() {
		assert.True(t, keys[key], "%s is not in the README", key)
	}
}
