// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay sends recorded spans over OTLP as the engine that made them would have: in the order they
// ended, at the times they ended.
package replay
