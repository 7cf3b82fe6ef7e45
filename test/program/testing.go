// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package program

// The same for Go tests.

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// StartFor runs a program until the test is over. What it printed is shown if the test failed.
func StartFor(ctx context.Context, t testing.TB, env []string, path string, args ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	p, err := Start(ctx, env, path, args...)
	if err != nil {
		cancel()
	}
	require.NoError(t, err, "test/e2e/run.sh builds and finds what these tests need")
	t.Cleanup(func() {
		cancel()
		<-p.done
		if t.Failed() {
			t.Logf("%s %v printed:\n%s", path, args, p.Output())
		}
	})
	return p
}
