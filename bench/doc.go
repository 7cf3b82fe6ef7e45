// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures what serving_metrics costs and writes docs/performance.md. It is a module of its own, so
// that the peers it is compared with are no dependency of the product. Its programs, run from this folder:
//
//	go run ./peers      a span through OTLP decoding, contrib's connectors, and ours
//	go run ./collector  the built collector with and without serving_metrics, under load
//	go run ./growth     how cost grows with series, engines and requests, and what a collect does to ingest
//	go run ./lean       whether a metrics-only collector would gain by not decoding whole spans
package bench
