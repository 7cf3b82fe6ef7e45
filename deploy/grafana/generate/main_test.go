// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The dashboards in deploy/grafana are what this program writes.
func TestUpToDate(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "*.json"))
	require.NoError(t, err)
	assert.Len(t, files, len(dashboards()), "a dashboard that nobody writes, or one that is missing")
	for name, d := range dashboards() {
		want, err := render(d)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s: run go generate ./deploy/grafana/generate", name)
	}
}
