// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package serving derives serving metrics from request spans: spans go in through Record, OTLP
// metrics come out of Take.
//
// It is what the serving_metrics processor and connector share. It keeps the series with their
// histograms, limits and expiry, and removes resent spans; it knows nothing of the Collector's
// lifecycle and keeps no reference to what it is given.
package serving
