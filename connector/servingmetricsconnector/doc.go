// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package servingmetricsconnector derives serving metrics from request spans that arrive by any receiver:
// the same metrics as the serving_metrics processor, behind the Collector's own edge between a
// traces and a metrics pipeline.
package servingmetricsconnector
