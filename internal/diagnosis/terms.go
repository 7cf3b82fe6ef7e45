// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// What conditions are made of: quantities with their brackets, and comparisons with thresholds of the Config.

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// state is what a rule sees.
type state struct {
	c          *Config
	in         *Input
	f          *Figures
	wrongLimit int // what engine::max_num_seqs says, where it cannot be
}

// quantity is one figure. All functions may give NaN for unknown.
type quantity struct {
	text, unit      string
	metric, formula string
	value           func(*state) float64
	// low and high bracket the value; nil: the value is exact.
	low, high func(*state) float64
}

// term compares a quantity with the threshold under a key of the Config, or with 0 or 1.
type term struct {
	quantity
	op  string // >, >=, < or <=
	key string // "0" and "1" are constants
	// unknown: the term holds where the quantity is unknown, and this becomes a caveat; "-" is no caveat.
	unknown string
}

// oneOf holds if any of its terms does.
type oneOf []term

// allOf holds if every part does.
type allOf []oneOf

// threshold is the Config's value under a key.
func (c *Config) threshold(key string) float64 {
	if v, err := strconv.ParseFloat(key, 64); err == nil {
		return v
	}
	return reflect.ValueOf(c).Elem().Field(thresholdFields[key]).Float()
}

// thresholdFields are the fields of Config that are ratios or counts in float64, by key.
var thresholdFields = func() map[string]int {
	fields := map[string]int{}
	for f := range reflect.TypeFor[Config]().Fields() {
		if f.Type.Kind() == reflect.Float64 {
			fields[f.Tag.Get("mapstructure")] = f.Index[0]
		}
	}
	return fields
}()

func compare(v float64, op string, limit float64) bool {
	switch op {
	case ">":
		return v > limit
	case ">=":
		return v >= limit
	case "<":
		return v < limit
	default:
		return v <= limit
	}
}

// held is how a condition was met.
type held struct {
	evidence []Evidence
	caveats  []string
	// sure: the brackets meet it too. near: a figure is within the margin of its threshold.
	sure, near bool
}

// rank orders ways to hold: the surest counts.
func (h held) rank() int {
	r := 0
	if h.sure {
		r++
	}
	if !h.near {
		r += 2
	}
	return r
}

func (h *held) and(x held) {
	h.evidence = append(h.evidence, x.evidence...)
	h.caveats = append(h.caveats, x.caveats...)
	h.sure = h.sure && x.sure
	h.near = h.near || x.near
}

func (t *term) holds(s *state) (held, bool) {
	limit, v := s.c.threshold(t.key), finite(t.value(s))
	if math.IsNaN(v) {
		if t.unknown == "" {
			return held{}, false
		}
		h := held{sure: t.unknown == "-"}
		if t.unknown != "-" {
			h.caveats = []string{s.explain(t.unknown)}
		}
		return h, true
	}
	if !compare(v, t.op, limit) {
		return held{}, false
	}
	worst := v // the end of the bracket that speaks against it
	if end := t.high; strings.HasPrefix(t.op, "<") && end != nil {
		worst = end(s)
	} else if end := t.low; strings.HasPrefix(t.op, ">") && end != nil {
		worst = end(s)
	}
	return held{
		evidence: []Evidence{{Text: t.text, Value: v, Unit: t.unit, Condition: t.op + " " + number(limit), Metric: t.metric, Formula: t.formula}},
		sure:     compare(worst, t.op, limit),
		near:     math.Abs(v-limit) < s.c.Margin*math.Abs(limit),
	}, true
}

// explain adds to a caveat what would remove it.
func (s *state) explain(caveat string) string {
	if caveat != noDevice || s.in.Kind != "vllm" {
		return caveat
	}
	switch s.in.Generation {
	case "v0":
		return caveat + " Start vLLM with --collect-detailed-traces all to have it in the spans; it costs some speed."
	case "v1":
		return caveat + " vLLM V1 has no such time in its spans; a profiler or the device's own counters have."
	}
	return caveat
}

