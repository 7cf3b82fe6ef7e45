// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package engineid says which engine a resource belongs to. Figures about a device make sense only
// per engine: one scheduler with its device group.
package engineid
