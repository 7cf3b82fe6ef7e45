// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests what users get: the built binary, its example configurations and servingctl, with a real
// Prometheus, a real Jaeger, another SDK, and simulated engines whose truth is known at the other ends. The tests
// have the build tag e2e; run.sh sets up what they need and runs them.
package e2e
