// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// Opening a recording: decompression, detection of the format, and the Reader.

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const (
	// MaxRecord is the size in bytes of the largest payload that is read: one JSON document, one
	// protobuf message, one payload of debug text. It bounds the memory that a Reader needs.
	MaxRecord = 64 << 20
	// MaxElements is the largest number of parts (spans, attributes, events and so on) of a payload.
	// Empty parts take hardly a byte in a file and a hundred in memory.
	MaxElements = 4 << 20
	// MaxDepth is how deep values may be nested in a payload.
	MaxDepth = 512
)

// limits are the bounds of one payload. They are fields so that tests can reach them.
type limits struct {
	record   int
	elements int
	depth    int
}

// Format is how the spans of a recording are written.
type Format uint8

const (
	// FormatEmpty is a recording of no content.
	FormatEmpty Format = iota
	// FormatDebugText is the Collector's debug exporter at verbosity detailed.
	FormatDebugText
	// FormatJSON is OTLP JSON, one document or several, or the Collector's JSON logs.
	FormatJSON
	// FormatProto is one bare OTLP protobuf message.
	FormatProto
	// FormatDelimited is messages that are each preceded by their length.
	FormatDelimited
)

// String names the format for people.
func (f Format) String() string {
	switch f {
	case FormatEmpty:
		return "empty"
	case FormatDebugText:
		return "debug exporter text"
	case FormatJSON:
		return "OTLP JSON"
	case FormatProto:
		return "OTLP protobuf"
	case FormatDelimited:
		return "length-delimited OTLP"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Reader reads one recording, payload by payload. It is not safe for concurrent use.
type Reader struct {
	format  Format
	decoder decoder
	closers []func() error
	skipped int
	err     error
}

// decoder is one format. next returns io.EOF after the last payload, and an *Error for a fault.
type decoder interface {
	next() (ptrace.Traces, error)
}

// Open opens the recording at path. Close it.
//
// Errors are those of os.Open and of NewReader.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.closers = append(r.closers, f.Close)
	return r, nil
}

// NewReader reads a recording from r. The name is for messages. It reads ahead of what Next returns.
//
// The error is an *Error if the content is in no known format.
func NewReader(r io.Reader, name string) (*Reader, error) {
	return newReader(r, name, limits{record: MaxRecord, elements: MaxElements, depth: MaxDepth})
}

func newReader(in io.Reader, name string, lim limits) (*Reader, error) {
	r := &Reader{}
	buf := bufio.NewReaderSize(in, 64<<10)
	head, err := buf.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &Error{Name: name, Expected: "readable content", Err: err}
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(buf)
		if err != nil {
			return nil, &Error{Name: name, Expected: "gzip", Err: err}
		}
		buf = bufio.NewReaderSize(z, 64<<10)
	case bytes.HasPrefix(head, zstdMagic):
		z, err := newZstd(buf, lim)
		if err != nil {
			return nil, &Error{Name: name, Expected: "zstd", Err: err}
		}
		r.closers = append(r.closers, func() error { z.Close(); return nil })
		buf = bufio.NewReaderSize(z, 64<<10)
	}

	src := &source{name: name, in: buf, line: 1, lim: lim}
	if r.format, err = src.detect(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	switch r.format {
	case FormatDebugText:
		r.decoder = newTextDecoder(src, &r.skipped)
	case FormatJSON:
		r.decoder = newJSONDecoder(src, &r.skipped)
	case FormatProto:
		r.decoder = &protoDecoder{src: src}
	case FormatDelimited:
		r.decoder = &delimitedDecoder{src: src, skipped: &r.skipped}
	default:
		r.err = io.EOF
	}
	return r, nil
}

// Next is the next payload that has spans, and io.EOF after the last one. Any other error is an *Error; it is
// final, and returned again by every later call. The payload belongs to the caller.
func (r *Reader) Next() (ptrace.Traces, error) {
	for r.err == nil {
		td, err := r.decoder.next()
		if err != nil {
			r.err = err
			break
		}
		if td.SpanCount() > 0 {
			return td, nil
		}
	}
	return ptrace.Traces{}, r.err
}

// Format is the format that was detected.
func (r *Reader) Format() Format { return r.format }

// Skipped is the number of payloads passed over so far because they hold another signal than spans.
func (r *Reader) Skipped() int { return r.skipped }

// Close releases what Open and NewReader acquired. It does not close the io.Reader given to NewReader.
func (r *Reader) Close() error {
	var errs []error
	for _, c := range r.closers {
		errs = append(errs, c())
	}
	r.closers = nil
	if r.err == nil {
		r.err = os.ErrClosed
	}
	return errors.Join(errs...)
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	utf8BOM   = []byte{0xef, 0xbb, 0xbf}
)

// newZstd decompresses without goroutines of its own and with bounded memory.
func newZstd(in io.Reader, lim limits) (*zstd.Decoder, error) {
	return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(32<<20), zstd.WithDecoderMaxMemory(uint64(lim.record)))
}
