// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package llmspanreceiver receives the request spans of inference engines and brings every
// engine's dialect to one.
package llmspanreceiver
