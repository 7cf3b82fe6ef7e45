// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package rig

// The program under test.

import (
	"fmt"
	"os"
	"path/filepath"
)

// Binary is the program under test: what the environment variable BINARY names, or what `make build` made.
func Binary() (string, error) {
	path := os.Getenv("BINARY")
	if path == "" {
		path = filepath.Join("dist", "otelcol-serving")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no collector to test; run `make build`, or set BINARY: %w", err)
	}
	return filepath.Abs(path)
}
