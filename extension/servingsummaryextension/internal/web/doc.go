// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package web answers HTTP requests for the summary: which address shows what, and the headers that keep a browser safe.
package web
