// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"slices"
)

// Spread is what repeated measurements gave.
type Spread struct{ Median, Min, Max float64 }

// Of is the Spread of at least one value.
func Of(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Format writes the median and, behind it, the smallest and largest value.
func (s Spread) Format(verb string) string {
	return fmt.Sprintf(verb+" ("+verb+".."+verb+")", s.Median, s.Min, s.Max)
}
