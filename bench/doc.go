// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures what a request span costs here, beside decoding it from OTLP and beside contrib's
// span_metrics connector, all in one run. It is a module of its own so that peers are no
// dependency of the product.
//
//	go run . -rounds 5
//
// The machine's speed drifts, so every round measures everything once, and the table has the medians over the
// rounds. Compare the ratios, not the times.
package main
