// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package docsection

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	s := Section{"<!-- begin -->", "<!-- end -->"}
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n<!-- begin -->\nold\n<!-- end -->\nafter\n"), 0o600))
	require.NoError(t, s.Check(file))
	for range 2 { // again, it changes nothing more
		require.NoError(t, s.Write(file, "new\n"))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "before\n<!-- begin -->\n\nnew\n\n<!-- end -->\nafter\n", string(text))
	}

	for _, bad := range []string{"", s.Begin, s.End, s.End + s.Begin, s.Begin + s.Begin + s.End} {
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o600))
		assert.ErrorContains(t, s.Check(file), s.Begin, bad)
		assert.ErrorContains(t, s.Write(file, "new"), s.Begin, bad)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, bad, string(text), "nothing was written")
	}
	assert.Error(t, s.Check("no/such/file"))
	assert.Error(t, s.Write("no/such/file", ""))
}
