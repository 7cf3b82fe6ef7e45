// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCount(t *testing.T) {
	nan := math.NaN()
	of := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	for name, c := range map[string]struct {
		mean, lower, upper float64
		value              float64
		atLeast, wide      bool
	}{
		"a number":                          {4, 4, 4.5, 4, false, false},
		"a number alone":                    {4, nan, nan, 4, false, false},
		"a bracket":                         {nan, 1180, 1300, 1240, false, false},
		"a bracket that is wide":            {nan, 1000, 1300, 1150, false, true},
		"a mean over points and brackets":   {1150, 1000, 1300, 1150, false, true},
		"at the limit":                      {10, 8.5, 11.5, 10, false, false},
		"beyond it":                         {10, 8.4, 11.5, 10, false, true},
		"the lower end":                     {nan, 40, nan, 40, true, false},
		"a number of before the queue grew": {2, 150, 3, 150, true, false},
		"a number like its lower end":       {2, 2.9, 3, 2, false, false},
		"nothing":                           {nan, nan, nan, nan, false, false},
		"an upper end says nothing alone":   {nan, nan, 7, nan, false, false},
		"no number":                         {math.Inf(1), 3, math.Inf(1), 3, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := Figures{Waiting: of(c.mean), WaitingLower: of(c.lower), WaitingUpper: of(c.upper)}
			h := History{Figures: map[string][]*float64{"requests_running_mean": {nil, of(c.mean)}, "requests_running_lower": {nil, of(c.lower)}, "requests_running_upper": {nil, of(c.upper)}}}
			same := Figures{Running: of(c.mean), RunningLower: of(c.lower), RunningUpper: of(c.upper)}
			for _, got := range []Count{f.WaitingCount(), same.RunningCount(), h.CountAt("requests_running", 1)} {
				if math.IsNaN(c.value) {
					assert.True(t, math.IsNaN(got.Value()))
				} else {
					assert.Equal(t, c.value, got.Value())
				}
				assert.Equal(t, c.atLeast, got.AtLeast())
				assert.Equal(t, c.wide, got.Wide())
			}
			assert.True(t, math.IsNaN(h.CountAt("requests_running", 2).Value()), "beyond the columns")
			assert.True(t, math.IsNaN(f.RunningCount().Value()))
		})
	}
}
