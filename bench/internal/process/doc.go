// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package process runs the built collector and reads from the system what it used.
package process
