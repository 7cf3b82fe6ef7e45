// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package llmrequest turns the span of one finished LLM request into a plain value.
//
// It knows what each inference engine calls its figures (a dialect per file), which values can
// be true and which cannot (plausibility.go), and what follows from one request alone
// (derived.go). It knows nothing of metrics, engines over time, or the Collector's lifecycle.
package llmrequest
