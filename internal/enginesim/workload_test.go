// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArrivals: every process has the rate it was given, and its own unevenness.
func TestArrivals(t *testing.T) {
	for _, c := range []struct {
		w           Workload
		least, most float64 // coefficient of variation of the gaps
	}{
		{Workload{LengthsChat, Poisson}, .97, 1.03},
		{Workload{LengthsChat, Bursty}, 2.8, 3.2},
		{Workload{LengthsChat, OnOff}, 3, 30},
		{Workload{LengthsAzureConv, Recorded}, .9, 1.6},
		{Workload{LengthsAzureCode, Recorded}, 4, 30},
		{Workload{LengthsMooncake, Recorded}, .5, 10},
	} {
		t.Run(c.w.Lengths+" "+string(c.w.Arrivals), func(t *testing.T) {
			const rate, n = 7., 200_000
			g, err := newGenerator(c.w, 200_000, 3, 0, rate)
			require.NoError(t, err)
			var last int64
			var sum, squares float64
			for i := range n {
				d, ok := g.next()
				require.True(t, ok)
				require.EqualValues(t, i+1, d.id)
				require.GreaterOrEqual(t, d.at, last)
				require.True(t, g.kind != OnOff || g.on && g.clock < g.phaseEnd)
				gap := float64(d.at - last)
				sum += gap
				squares += gap * gap
				last = d.at
			}
			tolerance := .01
			if c.w.Arrivals == OnOff {
				tolerance = .08 // 480 phases
			} else if c.w.Arrivals == Bursty {
				tolerance = .03
			}
			assert.InEpsilon(t, rate, n/(sum/1e9), tolerance)
			mean := sum / n
			cv := math.Sqrt(squares/n-mean*mean) / mean
			assert.True(t, cv > c.least && cv < c.most, "CV %.2f", cv)
		})
	}
}

func TestLengths(t *testing.T) {
	for _, c := range []struct {
		name           string
		prompt, output float64
	}{{LengthsChat, 210, 180}, {LengthsLong, 1800, 570}, {LengthsAzureConv, 1033, 246}, {LengthsAzureCode, 2147, 28.6}, {LengthsMooncake, 11755, 196}} {
		t.Run(c.name, func(t *testing.T) {
			g, err := newGenerator(Workload{Lengths: c.name}, 200_000, 1, 0, 1)
			require.NoError(t, err)
			var prompt, output float64
			const n = 50_000
			for range n {
				d := g.now(0)
				require.Positive(t, d.prompt)
				require.Positive(t, d.output)
				prompt += float64(d.prompt) / n
				output += float64(d.output) / n
			}
			t.Logf("%.1f %.1f", prompt, output)
			assert.InEpsilon(t, c.prompt, prompt, .03)
			assert.InEpsilon(t, c.output, output, .03)
		})
	}
	g, err := newGenerator(Workload{Lengths: LengthsMooncake}, 4096, 1, 0, 1)
	require.NoError(t, err)
	for range 1000 {
		d := g.now(0)
		require.LessOrEqual(t, d.prompt+d.output, int32(4096))
		require.Positive(t, d.prompt)
	}
}

