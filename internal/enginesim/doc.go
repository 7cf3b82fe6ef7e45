// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package enginesim is a continuous-batching inference engine with ground truth.
//
// What a device did while it served requests cannot be read off finished requests with certainty; an
// estimate can only be judged where the truth is known. This package runs the scheduler of vLLM, both
// generations of it, as a discrete-event simulation, sends the spans that vLLM would have sent, when it
// would have sent them, and records to the nanosecond what the device and its host really did.
//
// The semantics (which request gets which step's time, which moment is stamped where) follow vLLM's
// source. The durations follow measured step times (law.go) and one profiled request; they are plausible
// for one deployment and a calibration of none. Not modelled: pipeline parallelism, multi-step
// scheduling, speculative decoding, prefix caching, LoRA, beam search and n > 1.
//
// The same seed gives the same spans, byte for byte, however the time is sliced.
package enginesim
