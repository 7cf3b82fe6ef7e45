// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package schema is the published JSON Schema of what the serving_summary extension answers, as a file for whoever reads it
// by program.
package schema

import _ "embed"

// JSON is summary.schema.json: JSON Schema 2020-12 of /api/v1/summary (definition Report), /api/v1/engines/{key} (EngineReport)
// and their errors.
//
//go:embed summary.schema.json
var JSON []byte
