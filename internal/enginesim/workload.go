// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// What clients ask for: when requests arrive and how long they are.

import (
	"bytes"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Arrivals is how requests arrive.
type Arrivals string

// The arrival processes. All have the same mean rate.
const (
	// Poisson arrivals are independent: gaps are exponential.
	Poisson Arrivals = "poisson"
	// Bursty gaps are hyperexponential with a coefficient of variation of 3.
	Bursty Arrivals = "bursty"
	// OnOff arrivals are Poisson at twice the rate for 30 s on average, then none for 30 s on average.
	OnOff Arrivals = "onoff"
	// Recorded arrivals replay a trace in a loop, stretched in time to the mean rate.
	Recorded Arrivals = "trace"
)

// The length samplers.
const (
	// LengthsChat: prompts of 210 and outputs of 180 tokens on average, lognormal.
	LengthsChat = "chat"
	// LengthsLong: prompts of 1800 and outputs of 570 tokens on average, lognormal.
	LengthsLong = "long"
	// LengthsAzureConv, LengthsAzureCode and LengthsMooncake are recorded (traces/README.md).
	// Mooncake's prompts have 15,000 tokens on average and need an engine with room for them.
	LengthsAzureConv = "azure-conv"
	LengthsAzureCode = "azure-code"
	LengthsMooncake  = "mooncake"
)

// Workload is a stream of requests; its rate is given where it is used. The zero value is chat, Poisson.
type Workload struct {
	// Lengths names a length sampler.
	Lengths string
	// Arrivals names an arrival process. Recorded needs recorded lengths, and takes both from one row.
	Arrivals Arrivals
}

// Workloads are the names of the length samplers.
func Workloads() []string {
	return []string{LengthsChat, LengthsLong, LengthsAzureConv, LengthsAzureCode, LengthsMooncake}
}

// row is one recorded request.
type row struct {
	at             time.Duration // since the first
	prompt, output int
}

//go:embed traces/azure_conv.csv traces/azure_code.csv traces/mooncake.csv
var traceFiles embed.FS

var traceNames = map[string]string{
	LengthsAzureConv: "traces/azure_conv.csv", LengthsAzureCode: "traces/azure_code.csv", LengthsMooncake: "traces/mooncake.csv",
}

// maxLength bounds the recorded lengths.
const maxLength = 1 << 24

// parseTrace reads rows of moment, input tokens, output tokens under one header. A moment is a date or
// milliseconds.
func parseTrace(data []byte) ([]row, error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = 3
	records, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) < 3 {
		return nil, fmt.Errorf("%d rows: a header and at least two requests are needed", len(records))
	}
	rows := make([]row, 0, len(records)-1)
	var first time.Time
	for i, rec := range records[1:] {
		at, err := parseMoment(rec[0])
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", i+2, err)
		}
		if i == 0 {
			first = at
		}
		prompt, err1 := strconv.Atoi(rec[1])
		output, err2 := strconv.Atoi(rec[2])
		if err1 != nil || err2 != nil || prompt < 1 || output < 1 || prompt > maxLength || output > maxLength {
			return nil, fmt.Errorf("row %d: token counts %q and %q must be integers from 1 to %d", i+2, rec[1], rec[2], maxLength)
		}
		if n := len(rows); n > 0 && at.Sub(first) < rows[n-1].at {
			return nil, fmt.Errorf("row %d: earlier than the row before", i+2)
		}
		rows = append(rows, row{at: at.Sub(first), prompt: prompt, output: output})
	}
	if rows[len(rows)-1].at <= 0 {
		return nil, errors.New("all requests arrive at once: no rate follows from that")
	}
	return rows, nil
}

func parseMoment(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	return time.Parse("2006-01-02 15:04:05.9999999", s)
}

// demand is one request as a client sends it.
type demand struct {
	id             int64
	at             int64 // Unix ns
	prompt, output int32
}

// generator draws the requests of a workload, in order of arrival.
type generator struct {
	kind     Arrivals
	lengths  func() (prompt, output int)
	rows     []row
	rng      *rand.Rand
	rate     float64 // requests/s
	clock    int64   // the last arrival, or the last change of the rate
	id       int64
	on       bool
	phaseEnd int64
	pos      int
	maxLen   int
}

