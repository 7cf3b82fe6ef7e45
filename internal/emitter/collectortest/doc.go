// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package collectortest runs a real Collector inside a test: its graph, its lifecycle, its reload, with
// receivers and exporters that the test holds in its hand, and with its logs, its status events and
// its own telemetry to read.
package collectortest
