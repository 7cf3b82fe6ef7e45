// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSorter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s sorter
	of := map[string]func() int64{
		"spread":       func() int64 { return 1764547200e9 + r.Int64N(10*sec) },
		"many alike":   func() int64 { return r.Int64N(5) },
		"all the same": func() int64 { return 7 },
		"one far":      func() int64 { return max(r.Int64N(100), int64(r.IntN(50)/49)*math.MaxInt64/2) },
		"negative":     func() int64 { return r.Int64N(1000) - 500 },
	}
	for name, moment := range of {
		for _, n := range []int{0, 1, fewMoments - 1, fewMoments, 100, 1000} {
			for range 20 {
				x := make([]int64, n)
				for i := range x {
					x[i] = moment()
				}
				want := slices.Clone(x)
				slices.Sort(want)
				s.sort(x)
				require.Equal(t, want, x, "%s, %d", name, n)
			}
		}
	}
}

// Where all but one are in the same bucket there is nothing gained by placing them, and comparing each with each would take long.
func TestSorterOfACrowd(t *testing.T) {
	var s sorter
	x := make([]int64, 10_000)
	for i := range x {
		x[i] = int64(len(x) - i)
	}
	x[0] = math.MaxInt64 / 2
	s.sort(x)
	require.True(t, slices.IsSorted(x))
	require.Empty(t, s.placed)
}

func BenchmarkSorter(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var s sorter
	var xs [4096][100]int64
	for i := range xs {
		for j := range xs[i] {
			xs[i][j] = r.Int64N(10 * sec)
		}
	}
	for name, sort := range map[string]func([]int64){"spread": s.sort, "compared": slices.Sort[[]int64]} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				x := xs[i%len(xs)]
				sort(x[:])
			}
		})
	}
}
