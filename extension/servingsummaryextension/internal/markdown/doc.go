// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package markdown writes a summary as text that can be pasted into a ticket or read by a language model.
package markdown
