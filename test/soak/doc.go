// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command soak keeps the built binary busy with engines and series that come and go, and fails if what it
// holds grows after warm-up: heap, goroutines, series.
//
//	go run ./test/soak [-duration 15m] [-rate 1000] [-every 10s]
//
// It runs dist/otelcol-serving, or what the environment variable BINARY names.
package main
