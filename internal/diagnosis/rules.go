// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// The rules as data, in the order in which they are looked at; the first that holds is the verdict.

import (
	"fmt"
	"math"
	"strings"

	"github.com/otelcol-serving/otelcol-serving/internal/timeline"
)

// rule is one verdict: it holds if all parts of one of when hold.
type rule struct {
	verdict Verdict
	title   string
	when    []allOf
	// without requests: the first of when needs no finished requests.
	withoutRequests bool
	// model: something in it is a model's word; never a high confidence.
	model bool
	// doubt is model where it depends.
	doubt    func(*state) bool
	sentence func(*state) string
	cause    func(*state) string
	gain     func(*state) *Gain
	actions  func(*state) []Action
	caveats  func(*state) []string
}

const (
	noDevice  = "The spans do not say when the device runs, so whether it or its host is what takes the time cannot be known."
	noMode    = "-"
	noPrefill = "-"
)

// queue are the terms of a queue that lasts: enough wait, and longer than for the steps that run.
var queue = allOf{
	{waitingMean.is(">=", "queue_waiting"), queueTTFT.is(">", "queue_ttft")},
	{queueSteps.is(">", "queue_steps").orUnknown("How long a step takes is unknown, so short waits may look like a queue.")},
}

// objectivesMet are quiet where none is set.
var objectivesMet = allOf{
	{ttftMiss.is("<=", "1").orUnknown("-")},
	{tpotMiss.is("<=", "1").orUnknown("-")},
	{e2eMiss.is("<=", "1").orUnknown("-")},
}

