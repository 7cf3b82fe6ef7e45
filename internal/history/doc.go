// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package history remembers what one engine did of late: its windows, the latencies and lengths of its requests by
// minute, the slowest of them, and hours of the day before. All of it is in event time and bounded.
package history
