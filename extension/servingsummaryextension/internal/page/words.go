// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// What names of the summary are called on the page, and which colour and shape they have.

import (
	"strings"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// Severity of a verdict. Each has a colour and a shape, so that neither is the only sign.
type Severity string

// The severities, gravest first.
const (
	Critical Severity = "critical" // users wait, and it does not end by itself
	Warning  Severity = "warning"  // speed or a device is lost
	Info     Severity = "info"     // money could be saved
	OK       Severity = "ok"
	Unknown  Severity = "unknown" // nothing can be said
)

var severities = map[string]Severity{
	diagnosis.NoVerdict.String():           Unknown,
	diagnosis.Idle.String():                Info,
	diagnosis.QueueBoundAdmission.String(): Critical,
	diagnosis.QueueBoundKV.String():        Critical,
	diagnosis.HostBound.String():           Warning,
	diagnosis.DeviceBoundFull.String():     Critical,
	diagnosis.DeviceBoundPastKnee.String(): Warning,
	diagnosis.PrefillHeavy.String():        Warning,
	diagnosis.PrefillInterference.String(): Warning,
	diagnosis.DecodeHeadroom.String():      Info,
	diagnosis.FrontendBound.String():       Warning,
	diagnosis.OverloadBuilding.String():    Critical,
	diagnosis.WorkloadShift.String():       Warning,
	diagnosis.Imbalance.String():           Warning,
	diagnosis.Healthy.String():             OK,
}

// severityOf is the severity of a verdict's name. A verdict that this page does not know is worth a look.
func severityOf(verdict string) Severity {
	if s, ok := severities[verdict]; ok {
		return s
	}
	if verdict == "" {
		return Unknown
	}
	return Warning
}

// engineSeverity is that of the verdict, unless the verdict is of the past or there is none yet.
func engineSeverity(e *summary.Engine) Severity {
	if e.Status == summary.StatusStale || e.Status == summary.StatusCollecting {
		return Unknown
	}
	return findingSeverity(&e.Diagnosis.Finding)
}

// findingSeverity is that of its verdict; that requests stopped ending is no verdict, but worth a look.
func findingSeverity(f *summary.Finding) Severity {
	if hasStopped(f) {
		return Warning
	}
	return severityOf(f.Verdict)
}

func hasStopped(f *summary.Finding) bool {
	return f.Verdict == diagnosis.NoVerdict.String() && f.Cause == diagnosis.CauseStopped
}

// findingLabel is its verdict in one or two words.
func findingLabel(f *summary.Finding) string {
	if hasStopped(f) {
		return "Stopped"
	}
	return verdictLabel(f.Verdict)
}

var verdictLabels = map[string]string{
	diagnosis.NoVerdict.String():           "No verdict",
	diagnosis.Idle.String():                "Idle",
	diagnosis.QueueBoundAdmission.String(): "Queue: admission limit",
	diagnosis.QueueBoundKV.String():        "Queue: memory",
	diagnosis.HostBound.String():           "Host-bound",
	diagnosis.DeviceBoundFull.String():     "Device full",
	diagnosis.DeviceBoundPastKnee.String(): "Past the knee",
	diagnosis.PrefillHeavy.String():        "Prefill-heavy",
	diagnosis.PrefillInterference.String(): "Prefill interference",
	diagnosis.DecodeHeadroom.String():      "Headroom",
	diagnosis.FrontendBound.String():       "Front end",
	diagnosis.OverloadBuilding.String():    "Overload building",
	diagnosis.WorkloadShift.String():       "Workload shift",
	diagnosis.Imbalance.String():           "Imbalance",
	diagnosis.Healthy.String():             "Healthy",
}

func verdictLabel(verdict string) string {
	if label, ok := verdictLabels[verdict]; ok {
		return label
	}
	if verdict == "" {
		return "No verdict yet"
	}
	return strings.ReplaceAll(verdict, "_", " ")
}

var statusLabels = map[summary.Status]string{
	summary.StatusCollecting: "Collecting",
	summary.StatusCurrent:    "Current",
	summary.StatusIdle:       "No requests",
	summary.StatusStale:      "Stale",
}

// state is one kind of an engine's time.
type state struct {
	name, label, what string
}

// states in the order in which they are stacked, from the baseline: first what the device does, then where it waits for the host.
var states = []state{
	{"decode", "Decode", "forward passes that make tokens"},
	{"prefill", "Prefill", "forward passes over prompts"},
	{"occupied", "A request ran", "the spans say no more about it"},
	{"execute_host", "Host in the executor", "input preparation, logits and sampling between forward passes"},
	{"scheduler", "Scheduler", "choosing what runs in the next step"},
	{"host_other", "Other host time", "output processing, detokenising, API server"},
	{"unknown", "Withheld", "too few requests seen, several engines in one, or sampled"},
	{"idle", "Nothing to do", "no request ran"},
}

// stateGroups are what the states mean for the device.
var stateGroups = []struct {
	class, label string
	states       []string
}{
	{"device", "Device works", []string{"decode", "prefill"}},
	{"occupied", "A request ran", []string{"occupied"}},
	{"host", "Device waits for the host", []string{"execute_host", "scheduler", "host_other"}},
	{"unknown", "Withheld", []string{"unknown"}},
	{"idle", "Nothing to do", []string{"idle"}},
}

// parts of a request in the order in which they come.
var parts = []state{
	{"queue", "Queue", "before the first step"},
	{"prefill", "Prefill", "from the first step to the first token"},
	{"decode", "Decode", "from the first token to the last"},
	{"frontend", "Front end", "outside the engine core: tokenising, detokenising, HTTP"},
}

var modes = map[string]string{
	"masked":  "Steps are prefill or decode, never both (vLLM V0's default).",
	"mixed":   "Prompts in chunks share steps with decoding (chunked prefill).",
	"unknown": "The spans do not tell whether prompts share steps with decoding.",
}

var tiers = map[string]string{
	"device":    "The engine reports forward times: device figures are known.",
	"host":      "The engine reports scheduler times but no forward times: the host's part is known, the device's is not.",
	"occupancy": "The engine reports neither forward nor scheduler times: whether a request ran is known, not what the device did.",
}

var findings = map[string]string{
	"mixed_engines":        "The requests are of more than one engine. Figures of the device are withheld. Give each engine a name of its own.",
	"sampled":              "Only a part of the requests comes here. What that breaks is withheld. Derive metrics before the sampler.",
	"rounded_timestamps":   "Something rounded the durations, so that requests of one step cannot be matched.",
	"speculative_decoding": "A step yields several tokens: the step time is the time per accepted token.",
	"async_output":         "Output is processed during the next step: the first token's time includes a part of it.",
	"thinned":              "Too many requests to keep all: counts are scaled, figures of the device withheld.",
	"contradiction":        "The forward times cannot all be true of one device.",
}

func findingText(name string) string {
	if text, ok := findings[name]; ok {
		return text
	}
	return strings.ReplaceAll(name, "_", " ")
}

// engineName is what people call the engine; where the service is known, the instance tells it from its replicas.
func engineName(e *summary.Engine) string {
	switch {
	case e.Service == "" || e.Service == e.Instance:
		return e.Instance
	case e.Instance == "":
		return e.Service
	case strings.HasPrefix(e.Instance, e.Service):
		return e.Instance
	default:
		return e.Service + " / " + e.Instance
	}
}

func engineKind(e *summary.Engine) string {
	kinds := map[string]string{"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM", "tgi": "TGI", "triton": "Triton"}
	kind := kinds[e.Kind]
	if kind == "" {
		if kind = e.Kind; kind == "" || kind == "unknown" {
			kind = "Unknown engine"
		}
	}
	if e.Generation != "" {
		kind += " " + strings.ToUpper(e.Generation)
	}
	return kind
}

var causes = map[string]string{
	"scheduler":   "the scheduler",
	"execute":     "the model executor, between forward passes",
	"outside":     "work outside of the engine's step",
	"small_batch": "batches that are too small",
}

// causeText is what a finding was narrowed down to.
func causeText(name string) string {
	if text, ok := causes[name]; ok {
		return text
	}
	return strings.ReplaceAll(name, "_", " ")
}
