// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// randomInput draws anything that fits the types: unknown, infinite, negative and contradictory figures, windows that overlap or
// end before they start.
func randomInput(rng *rand.Rand) *Input {
	special := []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, 1, 1e-300, 1e300, math.MaxFloat64, -math.MaxFloat64}
	number := func() float64 {
		switch rng.IntN(4) {
		case 0:
			return special[rng.IntN(len(special))]
		case 1:
			return rng.Float64()
		case 2:
			return math.Exp(20 * (rng.Float64() - .5))
		default:
			return rng.Float64() * 1000
		}
	}
	var fill func(reflect.Value)
	fill = func(v reflect.Value) {
		for _, f := range v.Fields() {
			switch f.Kind() {
			case reflect.Float64:
				f.SetFloat(number())
			case reflect.Int64, reflect.Int:
				f.SetInt(rng.Int64N(300) - 10)
			case reflect.Struct:
				fill(f)
			}
		}
	}
	in := &Input{MaxNumSeqs: rng.IntN(300) - 10, MaybeMixed: rng.IntN(4) == 0}
	in.Kind = []string{"vllm", "sglang", "tgi", "unknown", ""}[rng.IntN(5)]
	in.Generation = []string{"v0", "v1", ""}[rng.IntN(3)]
	in.TTFTObjective, in.TPOTObjective = time.Duration(rng.Int64N(3)-1)*time.Second, time.Duration(rng.Int64N(3)-1)*50*time.Millisecond
	in.E2EObjective = time.Duration(rng.Int64N(3)-1) * time.Minute
	fill(reflect.ValueOf(&in.Requests).Elem())
	if rng.IntN(2) == 0 {
		in.Before = &Before{}
		fill(reflect.ValueOf(in.Before).Elem())
	}
	if rng.IntN(2) == 0 {
		in.Peers = &Peers{}
		fill(reflect.ValueOf(in.Peers).Elem())
	}
	at := epoch
	plausible := rng.IntN(2) == 0 // else hardly any verdict would ever be reached
	for range rng.IntN(60) {
		w := timeline.Window{Start: at, End: at.Add(10 * time.Second)}
		if !plausible {
			w.End = at.Add(time.Duration(rng.Int64N(100)-20) * time.Second)
			at = at.Add(time.Duration(rng.Int64N(40)) * time.Second)
		}
		at = at.Add(10 * time.Second)
		for f := range timeline.NumFigures {
			switch {
			case plausible && f == timeline.Completeness:
				w.Set(f, .9+.1*rng.Float64())
			case plausible && rng.IntN(8) > 0:
				w.Set(f, rng.Float64())
			case rng.IntN(3) > 0:
				w.Set(f, number())
			}
		}
		for s := range w.States {
			w.States[s] = time.Duration(rng.Int64N(2e9) - 1e8)
		}
		w.Mode, w.Guard = timeline.Mode(rng.IntN(3)), timeline.Guard(rng.IntN(3)) //nolint:gosec // small
		if !plausible || rng.IntN(50) == 0 {
			w.Flags = timeline.Flags(rng.IntN(128)) //nolint:gosec // small
		}
		in.Windows = append(in.Windows, w)
	}
	return in
}

// forbidden are words that the spans do not support, and numbers that are none.
var forbidden = []string{"gpu utili", "kv cache full", "preempted", "preemption happened", "nan", "inf ", "+inf", "%!"}

