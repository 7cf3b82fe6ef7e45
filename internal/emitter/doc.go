// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package emitter runs one serving.Aggregator inside the Collector: it collects at every interval and
// hands the metrics to the pipelines, does the final collect at shutdown, and reports the
// aggregator's health as Collector telemetry.
package emitter
