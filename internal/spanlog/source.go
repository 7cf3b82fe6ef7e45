// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// The content that all formats read from: bytes with their position, and what the first of them tell.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

type source struct {
	name   string
	in     *bufio.Reader
	line   int   // of the next byte, from 1
	offset int64 // of the next byte
	lim    limits
}

const knownFormats = "recorded spans: the debug exporter's text at verbosity detailed, OTLP JSON, or OTLP protobuf"

// detect tells the format from the first bytes and skips a byte order mark.
//
//   - A length prefix of at most MaxRecord begins with a byte from 0 to 4, which no text does.
//   - A bare message begins with 0x0a, the tag of its first ResourceSpans. So does a text with an empty
//     first line, but a message is full of control characters: lengths, and the tags of its fields.
func (s *source) detect() (Format, error) {
	head, err := s.in.Peek(4096)
	if err != nil && !errors.Is(err, io.EOF) {
		return FormatEmpty, s.readError(err)
	}
	if len(head) == 0 {
		return FormatEmpty, nil
	}
	if head[0] <= 4 {
		return FormatDelimited, nil
	}
	binary := bytes.ContainsFunc(head, func(c rune) bool {
		return c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != 0x1b
	})
	if head[0] == tagResourceSpans && binary {
		return FormatProto, nil
	}
	if bytes.HasPrefix(head, utf8BOM) {
		_, _ = s.in.Discard(len(utf8BOM))
		s.offset += int64(len(utf8BOM))
		head = head[len(utf8BOM):]
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) == 0 && len(head) < 4000:
		return FormatEmpty, nil
	case len(text) > 0 && text[0] == '{':
		return FormatJSON, nil
	case bytes.IndexByte(head, 0) >= 0:
		return FormatEmpty, &Error{Name: s.name, Offset: s.offset, Expected: knownFormats, Found: quoted(string(head[:min(len(head), 16)]))}
	}
	return FormatDebugText, nil
}

// readLine is the next line without its end, and io.EOF after the last one. It is valid until the next call.
func (s *source) readLine(buf []byte) ([]byte, error) {
	buf = buf[:0]
	for {
		part, err := s.in.ReadSlice('\n')
		s.offset += int64(len(part))
		if len(buf)+len(part) > s.lim.record {
			return nil, &Error{Name: s.name, Line: s.line, Offset: s.offset, Expected: fmt.Sprintf("lines of at most %d bytes", s.lim.record)}
		}
		buf = append(buf, part...)
		switch {
		case err == nil:
			s.line++
			buf = buf[:len(buf)-1]
			return bytes.TrimSuffix(buf, []byte{'\r'}), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(buf) > 0:
			s.line++
			return bytes.TrimSuffix(buf, []byte{'\r'}), nil
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, s.readError(err)
		}
	}
}

// readByte is the next byte, and io.EOF, not wrapped, after the last one.
func (s *source) readByte() (byte, error) {
	c, err := s.in.ReadByte()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		return 0, s.readError(err)
	}
	s.offset++
	if c == '\n' {
		s.line++
	}
	return c, nil
}

// ReadByte makes a source an io.ByteReader.
func (s *source) ReadByte() (byte, error) { return s.readByte() }

// readN appends the next n bytes to buf. Memory grows with what is there, not with what n promises.
func (s *source) readN(buf []byte, n int, what string) ([]byte, error) {
	start := s.offset
	for n > 0 {
		chunk := min(n, 1<<20)
		old := len(buf)
		buf = append(buf, make([]byte, chunk)...)
		got, err := io.ReadFull(s.in, buf[old:])
		s.offset += int64(got)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, &Error{
				Name: s.name, Offset: start, Expected: what,
				Found: fmt.Sprintf("the end of the file at byte %d", s.offset), Err: io.ErrUnexpectedEOF,
			}
		}
		if err != nil {
			return nil, s.readError(err)
		}
		n -= chunk
	}
	return buf, nil
}

// readError is a failure of the input itself, such as damaged compression.
func (s *source) readError(err error) error {
	return &Error{Name: s.name, Offset: s.offset, Expected: "readable content", Err: err}
}