func newGenerator(w Workload, maxLen int, seed uint64, begin int64, rate float64) (*generator, error) {
	g := &generator{kind: w.Arrivals, rng: rand.New(rand.NewPCG(seed, 0xa771)), rate: rate, clock: begin, phaseEnd: begin, maxLen: maxLen}
	lengths := rand.New(rand.NewPCG(seed, 0x1e4)) // its own source: lengths do not depend on the arrivals
	switch w.Lengths {
	case LengthsChat, "":
		g.lengths = lognormalLengths(lengths, 210, .8, 180, .9)
	case LengthsLong:
		g.lengths = lognormalLengths(lengths, 1800, .6, 570, .7)
	default:
		name, ok := traceNames[w.Lengths]
		if !ok {
			return nil, fmt.Errorf("unknown workload %q: want one of %v", w.Lengths, Workloads())
		}
		data, err := traceFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if g.rows, err = parseTrace(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		g.lengths = func() (int, int) {
			r := g.rows[lengths.IntN(len(g.rows))]
			return r.prompt, r.output
		}
	}
	switch w.Arrivals {
	case "":
		g.kind = Poisson
	case Poisson, Bursty, OnOff:
	case Recorded:
		if g.rows == nil {
			return nil, fmt.Errorf("arrivals %q need a recorded workload, not %q", Recorded, w.Lengths)
		}
	default:
		return nil, fmt.Errorf("unknown arrivals %q: want %s, %s, %s or %s", w.Arrivals, Poisson, Bursty, OnOff, Recorded)
	}
	return g, nil
}

// lognormalLengths samples lengths with the given means and shapes.
func lognormalLengths(rng *rand.Rand, prompt, promptSigma, output, outputSigma float64) func() (int, int) {
	sample := func(mean, sigma float64) int {
		return max(1, int(math.Round(math.Exp(math.Log(mean)-sigma*sigma/2+sigma*rng.NormFloat64()))))
	}
	return func() (int, int) { return sample(prompt, promptSigma), sample(output, outputSigma) }
}

// next draws the next request; false while the rate is zero.
func (g *generator) next() (demand, bool) {
	if g.rate <= 0 {
		return demand{}, false
	}
	var prompt, output int
	if g.kind == Recorded {
		r := g.rows[g.pos]
		prompt, output = r.prompt, r.output
		g.clock = min(g.clock+g.recordedGap(), farFuture)
		g.pos = (g.pos + 1) % len(g.rows)
	} else {
		prompt, output = g.lengths()
		g.clock = min(g.clock+g.gap(), farFuture)
	}
	return g.demand(g.clock, prompt, output), true
}

// now draws a request that arrives at once, for saturated runs.
func (g *generator) now(at int64) demand {
	prompt, output := g.lengths()
	return g.demand(at, prompt, output)
}

func (g *generator) demand(at int64, prompt, output int) demand {
	// An engine refuses what does not fit its context; a client that knows cuts the prompt first.
	output = min(output, g.maxLen/2)
	prompt = min(prompt, g.maxLen-output)
	g.id++
	return demand{id: g.id, at: at, prompt: int32(prompt), output: int32(output)}
}

// recordedGap is the time from the row before to this one, stretched to the rate. The loop closes with one
// mean gap.
func (g *generator) recordedGap() int64 {
	last := g.rows[len(g.rows)-1].at
	mean := float64(last) / float64(len(g.rows)-1)
	gap := mean
	if g.pos > 0 {
		gap = float64(g.rows[g.pos].at - g.rows[g.pos-1].at)
	}
	return nanoseconds(gap / mean / g.rate)
}

// farFuture is the last moment that arrivals are drawn at, Unix ns (2116): a rate of next to nothing has its first one there.
const farFuture = math.MaxInt64 / 2

// nanoseconds of at most 31 years, so that sums with moments do not overflow.
func nanoseconds(seconds float64) int64 { return int64(min(seconds, 1e9) * 1e9) }

func (g *generator) gap() int64 {
	switch g.kind {
	case Bursty:
		// Hyperexponential with balanced means and CV = 3.
		const cv2 = 9.
		p := (1 + math.Sqrt((cv2-1)/(cv2+1))) / 2
		if g.rng.Float64() >= p {
			p = 1 - p
		}
		return nanoseconds(g.rng.ExpFloat64() / (2 * p * g.rate))
	case OnOff:
		const phase = 30e9
		if g.rate*phase < 1e-4*1e9 { // next to none in a phase: these make no difference, and would be passed one by one
			return nanoseconds(g.rng.ExpFloat64() / g.rate)
		}
		t := g.clock
		for {
			if t >= g.phaseEnd {
				g.on = !g.on
				t = g.phaseEnd
				g.phaseEnd += int64(phase * g.rng.ExpFloat64())
				continue
			}
			if g.on {
				// Exponential gaps have no memory: a gap that outlives its phase is drawn anew.
				d := nanoseconds(g.rng.ExpFloat64() / (2 * g.rate))
				if t+d < g.phaseEnd {
					return t + d - g.clock
				}
			}
			t = g.phaseEnd
		}
	default:
		return nanoseconds(g.rng.ExpFloat64() / g.rate)
	}
}