func (o oneOf) holds(s *state) (best held, ok bool) {
	for i := range o {
		h, holds := o[i].holds(s)
		if !holds {
			continue
		}
		if !ok {
			best, ok = h, true
			continue
		}
		// Either would do: the evidence of both is shown, and the surest decides.
		both := h
		if best.rank() >= h.rank() {
			both = best
		}
		both.evidence = append(best.evidence[:len(best.evidence):len(best.evidence)], h.evidence...)
		best = both
	}
	return best, ok
}

func (a allOf) holds(s *state) (held, bool) {
	all := held{sure: true}
	for _, o := range a {
		h, ok := o.holds(s)
		if !ok {
			return held{}, false
		}
		all.and(h)
	}
	return all, true
}

// number is v with at most three digits after the point.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// String is the condition as docs/diagnosis.md has it.
func (t term) String() string {
	limit := "`" + t.key + "`"
	if _, err := strconv.ParseFloat(t.key, 64); err == nil {
		limit = t.key
	}
	s := fmt.Sprintf("%s %s %s", t.text, t.op, limit)
	if t.unknown != "" {
		s += " (or unknown)"
	}
	return s
}

func (o oneOf) String() string {
	parts := make([]string, len(o))
	for i := range o {
		parts[i] = o[i].String()
	}
	return strings.Join(parts, " or ")
}

func (a allOf) String() string {
	parts := make([]string, len(a))
	for i, o := range a {
		parts[i] = o.String()
		if len(o) > 1 && len(a) > 1 {
			parts[i] = "(" + parts[i] + ")"
		}
	}
	return strings.Join(parts, " and ")
}

func (q quantity) is(op, key string) term { return term{quantity: q, op: op, key: key} }

// orUnknown is the term that holds where the quantity is unknown too.
func (t term) orUnknown(caveat string) term {
	t.unknown = caveat
	return t
}

const prefix = "llm.serving."

// lawError is the relative error that the step law's figures are given: nine in ten of the capacities in docs/accuracy.md are
// nearer to the truth.
const lawError = .15

func scaled(f func(*state) float64, by float64) func(*state) float64 {
	return func(s *state) float64 { return f(s) * by }
}

func share(above, below float64) float64 { return finite(above / below) }

// occupiedTime is the share of the time in the states that a request runs in and that are told apart.
func occupiedTime(f *Figures) float64 {
	return f.States[timeline.StatePrefill] + f.States[timeline.StateDecode] + f.States[timeline.StateExecuteHost] +
		f.States[timeline.StateScheduler] + f.States[timeline.StateHostOther]
}

// stateShare is a state's share of the occupied time.
func stateShare(st timeline.State) func(*state) float64 {
	return func(s *state) float64 { return share(s.f.States[st], occupiedTime(s.f)) }
}

func occupancyValue(s *state) float64 { return s.f.Occupancy }

// capacityEnd is end where that is known, else v times by.
func capacityEnd(v, end, by float64) float64 {
	if math.IsNaN(end) {
		return v * by
	}
	return end
}

// capacityText is what is used of the capacity, as far as that is known.
func capacityText(s *state) string {
	f := s.f
	switch {
	case !math.IsNaN(f.CapacityFit):
		return percent(f.CapacityFit)
	case !math.IsNaN(f.CapacityLeast) && !math.IsNaN(f.CapacityMost):
		return fmt.Sprintf("between %s and %s", percent(f.CapacityLeast), percent(f.CapacityMost))
	}
	return "at most " + percent(f.CapacityPeak)
}

func capacityValue(s *state) float64 {
	v, _ := s.f.CapacityUsed()
	return v
}

// waitingAtLeast reports whether how many wait in any case is all that is known of a queue: there is no mean, or it is of other
// windows, before the queue grew.
func waitingAtLeast(s *state) bool {
	return s.f.WaitingLower >= s.c.QueueWaiting && (math.IsNaN(s.f.Waiting) || s.f.WaitingLower-s.f.Waiting > 1+0.05*s.f.Waiting)
}

// waitingValue is the mean of the waiting requests, or how many wait in any case where that is all that is known.
func waitingValue(s *state) float64 {
	if waitingAtLeast(s) {
		return s.f.WaitingLower
	}
	return s.f.Waiting
}

// meanQueue is the mean wait before the first schedule, s.
func meanQueue(s *state) float64 {
	if v := share(waitingValue(s), s.in.Requests.Rate); !math.IsNaN(v) { // Little's law
		return v
	}
	return s.in.Requests.QueueTTFTShare * s.in.Requests.TTFT.Mean
}

