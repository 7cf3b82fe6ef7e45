// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package measure times what a component does with spans, right after they were decoded as in a collector, and in the same
// loop what the decoding took: the machine's speed drifts, and only what is measured together can be compared.
package measure
