// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The summary page of the shipped configuration, over simulated engines with different troubles.

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// TestSummary: the page, its JSON and servingctl name the trouble of each engine, and a build can fail on it.
func TestSummary(t *testing.T) {
	t.Parallel()
	c := startCollector(t, shippedConfig, collectorOptions{set: []string{
		"processors::serving_metrics::interval=1s", "processors::serving_metrics::engine::max_num_seqs=256",
	}})
	base := "http://" + program.Address(c.summary)

	// Nothing came yet: the page says so.
	body, err := program.Fetch(t.Context(), base+"/")
	require.NoError(t, err)
	assert.Contains(t, string(body), "serving_metrics")
	out, err := run(t, nil, servingctl(t), "summary", "--endpoint", base)
	require.NoError(t, err, out)
	assert.Contains(t, out, "processor/serving_metrics has received no span.")

	const duration = 12 * time.Minute
	simulate := func(service, engine, load string) *process {
		return start(t, nil, servingctl(t), "simulate", "--endpoint", program.Address(c.grpc), "--service", service, "--engine", engine,
			"--load", load, "--workload", "chat", "--duration", duration.String(), "--speed", "20")
	}
	slow, idle := simulate("slow-host", "v0-hostbound", "0.5"), simulate("idle", "v0-default", "0.02")
	require.NoError(t, slow.wait(t), slow.Output())
	require.NoError(t, idle.wait(t), idle.Output())

	out, err = run(t, nil, servingctl(t), "summary", "--endpoint", base, "--wait", "60s", "--fail-on", "verdict=host_bound")
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), out)
	assert.Equal(t, 3, exit.ExitCode(), out)
	assert.Contains(t, out, "(host_bound, confidence ")

	body, err = program.Fetch(t.Context(), base+"/api/v1/summary")
	require.NoError(t, err)
	var report summary.Report
	require.NoError(t, json.Unmarshal(body, &report))
	verdicts := map[string]string{}
	for _, e := range report.Engines {
		verdicts[e.Service] = e.Diagnosis.Verdict
	}
	assert.Equal(t, map[string]string{"slow-host": "host_bound", "idle": "idle"}, verdicts)
	assert.Equal(t, "slow-host", report.Engines[0].Service, "what hurts comes first")

	body, err = program.Fetch(t.Context(), base+"/api/v1/engines/"+report.Engines[0].Key)
	require.NoError(t, err)
	var engine summary.EngineReport
	require.NoError(t, json.Unmarshal(body, &engine))
	assert.Greater(t, len(engine.History.End), 40)
	assert.Len(t, engine.Slowest, 10)

	for _, path := range []string{"/", "/?engine=" + report.Engines[0].Key, "/?format=markdown"} {
		body, err = program.Fetch(t.Context(), base+path)
		require.NoError(t, err)
		assert.Contains(t, string(body), report.Engines[0].Diagnosis.Sentence, path)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")

	// The verdict is a metric too.
	assert.Equal(t, 1., c.scrape(t).sum("llm_serving_engine_verdict_ratio", "job=slow-host", "verdict=host_bound"))
	c.terminate(t)
}
