// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package web

// What a request costs beside 100 engines with an hour of windows each. The reports are made beforehand, so this is the page alone.

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkPages(b *testing.B) {
	h := newHandler(b, "hundred")
	for name, address := range map[string]string{
		"fleet": "/", "engine": "/?engine=qwen-32b-1", "summary": "/api/v1/summary", "engine_json": "/api/v1/engines/qwen-32b-1", "markdown": "/?format=markdown",
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(name+"/"+encoding, func(b *testing.B) {
				size := 0
				for b.Loop() {
					r := httptest.NewRequest(http.MethodGet, address, http.NoBody)
					r.Host = "localhost"
					r.Header.Set("Accept-Encoding", encoding)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					require.Equal(b, http.StatusOK, w.Code)
					size = w.Body.Len()
				}
				b.ReportMetric(float64(size), "bytes/page")
			})
		}
	}
}
