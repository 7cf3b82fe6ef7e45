// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package servingmetricsprocessor derives serving metrics from request spans. In a traces pipeline it
// records the spans and adds their shares to them; in a metrics pipeline, under the same ID, it
// adds the derived metrics to what passes.
package servingmetricsprocessor