func TestBadInput(t *testing.T) {
	start := preset(t, "v0-default")
	for want, f := range map[string]func(*Config, *Workload, *float64){
		"unknown workload":         func(_ *Config, w *Workload, _ *float64) { w.Lengths = "x" },
		"unknown arrivals":         func(_ *Config, w *Workload, _ *float64) { w.Arrivals = "x" },
		"need a recorded workload": func(_ *Config, w *Workload, _ *float64) { w.Arrivals = Recorded },
		"rate of":                  func(_ *Config, _ *Workload, r *float64) { *r = math.Inf(1) },
		"always chunks prefill":    func(c *Config, _ *Workload, _ *float64) { c.Dialect = VLLM016 },
		"max_num_seqs":             func(c *Config, _ *Workload, _ *float64) { c.MaxNumSeqs = 0 },
		"at least max_model_len":   func(c *Config, _ *Workload, _ *float64) { c.MaxBatchedTokens = 100 },
		"over max_num_seqs":        func(c *Config, _ *Workload, _ *float64) { c.Mode, c.MaxBatchedTokens = ChunkedPrefill, 256 },
		"cannot hold two requests": func(c *Config, _ *Workload, _ *float64) { c.KVTokens = 9000 },
		"step-time law":            func(c *Config, _ *Workload, _ *float64) { c.Law = Law{} },
		"negative":                 func(c *Config, _ *Workload, _ *float64) { c.Host.Loop = -1 },
		"jitter":                   func(c *Config, _ *Workload, _ *float64) { c.Jitter = 2 },
		"0 engines":                func(c *Config, _ *Workload, _ *float64) { c.Engines = 0 },
		"0 API servers":            func(c *Config, _ *Workload, _ *float64) { c.APIServers = 0 },
		"several API servers":      func(c *Config, _ *Workload, _ *float64) { c.APIServers = 2 },
		"sampling 0":               func(c *Config, _ *Workload, _ *float64) { c.Sampling = 0 },
		"parents 2":                func(c *Config, _ *Workload, _ *float64) { c.Parents = 2 },
		"abort rate":               func(c *Config, _ *Workload, _ *float64) { c.AbortRate = -1 },
		"export delay":             func(c *Config, _ *Workload, _ *float64) { c.ExportDelay = 0 },
		"export batch":             func(c *Config, _ *Workload, _ *float64) { c.ExportBatch = 0 },
		"between 1970 and 2200":    func(c *Config, _ *Workload, _ *float64) { c.Start = time.Time{} },
		"mode 9":                   func(c *Config, _ *Workload, _ *float64) { c.Mode = 9 },
		"dialect 9":                func(c *Config, _ *Workload, _ *float64) { c.Dialect = 9 },
	} {
		c, w, rate := start, Workload{}, 1.
		f(&c, &w, &rate)
		_, err := New(c, w, rate)
		assert.ErrorContains(t, err, want)
	}
	_, err := Preset("x")
	assert.ErrorContains(t, err, "v0-default, v0-async")
	for _, load := range []float64{-1, 101, math.NaN()} {
		_, err = Run(start, Workload{}, load, time.Second)
		assert.ErrorContains(t, err, "1 is the capacity")
	}
	for _, name := range Presets() {
		c, err := Preset(name)
		require.NoError(t, err)
		assert.NoError(t, c.Validate())
		assert.Equal(t, name, c.Name)
	}
}

func TestBadTrace(t *testing.T) {
	for data, want := range map[string]string{
		"":                                "header",
		"a,b,c\n1,2,3\n":                  "header",
		"a,b\n1,2\n2,3\n":                 "wrong number of fields",
		"a,b,c\nx,2,3\n2,3,4\n":           "row 2",
		"a,b,c\n1,2,3\n2,0,4\n":           "row 3",
		"a,b,c\n1,2,3\n2,1,4.5\n":         "row 3",
		"a,b,c\n5,2,3\n2,1,4\n":           "earlier",
		"a,b,c\n5,2,3\n5,1,4\n":           "at once",
		"a,b,c\n1,99999999999,3\n2,3,4\n": "row 2",
	} {
		_, err := parseTrace([]byte(data))
		assert.ErrorContains(t, err, want, "%q", data)
	}
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"))
	f.Add([]byte("timestamp,input_length,output_length\n0,40160,6\n27482,22,23\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := parseTrace(data)
		if err != nil {
			return
		}
		for i, r := range rows {
			require.True(t, r.prompt > 0 && r.output > 0)
			require.True(t, i == 0 || r.at >= rows[i-1].at)
		}
		require.Positive(t, rows[len(rows)-1].at)
	})
}

// TestRateOfNextToNothing: the first request of a rate of next to nothing is in the far future, and not, by an overflow, in the past without end.
func TestRateOfNextToNothing(t *testing.T) {
	begin := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC).UnixNano()
	for _, rate := range []float64{1e-8, 1e-20, 1e-308, 5e-324} {
		for _, w := range []Workload{{Arrivals: Poisson}, {Arrivals: Bursty}, {Arrivals: OnOff}, {Lengths: LengthsAzureCode, Arrivals: Recorded}} {
			g, err := newGenerator(w, 4096, 1, begin, rate)
			require.NoError(t, err)
			last := begin
			for range 20 {
				d, ok := g.next()
				require.True(t, ok)
				require.GreaterOrEqual(t, d.at, last, "%v %v", rate, w)
				last = d.at
			}
			assert.Greater(t, last, begin+int64(24*time.Hour), "%v %v", rate, w)
		}
	}
}
