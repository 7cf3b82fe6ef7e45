// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package servingsummaryextension is the serving_summary extension: a page that tells people what each inference engine
// suffers from and what to change, and the same as JSON and Markdown for programs. What it tells comes from the
// serving_metrics components that name it in their configuration.
package servingsummaryextension
