// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package page reads what a Collector's serving_summary extension says, shows it in a terminal, and checks it against
// conditions.
package page
