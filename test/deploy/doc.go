// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy holds deploy/ against the code: dashboards and rules ask for metrics that exist, rules have a runbook and
// a test, and, end to end (build tag e2e), every query gives data on a real Prometheus beside the built collector.
package deploy
