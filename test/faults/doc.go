// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command faults puts the built binary through what production does to a collector, and balances the books:
// every span that was acknowledged is forwarded, and none is counted twice. docs/reliability.md has its table.
//
//	go run ./test/faults [-write docs/reliability.md] [-only NAME[,NAME]] [-short] [-parallel N]
//
// It runs dist/otelcol-serving, or what the environment variable BINARY names.
package main
