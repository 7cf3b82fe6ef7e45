// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package subject makes the components that are compared, each from the configuration that a user would write.
package subject
