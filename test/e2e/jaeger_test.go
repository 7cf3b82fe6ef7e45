// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The shipped configuration, with a real Jaeger as the tracing backend.

import (
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/spanlog"
	"github.com/otelcol-serving/otelcol-serving/test/program"
)

func TestJaeger(t *testing.T) {
	t.Parallel()
	jaeger := startJaeger(t, tool(t, "E2E_JAEGER"))
	c := startCollector(t, shippedConfig, collectorOptions{env: []string{"TRACES_ENDPOINT=" + program.Address(jaeger.grpc)}})
	c.replay(t, recordingV0, recordingV1)

	for _, r := range []struct {
		file            string
		spans, requests int
		annotations     []string
	}{
		{recordingV0, 1, 1, []string{"execute", "execute_host", "forward", "prefill", "queue", "scheduler"}},
		{recordingV1, 16, 12, []string{"frontend", "prefill", "queue"}},
	} {
		t.Run(filepath.Base(r.file), func(t *testing.T) {
			sent := readRecording(t, r.file)
			require.Len(t, sent, r.spans)
			requests := 0
			for _, want := range sent {
				got := jaeger.span(t, want)
				assert.Equal(t, want.Name(), got.Name())
				assert.Equal(t, want.StartTimestamp(), got.StartTimestamp())
				assert.Equal(t, want.EndTimestamp(), got.EndTimestamp())
				attributes := got.Attributes().AsRaw()
				for key, value := range want.Attributes().AsRaw() {
					assert.Equal(t, value, attributes[key], key)
				}
				var annotations []string
				for key, value := range attributes {
					if share, ok := strings.CutPrefix(key, "llm.serving.request."); ok {
						annotations = append(annotations, strings.TrimSuffix(share, ".share"))
						assert.IsType(t, 0.0, value, key)
					}
				}
				slices.Sort(annotations)
				if !isRequest(want) {
					assert.Len(t, attributes, want.Attributes().Len(), "%s is no request and stays as it was", want.Name())
					continue
				}
				requests++
				assert.Equal(t, r.annotations, annotations)
				assert.Equal(t, "vllm", attributes["gen_ai.provider.name"])
				e2e, queue := attributes["gen_ai.latency.e2e"].(float64), attributes["gen_ai.latency.time_in_queue"].(float64)
				assert.InEpsilon(t, queue/e2e, attributes["llm.serving.request.queue.share"], 1e-9)
				if forward, ok := attributes["gen_ai.latency.time_in_model_forward"].(float64); ok {
					assert.InEpsilon(t, forward/(e2e-queue), attributes["llm.serving.request.forward.share"], 1e-9)
				} else {
					inference := attributes["gen_ai.latency.time_in_model_inference"].(float64)
					assert.InEpsilon(t, 1-(queue+inference)/e2e, attributes["llm.serving.request.frontend.share"], 1e-9)
				}
			}
			assert.Equal(t, r.requests, requests)
			t.Logf("%d spans, %d of them annotated", len(sent), requests)
		})
	}
	// As a person looks for them in the user interface.
	assert.ElementsMatch(t, []string{"Init device", "Initialize model", "Load weights", "Worker init", "llm_request"}, jaeger.operations(t, "vllm"))
}

func readRecording(t *testing.T, path string) []ptrace.Span {
	t.Helper()
	r, err := spanlog.Open(path)
	require.NoError(t, err)
	defer r.Close()
	var payloads []ptrace.Traces
	for {
		td, err := r.Next()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			return spansOf(payloads...)
		}
		payloads = append(payloads, td)
	}
}

type jaegerServer struct {
	*process
	grpc string // port
	url  string // of the query API
}

func startJaeger(t *testing.T, binary string) *jaegerServer {
	t.Helper()
	j := &jaegerServer{grpc: program.FreePort()}
	query, health := program.FreePort(), program.FreePort()
	j.url = "http://" + program.Address(query)
	j.process = start(t, []string{
		"GRPC_PORT=" + j.grpc, "QUERY_PORT=" + query, "QUERY_GRPC_PORT=" + program.FreePort(), "HEALTH_PORT=" + health,
	}, binary, "--config", testConfig("jaeger.yaml"))
	j.awaitOK(t, "http://"+program.Address(health)+"/status")
	return j
}

// span waits until Jaeger finds the trace of a span, and gives back the span as Jaeger has it, attribute types and all.
func (j *jaegerServer) span(t *testing.T, like ptrace.Span) ptrace.Span {
	t.Helper()
	var found ptrace.Span
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		body, err := program.Fetch(t.Context(), j.url+"/api/v3/traces/"+like.TraceID().String())
		if !assert.NoError(c, err, "%s", body) {
			return
		}
		var answer struct{ Result json.RawMessage }
		require.NoError(c, json.Unmarshal(body, &answer))
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(answer.Result)
		require.NoError(c, err, "%s", body)
		n := 0
		for _, span := range spansOf(td) {
			if span.SpanID() == like.SpanID() {
				found = span
				n++
			}
		}
		assert.Equal(c, 1, n, "spans with ID %s", like.SpanID())
	}, patience, poll)
	return found
}

func (j *jaegerServer) operations(t *testing.T, service string) []string {
	t.Helper()
	body, err := program.Fetch(t.Context(), j.url+"/api/services/"+service+"/operations")
	require.NoError(t, err, "%s", body)
	var answer struct{ Data []string }
	require.NoError(t, json.Unmarshal(body, &answer))
	return answer.Data
}
