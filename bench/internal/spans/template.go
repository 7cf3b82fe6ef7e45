// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spans

// An export on the wire, and the places in it that make it another export.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// Dimension is the span attribute that tells series apart in templates that have series.
const Dimension = "tenant.id"

const (
	enginePrefix = "engine-"
	seriesPrefix = "tenant-"
	digits       = 7
)

// Template is an OTLP export of request spans of one engine.
type Template struct {
	Wire []byte // the export request as protobuf

	traceIDs, spanIDs, starts, ends []int // offsets in Wire
	durations                       []uint64
	engine                          int   // offset of its number
	series                          []int // offsets of their numbers; none: spans have no Dimension
}

// Export says which export a Template is to be.
type Export struct {
	// FirstID is the number of the first span: exports with other numbers hold other spans.
	FirstID uint64
	// Engine is the engine's number.
	Engine int
	// End is when the first request ended, in Unix nanoseconds, and Step how much later each further one does.
	End, Step uint64
	// FirstSeries is the series of the first span, of Series that the spans of an engine take turns with.
	FirstSeries, Series int
}

// New makes a template of n spans of a kind. With series, every span has the attribute Dimension.
func New(kind Kind, n int, series bool) (*Template, error) {
	td, err := kind.traces(n)
	if err != nil {
		return nil, err
	}
	t := &Template{}
	td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.instance.id", fmt.Sprintf("%s%0*d", enginePrefix, digits, 0))
	all := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for i, span := range all.All() {
		t.durations = append(t.durations, uint64(span.EndTimestamp()-span.StartTimestamp()))
		if series {
			span.Attributes().PutStr(Dimension, fmt.Sprintf("%s%0*d", seriesPrefix, digits, 0))
		}
		mark(span, i)
	}
	if t.Wire, err = ptraceotlp.NewExportRequestFromTraces(td).MarshalProto(); err != nil {
		return nil, err
	}
	return t, t.find(all, series)
}

// mark gives a span IDs and times that are nowhere else in the export.
func mark(span ptrace.Span, i int) {
	var trace pcommon.TraceID
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(trace[:], 0xfeedfacecafebeef)
	binary.BigEndian.PutUint64(trace[8:], uint64(i))
	binary.BigEndian.PutUint64(id[:], 0xdeadbeef00000000|uint64(i))
	span.SetTraceID(trace)
	span.SetSpanID(id)
	span.SetStartTimestamp(pcommon.Timestamp(0xabad1deaf00d0000 + uint64(2*i)))
	span.SetEndTimestamp(pcommon.Timestamp(0xabad1deaf00d0000 + uint64(2*i+1)))
}

// find finds the places of what mark set. Fields may be in any order, spans are in theirs.
func (t *Template) find(all ptrace.SpanSlice, series bool) error {
	var errs []error
	add := func(to *[]int, what []byte, skip int) {
		from := 0
		if len(*to) > 0 {
			from = (*to)[len(*to)-1]
		}
		i := bytes.Index(t.Wire[from:], what)
		if i < 0 {
			errs = append(errs, fmt.Errorf("%x is not on the wire", what))
		}
		*to = append(*to, from+i+skip)
	}
	var engine []int
	add(&engine, []byte(enginePrefix), len(enginePrefix))
	t.engine = engine[0]
	for _, span := range all.All() {
		trace, id := span.TraceID(), span.SpanID()
		add(&t.traceIDs, trace[:], 0)
		add(&t.spanIDs, id[:], 0)
		add(&t.starts, binary.LittleEndian.AppendUint64(nil, uint64(span.StartTimestamp())), 0)
		add(&t.ends, binary.LittleEndian.AppendUint64(nil, uint64(span.EndTimestamp())), 0)
		if series {
			add(&t.series, []byte(seriesPrefix), len(seriesPrefix))
		}
	}
	return errors.Join(errs...)
}

// Len is the number of spans.
func (t *Template) Len() int { return len(t.durations) }

// Clone is a template that can be set on its own.
func (t *Template) Clone() *Template {
	c := *t
	c.Wire = bytes.Clone(t.Wire)
	return &c
}

// Set makes Wire another export.
func (t *Template) Set(e Export) {
	putDigits(t.Wire[t.engine:], e.Engine)
	for i := range t.durations {
		putTraceID(t.Wire[t.traceIDs[i]:], e.FirstID+uint64(i))
		putSpanID(t.Wire[t.spanIDs[i]:], e.FirstID+uint64(i))
		end := e.End + uint64(i)*e.Step
		binary.LittleEndian.PutUint64(t.Wire[t.starts[i]:], end-t.durations[i])
		binary.LittleEndian.PutUint64(t.Wire[t.ends[i]:], end)
		if t.series != nil {
			putDigits(t.Wire[t.series[i]:], (e.FirstSeries+i)%max(e.Series, 1))
		}
	}
}

// Traces decodes Wire.
func (t *Template) Traces() (ptrace.Traces, error) {
	request := ptraceotlp.NewExportRequest()
	err := request.UnmarshalProto(t.Wire)
	return request.Traces(), err
}

// Renumber does to a decoded export what Set does to IDs and times.
func Renumber(td ptrace.Traces, e Export) {
	i := uint64(0)
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				var trace pcommon.TraceID
				var id pcommon.SpanID
				putTraceID(trace[:], e.FirstID+i)
				putSpanID(id[:], e.FirstID+i)
				span.SetTraceID(trace)
				span.SetSpanID(id)
				end := pcommon.Timestamp(e.End + i*e.Step)
				span.SetStartTimestamp(end - (span.EndTimestamp() - span.StartTimestamp()))
				span.SetEndTimestamp(end)
				i++
			}
		}
	}
}

// IDs are spread as random ones are, by an odd multiplier (the golden ratio's), and never zero.

func putTraceID(to []byte, n uint64) {
	binary.LittleEndian.PutUint64(to, n*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(to[8:], n+1)
}

func putSpanID(to []byte, n uint64) {
	binary.LittleEndian.PutUint64(to, n*0x9e3779b97f4a7c15+1|1<<63)
}

func putDigits(to []byte, n int) {
	for i := digits - 1; i >= 0; i-- {
		to[i] = byte('0' + n%10)
		n /= 10
	}
}
