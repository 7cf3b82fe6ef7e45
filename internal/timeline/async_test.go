// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Asynchronous output processing: prefill windows that reach into the next step.

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/enginesim"
)

// At full load two windows often follow each other, and the begin of only one decode step is in both; in azure-code's overload
// prompts that nobody knows of yet take a good part of what seems to be the engine's loop.
func TestAsyncOutputUtilization(t *testing.T) {
	for _, c := range []struct {
		workload enginesim.Workload
		seed     uint64
		load     float64
		bias     float64
	}{
		{enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Bursty}, 3, 1, 0.006},
		{enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Poisson}, 3, 1.2, 0.006},
		{enginesim.Workload{Lengths: enginesim.LengthsChat, Arrivals: enginesim.Bursty}, 4, 1.2, 0.0075},
		{enginesim.Workload{Lengths: enginesim.LengthsAzureCode, Arrivals: enginesim.Recorded}, 3, 1.2, 0.0065},
	} {
		cfg, err := enginesim.Preset("v0-async")
		require.NoError(t, err)
		cfg.Seed = c.seed
		r := judgeSim(t, cfg, c.workload, c.load, 20*time.Minute)
		require.Greater(t, r.dev, 60.0)
		t.Logf("%s at %v: bias %+.4f, step %+.4f", c.workload.Lengths, c.load, r.bias, r.stepErr)
		assert.LessOrEqual(t, math.Abs(r.bias), c.bias, "%s at %v", c.workload.Lengths, c.load)
		assert.InDelta(t, 1, r.inside, 1e-9, "%s at %v", c.workload.Lengths, c.load)
	}
}
