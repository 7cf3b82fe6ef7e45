// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// OTLP protobuf: bare and length-delimited.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"
)

// tagResourceSpans is the tag of TracesData.resource_spans, the only field of the message.
const tagResourceSpans = 0x0a

// protoDecoder reads a bare message ResourceSpans by ResourceSpans, each of which is returned as a payload,
// so that a message of any size needs no more memory than its largest part.
type protoDecoder struct {
	src *source
	buf []byte
}

func (d *protoDecoder) next() (ptrace.Traces, error) {
	start := d.src.offset
	if _, err := d.src.in.Peek(1); errors.Is(err, io.EOF) {
		return ptrace.Traces{}, io.EOF
	}
	tag, err := d.uvarint("the tag of a protobuf field")
	if err != nil {
		return ptrace.Traces{}, err
	}
	if tag != tagResourceSpans {
		return ptrace.Traces{}, &Error{
			Name: d.src.name, Offset: start,
			Expected: "field 1 (resource_spans) of an OTLP TracesData message", Found: fmt.Sprintf("tag %#x", tag),
		}
	}
	size, err := d.uvarint("the length of a ResourceSpans message")
	if err != nil {
		return ptrace.Traces{}, err
	}
	if size > uint64(d.src.lim.record) {
		return ptrace.Traces{}, &Error{
			Name: d.src.name, Offset: start,
			Expected: fmt.Sprintf("a ResourceSpans message of at most %d bytes", d.src.lim.record), Found: fmt.Sprintf("a length of %d", size),
		}
	}
	d.buf = binary.AppendUvarint(append(d.buf[:0], tagResourceSpans), size)
	base := d.src.offset - int64(len(d.buf))
	if d.buf, err = d.src.readN(d.buf, int(size), fmt.Sprintf("a ResourceSpans message of %d bytes", size)); err != nil {
		return ptrace.Traces{}, err
	}
	return decodeProto(d.buf, d.src.name, base, d.src.lim)
}

func (d *protoDecoder) uvarint(what string) (uint64, error) {
	start := d.src.offset
	v, err := binary.ReadUvarint(d.src)
	if err == nil {
		return v, nil
	}
	if fault := (*Error)(nil); errors.As(err, &fault) {
		return 0, err
	}
	return 0, &Error{Name: d.src.name, Offset: start, Expected: what, Err: err}
}

// delimitedDecoder reads what the file exporter writes with format proto, or with a compression: each
// message after its length. A message is protobuf, or JSON, and may be zstd in itself.
type delimitedDecoder struct {
	src     *source
	skipped *int
	buf     []byte
	plain   []byte
	zstd    *zstd.Decoder
}

func (d *delimitedDecoder) next() (ptrace.Traces, error) {
	var prefix [4]byte
	start := d.src.offset
	if _, err := d.src.in.Peek(1); errors.Is(err, io.EOF) {
		return ptrace.Traces{}, io.EOF
	}
	if _, err := d.src.readN(prefix[:0], len(prefix), "a length of 4 bytes"); err != nil {
		return ptrace.Traces{}, err
	}
	size := binary.BigEndian.Uint32(prefix[:])
	if uint64(size) > uint64(d.src.lim.record) {
		return ptrace.Traces{}, &Error{
			Name: d.src.name, Offset: start,
			Expected: fmt.Sprintf("a length of 4 bytes, big endian, of at most %d", d.src.lim.record), Found: fmt.Sprint(size),
		}
	}
	base := d.src.offset
	var err error
	if d.buf, err = d.src.readN(d.buf[:0], int(size), fmt.Sprintf("a message of %d bytes", size)); err != nil {
		return ptrace.Traces{}, err
	}
	record := d.buf
	if bytes.HasPrefix(record, zstdMagic) {
		if record, err = d.decompress(record); err != nil {
			return ptrace.Traces{}, &Error{Name: d.src.name, Offset: base, Expected: "a zstd message", Err: err}
		}
	}
	if len(record) > 0 && record[0] == '{' {
		return d.documents(record, base)
	}
	return decodeProto(record, d.src.name, base, d.src.lim)
}

