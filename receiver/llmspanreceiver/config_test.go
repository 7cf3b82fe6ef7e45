// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func load(t testing.TB, file, id string) (*Config, error) {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.True(t, conf.IsSet(id), "%s has no %s", file, id)
	sub, err := conf.Sub(id)
	require.NoError(t, err)
	cfg := NewFactory().CreateDefaultConfig()
	if err := sub.Unmarshal(&cfg); err != nil {
		return nil, err
	}
	return cfg.(*Config), confmap.Validate(cfg)
}

func TestConfig(t *testing.T) {
	bothOn := createDefaultConfig().(*Config)

	onlyGRPC := &Config{OTLP: *otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config), OtherSpans: OtherSpansKeep}
	onlyGRPC.OTLP.Protocols.GRPC.GetOrInsertDefault()

	onlyHTTP := &Config{OTLP: *otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config), OtherSpans: OtherSpansKeep}
	http := onlyHTTP.OTLP.Protocols.HTTP.GetOrInsertDefault()
	http.ServerConfig.NetAddr.Endpoint = "0.0.0.0:9418"
	http.TracesURLPath = "/spans"

	both := createDefaultConfig().(*Config)
	both.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint = "0.0.0.0:4317"
	both.OTLP.Protocols.GRPC.Get().MaxRecvMsgSizeMiB = 16
	both.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint = "0.0.0.0:4318"
	both.OtherSpans = OtherSpansDrop

	anyPort := createDefaultConfig().(*Config)
	anyPort.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint = "localhost:0"
	anyPort.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint = "localhost:0"

	for id, want := range map[string]*Config{
		"llm_span":                 bothOn,
		"llm_span/empty_protocols": bothOn,
		"llm_span/only_grpc":       onlyGRPC,
		"llm_span/only_http":       onlyHTTP,
		"llm_span/both":            both,
		"llm_span/any_port":        anyPort,
	} {
		t.Run(id, func(t *testing.T) {
			got, err := load(t, "config.yaml", id)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}

	grpc, h := bothOn.OTLP.Protocols.GRPC.Get(), bothOn.OTLP.Protocols.HTTP.Get()
	require.NotNil(t, grpc)
	require.NotNil(t, h)
	assert.Equal(t, "localhost:4317", grpc.NetAddr.Endpoint)
	assert.Equal(t, "localhost:4318", h.ServerConfig.NetAddr.Endpoint)
}

// What the otlp receiver makes of protocols is what this receiver makes of it.
func TestConfigIsTheOTLPReceivers(t *testing.T) {
	for _, id := range []string{"llm_span/only_grpc", "llm_span/only_http", "llm_span/any_port"} {
		conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
		require.NoError(t, err)
		sub, err := conf.Sub(id)
		require.NoError(t, err)
		want := otlpreceiver.NewFactory().CreateDefaultConfig()
		require.NoError(t, sub.Unmarshal(&want))

		got, err := load(t, "config.yaml", id)
		require.NoError(t, err)
		assert.Equal(t, want, &got.OTLP, id)
	}
}

func TestConfigErrorsNameFieldAndFix(t *testing.T) {
	for id, want := range map[string][]string{
		"llm_span/other_spans":       {`other_spans: "delete" is not known`, "write keep", "or drop"},
		"llm_span/other_spans_empty": {`other_spans: "" is not known`, "write keep", "or drop"},
		"llm_span/same_endpoint":     {"protocols::grpc::endpoint and protocols::http::endpoint", "localhost:4317", "give each its own"},
		"llm_span/no_protocol":       {"protocols", "must specify at least one protocol"},
		"llm_span/unknown_key":       {"other_span", "invalid keys"},
		"llm_span/unknown_protocol":  {"protocols", "thrift", "invalid keys"},
		"llm_span/tls_without_key":   {"protocols::grpc: tls", "certificate and key"},
		"llm_span/no_port":           {"protocols::grpc::endpoint", "missing port", "write host:port, such as localhost:4317"},
	} {
		t.Run(id, func(t *testing.T) {
			_, err := load(t, "bad_config.yaml", id)
			require.Error(t, err)
			for _, words := range want {
				assert.ErrorContains(t, err, words)
			}
		})
	}
}
