// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Which dashboards there are, and where they go.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", ".", "folder to write the dashboards to")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dashboards are all of them by file name.
func dashboards() map[string]*dashboard {
	return map[string]*dashboard{
		"overview.json":  overview(),
		"engine.json":    engine(),
		"collector.json": collector(),
	}
}

func write(folder string) error {
	for name, d := range dashboards() {
		text, err := render(d)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil { //nolint:gosec // for everybody to read
			return err
		}
	}
	return nil
}

// render is a dashboard as Grafana imports it.
func render(d *dashboard) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d)
	return text.Bytes(), err
}
