// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

const summaryJSON = `{"schema_version":"1.0","sources":[],"engines":[{"key":"k","service_instance_id":"pod-1","status":"current",
"diagnosis":{"verdict":"host_bound","confidence":"high","title":"Waits for its host","sentence":"It waits."},
"figures":{"device_utilization":0.4},"requests":{"count":99,"failed":0},"certainty":{"mode":"masked","tier":"device","late_requests":0}}]}`

func TestSummary(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") == "markdown" {
			_, _ = w.Write([]byte("# Serving\n"))
			return
		}
		_, _ = w.Write([]byte(summaryJSON))
	}))
	defer s.Close()
	run := func(args ...string) result {
		return execute(t.Context(), nil, false, append([]string{"summary", "--endpoint", s.URL}, args...)...)
	}
	r := run()
	assert.Equal(t, exitOK, r.code, r.err)
	assert.Contains(t, r.out, "pod-1\n  WAITS FOR ITS HOST  (host_bound, confidence high)\n")
	r = run("--format", "json", "--wait", "5s")
	assert.JSONEq(t, summaryJSON, r.out)
	assert.Equal(t, "# Serving\n", run("--format", "markdown").out)

	assert.Equal(t, exitOK, run("--fail-on", "verdict=idle").code)
	r = run("--fail-on", "verdict=host_bound", "--fail-on", "failed>5")
	assert.Equal(t, exitMet, r.code)
	assert.Contains(t, r.err, "pod-1: verdict=host_bound (it is host_bound)")
	r = run("--fail-on", "ttft_p99>1s")
	assert.Equal(t, exitFailed, r.code, "not known is not good")
	assert.Contains(t, r.err, "pod-1: ttft_p99>1s cannot be judged (it is unknown)")

	assert.Equal(t, exitUsage, run("--fail-on", "speed>1").code)
	assert.Equal(t, exitUsage, run("--format", "xml").code)
	assert.Equal(t, exitUsage, run("--wait", "-1s").code)
	assert.Equal(t, exitUsage, run("--header", "x").code)
	assert.Equal(t, exitFailed, execute(t.Context(), nil, false, "summary", "--endpoint", "127.0.0.1:1").code)
}
