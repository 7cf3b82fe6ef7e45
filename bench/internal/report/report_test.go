// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteReplacesWhatIsBetweenTheMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(path, []byte("before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n"), 0o600))
	var d Document
	d.Text("new %d", 1)
	require.NoError(t, d.Write(path, "a"))
	require.NoError(t, d.Write(path, "a"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "before\n<!-- begin a -->\n\nnew 1\n\n<!-- end a -->\nafter\n", string(text))
	assert.ErrorContains(t, d.Write(path, "b"), "no place for b")
}

func TestBudgets(t *testing.T) {
	for verdict, b := range map[string]Budget{
		"met":                       {Value: 1, Limit: 1},
		"**missed**: 2.00 times it": {Value: 2, Limit: 1},
		"**missed**: 0.50 of it":    {Value: 1, Limit: 2, AtLeast: true},
		"**missed**":                {Value: 1},
	} {
		assert.Equal(t, verdict, b.verdict())
	}
	var d Document
	d.Budgets([]Budget{{What: "a", Limited: "<= 1", Measured: "2 µs", Value: 2, Limit: 1}})
	assert.Equal(t, "|   | budget | measured |                           |\n| - | -----: | -------: | ------------------------: |\n"+
		"| a |   <= 1 |     2 µs | **missed**: 2.00 times it |\n\n", d.String())
}
