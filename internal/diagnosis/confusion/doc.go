// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command confusion simulates engines with a trouble built in, lets internal/diagnosis say what they suffer from, and prints
// which verdict came out for which trouble.
//
//	go run ./internal/diagnosis/confusion                              # the tables to the terminal
//	go run ./internal/diagnosis/confusion -write docs/diagnosis.md     # the same between the markers of a page
//	go run ./internal/diagnosis/confusion -short                       # a smoke test: one seed
package main
