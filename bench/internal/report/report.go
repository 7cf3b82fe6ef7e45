// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package report

// Tables, and where they go.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Document is Markdown in the making.
type Document struct{ b strings.Builder }

// Text adds a paragraph.
func (d *Document) Text(format string, args ...any) {
	fmt.Fprintf(&d.b, format+"\n\n", args...)
}

// Table adds a table. The first column is text, the others are figures.
func (d *Document) Table(header []string, rows [][]string) {
	widths := make([]int, len(header))
	for _, r := range append([][]string{header}, rows...) {
		for i, c := range r {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	line := func(cells []string) {
		for i, c := range cells {
			if i == 0 {
				fmt.Fprintf(&d.b, "| %-*s |", widths[i], c)
			} else {
				fmt.Fprintf(&d.b, " %*s |", widths[i], c)
			}
		}
		d.b.WriteByte('\n')
	}
	line(header)
	for i, w := range widths {
		if i == 0 {
			d.b.WriteString("| " + strings.Repeat("-", w) + " |")
		} else {
			d.b.WriteString(" " + strings.Repeat("-", w-1) + ": |")
		}
	}
	d.b.WriteByte('\n')
	for _, r := range rows {
		line(r)
	}
	d.b.WriteByte('\n')
}

// String is the Markdown.
func (d *Document) String() string { return d.b.String() }

// Machine says what was measured on, and how busy others kept it. Call it before measuring.
func Machine() string {
	model := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("Measured on %s: %s, %d cores, %s, %s. Load of the machine when it began: %s (0 is quiet).",
		time.Now().UTC().Format(time.DateOnly), model, runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version(), load)
}

// Write puts the document between the markers of a name in the file at path, in place of what was there.
func (d *Document) Write(path, name string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := []byte("<!-- begin "+name+" -->\n"), []byte("<!-- end "+name+" -->")
	i, j := bytes.Index(text, begin), bytes.Index(text, end)
	if i < 0 || j < i {
		return errors.New(path + " has no place for " + name)
	}
	i += len(begin)
	var out bytes.Buffer
	out.Write(text[:i])
	out.WriteString("\n" + d.String())
	out.Write(text[j:])
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// Finish prints the document of a name and the budgets that it decides, and writes both into the file at path unless that is empty.
func Finish(path, name string, d, budgets *Document) error {
	fmt.Print(d.String() + budgets.String())
	if path == "" {
		return nil
	}
	return errors.Join(d.Write(path, name), budgets.Write(path, name+" budgets"))
}
