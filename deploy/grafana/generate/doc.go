// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Command generate writes the Grafana dashboards in deploy/grafana. They share their variables, colours, wording and
// layout, which JSON kept by hand would not for long.
//
//	go generate ./deploy/grafana/generate
//
// A dashboard is a file here: overview.go, engine.go and collector.go. What Grafana wants to read is in model.go.
package main

//go:generate go run . -out ..
