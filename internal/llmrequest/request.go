// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

// The Request value: what one finished request reported, and what of it was refused.

import "go.opentelemetry.io/collector/pdata/pcommon"

// Request is one finished request as its engine reported it.
//
// A figure that the engine did not report, or that was refused as implausible, is absent: Has
// is false and Value is 0 by accident only. Model, Operation and ErrorType alias the memory of
// the span they were read from; copy them (strings.Clone) to keep them beyond the call.
//
// The zero value is ready for Read, and one Request can be read into again and again.
type Request struct {
	TraceID pcommon.TraceID
	SpanID  pcommon.SpanID
	Figures

	// Model is "" when neither the span nor its resource names one.
	Model string
	// Operation is gen_ai.operation.name, "" when the span has none.
	Operation string
	// ErrorType is the attribute error.type of a request that Failed, or "_OTHER" as the semantic conventions ask
	// where there is none.
	ErrorType string

	// canonical has a bit per Field whose canonical attribute the span already carries.
	canonical uint32
	operation bool // the span carries gen_ai.operation.name
	provider  bool // the span carries gen_ai.provider.name

	rejections  [maxRejections]Rejection
	nRejections uint8
	// further counts the rejections that did not fit, of which there are any if hasFurther.
	further    [NumReasons]uint32
	hasFurther bool
}

// Figures are what a Request is but for its names: without references, so that they can be kept. Whatever follows from one
// request alone follows from them.
type Figures struct {
	// Start is the arrival of the request and End the emission of its span, which is a little
	// after the last token. Zero: absent.
	Start, End pcommon.Timestamp
	// Sequences is the number of sequences whose tokens OutputTokens sums up: vLLM before v0.6.4
	// reports n > 1 completions in one span. 1 when the span does not say.
	Sequences int64

	Kind       Kind
	Generation Generation
	// Failed is true when the span's status is an error or it has an error.type.
	Failed bool

	present uint32 // bit per Field
	values  [NumFields]float64
}

// Field is one figure of a Request.
type Field uint8

// The durations, in seconds, then the counts. What each engine includes in a duration differs:
// docs/engines.md.
const (
	// E2E is arrival to last token.
	E2E Field = iota
	// TimeToFirstToken is arrival to first token.
	TimeToFirstToken
	// Queue is the wait before the first schedule.
	Queue
	// Scheduler is the time of all scheduler passes while the request ran (vLLM V0).
	Scheduler
	// Forward is the device time of the forward passes the request took part in (vLLM V0).
	Forward
	// Execute is the host's wall time of the model execution the request took part in (vLLM V0).
	Execute
	// Prefill is first schedule to first token (vLLM V1).
	Prefill
	// Decode is first to last token (vLLM V1).
	Decode
	// Inference is first schedule to last token (vLLM V1).
	Inference

	// InputTokens is the length of the prompt, cached tokens included.
	InputTokens
	// OutputTokens is the number of generated tokens.
	OutputTokens
	// MaxTokens is the limit of generated tokens that the client asked for.
	MaxTokens

	// NumFields is the number of fields.
	NumFields

	numDurations = Inference + 1
)

var fieldNames = [NumFields]string{
	"e2e", "time_to_first_token", "time_in_queue", "time_in_scheduler", "time_in_model_forward", "time_in_model_execute",
	"time_in_model_prefill", "time_in_model_decode", "time_in_model_inference", "input_tokens", "output_tokens", "max_tokens",
}

// String is the field's name as the canonical attribute ends.
func (f Field) String() string {
	if f < NumFields {
		return fieldNames[f]
	}
	return "unknown"
}

// Has reports whether the request has a plausible value for f.
func (r *Figures) Has(f Field) bool { return r.present&(1<<f) != 0 }

// HasAll reports whether the request has a plausible value for each of fields.
func (r *Figures) HasAll(fields ...Field) bool {
	for _, f := range fields {
		if !r.Has(f) {
			return false
		}
	}
	return true
}

// hasAll is HasAll of a set, a bit per field, which costs a compare.
func (r *Figures) hasAll(set uint32) bool { return r.present&set == set }

// Value is the value of f, in seconds for the durations, and meaningless unless Has(f).
func (r *Figures) Value(f Field) float64 { return r.values[f] }

// Get is Value and Has in one.
func (r *Figures) Get(f Field) (float64, bool) { return r.values[f], r.Has(f) }

// Set gives f a value: for dialects, simulators and tests.
func (r *Figures) Set(f Field, v float64) {
	r.values[f] = v
	r.present |= 1 << f
}

// Unset makes f absent.
func (r *Figures) Unset(f Field) { r.present &^= 1 << f }

// Rejections are the first 16 values of the span that were refused, in the order they were found. The
// slice is valid until the next Read.
func (r *Request) Rejections() []Rejection { return r.rejections[:r.nRejections] }

// FurtherRejections counts the values that were refused beyond Rejections, by reason; nil: none, which is how it is unless
// a span has the same attribute many times.
func (r *Request) FurtherRejections() *[NumReasons]uint32 {
	if !r.hasFurther {
		return nil
	}
	return &r.further
}

// Kind is the make of an inference engine.
type Kind uint8

// The engines this distribution tells apart.
const (
	KindUnknown Kind = iota
	KindVLLM
	KindSGLang
	KindTensorRTLLM
	KindTGI
	KindTriton
	// NumKinds is the number of kinds.
	NumKinds
)

var kindNames = [NumKinds]string{"unknown", "vllm", "sglang", "tensorrt_llm", "tgi", "triton"}

// String is the value of gen_ai.provider.name for k.
func (k Kind) String() string {
	if k < NumKinds {
		return kindNames[k]
	}
	return kindNames[KindUnknown]
}

// Generation tells engines of one kind apart whose spans report different figures.
type Generation uint8

// The generations. Only vLLM has more than one so far: V0 (v0.5.1 to v0.10.1) reports scheduler,
// forward and execute time, V1 (v0.10.2 on) prefill, decode and inference time.
const (
	GenerationUnknown Generation = iota
	GenerationV0
	GenerationV1
	// NumGenerations is the number of generations.
	NumGenerations
)

var generationNames = [NumGenerations]string{"unknown", "v0", "v1"}

func (g Generation) String() string {
	if g < NumGenerations {
		return generationNames[g]
	}
	return generationNames[GenerationUnknown]
}