func join(parts ...allOf) allOf {
	var all allOf
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// rules in order. OverloadBuilding comes before DeviceBoundFull although Verdict counts it later: what both need is the same, and
// that a queue grows is the more urgent. FrontendBound comes before DecodeHeadroom: that one is a chance, not a trouble.
var rules = []rule{
	{
		verdict: Idle, title: "Little to do", withoutRequests: true,
		when: []allOf{
			join(allOf{{occupancy.is("<", "idle_occupancy")}}, objectivesMet),
			join(allOf{{capacityUsed.is("<", "idle_capacity")}, {waitingMean.is("<", "idle_waiting")}}, objectivesMet),
			join(allOf{{fill.is("<", "idle_batch")}, {waitingMean.is("<", "idle_waiting")}}, objectivesMet),
		},
		sentence: func(s *state) string {
			if s.f.Occupancy == 0 {
				return fmt.Sprintf("No request ran in the last %s.", minutes(s))
			}
			if used := capacityValue(s); used < s.c.IdleCapacity && s.f.Occupancy >= s.c.IdleOccupancy {
				return fmt.Sprintf("A request runs %s of the time, but only %s of the engine's capacity is used.", percent(s.f.Occupancy), capacityText(s))
			}
			if s.f.Occupancy >= s.c.IdleOccupancy {
				return fmt.Sprintf("A request runs %s of the time, but only %s of the %d places in the batch are taken.", percent(s.f.Occupancy), significant(s.f.Batch), s.in.MaxNumSeqs)
			}
			return fmt.Sprintf("A request runs only %s of the time.", percent(s.f.Occupancy))
		},
		gain: func(s *state) *Gain {
			return room(s, "requests on the same device")
		},
		actions: func(s *state) []Action {
			return append(sizing(s), s.forEngine(
				advice{text: "Serve it from fewer replicas, a smaller device or a part of one, or share the device with another model.", why: "The device waits for requests, not for its host."},
			)...)
		},
		caveats: func(s *state) []string {
			c := []string{"Requests that never finish make no span: an engine that hangs looks idle."}
			if n := s.f.Requests; n < s.c.MinRequests {
				are := "are"
				if n == 1 {
					are = "is"
				}
				c = append(c, fmt.Sprintf("%d finished %s %s too few for anything but that.", n, plural(int(n), "request"), are))
			}
			return c
		},
	},
	{
		verdict: QueueBoundAdmission, title: "Requests wait for a place in the batch", model: true,
		when: []allOf{join(queue, allOf{
			{fillWaiting.is(">=", "full_batch")},
			{capacityUsed.is("<", "admission_capacity"), marginal.is("<", "knee"), limitAlone.is("<=", "small_limit")},
		})},
		sentence: func(s *state) string {
			text := fmt.Sprintf("%s while %s of the %d places in the batch are taken", waitText(s), percent(s.f.FillWaiting), s.in.MaxNumSeqs)
			if s.f.Marginal < s.c.Knee {
				return text + fmt.Sprintf(", and only %s of a step grows with the batch.", percent(s.f.Marginal))
			}
			return text + "; the device is likely to have room for more."
		},
		gain: func(s *state) *Gain {
			return gain(1/s.f.Marginal, "throughput", "1 / marginal ratio: (a + b M) / (b M) for a batch without limit")
		},
		actions: func(s *state) []Action {
			return s.forEngine(
				advice{text: "Raise the limit of requests in a batch.", why: "A step over twice as many requests takes much less than twice the time here.", setting: fmt.Sprintf("--max-num-seqs %d", 2*s.in.MaxNumSeqs)},
				advice{text: "Give the tokens of more requests room, if the engine then runs out of it.", why: "Each running request keeps its tokens in the device's memory.", setting: "--gpu-memory-utilization 0.95"},
				advice{text: "Look for limits of concurrency in clients and gateways once requests no longer wait here."},
			)
		},
		caveats: func(s *state) []string {
			c := []string{"If max_num_seqs in the configuration is not the engine's, this is wrong."}
			if math.IsNaN(s.f.Marginal) {
				c = append(c, "Only full batches were seen, so how a step grows with the batch is not known; that a limit this low binds before the device does is experience.")
			}
			return c
		},
	},
	{
		verdict: QueueBoundKV, title: "Requests wait although the batch has places", model: true,
		when: []allOf{join(queue, allOf{
			{fillWaiting.is("<", "full_batch")},
			{fillMax.is("<", "full_batch")},
			{prefillOfDevice.is("<=", "prefill_share").orUnknown(noMode)},
			{prefillOfRequests.is("<=", "prefill_share").orUnknown(noPrefill)},
			{promptTokens.is("<=", "prefill_tokens").orUnknown(noPrefill)},
		})},
		sentence: func(s *state) string {
			return fmt.Sprintf("%s though only %s of the %d places in the batch are taken: room for tokens, or the tokens of a step, is the likely limit.",
				waitText(s), percent(s.f.FillWaiting), s.in.MaxNumSeqs)
		},
		gain: func(s *state) *Gain {
			full := float64(s.in.MaxNumSeqs) / stepBy(s.f.StepLawA, s.f.StepLawB, float64(s.in.MaxNumSeqs))
			return gain(full/(s.f.Batch/stepBy(s.f.StepLawA, s.f.StepLawB, s.f.Batch)), "throughput", "M/(a + b M) over B/(a + b B) by the step law, M = max_num_seqs")
		},
		actions: func(s *state) []Action {
			return s.forEngine(
				advice{text: "Look at the engine's own metrics first: vllm:gpu_cache_usage_perc near 1, or vllm:num_preemptions_total that grows, say that it is the memory.", why: "Spans show neither.", only: "v0"},
				advice{text: "Look at the engine's own metrics first: vllm:kv_cache_usage_perc near 1, or vllm:num_preemptions_total that grows, say that it is the memory.", why: "Spans show neither.", only: "v1"},
				advice{text: "Look at the engine's own metrics first: how full its memory for tokens is, and whether it puts running requests back.", why: "Spans show neither.", only: "others"},
				advice{text: "Keep keys and values in 8 bits: twice as many tokens fit.", why: "Check the answers' quality: scales matter.", setting: "--kv-cache-dtype fp8"},
				advice{text: "Give the engine more of the device's memory.", why: "All beyond the weights holds tokens.", setting: "--gpu-memory-utilization 0.95"},
				advice{text: "Keep the common beginnings of prompts once.", why: "Requests that begin alike then share their tokens.", setting: "--enable-prefix-caching"},
				advice{text: "If it is the tokens of a step and not the memory, allow more.", why: "Waiting prompts come in sooner, at the cost of longer steps.", setting: "--max-num-batched-tokens 16384"},
				advice{text: "Spread the model over more devices.", why: "Each then has more memory left for tokens.", setting: "--tensor-parallel-size <devices>"},
			)
		},
		caveats: func(*state) []string {
			return []string{"Spans show neither the memory for tokens nor requests that were put back: which of the limits binds is inferred.", "If max_num_seqs in the configuration is not the engine's, this is wrong."}
		},
	},
	{
		verdict: HostBound, title: "The device waits for its host",
		when:     []allOf{{{occupancy.is(">", "host_occupancy")}, {wait.is(">", "host_wait")}}},
		sentence: hostSentence, cause: hostCause,
		gain: func(s *state) *Gain {
			return gain(s.f.Occupancy/s.f.Utilization, "throughput", "occupancy / device utilization (Amdahl's law: the device never waits)")
		},
		actions: hostActions,
		caveats: func(*state) []string {
			return []string{"Utilization is forward passes only: sampling and logits on the device count as waiting.", "With pipeline parallelism the forward times of all stages are added, and the device waits more than this says."}
		},
	},
	{
		verdict: OverloadBuilding, title: "More requests come than are served", model: true,
		when: []allOf{join(queue, allOf{{waitingGrowth.is(">", "0")}, {ttftGrowth.is(">", "0")}})},
		sentence: func(s *state) string {
			text := fmt.Sprintf("%s and %s more do each minute; the time to first token grows by %s a minute.",
				queueText(s), significant(60*s.f.WaitingSlope), seconds(60*s.in.Requests.TTFTSlope))
			if limit := s.in.TTFTObjective.Seconds(); limit > 0 {
				switch left := (limit - s.in.Requests.TTFT.Mean) / s.in.Requests.TTFTSlope; {
				case left > 0 && left < 3600:
					text += fmt.Sprintf(" At that rate the mean passes the objective of %s in %s.", seconds(limit), seconds(math.Round(left)))
				case left <= 0:
					text += fmt.Sprintf(" The mean is over the objective of %s already.", seconds(limit))
				}
			}
			return text
		},
		actions: func(s *state) []Action {
			return append(s.forEngine(
				advice{text: "Add replicas now, or refuse requests at the gateway until they are there.", why: "A queue that grows helps nobody: every request waits longer than the one before."},
			), sizing(s)...)
		},
		caveats: func(s *state) []string {
			c := []string{"A burst that ends looks the same until it ends."}
			if s.in.MaxNumSeqs == 0 {
				c = append(c, "The engine's limit of requests in a batch is not configured (engine::max_num_seqs): that limit may bind, and not the device.")
			}
			return c
		},
	},
	{
		verdict: DeviceBoundFull, title: "The engine is full",
		when: []allOf{
			{{occupancy.is(">", "full_occupancy")}, {wait.is("<=", "host_wait").orUnknown(noDevice)}, {capacityAtLeast.is(">=", "full_capacity")}},
			join(allOf{{occupancy.is(">", "full_occupancy")}, {wait.is("<=", "host_wait").orUnknown(noDevice)}}, queue, allOf{{fillWaiting.is(">=", "full_batch")}, {capacityAtMost.is(">=", "admission_capacity").orUnknown("-")}}),
		},
		sentence: func(s *state) string {
			text := fmt.Sprintf("A request runs %s of the time", percent(s.f.Occupancy))
			if !math.IsNaN(capacityAtLeast.value(s)) {
				text += fmt.Sprintf(" and %s of the engine's capacity is used", capacityText(s))
			}
			if !math.IsNaN(waitingValue(s)) {
				text += fmt.Sprintf("; %s requests wait on average", waitingText(s))
			}
			return text + "."
		},
		actions: func(s *state) []Action {
			spec := advice{}
			if s.f.Marginal < s.c.Knee {
				spec = speculative
			}
			return append(sizing(s), s.forEngine(
				advice{text: "Add replicas, or spread the model over more or faster devices.", why: "Nothing in this engine is left to tune that would give much."},
				advice{text: "Use a quantized model (fp8 or 4 bit).", why: "A step reads fewer bytes and computes faster."},
				advice{text: "Shorten answers: a lower limit of tokens, or prompts that ask for less.", why: "Output tokens are what the capacity is counted in."},
				spec,
			)...)
		},
		caveats: func(*state) []string { return nil },
	},
	{
		verdict: DeviceBoundPastKnee, title: "Batches too large for the objective", model: true,
		when: []allOf{{
			{capacityAtLeast.is(">=", "knee_capacity")},
			{capacityAtMost.is("<", "full_capacity")},
			{marginal.is(">", "knee")},
			{tpotMiss.is(">", "1")},
		}},
		sentence: func(s *state) string {
			text := fmt.Sprintf("No queue, but a token takes %s (95th percentile) against an objective of %s: %s of a step grows with the batch of %s.",
				seconds(s.in.Requests.TPOT.P95), seconds(s.in.TPOTObjective.Seconds()), percent(s.f.Marginal), significant(s.f.Batch))
			if b := objectiveBatch(s); b >= 1 {
				text += fmt.Sprintf(" A batch of %d is the most that meets it.", int(b))
			}
			return text
		},
		gain: func(s *state) *Gain {
			if b := objectiveBatch(s); b >= 1 && b < s.f.Batch {
				return saving(stepBy(s.f.StepLawA, s.f.StepLawB, b)/stepBy(s.f.StepLawA, s.f.StepLawB, s.f.Batch), "the time per output token", "(a + b B*) / (a + b B), B* = (objective - a) / b")
			}
			return nil
		},
		actions: func(s *state) []Action {
			limit := advice{text: "Send this engine fewer requests.", why: "No batch meets the objective by the step law."}
			if b := objectiveBatch(s); b >= 1 {
				limit = advice{text: "Limit the batch to what meets the objective.", why: "Further requests then wait before their first token instead of slowing all others.", setting: fmt.Sprintf("--max-num-seqs %d", int(b))}
			}
			return append(sizing(s), s.forEngine(limit, advice{text: "Route requests to engines with smaller batches, or add replicas."})...)
		},
		caveats: func(*state) []string {
			return []string{"The step law leaves out the length of the contexts; the batch that meets the objective is a mean."}
		},
	},
	{
		verdict: PrefillHeavy, title: "Prompts take most of the time", doubt: func(s *state) bool { return s.f.Mode != timeline.ModeMasked },
		when: []allOf{{
			{occupancy.is(">", "headroom_occupancy")},
			{prefillOfDevice.is(">", "prefill_share"), prefillOfRequests.is(">", "prefill_share"), promptTokens.is(">", "prefill_tokens")},
		}},
		sentence: func(s *state) string {
			if v := prefillOfDevice.value(s); v > s.c.PrefillShare {
				return fmt.Sprintf("Prompts take %s of the device's time (median prompt %s tokens, median output %s).", percent(v), significant(s.in.Requests.Input.P50), significant(s.in.Requests.Output.P50))
			}
			if v := promptTokens.value(s); v > s.c.PrefillTokens {
				return fmt.Sprintf("An average step reads %s tokens of prompts beside decoding for %s requests (median prompt %s tokens, median output %s): prompts are likely to be most of it.", significant(v), significant(s.f.Batch), significant(s.in.Requests.Input.P50), significant(s.in.Requests.Output.P50))
			}
			return fmt.Sprintf("Requests spend %s of their running time before the first token (median prompt %s tokens, median output %s).", percent(s.in.Requests.PrefillShare), significant(s.in.Requests.Input.P50), significant(s.in.Requests.Output.P50))
		},
		gain: func(s *state) *Gain {
			return gain(1/(1-prefillOfDevice.value(s)), "throughput", "1 / (1 - prompts' share of the device's time): no prompt is ever computed")
		},
		actions: func(s *state) []Action {
			return s.forEngine(
				advice{text: "Keep the common beginnings of prompts.", why: "What was computed before is not computed again; look at the hit rate in the engine's metrics.", setting: "--enable-prefix-caching"},
				advice{text: "Compute prompts in pieces beside decoding.", why: "Both then share the weights that a step reads.", setting: "--enable-chunked-prefill", only: "v0"},
				advice{text: "Allow more tokens in a step.", why: "vLLM recommends more than 8192 for throughput.", setting: "--max-num-batched-tokens 16384"},
				advice{text: "Serve prompts and decoding from different engines (disaggregated prefill), or shorten prompts."},
			)
		},
		caveats: func(s *state) []string {
			if s.f.Mode != timeline.ModeMasked {
				return []string{"Prompts share steps with decoding here, so the device's time for them is inferred: from the tokens that a step reads, and from what an H100 needs for them. Cached beginnings count as tokens but take no time."}
			}
			return nil
		},
	},
	{
		verdict: PrefillInterference, title: "Prompts hold up decoding",
		when: []allOf{{
			{stalled.is(">", "interference_share")},
			{spread.is(">", "interference_spread")},
		}},
		sentence: func(s *state) string {
			return fmt.Sprintf("For %s of the time there is work, decoding stops for the prompts of others: the slowest hundredth of requests makes a token in %s, half of them in %s.",
				percent(stalled.value(s)), seconds(s.in.Requests.TPOT.P99), seconds(s.in.Requests.TPOT.P50))
		},
		gain: func(s *state) *Gain {
			return saving(1-stalled.value(s), "the time per output token", "1 - share of the time that prompts stop decoding")
		},
		actions: func(s *state) []Action {
			return s.forEngine(
				advice{text: "Compute prompts in pieces beside decoding; a small budget keeps steps short.", why: "A prompt then lengthens steps a little instead of stopping all others.", setting: "--enable-chunked-prefill --max-num-batched-tokens 2048", only: "v0"},
				advice{text: "Upgrade to vLLM V1, which always does that.", only: "v0"},
			)
		},
		caveats: func(*state) []string { return nil },
	},
	{
		verdict: FrontendBound, title: "Time goes in the API server",
		when: []allOf{{
			{frontend.is(">", "frontend_share")},
			{queueShare.is("<", "frontend_queue")},
		}},
		sentence: func(s *state) string {
			return fmt.Sprintf("Requests spend %s of their time outside the engine core (%s of %s on average), and %s waiting in it.",
				percent(s.in.Requests.FrontendShare), seconds(s.in.Requests.FrontendShare*s.in.Requests.E2E.Mean), seconds(s.in.Requests.E2E.Mean), percent(s.in.Requests.QueueShare))
		},
		gain: func(s *state) *Gain {
			return saving(1-s.in.Requests.FrontendShare, "the request duration", "1 - share of the time outside the engine core")
		},
		actions: func(s *state) []Action {
			return s.forEngine(
				advice{text: "Run more API server processes.", why: "Reading requests, chat templates, tokenising, images and sending tokens then use several CPU cores.", setting: "--api-server-count 4", only: "v1"},
				advice{text: "Send several tokens at once.", why: "Every message to a client costs the API server the same, whatever is in it.", setting: "--stream-interval 10", only: "v1"},
				advice{text: "Give the API server more or faster CPU cores, and log less per request."},
			)
		},
		caveats: func(*state) []string {
			return []string{"A client that reads its stream slowly can do the same.", "Request duration and engine times come from two clocks."}
		},
	},
	{
		verdict: DecodeHeadroom, title: "Room for more requests", model: true,
		when: []allOf{{
			{occupancy.is(">", "headroom_occupancy")},
			{wait.is("<=", "host_wait").orUnknown(noDevice)},
			{marginal.is("<", "headroom_marginal")},
			{capacityAtMost.is("<", "headroom_capacity")},
		}},
		sentence: func(s *state) string {
			return fmt.Sprintf("A request runs %s of the time, but only %s of a step grows with the batch of %s, and %s of the capacity is used: more requests cost little.",
				percent(s.f.Occupancy), percent(s.f.Marginal), significant(s.f.Batch), capacityText(s))
		},
		gain: func(s *state) *Gain {
			return room(s, "throughput")
		},
		actions: func(s *state) []Action {
			return append(s.forEngine(
				advice{text: "Send more requests here: concentrate the traffic on fewer replicas, or raise the clients' concurrency.", why: "Decoding reads the same weights for one request as for many."},
				speculative,
			), sizing(s)...)
		},
		caveats: func(*state) []string { return nil },
	},
	{
		verdict: WorkloadShift, title: "Other work than the day before",
		when: []allOf{{
			{knownBefore.is(">=", "shift_hours")},
			{workloadShift.is(">", "shift_ratio")},
			{lawShift.is("<=", "shift_law")},
		}},
		sentence: func(s *state) string {
			v, what := shiftOf(s)
			b, r := s.in.Before, &s.in.Requests
			now, before, unit := r.Rate, b.Rate, " requests/s"
			switch what {
			case "median prompt":
				now, before, unit = r.Input.P50, b.Input.P50, " tokens"
			case "median output":
				now, before, unit = r.Output.P50, b.Output.P50, " tokens"
			}
			return fmt.Sprintf("The %s is %s%s, %s in the day before (factor %s), while a step takes as long as then: the work changed, not the engine.",
				what, significant(now), unit, significant(before), significant(v))
		},
		actions: func(s *state) []Action {
			return append([]Action{{Text: "Check the capacity for this workload, and ask the clients whether it will stay.", Why: "Limits and replicas were chosen for another one."}}, sizing(s)...)
		},
		caveats: func(*state) []string {
			return []string{"Rates differ by hour of the day as well."}
		},
	},
	{
		verdict: Imbalance, title: "Engines of this model have uneven work",
		when: []allOf{{
			{imbalance.is(">", "imbalance_ratio")},
			{mostUsed.is(">=", "imbalance_capacity")},
		}},
		sentence: func(s *state) string {
			p := s.in.Peers
			least := ""
			if p.AtLeast {
				least = "at least "
			}
			return fmt.Sprintf("Of the %d engines of this model one uses %s%s of its capacity and another %s%s.", p.Engines, least, percent(p.CapacityMax), least, percent(p.CapacityMin))
		},
		gain: func(*state) *Gain { return nil },
		actions: func(s *state) []Action {
			return s.forEngine(advice{text: "Route by the engines' waiting requests or tokens in flight, not in turn; check for sticky sessions.", why: "Requests differ in length: equal counts are not equal work."})
		},
		caveats: func(*state) []string {
			return []string{"Engines on unlike devices, or with unlike limits, are uneven on purpose."}
		},
	},
}

// waitText says how many requests wait.
func waitText(s *state) string {
	if math.IsNaN(waitingValue(s)) {
		return fmt.Sprintf("Requests spend %s of their time to the first token waiting", percent(s.in.Requests.QueueTTFTShare))
	}
	return queueText(s) + " on average"
}

// queueText begins a sentence with how many wait.
func queueText(s *state) string {
	text := waitingText(s)
	return strings.ToUpper(text[:1]) + text[1:] + " requests wait"
}

// waitingText is how many requests wait: a range where it is known to no better than one request and a twentieth.
func waitingText(s *state) string {
	if waitingAtLeast(s) {
		return "at least " + significant(s.f.WaitingLower)
	}
	if lower, upper := s.f.WaitingLower, s.f.WaitingUpper; upper-lower > 2+0.1*s.f.Waiting {
		return significant(lower) + " to " + significant(upper)
	}
	return significant(s.f.Waiting)
}

var speculative = advice{text: "Guess several tokens a step (speculative decoding).", why: "It pays where the device has room; the more so the more answers repeat their prompts.", setting: `--speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'`}

// objectiveBatch is B* = (objective - a)/b, rounded down; NaN where there is none.
func objectiveBatch(s *state) float64 {
	b := (s.in.TPOTObjective.Seconds() - s.f.StepLawA) / s.f.StepLawB
	if !(b >= 1 && b < 1e6) {
		return math.NaN()
	}
	return math.Floor(b)
}

// room is what the capacity that is not used gives at least. The most would be by the lower end of what is used, and where little is used
// that end is near nothing.
func room(s *state, of string) *Gain {
	g := gain(1/capacityAtMost.value(s), of, "1 / the most of the capacity that may be used")
	if g != nil {
		g.AtLeast = true
	}
	return g
}

// gain is nil where the factor is none.
func gain(factor float64, of, formula string) *Gain {
	if !(factor > 1 && factor < 1e3) { // also NaN
		return nil
	}
	return &Gain{Factor: factor, Of: of, Formula: formula}
}

// saving is a gain that makes something less; nil where the factor is none.
func saving(factor float64, of, formula string) *Gain {
	if !(factor > 1e-3 && factor < 1) { // also NaN
		return nil
	}
	return &Gain{Factor: factor, Of: of, Formula: formula}
}

func hostSentence(s *state) string {
	text := fmt.Sprintf("The device waits for its host %s of the time there is work", percent(s.f.Wait))
	if s.f.HostGap > 0 && s.f.Step > 0 {
		text += fmt.Sprintf(" (%s of every %s step)", seconds(s.f.HostGap), seconds(s.f.Step))
	}
	switch hostCause(s) {
	case CauseScheduler:
		text += fmt.Sprintf("; the scheduler takes %s", percent(stateShare(timeline.StateScheduler)(s)))
	case CauseExecute:
		text += fmt.Sprintf("; preparing and sampling take %s", percent(stateShare(timeline.StateExecuteHost)(s)))
	case CauseOutside:
		text += fmt.Sprintf("; work outside the engine's step takes %s", percent(stateShare(timeline.StateHostOther)(s)))
	case CauseSmallBatch:
		text += fmt.Sprintf("; a batch is only %s requests", significant(s.f.Batch))
	}
	return text + "."
}

// The causes that narrow HostBound down.
const (
	CauseScheduler  = "scheduler"
	CauseExecute    = "execute"
	CauseOutside    = "outside"
	CauseSmallBatch = "small_batch"
)

// hostCause is the part of the host's time that is most over its threshold; else a small batch; else none.
func hostCause(s *state) string {
	best, cause := 1.0, ""
	for _, p := range []struct {
		state timeline.State
		limit float64
		cause string
	}{
		{timeline.StateScheduler, s.c.HostScheduler, CauseScheduler},
		{timeline.StateExecuteHost, s.c.HostExecute, CauseExecute},
		{timeline.StateHostOther, s.c.HostOutside, CauseOutside},
	} {
		// The schedulers's lower threshold makes it a cause sooner, but the largest part is where the time is.
		if v := stateShare(p.state)(s); v > p.limit && (cause == "" || v > best) {
			best, cause = v, p.cause
		}
	}
	if cause == "" && s.f.Batch < s.c.SmallBatch {
		cause = CauseSmallBatch
	}
	return cause
}

func hostActions(s *state) []Action {
	upgrade := advice{text: "Upgrade to vLLM V1: its scheduler and API server keep the host out of the device's way.", why: "Its spans no longer say how long the device waits; compare the time per output token.", only: "v0"}
	newer := advice{text: "Upgrade to vLLM 0.6.0 or newer: its API server has a process of its own, and output is processed during the next step.", only: "v0"}
	steps := advice{text: "Schedule once for several forward passes.", why: "The scheduler's pass is then paid once for all of them.", setting: "--num-scheduler-steps 8", only: "v0"}
	graphs := advice{text: "Do not pass --enforce-eager: CUDA graphs launch a step's kernels at once.", about: "--enforce-eager", only: "v0"}
	async := advice{text: "Do not pass --disable-async-output-proc.", about: "--disable-async-output-proc", only: "v0"}
	simpler := advice{text: "Ask for less beside the tokens: logprobs, penalties and guided decoding are computed by the host."}
	cores := advice{text: "Give the engine faster CPU cores of its own, and log less per request."}
	concentrate := advice{text: "Serve the traffic from fewer replicas.", why: fmt.Sprintf("The host's time is paid per step: a batch of %s pays it for few tokens.", significant(s.f.Batch))}
	general := advice{text: "Profile the engine's host process."}
	var all []advice
	switch hostCause(s) {
	case CauseScheduler:
		all = []advice{steps, upgrade, concentrate, cores}
	case CauseExecute:
		all = []advice{upgrade, graphs, async, simpler, cores}
	case CauseOutside:
		all = []advice{newer, async, cores, upgrade}
	case CauseSmallBatch:
		all = []advice{concentrate, steps, upgrade}
	default:
		all = []advice{upgrade, steps, cores, general}
	}
	if s.f.Batch >= s.c.SmallBatch { // nothing to concentrate
		for i := range all {
			if all[i].text == concentrate.text {
				all[i] = advice{}
			}
		}
	} else if hostCause(s) != CauseSmallBatch && hostCause(s) != CauseScheduler {
		all = append(all, concentrate)
	}
	return s.forEngine(all...)
}
