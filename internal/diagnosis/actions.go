// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// What to do, by engine: every flag that is printed comes from the catalogue, with the versions and the source it was checked
// against. Engines without a catalogue get the same in words.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// flagged is where a flag of vLLM was looked up: in its first engine (spans of v0.5.1 to v0.10.1) and in its second (v0.10.2 on).
// An empty source: the engine has no such flag, or it does not help there.
type flagged struct {
	flag, does           string
	versionsV0, sourceV0 string
	versionsV1, sourceV1 string
}

const (
	blob      = "https://github.com/vllm-project/vllm/blob/"
	pull      = "https://github.com/vllm-project/vllm/pull/"
	argsV0    = blob + "001999d2f360c2c5da23a916510c273b1a73d06c/vllm/engine/arg_utils.py"
	scheduler = blob + "01230b40128e570a58e54e75f7e55c4d5cd9246d/vllm/config/scheduler.py"
	tuning    = blob + "00620f91ea186ca295a1eb69f4acba9d0efaaaaa/docs/configuration/optimization.md"
	memory    = blob + "009eec3b2b00e1b8afb4bcafb58e9403b2aa1ada/docs/configuration/conserving_memory.md"
)

// catalogue are the flags that actions may name.
var catalogue = []flagged{
	{
		flag: "--max-num-seqs", does: "most requests in one batch",
		versionsV0: "vLLM V0", sourceV0: argsV0, versionsV1: "vLLM V1", sourceV1: scheduler,
	},
	{
		flag: "--max-num-batched-tokens", does: "most tokens in one step; with chunked prefill, how much of the prompts shares a step with decoding",
		versionsV0: "vLLM V0", sourceV0: argsV0, versionsV1: "vLLM V1", sourceV1: tuning,
	},
	{
		flag: "--gpu-memory-utilization", does: "share of the device's memory that vLLM takes; what the weights leave of it holds the tokens of running requests (default 0.9)",
		versionsV0: "vLLM V0", sourceV0: argsV0, versionsV1: "vLLM V1", sourceV1: tuning,
	},
	{
		flag: "--tensor-parallel-size", does: "devices that share the model; leaves more memory for tokens on each",
		versionsV0: "vLLM V0", sourceV0: argsV0, versionsV1: "vLLM V1", sourceV1: tuning,
	},
	{
		flag: "--kv-cache-dtype", does: "type of the cached keys and values; fp8 takes half the memory of 16 bit",
		versionsV0: "vLLM V0 on CUDA 11.8+ and ROCm", sourceV0: argsV0,
		versionsV1: "vLLM V1 on CUDA 11.8+ and ROCm", sourceV1: blob + "0609ba15df1dc858647954fefd6512b394bdb283/docs/features/quantization/quantized_kvcache.md",
	},
	{
		flag: "--enable-prefix-caching", does: "keeps the tokens of prompts that begin alike",
		versionsV0: "vLLM V0", sourceV0: argsV0,
		versionsV1: "vLLM V1", sourceV1: blob + "0fdc121666ceaea138003c6a0a66c271275a76a6/docs/features/automatic_prefix_caching.md",
	},
	{
		flag: "--enable-chunked-prefill", does: "prompts in pieces that share steps with decoding (V1: always)",
		versionsV0: "vLLM V0", sourceV0: argsV0,
	},
	{
		flag: "--num-scheduler-steps", does: "forward passes per scheduler pass",
		versionsV0: "vLLM 0.6.0 to 0.10.0, V0", sourceV0: pull + "7000", // removed by pull request 22138
	},
	{
		flag: "--disable-async-output-proc", does: "turns asynchronous output processing off",
		versionsV0: "vLLM >= 0.6.0, V0", sourceV0: pull + "7049",
	},
	{
		flag: "--enforce-eager", does: "turns CUDA graphs off",
		versionsV0: "vLLM V0", sourceV0: argsV0, versionsV1: "vLLM V1", sourceV1: memory,
	},
	{
		flag: "--async-scheduling", does: "schedules the next step while one runs",
		versionsV1: "vLLM >= 0.10.0, V1 (the default from 0.14.0)", sourceV1: pull + "19970",
	},
	{
		flag: "--api-server-count", does: "API server processes before one engine core",
		versionsV1: "vLLM V1", sourceV1: pull + "17546",
	},
	{
		flag: "--stream-interval", does: "tokens that are sent to the client at once",
		versionsV1: "vLLM >= 0.12.0, V1", sourceV1: pull + "27869",
	},
	{
		flag: "--speculative-config", does: "speculative decoding",
		versionsV0: "vLLM >= 0.8.2, V0", sourceV0: "https://docs.vllm.ai/en/v0.8.2/features/spec_decode.html",
		versionsV1: "vLLM V1", sourceV1: blob + "08fbd35d833451df301100c62fb24a88d4b9d489/docs/features/spec_decode.md",
	},
	{
		flag: "--collect-detailed-traces", does: "adds the device's times to spans (V1: accepted, but adds nothing)",
		versionsV0: "vLLM >= 0.5.1, V0", sourceV0: argsV0,
	},
}

