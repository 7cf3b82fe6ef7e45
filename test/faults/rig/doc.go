// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package rig runs the built binary between clients and backends that can be made to fail, and keeps
// account of every span: the fault tests and the soak test stand on it.
package rig
