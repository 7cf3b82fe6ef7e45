// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package replay

// Moving a span in time, and the new IDs that go with it.

import (
	"crypto/sha256"
	"encoding/binary"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// shift moves spans by nanos, modulo 2^64. A span that has moved is another span, and gets other IDs: they are a
// function of the recorded ID and of the shift, so that parents, links and the spans of one trace still
// belong together, in whatever request they are sent. With a shift of 0 nothing changes.
type shift struct{ nanos uint64 }

func (s shift) apply(span ptrace.Span) {
	if s.nanos == 0 {
		return
	}
	trace := span.TraceID()
	span.SetSpanID(s.spanID(trace, span.SpanID()))
	span.SetParentSpanID(s.spanID(trace, span.ParentSpanID()))
	span.SetTraceID(s.traceID(trace))
	span.SetStartTimestamp(s.time(span.StartTimestamp()))
	span.SetEndTimestamp(s.time(span.EndTimestamp()))
	for _, event := range span.Events().All() {
		event.SetTimestamp(s.time(event.Timestamp()))
	}
	for _, link := range span.Links().All() {
		link.SetSpanID(s.spanID(link.TraceID(), link.SpanID()))
		link.SetTraceID(s.traceID(link.TraceID()))
	}
}

// time leaves an absent time absent.
func (s shift) time(t pcommon.Timestamp) pcommon.Timestamp {
	if t == 0 {
		return 0
	}
	return t + pcommon.Timestamp(s.nanos)
}

// traceID leaves an absent ID absent. A hash of all zeros is as likely as a collision.
func (s shift) traceID(id pcommon.TraceID) pcommon.TraceID {
	if id.IsEmpty() {
		return id
	}
	var in [24]byte
	binary.BigEndian.PutUint64(in[:], s.nanos)
	copy(in[8:], id[:])
	sum := sha256.Sum256(in[:])
	return pcommon.TraceID(sum[:16])
}

// spanID hashes the trace's ID too: a span ID is unique only within its trace.
func (s shift) spanID(trace pcommon.TraceID, id pcommon.SpanID) pcommon.SpanID {
	if id.IsEmpty() {
		return id
	}
	var in [32]byte
	binary.BigEndian.PutUint64(in[:], s.nanos)
	copy(in[8:], trace[:])
	copy(in[24:], id[:])
	sum := sha256.Sum256(in[:])
	return pcommon.SpanID(sum[:8])
}
