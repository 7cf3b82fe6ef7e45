// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package program runs the programs that tests need around them, on ports that nobody else uses.
package program
