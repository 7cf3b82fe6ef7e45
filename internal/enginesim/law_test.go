// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// How the step-time laws were found.

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"
)

type measuredStep struct {
	prompt, batch, generated int
	prefill, decode          float64 // s
}

func measuredSteps(t *testing.T, hardware string) []measuredStep {
	f, err := os.Open("testdata/splitwise_llama2_70b.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var out []measuredStep
	for _, row := range rows[1:] {
		if row[1] != hardware || row[2] != "4" {
			continue
		}
		var v [5]float64
		for i, s := range row[3:8] {
			v[i], err = strconv.ParseFloat(s, 64)
			require.NoError(t, err)
		}
		out = append(out, measuredStep{prompt: int(v[0]), batch: int(v[1]), generated: int(v[2]), prefill: v[3] / 1e3, decode: v[4] / 1e3})
	}
	require.Len(t, out, 65)
	return out
}

// kvTokens is the context of a decode step, on average over the request's life.
func (s measuredStep) kvTokens() int64 { return int64(s.batch * (s.prompt + s.generated/2)) }

// fitLaw minimises the sum of squared relative errors.
func fitLaw(t *testing.T, steps []measuredStep) Law {
	var l Law
	// Roofline: each side is fitted to the rows it covers, until no row changes sides.
	l.PrefillFloor, l.PrefillPerToken = math.Inf(1), 0
	for _, s := range steps {
		l.PrefillFloor = min(l.PrefillFloor, s.prefill)
		l.PrefillPerToken = max(l.PrefillPerToken, s.prefill/float64(s.prompt*s.batch)/4)
	}
	for range 50 {
		var n1, d1, n2, d2 float64 // relative least squares: Σ 1/y over Σ 1/y², Σ x/y over Σ x²/y²
		for _, s := range steps {
			x, y := float64(s.prompt*s.batch), s.prefill
			if l.PrefillPerToken*x <= l.PrefillFloor {
				n1, d1 = n1+1/y, d1+1/(y*y)
			} else {
				n2, d2 = n2+x/y, d2+x*x/(y*y)
			}
		}
		require.True(t, d1 > 0 && d2 > 0)
		l.PrefillFloor, l.PrefillPerToken = n1/d1, n2/d2
	}
	a, b := mat.NewDense(len(steps), 3, nil), mat.NewVecDense(len(steps), nil)
	for i, s := range steps {
		a.SetRow(i, []float64{1 / s.decode, float64(s.batch) / s.decode, float64(s.kvTokens()) / s.decode})
		b.SetVec(i, 1)
	}
	var x mat.VecDense
	require.NoError(t, x.SolveVec(a, b))
	l.DecodeBase, l.DecodePerSeq, l.DecodePerKVToken = x.AtVec(0), x.AtVec(1), x.AtVec(2)
	return l
}

// lawErrors is the mean and the greatest relative error.
func lawErrors(l Law, steps []measuredStep) (prefill, decode [2]float64) {
	for _, s := range steps {
		p := math.Abs(l.Forward(s.prompt*s.batch, 0, 0)/s.prefill - 1)
		d := math.Abs(l.Forward(0, s.batch, s.kvTokens())/s.decode - 1)
		prefill[0] += p / float64(len(steps))
		decode[0] += d / float64(len(steps))
		prefill[1], decode[1] = max(prefill[1], p), max(decode[1], d)
	}
	return prefill, decode
}

func TestLawFit(t *testing.T) {
	for _, c := range []struct {
		hardware        string
		committed       Law
		prefill, decode [2]float64 // mean and greatest error, as law.go states them
	}{
		{"h100-80gb", LawLlama70BH100, [2]float64{.053, .156}, [2]float64{.021, .066}},
		{"a100-80gb", LawLlama70BA100, [2]float64{.140, .306}, [2]float64{.027, .072}},
	} {
		t.Run(c.hardware, func(t *testing.T) {
			committed, steps := c.committed, measuredSteps(t, c.hardware)
			fit := fitLaw(t, steps)
			p, d := lawErrors(committed, steps)
			t.Logf("fit %#v", fit)
			t.Logf("committed: prefill error mean %.3f max %.3f, decode error mean %.3f max %.3f", p[0], p[1], d[0], d[1])
			assert.InEpsilon(t, fit.PrefillFloor, committed.PrefillFloor, .002)
			assert.InEpsilon(t, fit.PrefillPerToken, committed.PrefillPerToken, .002)
			assert.InEpsilon(t, fit.DecodeBase, committed.DecodeBase, .002)
			assert.InEpsilon(t, fit.DecodePerSeq, committed.DecodePerSeq, .002)
			assert.InEpsilon(t, fit.DecodePerKVToken, committed.DecodePerKVToken, .002)
			assert.InDeltaSlice(t, c.prefill[:], p[:], .0006)
			assert.InDeltaSlice(t, c.decode[:], d[:], .0006)
		})
	}
}

func TestLawScaled(t *testing.T) {
	l := LawLlama70BH100.Scaled("x", 5e6)
	assert.InDelta(t, .005, l.Forward(0, 1, 0), 1e-12)
	assert.InEpsilon(t, LawLlama70BH100.Forward(4096, 0, 0)/LawLlama70BH100.Forward(0, 64, 9000), l.Forward(4096, 0, 0)/l.Forward(0, 64, 9000), 1e-9)
	// A mixed pass costs at least either of its parts.
	assert.Greater(t, l.Forward(512, 8, 4000), l.Forward(0, 8, 4000))
}
