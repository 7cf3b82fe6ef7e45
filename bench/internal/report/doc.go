// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes what was measured: tables on the terminal, and the same between markers of a document.
package report
