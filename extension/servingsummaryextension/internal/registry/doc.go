// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package registry makes one report of what several serving_metrics components know.
package registry
