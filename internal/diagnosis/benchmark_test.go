// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "testing"

// BenchmarkObserve is what each closed window costs.
func BenchmarkObserve(b *testing.B) {
	c := NewDefaultConfig()
	t := NewTracker(&c)
	in := healthyInput()
	b.ReportAllocs()
	for b.Loop() {
		t.Observe(in)
	}
}
