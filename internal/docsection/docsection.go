// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package docsection is the part of a document that a command writes: what is between two lines of it.
package docsection

import (
	"fmt"
	"os"
	"strings"
)

// Section is what is between the lines Begin and End of a document, each of which is there once.
type Section struct{ Begin, End string }

// Check reports whether the file has the section.
func (s Section) Check(file string) error {
	document, err := os.ReadFile(file) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	_, err = s.in(file, string(document), "")
	return err
}

// Write puts text into the section of the file, in place of what was there.
func (s Section) Write(file, text string) error {
	document, err := os.ReadFile(file) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	written, err := s.in(file, string(document), text)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(written), 0o644) //nolint:gosec // a document for everyone
}

func (s Section) in(file, document, text string) (string, error) {
	if strings.Count(document, s.Begin) != 1 || strings.Count(document, s.End) != 1 {
		return "", fmt.Errorf("%s: want the lines %q and %q once each, the tables go between them", file, s.Begin, s.End)
	}
	before, rest, _ := strings.Cut(document, s.Begin)
	_, after, ok := strings.Cut(rest, s.End)
	if !ok {
		return "", fmt.Errorf("%s: the line %q comes before %q", file, s.End, s.Begin)
	}
	return before + s.Begin + "\n\n" + text + "\n" + s.End + after, nil
}
