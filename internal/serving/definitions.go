// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Every metric that is derived from single requests (those of windows are in windows.go): name, unit, what it says, and what it needs. The one place that names them; docs/metrics.md is tested against it.

import (
	"slices"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// Definition describes one metric.
type Definition struct {
	Name, Unit, Description string
	// Kind is histogram, counter or gauge.
	Kind string
	// Attributes are those the metric has besides the ones of its series.
	Attributes []string
	// Buckets are the default bounds of a histogram, in Unit.
	Buckets []float64
}

// Attributes of the series of request metrics.
const (
	attrProvider  = "gen_ai.provider.name"
	attrModel     = "gen_ai.response.model"
	attrOperation = "gen_ai.operation.name"
	attrErrorType = "error.type"
	attrOverflow  = "otel.metric.overflow"

	attrTokenType = "gen_ai.token.type"
	attrStage     = "stage"
	attrComponent = "component"
	attrSLO       = "slo"

	attrEngineGeneration = "llm.serving.engine.generation"
	attrEngineKey        = "llm.serving.engine.key"
	attrEngineMayMix     = "llm.serving.engine.may_mix_replicas"
	attrEngineStepMode   = "llm.serving.engine.step_mode"

	attrStat    = "stat"
	attrBasis   = "basis"
	attrState   = "state"
	attrFinding = "finding"
	attrVerdict = "verdict"

	attrModelName = "model_name" // vLLM's own label
)

func ownAttributes() []string {
	return []string{attrProvider, attrModel, attrOperation, attrErrorType, attrTokenType, attrStage, attrComponent, attrSLO, attrModelName}
}

// histogramID indexes a series' histograms.
type histogramID uint8

const (
	histDuration histogramID = iota
	histTTFT
	histTPOT
	histQueue
	histScheduler
	histForward
	histExecute
	histPrefill
	histDecode
	histInference
	histShares       // NumShares histograms from here on
	histInputTokens  = histShares + histogramID(llmrequest.NumShares)
	histOutputTokens = histInputTokens + 1

	numOwnHistograms = histOutputTokens + 1
)

// Default bounds. The first three and tokens are the ones of the semantic conventions for generative AI
// (v1.28.0 on).
var (
	durationBuckets = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	ttftBuckets     = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	tpotBuckets     = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}
	tokenBuckets    = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}

	// From the scheduler's milliseconds to the minutes of an overloaded queue or a long answer.
	timeBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250}
	// Up to 1, finer at both ends, and above it where steps or pipeline stages are counted several times.
	shareBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1, 1.5, 2, 4, 8}
)

// histogramDefinition is one histogram of a series. Two may be of one metric, told apart by an attribute.
type histogramDefinition struct {
	Definition
	attribute, value string
}

var histogramDefinitions = [numOwnHistograms]histogramDefinition{
	histDuration:  timeHistogram("gen_ai.server.request.duration", "Time from arrival to last token (e2e).", durationBuckets),
	histTTFT:      timeHistogram("gen_ai.server.time_to_first_token", "Time from arrival to first token of successful requests.", ttftBuckets),
	histTPOT:      timeHistogram("gen_ai.server.time_per_output_token", "(e2e - time to first token) / (output tokens - 1) of successful requests with 2 output tokens or more.", tpotBuckets),
	histQueue:     timeHistogram("llm.serving.request.time_in_queue", "Time from arrival (vLLM V0) or from entering the engine core (V1) to the first schedule.", timeBuckets),
	histScheduler: timeHistogram("llm.serving.request.time_in_scheduler", "Sum of the scheduler passes while the request ran.", timeBuckets),
	histForward:   timeHistogram("llm.serving.request.time_in_model_forward", "Sum of the device's forward passes that the request took part in.", timeBuckets),
	histExecute:   timeHistogram("llm.serving.request.time_in_model_execute", "Sum of the host's wall time of the model executions that the request took part in.", timeBuckets),
	histPrefill:   timeHistogram("llm.serving.request.time_in_model_prefill", "Time from first schedule to first token.", timeBuckets),
	histDecode:    timeHistogram("llm.serving.request.time_in_model_decode", "Time from first to last token.", timeBuckets),
	histInference: timeHistogram("llm.serving.request.time_in_model_inference", "Time from first schedule to last token.", timeBuckets),

	histShares + histogramID(llmrequest.QueueShare):       shareHistogram("queue", "queue / e2e"),
	histShares + histogramID(llmrequest.SchedulerShare):   shareHistogram("scheduler", "scheduler / (e2e - queue)"),
	histShares + histogramID(llmrequest.ForwardShare):     shareHistogram("forward", "forward / (e2e - queue); not the utilisation of the device"),
	histShares + histogramID(llmrequest.ExecuteShare):     shareHistogram("execute", "execute / (e2e - queue)"),
	histShares + histogramID(llmrequest.ExecuteHostShare): shareHistogram("execute_host", "(execute - forward) / (e2e - queue)"),
	histShares + histogramID(llmrequest.PrefillShare):     shareHistogram("prefill", "prefill / (prefill + decode)"),
	histShares + histogramID(llmrequest.FrontendShare):    shareHistogram("frontend", "1 - (queue + inference) / e2e"),

	histInputTokens:  tokenHistogram("input"),
	histOutputTokens: tokenHistogram("output"),
}

