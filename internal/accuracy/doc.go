// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command accuracy says how near the estimates come to the truth.
//
// It runs the simulated engines of internal/enginesim, hands their spans to internal/timeline when and in
// the order in which a collector would get them, compares every window that is closed with what the engine
// really did, and prints the tables of docs/accuracy.md. The same flags print the same bytes on the same
// architecture; nothing in the output depends on the machine's speed.
package main