func checkDiagnosis(t *testing.T, c *Config, in *Input, d Diagnosis) {
	t.Helper()
	finding := func(f Finding) {
		require.Less(t, f.Verdict, NumVerdicts)
		require.NotEmpty(t, f.Title)
		require.NotEmpty(t, f.Sentence)
		require.Equal(t, f.Verdict == NoVerdict, f.Confidence == None, "%s %s", f.Verdict, f.Confidence)
		require.Contains(t, []Confidence{None, Low, Medium, High}, f.Confidence)
		if f.Cause != "" {
			require.Equal(t, HostBound, f.Verdict)
		}
		for _, e := range f.Evidence {
			require.False(t, math.IsNaN(e.Value) || math.IsInf(e.Value, 0), "%s: %+v", f.Verdict, e)
			require.NotEmpty(t, e.Text)
		}
		if g := f.Gain; g != nil {
			require.True(t, g.Factor > 1e-3 && g.Factor < 1e3 && g.Factor != 1, "%s: %+v", f.Verdict, g)
			require.NotEmpty(t, g.Of)
			require.NotEmpty(t, g.Formula)
		}
		words := []string{f.Title, f.Sentence}
		words = append(words, f.Caveats...)
		for _, a := range f.Actions {
			require.NotEmpty(t, a.Text)
			words = append(words, a.Text, a.Why, a.Setting)
			if strings.HasPrefix(a.Setting, "-") {
				require.Equal(t, "vllm", in.Kind)
				require.NotEmpty(t, a.Versions)
				require.True(t, strings.HasPrefix(a.Source, "https://"), "%+v", a)
			}
		}
		for _, w := range words {
			for _, bad := range forbidden {
				require.NotContains(t, strings.ToLower(w), bad, "%s", f.Verdict)
			}
		}
	}
	finding(d.Finding)
	last := -1
	for _, f := range d.Also {
		finding(f)
		require.NotEqual(t, NoVerdict, f.Verdict)
		at := -1
		for i := range rules {
			if rules[i].verdict == f.Verdict {
				at = i
			}
		}
		require.Greater(t, at, last, "the order of the rules")
		last = at
	}
	// Thin data give no verdict, but for idleness over a whole period.
	f := &d.Figures
	thin := f.Covered < c.MinTime || !(f.Completeness >= c.MinCompleteness)
	if thin {
		require.Equal(t, NoVerdict, d.Verdict)
	}
	if f.Requests < c.MinRequests && d.Verdict != NoVerdict {
		require.Equal(t, Idle, d.Verdict)
		require.Less(t, f.Occupancy, c.IdleOccupancy)
		require.GreaterOrEqual(t, float64(f.Covered), c.MinCoverage*float64(c.Period))
		require.NotEqual(t, High, d.Confidence)
		require.Empty(t, d.Also)
	}
	if d.Verdict != NoVerdict && f.Requests >= c.MinRequests && (f.Requests < c.SureRequests || f.Covered < c.SureTime) {
		require.Equal(t, Low, d.Confidence)
	}
	if f.Flags.Has(timeline.MixedEngines) || f.Flags.Has(timeline.Sampled) {
		require.Equal(t, NoVerdict, d.Verdict)
	}
	if math.IsNaN(f.Wait) {
		require.NotEqual(t, HostBound, d.Verdict)
	}
}

// TestProperties: any Input is fine, and no Input makes a claim that it does not support.
func TestProperties(t *testing.T) {
	c := NewDefaultConfig()
	rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a test
	reached := map[Verdict]int{}
	for range 10_000 {
		in := randomInput(rng)
		before := *in
		d := Evaluate(&c, in)
		checkDiagnosis(t, &c, in, d)
		require.Equal(t, len(before.Windows), len(in.Windows))
		reached[d.Verdict]++
		for _, f := range d.Also {
			reached[f.Verdict]++
		}
	}
	for v := NoVerdict; v < NumVerdicts; v++ {
		assert.Positive(t, reached[v], "%s was never reached: the test would not see its faults", v)
	}
}

// TestPure: an evaluation changes nothing and depends on nothing else.
func TestPure(t *testing.T) {
	c := NewDefaultConfig()
	in := healthyInput().with(figures{timeline.DeviceUtilization: .4})
	in.Requests.TTFTSlope = math.Inf(1)
	in.Before, in.Peers = &Before{Hours: math.Inf(1)}, &Peers{Engines: 2, CapacityMin: .1, CapacityMax: math.Inf(1)}
	a := Evaluate(&c, in)
	b := Evaluate(&c, in)
	assert.Equal(t, a.Finding, b.Finding)
	assert.True(t, math.IsInf(in.Requests.TTFTSlope, 1) && math.IsInf(in.Before.Hours, 1) && math.IsInf(in.Peers.CapacityMax, 1), "the input is the caller's")
}

// FuzzEvaluate lets the fuzzer choose the random numbers and some figures by hand.
func FuzzEvaluate(f *testing.F) {
	f.Add(uint64(1), []byte{})
	f.Add(uint64(99), binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Inf(-1))))
	c := NewDefaultConfig()
	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		in := randomInput(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // a test
		for i := 0; i+8 <= len(raw) && len(in.Windows) > 0; i += 8 {
			v := math.Float64frombits(binary.LittleEndian.Uint64(raw[i:]))
			n := i / 8
			in.Windows[n%len(in.Windows)].Set(timeline.Figure(n%int(timeline.NumFigures)), v) //nolint:gosec // small
		}
		checkDiagnosis(t, &c, in, Evaluate(&c, in))
		tracker := NewTracker(&c)
		for range 4 {
			tracker.Observe(in)
		}
	})
}
