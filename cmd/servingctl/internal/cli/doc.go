// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of servingctl: flags, signals, exit codes, and what people read. Each
// command has a file of its own, and its work in a package of its own.
package cli
