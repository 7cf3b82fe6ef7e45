// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// The step-time law: how long the device's forward pass takes.

import "time"

// Law gives the duration of one forward pass on the device.
//
// A pass over prompts alone follows the roofline: reading the weights takes PrefillFloor, computing takes
// PrefillPerToken for each token, and the longer of both is what it lasts. A decode pass is linear in the
// sequences and in the tokens of context they attend to. A mixed pass (chunked prefill) reads the weights
// once for all: the decode pass plus the tokens of the prompts.
type Law struct {
	// Name says where the figures come from.
	Name string
	// PrefillFloor and PrefillPerToken are seconds, and seconds per prompt token.
	PrefillFloor, PrefillPerToken float64
	// DecodeBase, DecodePerSeq and DecodePerKVToken are seconds, seconds per sequence, and seconds per
	// token of context summed over the sequences.
	DecodeBase, DecodePerSeq, DecodePerKVToken float64
}

// The laws fitted to the step times that splitwise-sim publishes (testdata/README.md): Llama2-70B,
// tensor parallel 4. TestLawFit repeats the fit and holds these figures and their errors:
//
//	law    prefill: mean and max relative error   decode: mean and max relative error
//	H100   5.3 %, 15.6 %                          2.1 %, 6.6 %
//	A100   14.0 %, 30.6 %                         2.7 %, 7.2 %
//
// The measured times are wall times of a whole step of the vLLM of 2023; nobody published their split
// between device and host. They are used for their shape: how a step grows with its tokens, sequences and
// context. Scaled sets the level.
var (
	LawLlama70BH100 = Law{
		Name:         "llama2-70b h100 tp4 (splitwise)",
		PrefillFloor: 0.050997, PrefillPerToken: 0.000105828,
		DecodeBase: 0.0288445, DecodePerSeq: 0.000271013, DecodePerKVToken: 8.28338e-8,
	}
	LawLlama70BA100 = Law{
		Name:         "llama2-70b a100 tp4 (splitwise)",
		PrefillFloor: 0.070985, PrefillPerToken: 0.000256147,
		DecodeBase: 0.0431814, DecodePerSeq: 0.000156677, DecodePerKVToken: 4.23014e-7,
	}
)

// Scaled is the law with every duration multiplied by what makes a decode pass over one sequence with no
// context last base: another model size, or another generation of kernels, of the same shape.
func (l Law) Scaled(name string, base time.Duration) Law {
	f := base.Seconds() / (l.DecodeBase + l.DecodePerSeq)
	return Law{
		Name:         name,
		PrefillFloor: l.PrefillFloor * f, PrefillPerToken: l.PrefillPerToken * f,
		DecodeBase: l.DecodeBase * f, DecodePerSeq: l.DecodePerSeq * f, DecodePerKVToken: l.DecodePerKVToken * f,
	}
}

// Forward is the duration of one pass, in seconds, over promptTokens tokens of prompts and seqs decoding
// sequences that attend to kvTokens tokens of context together.
func (l Law) Forward(promptTokens, seqs int, kvTokens int64) float64 {
	if seqs == 0 {
		return max(l.PrefillFloor, l.PrefillPerToken*float64(promptTokens))
	}
	return l.DecodeBase + l.DecodePerSeq*float64(seqs) + l.DecodePerKVToken*float64(kvTokens) + l.PrefillPerToken*float64(promptTokens)
}
