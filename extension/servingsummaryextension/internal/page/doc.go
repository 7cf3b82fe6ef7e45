// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package page makes the page for people out of a summary: HTML with drawings that needs no script and can be printed.
package page
