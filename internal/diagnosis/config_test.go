// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"errors"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultConfig(t *testing.T) {
	c := NewDefaultConfig()
	require.Empty(t, c.Faults())
	key := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Name == "_" {
			continue
		}
		assert.Regexp(t, key, f.Tag.Get("mapstructure"))
		assert.False(t, v.Field(i).IsZero(), "%s has no default", f.Name)
	}
}

// TestFaults spoils every field: the error must begin with its key and say what to use.
func TestFaults(t *testing.T) {
	spoiled := map[reflect.Kind][]any{
		reflect.Float64: {-1., math.NaN(), math.Inf(1)},
		reflect.Int64:   {int64(-1)},
	}
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Name == "_" {
			continue
		}
		for _, bad := range spoiled[f.Type.Kind()] {
			c := NewDefaultConfig()
			reflect.ValueOf(&c).Elem().Field(i).Set(reflect.ValueOf(bad).Convert(f.Type))
			faults := c.Faults()
			require.NotEmpty(t, faults, "%s = %v", f.Name, bad)
			found := false
			for _, err := range faults {
				assert.ErrorContains(t, err, "; use ")
				found = found || strings.HasPrefix(err.Error(), f.Tag.Get("mapstructure")+": ")
			}
			assert.True(t, found, "%s: %v", f.Name, faults)
		}
	}
	c := NewDefaultConfig()
	c.Period = time.Second
	assert.ErrorContains(t, errors.Join(c.Faults()...), "period: 1s is out of range; use 1m to 24h, such as 5m")
	c = NewDefaultConfig()
	c.KneeCapacity = .9
	assert.EqualError(t, errors.Join(c.Faults()...), "knee_capacity: 0.9 is over full_capacity; use at most 0.85")
}

// TestKeys: every condition names a key that exists, and every threshold is one of a condition or used elsewhere.
func TestKeys(t *testing.T) {
	used := map[string]bool{
		// used by name
		"min_completeness": true, "min_coverage": true, "margin": true, "target_capacity": true, "small_batch": true,
		"host_scheduler": true, "host_execute": true, "host_outside": true,
	}
	for _, r := range rules {
		for _, when := range r.when {
			for _, o := range when {
				for _, x := range o {
					if x.key != "0" && x.key != "1" {
						require.Contains(t, thresholdFields, x.key, "%s", r.verdict)
					}
					used[x.key] = true
				}
			}
		}
	}
	for key := range thresholdFields {
		assert.True(t, used[key], "nothing uses %s", key)
	}
}

func TestVerdictNames(t *testing.T) {
	seen := map[Verdict]bool{NoVerdict: true, Healthy: true}
	for _, r := range rules {
		assert.False(t, seen[r.verdict], "%s twice", r.verdict)
		seen[r.verdict] = true
	}
	for v := NoVerdict; v < NumVerdicts; v++ {
		assert.True(t, seen[v], "no rule for %s", v)
		parsed, ok := ParseVerdict(v.String())
		assert.True(t, ok)
		assert.Equal(t, v, parsed)
	}
	_, ok := ParseVerdict("tired")
	assert.False(t, ok)
	assert.Equal(t, "no_verdict", NumVerdicts.String())
}
