// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command servingctl is the tool for people who measure LLM serving with otelcol-serving: see README.md.
package main

import (
	"os"

	"github.com/otelcol-serving/otelcol-serving/cmd/servingctl/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
