// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// OTLP JSON, and the debug exporter's text inside the Collector's JSON logs.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// jsonDecoder reads documents one after the other, whatever stands between them as long as it is white space.
type jsonDecoder struct {
	src     *source
	skipped *int
	doc     []byte
	queue   []ptrace.Traces // payloads of a log line
}

func newJSONDecoder(src *source, skipped *int) *jsonDecoder {
	return &jsonDecoder{src: src, skipped: skipped}
}

const expectedDocument = "an OTLP JSON document ({\"resourceSpans\": [...]})"

func (d *jsonDecoder) next() (ptrace.Traces, error) {
	for len(d.queue) == 0 {
		doc, err := d.document()
		if err != nil {
			return ptrace.Traces{}, err
		}
		if err := d.decode(doc); err != nil {
			return ptrace.Traces{}, err
		}
	}
	td := d.queue[0]
	d.queue = d.queue[1:]
	return td, nil
}

// document is one document with the position it begins at and what its top level tells.
type document struct {
	line   int
	offset int64
	body   []byte
	keys   topKeys
}

// topKeys is what a document holds, by the names of its top-level fields.
type topKeys uint8

const (
	keySpans topKeys = 1 << iota
	keyOtherSignal
	keyLogMessage
)

var knownKeys = map[string]topKeys{
	"resourceSpans": keySpans, "resource_spans": keySpans,
	"resourceMetrics": keyOtherSignal, "resource_metrics": keyOtherSignal,
	"resourceLogs": keyOtherSignal, "resource_logs": keyOtherSignal,
	"resourceProfiles": keyOtherSignal, "resource_profiles": keyOtherSignal,
	"msg": keyLogMessage,
}

// document cuts out the next document: it counts brackets outside of strings, and leaves all else to the parser.
func (d *jsonDecoder) document() (document, error) {
	var c byte
	var err error
	for c = ' '; c == ' ' || c == '\t' || c == '\r' || c == '\n'; {
		if c, err = d.src.readByte(); err != nil {
			return document{}, err
		}
	}
	doc := document{line: d.src.line, offset: d.src.offset - 1}
	if c != '{' {
		return doc, d.fault(doc, 0, &Error{Expected: expectedDocument, Found: quoted(string(c))})
	}
	d.doc = d.doc[:0]
	var (
		depth, elements  int
		inString, escape bool
		begin            int  // of the string
		previous         byte // the last byte before the string that is not white space
	)
	for {
		d.doc = append(d.doc, c)
		switch {
		case inString:
			switch {
			case escape:
				escape = false
			case c == '\\':
				escape = true
			case c == '"':
				inString = false
				if depth == 1 && (previous == '{' || previous == ',') {
					doc.keys |= knownKeys[string(d.doc[begin:len(d.doc)-1])]
				}
				previous = c
			}
		case c == '"':
			inString, begin = true, len(d.doc)
		case c == '{' || c == '[':
			depth++
			elements++
			previous = c
		case c == '}' || c == ']':
			depth--
			previous = c
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			previous = c
		}
		switch {
		case depth == 0:
			doc.body = d.doc
			return doc, nil
		case depth > d.src.lim.depth:
			return doc, d.fault(doc, len(d.doc), &Error{Expected: fmt.Sprintf("values nested at most %d deep", d.src.lim.depth)})
		case elements > d.src.lim.elements:
			return doc, d.fault(doc, len(d.doc), &Error{Expected: fmt.Sprintf("a document of at most %d parts", d.src.lim.elements)})
		case len(d.doc) >= d.src.lim.record:
			return doc, d.fault(doc, 0, &Error{Expected: fmt.Sprintf("a document of at most %d bytes", d.src.lim.record)})
		}
		if c, err = d.src.readByte(); err != nil {
			if errors.Is(err, io.EOF) {
				return doc, d.fault(doc, 0, &Error{
					Expected: "the end of the JSON document that begins here", Found: "the end of the file", Err: io.ErrUnexpectedEOF,
				})
			}
			return doc, err
		}
	}
}

// decode appends the payloads of doc to the queue.
func (d *jsonDecoder) decode(doc document) error {
	// The OTLP decoder is lenient to syntax and does not say where a fault is.
	var any json.RawMessage
	if err := json.Unmarshal(doc.body, &any); err != nil {
		at := 0
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = int(syntax.Offset)
		}
		return d.fault(doc, at, &Error{Expected: "JSON", Err: err})
	}
	switch {
	case doc.keys&keySpans != 0:
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(doc.body)
		if err != nil {
			return d.fault(doc, 0, &Error{Expected: expectedDocument, Err: err})
		}
		d.queue = append(d.queue, td)
		return nil
	case doc.keys&keyOtherSignal != 0:
		*d.skipped++
		return nil
	case doc.keys&keyLogMessage != 0:
		return d.logMessage(doc)
	case string(bytes.Join(bytes.Fields(doc.body), nil)) == "{}":
		return nil
	}
	return d.fault(doc, 0, &Error{Expected: expectedDocument, Found: quoted(string(doc.body))})
}

// logMessage reads the debug exporter's text from the message of a log line.
func (d *jsonDecoder) logMessage(doc document) error {
	var entry struct {
		Message string `json:"msg"`
	}
	if err := json.Unmarshal(doc.body, &entry); err != nil || !strings.Contains(entry.Message, "Span #") {
		// Any other line of the log; a message that is no string is no text either.
		return nil
	}
	text := newTextDecoder(&source{
		name: d.src.name, in: bufio.NewReader(strings.NewReader(entry.Message)), line: 1, lim: d.src.lim,
	}, d.skipped)
	for {
		td, err := text.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if fault := (*Error)(nil); errors.As(err, &fault) {
			// The whole message is one line of the file.
			return d.fault(doc, 0, &Error{Expected: fault.Expected, Found: fault.Found, Err: fault.Err})
		}
		if err != nil {
			return err
		}
		d.queue = append(d.queue, td)
	}
}

// fault places e at byte at of doc.
func (d *jsonDecoder) fault(doc document, at int, e *Error) error {
	e.Name, e.Line, e.Offset = d.src.name, doc.line, doc.offset+int64(at)
	e.Line += bytes.Count(d.doc[:min(at, len(d.doc))], []byte{'\n'})
	return e
}