// documents decodes a message that is JSON, as the file exporter writes it with a compression. Its faults are
// reported at the message, because its lines are not lines of the file.
func (d *delimitedDecoder) documents(record []byte, base int64) (ptrace.Traces, error) {
	docs := newJSONDecoder(&source{
		name: d.src.name, in: bufio.NewReader(bytes.NewReader(record)), line: 1, lim: d.src.lim,
	}, d.skipped)
	all := ptrace.NewTraces()
	for {
		td, err := docs.next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if fault := (*Error)(nil); errors.As(err, &fault) {
			fault.Line, fault.Offset = 0, base
		}
		if err != nil {
			return ptrace.Traces{}, err
		}
		td.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
}

func (d *delimitedDecoder) decompress(record []byte) ([]byte, error) {
	if d.zstd == nil {
		var err error
		if d.zstd, err = newZstd(nil, d.src.lim); err != nil {
			return nil, err
		}
	}
	var err error
	d.plain, err = d.zstd.DecodeAll(record, d.plain[:0])
	return d.plain, err
}

// decodeProto decodes one TracesData message, of which byte 0 is byte base of the recording.
func decodeProto(msg []byte, name string, base int64, lim limits) (ptrace.Traces, error) {
	c := checker{lim: lim}
	if at, err := c.check(msg, &tracesData, 0, 0); err != nil {
		return ptrace.Traces{}, &Error{Name: name, Offset: base + int64(at), Expected: "an OTLP TracesData message", Err: err}
	}
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(msg)
	if err != nil {
		return ptrace.Traces{}, &Error{Name: name, Offset: base, Expected: "an OTLP TracesData message", Err: err}
	}
	return td, nil
}

// message is the part of a message's schema that matters before decoding: which fields are messages.
type message struct {
	name   string
	fields map[protowire.Number]*message
}

// opentelemetry/proto/trace/v1/trace.proto and what it imports. Field 1000 is the deprecated name of scope_spans.
var (
	anyValue   = message{name: "AnyValue"}
	keyValue   = message{name: "KeyValue", fields: map[protowire.Number]*message{2: &anyValue}}
	arrayValue = message{name: "ArrayValue", fields: map[protowire.Number]*message{1: &anyValue}}
	kvList     = message{name: "KeyValueList", fields: map[protowire.Number]*message{1: &keyValue}}
	entityRef  = message{name: "EntityRef"}
	resource   = message{name: "Resource", fields: map[protowire.Number]*message{1: &keyValue, 3: &entityRef}}
	scope      = message{name: "InstrumentationScope", fields: map[protowire.Number]*message{3: &keyValue}}
	event      = message{name: "Span.Event", fields: map[protowire.Number]*message{3: &keyValue}}
	link       = message{name: "Span.Link", fields: map[protowire.Number]*message{4: &keyValue}}
	spanStatus = message{name: "Status"}
	span       = message{name: "Span", fields: map[protowire.Number]*message{9: &keyValue, 11: &event, 13: &link, 15: &spanStatus}}
	scopeSpans = message{name: "ScopeSpans", fields: map[protowire.Number]*message{1: &scope, 2: &span}}
	resSpans   = message{name: "ResourceSpans", fields: map[protowire.Number]*message{1: &resource, 2: &scopeSpans, 1000: &scopeSpans}}
	tracesData = message{name: "TracesData", fields: map[protowire.Number]*message{1: &resSpans}}
)

func init() {
	// A value can hold values.
	anyValue.fields = map[protowire.Number]*message{5: &arrayValue, 6: &kvList}
}

// checker walks a message before it is decoded: for the byte at which it is damaged, which the decoder
// does not tell, and for what it would need in memory.
type checker struct {
	lim      limits
	elements int
}

// check returns the offset of the fault with the fault. The first byte of msg is at offset at.
func (c *checker) check(msg []byte, m *message, at, depth int) (int, error) {
	if depth > c.lim.depth {
		return at, fmt.Errorf("values are nested more than %d deep", c.lim.depth)
	}
	if c.elements++; c.elements > c.lim.elements {
		return at, fmt.Errorf("more than %d parts in one message", c.lim.elements)
	}
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return at, fmt.Errorf("the tag of a field of %s: %w", m.name, protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[n:])
		if size < 0 {
			return at, fmt.Errorf("field %d of %s: %w", num, m.name, protowire.ParseError(size))
		}
		if sub := m.fields[num]; sub != nil && typ == protowire.BytesType {
			body, _ := protowire.ConsumeBytes(msg[n:])
			if where, err := c.check(body, sub, at+n+size-len(body), depth+1); err != nil {
				return where, err
			}
		}
		msg, at = msg[n+size:], at+n+size
	}
	return 0, nil
}
