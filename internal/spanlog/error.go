// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// The error that every fault of a recording is reported as.

import (
	"fmt"
	"strings"
)

// Error says where a recording is not what it should be, and what was expected there.
type Error struct {
	// Name is the recording's name as given to Open or NewReader.
	Name string
	// Line is the line of the fault, from 1, in the text formats; 0 in the binary ones.
	Line int
	// Offset is the byte of the fault, from 0, in the decompressed content. In the text formats it is
	// the beginning of the line or document.
	Offset int64
	// Expected is what should have been there.
	Expected string
	// Found is what was there, abbreviated; "" when Err says it.
	Found string
	// Err is the cause, nil when Expected and Found say it all.
	Err error
}

// Error is one line: name, position, what was expected, what was found.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "%s:%d: ", e.Name, e.Line)
	} else {
		fmt.Fprintf(&b, "%s: byte %d: ", e.Name, e.Offset)
	}
	fmt.Fprintf(&b, "expected %s", e.Expected)
	if e.Found != "" {
		fmt.Fprintf(&b, ", found %s", e.Found)
	}
	if e.Err != nil {
		// A decoder quotes its input, line feeds included.
		fmt.Fprintf(&b, ": %s", abbreviate(strings.Join(strings.Fields(e.Err.Error()), " "), 300))
	}
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// quoted is s in quotes, short enough for an error message.
func quoted(s string) string { return fmt.Sprintf("%q", abbreviate(s, 80)) }

func abbreviate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