// stepBy is the step of the law a + b batch, s.
func stepBy(a, b, batch float64) float64 { return a + b*batch }

// shifted is by what factor x differs from before, whichever is more.
func shifted(x, before float64) float64 {
	if !(x > 0 && before > 0) {
		return math.NaN()
	}
	return max(x/before, before/x)
}

var (
	occupancy = quantity{
		text: "occupancy", unit: "1", metric: prefix + "engine.occupancy", formula: "share of the time in which a request runs",
		value: occupancyValue,
		high: func(s *state) float64 {
			return s.f.Occupancy + (1-min(s.f.Completeness, 1))*(1-s.f.Occupancy)
		},
	}
	wait = quantity{
		text: "device waits for its host", unit: "1", metric: prefix + "device.wait.ratio", formula: "1 - device utilization / occupancy",
		value: func(s *state) float64 { return s.f.Wait },
		low:   func(s *state) float64 { return 1 - s.f.Upper/s.f.Occupancy },
		high:  func(s *state) float64 { return 1 - s.f.Lower/s.f.Occupancy },
	}
	capacityUsed = quantity{
		text: "capacity used", unit: "1", metric: prefix + "engine.capacity.utilization", formula: "output tokens per second over those of a full engine; where these are not known, over the least that they may be or the most seen, which is at least as much",
		value: capacityValue,
		high: func(s *state) float64 {
			v, basis := s.f.CapacityUsed()
			if basis == "fit" {
				v = capacityEnd(v, s.f.CapacityMost, 1+lawError)
			}
			return v
		},
	}
	// capacityAtLeast is for lower limits: what is used of the most seen may be little of what could be.
	capacityAtLeast = quantity{
		text: "capacity used (at least)", unit: "1", metric: prefix + "engine.capacity.utilization", formula: "output tokens per second over those of a full engine; where these are not known, over the most that they may be",
		value: func(s *state) float64 { return capacityEnd(s.f.CapacityLeast, s.f.CapacityFit, 1) },
		low:   func(s *state) float64 { return capacityEnd(s.f.CapacityFit, s.f.CapacityLeast, 1-lawError) },
	}
	// capacityAtMost is for upper limits that the most seen says nothing about.
	capacityAtMost = quantity{
		text: "capacity used (at most)", unit: "1", metric: prefix + "engine.capacity.utilization", formula: "output tokens per second over those of a full engine; where these are not known, over the least that they may be",
		value: func(s *state) float64 { return capacityEnd(s.f.CapacityMost, s.f.CapacityFit, 1) },
		high:  func(s *state) float64 { return capacityEnd(s.f.CapacityFit, s.f.CapacityMost, 1+lawError) },
	}
	marginal = quantity{
		text: "marginal ratio", unit: "1", metric: prefix + "engine.step.duration", formula: "b batch / (a + b batch) by the step law: what of a step grows with the batch",
		value: func(s *state) float64 { return s.f.Marginal },
		low:   scaled(func(s *state) float64 { return s.f.Marginal }, 1-lawError),
		high:  scaled(func(s *state) float64 { return s.f.Marginal }, 1+lawError),
	}
	fillWaiting = quantity{
		text: "batch over its limit while requests wait", unit: "1", metric: prefix + "engine.batch.utilization", formula: "Σ running x waiting / Σ waiting / max_num_seqs over the windows",
		value: func(s *state) float64 { return s.f.FillWaiting },
	}
	fill = quantity{
		text: "batch over its limit", unit: "1", metric: prefix + "engine.batch.utilization", formula: "mean running requests while any runs / max_num_seqs",
		value: func(s *state) float64 { return s.f.Fill },
	}
	fillMax = quantity{
		text: "largest batch over its limit", unit: "1", metric: prefix + "engine.requests.running", formula: "most running requests / max_num_seqs",
		value: func(s *state) float64 {
			if s.in.MaxNumSeqs <= 0 {
				return math.NaN()
			}
			return s.f.RunningMax / float64(s.in.MaxNumSeqs)
		},
	}
	// limitAlone is for engines that never ran another batch than a full one: how a step grows cannot be known then.
	limitAlone = quantity{
		text: "max_num_seqs, the marginal ratio being unknown", unit: "{request}",
		value: func(s *state) float64 {
			if s.in.MaxNumSeqs <= 0 || !math.IsNaN(s.f.Marginal) {
				return math.NaN()
			}
			return float64(s.in.MaxNumSeqs)
		},
	}
	waitingMean = quantity{
		text: "waiting requests", unit: "{request}", metric: prefix + "engine.requests.waiting", formula: "mean over the period",
		value: waitingValue,
		low: func(s *state) float64 {
			if math.IsNaN(s.f.WaitingLower) {
				return waitingValue(s)
			}
			return s.f.WaitingLower
		},
		high: func(s *state) float64 {
			if math.IsNaN(s.f.WaitingUpper) {
				return waitingValue(s)
			}
			return s.f.WaitingUpper
		},
	}
	queueTTFT = quantity{
		text: "queue's share of the time to first token", unit: "1", metric: prefix + "request.time_in_queue", formula: "Σ queue / Σ time to first token",
		value: func(s *state) float64 { return s.in.Requests.QueueTTFTShare },
	}
	queueSteps = quantity{
		text: "steps or prompts that a request waits for", unit: "{step}", metric: prefix + "request.time_in_queue", formula: "mean queue (waiting requests / rate) / the longer of step duration and mean time from first schedule to first token",
		value: func(s *state) float64 {
			prompt := s.in.Requests.TTFT.Mean * (1 - s.in.Requests.QueueTTFTShare)
			return share(meanQueue(s), maximum(s.f.Step, finite(prompt)))
		},
	}
	tpotMiss = quantity{
		text: "time per output token (95th percentile) over its objective", unit: "1", metric: "gen_ai.server.time_per_output_token", formula: "p95 / slo::tpot",
		value: func(s *state) float64 { return objective(s.in.Requests.TPOT, s.in.TPOTObjective.Seconds()) },
	}
	ttftMiss = quantity{
		text: "time to first token (95th percentile) over its objective", unit: "1", metric: "gen_ai.server.time_to_first_token", formula: "p95 / slo::ttft",
		value: func(s *state) float64 { return objective(s.in.Requests.TTFT, s.in.TTFTObjective.Seconds()) },
	}
	e2eMiss = quantity{
		text: "request duration (95th percentile) over its objective", unit: "1", metric: "gen_ai.server.request.duration", formula: "p95 / slo::e2e",
		value: func(s *state) float64 { return objective(s.in.Requests.E2E, s.in.E2EObjective.Seconds()) },
	}
	prefillOfDevice = quantity{
		text: "prompts' share of the device's time", unit: "1", metric: prefix + "engine.time", formula: "prefill / (prefill + decode) of the engine's states, where prompts have passes of their own",
		value: func(s *state) float64 {
			if s.f.Mode != timeline.ModeMasked {
				return math.NaN()
			}
			return share(s.f.States[timeline.StatePrefill], s.f.States[timeline.StatePrefill]+s.f.States[timeline.StateDecode])
		},
	}
	prefillOfRequests = quantity{
		text: "prefill's share of the requests' running time", unit: "1", metric: prefix + "request.prefill.share", formula: "Σ prefill / Σ (prefill + decode)",
		value: func(s *state) float64 { return s.in.Requests.PrefillShare },
	}
	// promptTokens says it where prompts share steps with decoding.
	promptTokens = quantity{
		text: "prompt tokens per step", unit: "{token}", metric: prefix + "engine.token.throughput", formula: "input tokens per second x step duration / occupancy, where prompts have no passes of their own",
		value: func(s *state) float64 {
			if s.f.Mode == timeline.ModeMasked {
				return math.NaN()
			}
			return finite(s.f.InputThroughput * s.f.Step / s.f.Occupancy)
		},
	}
	stalled = quantity{
		text: "share of the occupied time in which prompts stop decoding", unit: "1", metric: prefix + "engine.time", formula: "prefill / occupied time, where prompts have passes of their own",
		value: func(s *state) float64 {
			if s.f.Mode != timeline.ModeMasked {
				return math.NaN()
			}
			return stateShare(timeline.StatePrefill)(s)
		},
	}
	spread = quantity{
		text: "spread of the time per output token", unit: "1", metric: "gen_ai.server.time_per_output_token", formula: "p99 / p50",
		value: func(s *state) float64 { return share(s.in.Requests.TPOT.P99, s.in.Requests.TPOT.P50) },
	}
	frontend = quantity{
		text: "share of the requests' time outside the engine core", unit: "1", metric: prefix + "request.frontend.share", formula: "1 - Σ (queue + inference) / Σ e2e",
		value: func(s *state) float64 { return s.in.Requests.FrontendShare },
	}
	queueShare = quantity{
		text: "queue's share of the requests' time", unit: "1", metric: prefix + "request.queue.share", formula: "Σ queue / Σ e2e",
		value: func(s *state) float64 { return s.in.Requests.QueueShare },
	}
	waitingGrowth = quantity{
		text: "growth of the waiting requests, at least", unit: "{request}/s", metric: prefix + "engine.requests.waiting", formula: "slope less half of its 95 % interval",
		value: func(s *state) float64 { return s.f.WaitingSlope - s.f.WaitingSlopeError },
	}
	ttftGrowth = quantity{
		text: "growth of the time to first token, at least", unit: "s/s", metric: "gen_ai.server.time_to_first_token", formula: "slope less half of its 95 % interval",
		value: func(s *state) float64 { return s.in.Requests.TTFTSlope - s.in.Requests.TTFTSlopeError },
	}
	workloadShift = quantity{
		text: "rate or median length over that of the day before, or the inverse", unit: "1", metric: prefix + "request.tokens", formula: "the largest of rate, median prompt and median output",
		value: func(s *state) float64 {
			v, _ := shiftOf(s)
			return v
		},
	}
	knownBefore = quantity{
		text: "hours known of the day before", unit: "h",
		value: func(s *state) float64 {
			if s.in.Before == nil {
				return math.NaN()
			}
			return s.in.Before.Hours
		},
	}
	lawShift = quantity{
		text: "change of the step at the present batch", unit: "1", metric: prefix + "engine.step.duration", formula: "|(a + b batch) / (a + b batch of the day before) - 1|",
		value: func(s *state) float64 {
			b := s.in.Before
			if b == nil {
				return math.NaN()
			}
			return finite(math.Abs(stepBy(s.f.StepLawA, s.f.StepLawB, s.f.Batch)/stepBy(b.StepLawA, b.StepLawB, s.f.Batch) - 1))
		},
	}
	imbalance = quantity{
		text: "most used engine's capacity used over the least used one's", unit: "1", metric: prefix + "engine.capacity.utilization", formula: "max / min over the engines of the model",
		value: func(s *state) float64 {
			if s.in.Peers == nil || s.in.Peers.Engines < 2 {
				return math.NaN()
			}
			// A thousandth stands for an engine without work.
			return share(s.in.Peers.CapacityMax, max(s.in.Peers.CapacityMin, .001))
		},
	}
	mostUsed = quantity{
		text: "most used engine's capacity used", unit: "1", metric: prefix + "engine.capacity.utilization", formula: "max over the engines of the model",
		value: func(s *state) float64 {
			if s.in.Peers == nil {
				return math.NaN()
			}
			return s.in.Peers.CapacityMax
		},
	}
)

// objective is the 95th percentile over the objective, in s; NaN where none is set.
func objective(q Quantiles, limit float64) float64 {
	if limit <= 0 || q.Count == 0 {
		return math.NaN()
	}
	return finite(q.P95 / limit)
}

// shiftOf is the largest change since the day before, and of what.
func shiftOf(s *state) (v float64, what string) {
	b, r := s.in.Before, &s.in.Requests
	if b == nil {
		return math.NaN(), ""
	}
	v = math.NaN()
	for _, x := range []struct {
		what        string
		now, before float64
	}{
		{"rate", r.Rate, b.Rate},
		{"median prompt", r.Input.P50, b.Input.P50},
		{"median output", r.Output.P50, b.Output.P50},
	} {
		if c := finite(shifted(x.now, x.before)); !math.IsNaN(c) && !(c <= v) {
			v, what = c, x.what
		}
	}
	return v, what
}
