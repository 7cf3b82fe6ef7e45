// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	ran := make([]bool, 20)
	var jobs []func() error
	for i := range ran {
		jobs = append(jobs, func() error {
			ran[i] = true
			switch i {
			case 5:
				return first
			case 9:
				return second
			}
			return nil
		})
	}
	var told []int
	require.Equal(t, first, Run(jobs, func(done, all int) {
		assert.Equal(t, 20, all)
		told = append(told, done)
	}))
	assert.NotContains(t, ran, false, "an error keeps no other from running")
	require.Len(t, told, 20)
	assert.Equal(t, 20, told[19])
	require.NoError(t, Run(jobs[:5], nil))
	require.NoError(t, Run(nil, nil))
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		tell := Progress(&b, "accuracy")
		for i := range 25 {
			time.Sleep(time.Second)
			tell(i+1, 25)
		}
		assert.Equal(t, "accuracy: 11 of 25 jobs done\naccuracy: 22 of 25 jobs done\n", b.String())
	})
}
