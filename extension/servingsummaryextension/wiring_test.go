// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingsummaryextension

// The extension in a real Collector, with the processor that reports to it.

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
	"github.com/otelcol-serving/otelcol-serving/processor/servingmetricsprocessor"
)

func TestWiring(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())

	processors, err := otelcol.MakeFactoryMap(servingmetricsprocessor.NewFactory())
	require.NoError(t, err)
	extensions, err := otelcol.MakeFactoryMap(NewFactory())
	require.NoError(t, err)
	c := collectortest.New(t, otelcol.Factories{Processors: processors, Extensions: extensions}, filepath.Join("testdata", "wiring.yaml"),
		"extensions::serving_summary::endpoint: "+address, "service::extensions: [serving_summary, watch]")
	require.NoError(t, c.Start())
	web := client(t)

	_, body := get(t, web, "http://"+address+"/")
	assert.Contains(t, body, "Ready, and nothing has arrived")
	require.NoError(t, c.Receiver("push").Traces(t.Context(), collectortest.Requests("a", 0, 7)))
	status, body := get(t, web, "http://"+address+"/api/v1/summary")
	require.Equal(t, http.StatusOK, status)
	var report summary.Report
	require.NoError(t, json.Unmarshal([]byte(body), &report))
	require.Len(t, report.Sources, 1)
	assert.Equal(t, "processor/serving_metrics", report.Sources[0].ID)
	assert.EqualValues(t, 7, report.Sources[0].Requests)
	require.Len(t, report.Engines, 1)
	for _, path := range []string{"/", "/?format=markdown", "/api/v1/engines/" + report.Engines[0].Key} {
		status, body = get(t, web, "http://"+address+path)
		require.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, body, report.Engines[0].Instance, path)
	}
	web.CloseIdleConnections()
	require.NoError(t, c.Shutdown())
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.Error(t, err, "nobody listens any more")
}
