// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis says what one engine suffers from: figures of some minutes in, a verdict with its evidence, the
// most that a remedy can gain, and actions out. It says nothing where the figures are too few or cannot be believed.
package diagnosis
