// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package replay

// Recordings in memory, ordered by the end of their spans.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/spanlog"
)

// Recording is all spans of some files. It is kept in memory as a whole, because spans can only be
// ordered when the last one is known.
type Recording struct {
	// Files, Payloads, Spans and Requests count what was read. Requests are the spans with a gen_ai.latency.* attribute.
	Files, Payloads, Spans, Requests int
	// Skipped is the number of payloads of other signals.
	Skipped int

	names     []string
	resources []ptrace.ResourceSpans // without scopes
	scopes    []ptrace.ScopeSpans    // without spans
	items     []item                 // by at
	first     item                   // the earliest start
	last      item                   // the latest end
}

// item is one span.
type item struct {
	span            ptrace.Span
	at              pcommon.Timestamp // when it is sent: its end
	from            pcommon.Timestamp // its start
	size            int               // bytes of protobuf
	file            int
	resource, scope int
	request         bool
}

// Load reads files to their end; "-" is stdin. An error names the file, and the line or byte; a file without spans is an
// error too. It stops early, with the cause, when ctx is done.
func Load(ctx context.Context, files []string, stdin io.Reader) (*Recording, error) {
	l := loader{rec: &Recording{}, resources: map[string]int{}, scopes: map[string]int{}}
	for _, name := range files {
		if err := l.file(ctx, name, stdin); err != nil {
			return nil, err
		}
	}
	r := l.rec
	slices.SortStableFunc(r.items, func(a, b item) int { return cmp.Compare(a.at, b.at) })
	for _, it := range r.items {
		if it.at == 0 {
			continue // a span without any time
		}
		if r.first.at == 0 || it.from < r.first.from {
			r.first = it
		}
		r.last = it
	}
	return r, nil
}

// Duration is the recorded time: from the first start to the last end. Zero if no span has a time.
func (r *Recording) Duration() time.Duration { return time.Duration(r.last.at - r.first.from) }

// maxDuration is how long a recording may be that is to be played in time. A longer one has a broken clock in it.
const maxDuration = 366 * 24 * time.Hour

// Check reports why the recording cannot be replayed with o.
func (r *Recording) Check(o Options) error {
	if d := uint64(r.last.at - r.first.from); d > uint64(maxDuration) && (o.Speed > 0 || o.Now || o.Loop) {
		return fmt.Errorf("the recording lasts from %v (%s) to %v (%s), which is more than a year: leave one out, or send the times as they are with --speed 0",
			r.first.from, r.names[r.first.file], r.last.at, r.names[r.last.file])
	}
	return nil
}

type loader struct {
	rec               *Recording
	resources, scopes map[string]int
	marshaler         ptrace.ProtoMarshaler
}

func (l *loader) file(ctx context.Context, name string, stdin io.Reader) error {
	var reader *spanlog.Reader
	var err error
	if name == "-" {
		name = "standard input"
		reader, err = spanlog.NewReader(stdin, name)
	} else {
		reader, err = spanlog.Open(name)
	}
	if err != nil {
		return err
	}
	defer reader.Close()
	l.rec.Files++
	l.rec.names = append(l.rec.names, name)
	before := l.rec.Spans
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		td, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		l.rec.Payloads++
		l.add(td)
	}
	l.rec.Skipped += reader.Skipped()
	if l.rec.Spans == before {
		return fmt.Errorf("%s: no spans in it (%s)", name, reader.Format())
	}
	return nil
}

func (l *loader) add(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		// Equal resources and scopes are kept once, so that a request groups its spans as an engine does.
		bare := ptrace.NewTraces()
		head := bare.ResourceSpans().AppendEmpty()
		rs.Resource().CopyTo(head.Resource())
		head.SetSchemaUrl(rs.SchemaUrl())
		resource := intern(l, l.resources, bare, func() int {
			l.rec.resources = append(l.rec.resources, head)
			return len(l.rec.resources) - 1
		})
		for _, ss := range rs.ScopeSpans().All() {
			bare := ptrace.NewTraces()
			head := bare.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
			ss.Scope().CopyTo(head.Scope())
			head.SetSchemaUrl(ss.SchemaUrl())
			scope := intern(l, l.scopes, bare, func() int {
				l.rec.scopes = append(l.rec.scopes, head)
				return len(l.rec.scopes) - 1
			})
			for _, span := range ss.Spans().All() {
				it := item{
					span: span, from: span.StartTimestamp(), at: span.EndTimestamp(), size: l.marshaler.SpanSize(span),
					file: len(l.rec.names) - 1, resource: resource, scope: scope, request: isRequest(span),
				}
				// An absent time is taken from the other one.
				if it.at == 0 {
					it.at = it.from
				}
				if it.from == 0 || it.from > it.at {
					it.from = it.at
				}
				l.rec.items = append(l.rec.items, it)
				l.rec.Spans++
				if it.request {
					l.rec.Requests++
				}
			}
		}
	}
}

// intern is the index of an equal payload seen before, or what add returns for a new one. The bytes decide, so
// attributes in another order make another resource, which does no harm.
func intern(l *loader, seen map[string]int, td ptrace.Traces, add func() int) int {
	key, err := l.marshaler.MarshalTraces(td)
	if err != nil { // the protobuf marshaler of pdata has no error to return
		return add()
	}
	index, ok := seen[string(key)]
	if !ok {
		index = add()
		seen[string(key)] = index
	}
	return index
}

func isRequest(span ptrace.Span) bool {
	for key := range span.Attributes().All() {
		if strings.HasPrefix(key, "gen_ai.latency.") {
			return true
		}
	}
	return false
}
