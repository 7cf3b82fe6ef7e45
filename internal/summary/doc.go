// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package summary is what is told of a fleet of engines: one value, made by serving_metrics, read by people on a page
// and by programs as JSON, and how the one finds the other in a Collector.
package summary
