// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package spans makes the request spans that everything in this module is measured with: exports whose IDs, times,
// engine and series are set in place, so that making a new one costs next to nothing.
package spans
