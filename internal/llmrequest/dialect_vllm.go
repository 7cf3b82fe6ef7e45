// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

// vLLM, V0 (v0.5.1 to v0.10.1) and V1 (v0.10.2 on), and the OpenTelemetry names its newer
// versions are to use. The gen_ai.latency.* keys that vLLM introduced and other engines took over are the
// canonical ones. docs/engines.md has what each duration includes.

var (
	markV0 = newMark() // an attribute that only V0 sets
	markV1 = newMark() // an attribute that V1 sets and V0 does not
)

func init() {
	register(&dialect{
		kind:      KindVLLM,
		scopes:    []string{"vllm."},
		resources: []string{"vllm."},
		attributes: []attribute{
			{key: "gen_ai.latency.e2e", role: roleSeconds, field: E2E, canonical: true, request: true},
			{key: "gen_ai.latency.time_to_first_token", role: roleSeconds, field: TimeToFirstToken, canonical: true, request: true},
			{key: "gen_ai.latency.time_in_queue", role: roleSeconds, field: Queue, canonical: true, request: true},
			{key: "gen_ai.latency.time_in_scheduler", role: roleSeconds, field: Scheduler, canonical: true, request: true, marks: markV0},
			{key: "gen_ai.latency.time_in_model_forward", role: roleSeconds, field: Forward, canonical: true, request: true, marks: markV0},
			{key: "gen_ai.latency.time_in_model_execute", role: roleSeconds, field: Execute, canonical: true, request: true, marks: markV0},
			{key: "gen_ai.latency.time_in_model_prefill", role: roleSeconds, field: Prefill, canonical: true, request: true, marks: markV1},
			{key: "gen_ai.latency.time_in_model_decode", role: roleSeconds, field: Decode, canonical: true, request: true, marks: markV1},
			{key: "gen_ai.latency.time_in_model_inference", role: roleSeconds, field: Inference, canonical: true, request: true, marks: markV1},

			// vLLM's names, deprecated in the conventions since v1.27.0, and their successors.
			{key: "gen_ai.usage.prompt_tokens", role: roleCount, field: InputTokens},
			{key: "gen_ai.usage.input_tokens", role: roleCount, field: InputTokens, canonical: true},
			{key: "gen_ai.usage.completion_tokens", role: roleCount, field: OutputTokens},
			{key: "gen_ai.usage.output_tokens", role: roleCount, field: OutputTokens, canonical: true},
			{key: "gen_ai.request.max_tokens", role: roleCount, field: MaxTokens, canonical: true},

			{key: "gen_ai.usage.num_sequences", role: roleSequences, marks: markV0},
			{key: "gen_ai.request.best_of", marks: markV0},

			{key: "gen_ai.response.model", role: roleResponseModel},
			{key: "gen_ai.request.model", role: roleRequestModel},
			{key: "gen_ai.operation.name", role: roleOperation},
			{key: "gen_ai.provider.name", role: roleProvider},
			{key: "error.type", role: roleErrorType},
		},
		recognise: func(name string, _ *Request, seen marks) bool {
			// Forward, execute and scheduler time are vLLM V0's alone. SGLang shares the figures
			// of V1, but not the name.
			return seen&markV0 != 0 || name == "llm_request" && seen&markV1 != 0
		},
		normalise: func(r *Request, seen marks) {
			switch {
			case seen&markV1 != 0:
				r.Generation = GenerationV1
			case seen&markV0 != 0:
				r.Generation = GenerationV0
			}
		},
	})
}
