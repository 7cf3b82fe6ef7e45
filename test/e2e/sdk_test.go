// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// Request spans from an SDK that has nothing to do with the Collector: the exporters of
// OpenTelemetry's JavaScript SDK, over each of their protocols.

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

func TestSDKClients(t *testing.T) {
	t.Parallel()
	node := tool(t, "E2E_NODE")
	s := startSink(t)
	c := startCollector(t, testConfig("processor.yaml"), collectorOptions{env: s.env(longInterval, "cumulative")})
	sent := map[string]int{"grpc": 3, "proto": 4, "http": 5}
	for protocol, url := range map[string]string{
		"grpc":  "http://" + program.Address(c.grpc),
		"proto": "http://" + program.Address(c.http) + "/v1/traces",
		"http":  "http://" + program.Address(c.http) + "/v1/traces",
	} {
		out, err := run(t, nil, node, filepath.Join("js", "send.mjs"), protocol, url, strconv.Itoa(sent[protocol]))
		require.NoError(t, err, out)
	}
	c.terminate(t)

	md := last(t, &s.grpcMetrics)
	require.Equal(t, len(sent), md.ResourceMetrics().Len(), "one engine for each service.instance.id")
	for _, rm := range md.ResourceMetrics().All() {
		assert.Equal(t, map[string]any{"service.name": "js", "service.instance.id": rm.Resource().Attributes().AsRaw()["service.instance.id"]}, rm.Resource().Attributes().AsRaw(),
			"what belongs to a process or an SDK is left out")
	}
	for protocol, count := range sent {
		t.Run(protocol, func(t *testing.T) {
			md := resourceOf(t, md, "js-"+protocol)
			n := float64(count)
			model := map[string]string{"gen_ai.response.model": "js/model", "gen_ai.provider.name": "vllm"}
			assert.Equal(t, n, total(md, "llm.serving.request.count", model))
			// In s; whole numbers come as integers from this SDK.
			assert.Equal(t, 3*n, total(md, "gen_ai.server.request.duration", model))
			assert.Equal(t, 1*n, total(md, "llm.serving.request.time_in_queue", model))
			assert.Equal(t, 2*n, total(md, "gen_ai.server.time_to_first_token", model))
			assert.Equal(t, 1*n, total(md, "llm.serving.request.time_in_model_inference", model))
			assert.Equal(t, 0.5*n, total(md, "llm.serving.request.time_in_model_prefill", model))
			assert.InEpsilon(t, 0.5*n, total(md, "gen_ai.server.time_per_output_token", model), 1e-9)
			assert.InEpsilon(t, 1*n, total(md, "llm.serving.request.stage.time", map[string]string{"stage": "frontend"}), 1e-9)
			assert.Equal(t, 10*n, total(md, "llm.serving.token.count", map[string]string{"gen_ai.token.type": "input"}))
			assert.Equal(t, 3*n, total(md, "llm.serving.token.count", map[string]string{"gen_ai.token.type": "output"}))
		})
	}
	assert.Len(t, spansOf(s.grpcTraces.AllTraces()...), 3+4+5+len(sent), "the other span of each client goes on too")
}