func timeHistogram(name, description string, bounds []float64) histogramDefinition {
	return histogramDefinition{Definition: Definition{Name: name, Unit: "s", Description: description, Kind: "histogram", Buckets: bounds}}
}

func shareHistogram(share, formula string) histogramDefinition {
	return histogramDefinition{Definition: Definition{
		Name: shareName(share), Unit: "1", Description: "Share of each request's time: " + formula + ".", Kind: "histogram", Buckets: shareBuckets,
	}}
}

func shareName(share string) string { return "llm.serving.request." + share + ".share" }

func tokenHistogram(tokenType string) histogramDefinition {
	return histogramDefinition{
		Definition: Definition{
			Name: "llm.serving.request.tokens", Unit: "{token}", Description: "Tokens of each request.", Kind: "histogram",
			Attributes: []string{attrTokenType}, Buckets: tokenBuckets,
		},
		attribute: attrTokenType, value: tokenType,
	}
}

// ShareAttribute is the name of the span attribute with a request's share, which is the metric's.
func ShareAttribute(share llmrequest.Share) string {
	return histogramDefinitions[histShares+histogramID(share)].Name
}

// The counters, each with the values of its attribute in the order of the accumulator's fields.
var (
	requestCount  = Definition{Name: "llm.serving.request.count", Unit: "{request}", Description: "Finished requests seen.", Kind: "counter"}
	stageTime     = Definition{Name: "llm.serving.request.stage.time", Unit: "s", Description: "Time of requests by stage; the stages add up to e2e.", Kind: "counter", Attributes: []string{attrStage}}
	componentTime = Definition{Name: "llm.serving.request.component.time", Unit: "s", Description: "Running time of requests by component; the components add up to e2e - queue.", Kind: "counter", Attributes: []string{attrComponent}}
	tokenCount    = Definition{Name: "llm.serving.token.count", Unit: "{token}", Description: "Tokens of finished requests.", Kind: "counter", Attributes: []string{attrTokenType}}
	goodput       = Definition{Name: "llm.serving.request.goodput", Unit: "{request}", Description: "Finished requests that met the objective.", Kind: "counter", Attributes: []string{attrSLO}}
	engineInfo    = Definition{Name: "llm.serving.engine.info", Unit: "1", Description: "What is known of the engine; always 1.", Kind: "gauge", Attributes: []string{attrProvider, attrEngineGeneration, attrEngineKey, attrEngineMayMix, attrEngineStepMode}}

	stageNames     = [...]string{"queue", "prefill", "decode", "frontend"}
	componentNames = [...]string{"scheduler", "forward", "execute_host", "other"}
	tokenTypeNames = [...]string{"input", "output"}
	sloNames       = [...]string{"ttft", "tpot", "e2e", "all"}
)

// Definitions lists every metric that serving can emit, in the order of emission.
func Definitions() []Definition {
	var all []Definition
	for _, d := range slices.Concat(histogramDefinitions[:], vllmDefinitions[:]) {
		if len(all) == 0 || all[len(all)-1].Name != d.Name {
			all = append(all, d.Definition)
		}
	}
	all = append(all, requestCount, stageTime, componentTime, tokenCount, goodput, engineInfo)
	return append(all, windowDefinitions()...)
}

func isHistogram(name string) bool {
	return slices.ContainsFunc(histogramDefinitions[:], func(d histogramDefinition) bool { return d.Name == name })
}
