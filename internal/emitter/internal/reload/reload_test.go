// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

func seen(t *testing.T) *serving.Seen {
	t.Helper()
	c := serving.NewDefaultConfig()
	a, err := serving.New(&c, serving.Settings{})
	require.NoError(t, err)
	return a.Seen()
}

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := Key{"processor", component.MustNewID("a")}, Key{"connector", component.MustNewID("a")}
		left := seen(t)
		Leave(one, left, time.Minute)
		assert.Nil(t, Take(other))
		assert.Same(t, left, Take(one))
		assert.Nil(t, Take(one), "once")

		Leave(one, left, time.Minute)
		Leave(other, nil, time.Minute)
		assert.Nil(t, Take(other))
		time.Sleep(time.Minute)
		assert.Nil(t, Take(one), "too late")

		Leave(one, left, time.Minute)
		time.Sleep(2 * time.Minute)
		Leave(other, left, time.Minute)
		assert.Len(t, legacies, 1, "what nobody took is let go of")
		Forget()
		assert.Nil(t, Take(other))
	})
}
