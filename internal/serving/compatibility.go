// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Metrics under the names of others: every family of vLLM's own /metrics that request spans give exactly,
// with its buckets, so that dashboards made for vLLM work on spans alone.

import "github.com/otelcol-serving/otelcol-serving/internal/llmrequest"

// Bounds as vLLM has them (vllm/v1/metrics/loggers.py at 017e9f4448).
var (
	vllmLatencyBuckets = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	vllmTTFTBuckets    = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	vllmTPOTBuckets    = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	// vLLM ends this series at the model's longest context, which spans do not tell.
	vllmTokenBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000}
)

const (
	histVLLMDuration = numOwnHistograms + iota
	histVLLMTTFT
	histVLLMTPOT
	histVLLMQueue
	histVLLMPrefill
	histVLLMDecode
	histVLLMInference
	histVLLMPromptTokens
	histVLLMGenerationTokens
	histVLLMMaxTokens

	numHistograms     = histVLLMMaxTokens + 1
	numVLLMHistograms = numHistograms - numOwnHistograms
)

var vllmDefinitions = [numVLLMHistograms]histogramDefinition{
	histVLLMDuration - numOwnHistograms:         vllmHistogram("e2e_request_latency_seconds", "e2e", vllmLatencyBuckets),
	histVLLMTTFT - numOwnHistograms:             vllmHistogram("time_to_first_token_seconds", "time to first token", vllmTTFTBuckets),
	histVLLMTPOT - numOwnHistograms:             vllmHistogram("request_time_per_output_token_seconds", "decode / (output tokens - 1), and 0 for a single token as vLLM has it", vllmTPOTBuckets),
	histVLLMQueue - numOwnHistograms:            vllmHistogram("request_queue_time_seconds", "queue", vllmLatencyBuckets),
	histVLLMPrefill - numOwnHistograms:          vllmHistogram("request_prefill_time_seconds", "prefill", vllmLatencyBuckets),
	histVLLMDecode - numOwnHistograms:           vllmHistogram("request_decode_time_seconds", "decode", vllmLatencyBuckets),
	histVLLMInference - numOwnHistograms:        vllmHistogram("request_inference_time_seconds", "inference", vllmLatencyBuckets),
	histVLLMPromptTokens - numOwnHistograms:     vllmHistogram("request_prompt_tokens", "input tokens", vllmTokenBuckets),
	histVLLMGenerationTokens - numOwnHistograms: vllmHistogram("request_generation_tokens", "output tokens", vllmTokenBuckets),
	histVLLMMaxTokens - numOwnHistograms:        vllmHistogram("request_params_max_tokens", "max_tokens of the request", vllmTokenBuckets),
}

// The unit is left out since vLLM's names carry it and exporters would append it once more.
func vllmHistogram(name, what string, bounds []float64) histogramDefinition {
	return histogramDefinition{Definition: Definition{
		Name: "vllm:" + name, Description: "As vLLM's own metric of this name, from spans: " + what + ".", Kind: "histogram", Buckets: bounds,
	}}
}

// vllmFields are the figures that are recorded as they are.
var vllmFields = [...]struct {
	id    histogramID
	field llmrequest.Field
}{
	{histVLLMDuration, llmrequest.E2E},
	{histVLLMTTFT, llmrequest.TimeToFirstToken},
	{histVLLMQueue, llmrequest.Queue},
	{histVLLMPrefill, llmrequest.Prefill},
	{histVLLMDecode, llmrequest.Decode},
	{histVLLMInference, llmrequest.Inference},
	{histVLLMPromptTokens, llmrequest.InputTokens},
	{histVLLMGenerationTokens, llmrequest.OutputTokens},
	{histVLLMMaxTokens, llmrequest.MaxTokens},
}

// recordVLLM records what vLLM itself would have observed.
func (a *accumulators) recordVLLM(shapes []histogramShape, r *llmrequest.Request, e *exemplar) {
	if r.Kind != llmrequest.KindVLLM {
		return
	}
	for _, f := range vllmFields {
		if v, ok := r.Get(f.field); ok {
			a.histograms[f.id].record(&shapes[f.id], v, e)
		}
	}
	if r.HasAll(llmrequest.Decode, llmrequest.OutputTokens) {
		tpot := 0.0
		if tokens := r.Value(llmrequest.OutputTokens); tokens > 1 {
			tpot = r.Value(llmrequest.Decode) / (tokens - 1)
		}
		a.histograms[histVLLMTPOT].record(&shapes[histVLLMTPOT], tpot, e)
	}
}