// advice is an action in words and, where the engine is one whose flags were checked, the flag.
type advice struct {
	text, why string
	// setting is what to type; its first word is in the catalogue.
	setting string
	// about is the flag that text is about, where there is nothing to type: not to pass it.
	about string
	// only is v0 or v1 where the advice makes sense for one generation of vLLM, others where it is for all other engines.
	only string
}

func lookUp(flag string) *flagged {
	for i := range catalogue {
		if catalogue[i].flag == flag {
			return &catalogue[i]
		}
	}
	return nil
}

// forEngine turns advice into actions for one engine.
func (s *state) forEngine(all ...advice) []Action {
	var actions []Action
	for _, a := range all {
		engine := "others"
		if s.in.Kind == "vllm" && (s.in.Generation == "v0" || s.in.Generation == "v1") {
			engine = s.in.Generation
		}
		if a.text == "" || a.only != "" && a.only != engine {
			continue
		}
		out := Action{Text: a.text, Why: a.why}
		flag, _, _ := strings.Cut(a.setting+a.about, " ")
		if e := lookUp(flag); e != nil {
			switch {
			case engine == "v0" && e.sourceV0 != "":
				out.Setting, out.Versions, out.Source = a.setting, e.versionsV0, e.sourceV0
			case engine == "v1" && e.sourceV1 != "":
				out.Setting, out.Versions, out.Source = a.setting, e.versionsV1, e.sourceV1
			}
		}
		actions = append(actions, out)
	}
	return actions
}

// sizing is the replicas line: ceil(N capacity used / target).
func sizing(s *state) []Action {
	used, basis := s.f.CapacityUsed()
	if math.IsNaN(used) || basis != "fit" && used > s.c.TargetCapacity { // of the most seen: that proves no need
		return nil
	}
	engines, what := 1.0, "this engine's load needs"
	if p := s.in.Peers; p != nil && p.Engines > 1 {
		engines, what = float64(p.Engines), fmt.Sprintf("%d engines loaded like this one need", p.Engines)
	}
	need := max(math.Ceil(engines*used/s.c.TargetCapacity), 0)
	why := fmt.Sprintf("%s x %s capacity used / %s, rounded up; by the last %s, so look at the day's peak before removing any.",
		number(engines), percent(used), percent(s.c.TargetCapacity), minutes(s))
	if need == 0 {
		return []Action{{Text: "At this load no replica is needed: scale to zero, or let another engine take the requests.", Why: why}}
	}
	if s.f.Waiting >= s.c.QueueWaiting && s.f.WaitingSlope > 0 {
		what += " at least"
		why += " The requests that wait come on top."
	}
	return []Action{{Text: capitalize(fmt.Sprintf("%s %d %s.", what, int(min(need, 1e6)), plural(int(min(need, 1e6)), "replica"))), Why: why}}
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func capitalize(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func minutes(s *state) string {
	return strconv.FormatFloat(math.Round(s.f.Covered.Minutes()*10)/10, 'f', -1, 64) + " min"
}

// percent is v as 41 %.
func percent(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(100*v, 0):
		return "an unknown share"
	case v > 0 && v < .01:
		return "under 1 %"
	}
	return strconv.FormatFloat(math.Round(v*100), 'f', -1, 64) + " %"
}

// seconds is v, in s, as 4.9 ms or 1.7 s.
func seconds(v float64) string {
	unit := "s"
	if math.Abs(v) < 1 {
		v, unit = v*1e3, "ms"
	}
	return significant(v) + " " + unit
}

// significant is v with about three digits.
func significant(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "unknown"
	case a >= 100 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 1:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}
