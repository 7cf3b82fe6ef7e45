// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package load sends request spans to a collector over OTLP/gRPC as fast as it answers. It costs little itself: what it sends was
// encoded before, and only IDs and times are set anew.
package load
