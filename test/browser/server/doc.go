// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command server shows the summary page in every state that it can be in, each at a port of its own, for the browser tests
// and for whoever wants to look at them.
package main
