// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// The debug exporter's text: the structure of a payload.
//
// The text is read line by line straight into pdata. What a line is depends on where it stands: the same
// "-> Name: x" is a field of an event or the beginning of nonsense. A line that cannot stand where it is
// belongs to the string before it, if that is one that may have several lines.

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
)

// section is the part of a payload that the next line stands in.
type section uint8

const (
	secOutside       section = iota // between payloads: lines of the log
	secOtherSignal                  // in a payload of metrics, logs or profiles
	secResource                     // after ResourceSpans #
	secResourceAttrs                // after Resource attributes:
	secEntities                     // after Resource entity refs:
	secScope                        // after ScopeSpans #
	secScopeAttrs                   // after InstrumentationScope attributes:
	secSpan                         // after Span #
	secSpanAttrs                    // after Attributes:
	secEvents                       // after Events:
	secEvent                        // after SpanEvent #
	secEventAttrs                   // after its -> Attributes::
	secLinks                        // after Links:
	secLink                         // after SpanLink #
	secLinkAttrs                    // after its -> Attributes::
)

func (s section) holdsAttributes() bool {
	return s == secResourceAttrs || s == secScopeAttrs || s == secSpanAttrs || s == secEventAttrs || s == secLinkAttrs
}

// op is what a line is.
type op uint8

const (
	opNone op = iota // not a line of the structure
	opLog            // a line of the logger around a payload
	opOtherSignal
	opResourceSpans
	opResourceSchemaURL
	opResourceAttrs
	opEntities
	opEntity
	opEntityField
	opScopeSpans
	opScopeSchemaURL
	opScope
	opScopeAttrs
	opSpan
	opSpanField
	opSpanAttrs
	opEvents
	opEvent
	opEventField
	opEventAttrs
	opLinks
	opLink
	opLinkField
	opLinkAttrs
	opAttr
)

// statement is a line taken apart. key and arg alias the line.
type statement struct {
	op    op
	key   string // of a field or attribute
	kind  string // the type of an attribute
	arg   string // the value
	index int    // after #
}

// textDecoder builds the payload it is in.
type textDecoder struct {
	src     *source
	skipped *int
	buf     []byte
	lineNo  int   // of the line being read
	lineAt  int64 // its first byte
	done    []ptrace.Traces
	// What the whole file held, for the error if there is no span in it.
	spans, logLines int
	ended           error

	// The payload that is being built.
	section  section
	implicit bool // it began with Span #, not with ResourceSpans #
	payload  ptrace.Traces
	building bool
	size     int
	elements int
	rs       ptrace.ResourceSpans
	ss       ptrace.ScopeSpans
	span     ptrace.Span
	event    ptrace.SpanEvent
	link     ptrace.SpanLink
	attrs    pcommon.Map
	entity   entity.EntityRef
	entityTo string // the list that an entity's keys go to

	spanLine int
	seen     map[string]bool // fields of the span

	open openString
}

// openString is a string whose next lines may follow.
type openString struct {
	active bool
	attr   bool // it ends with a parenthesis
	line   int
	offset int64
	blanks []string // empty lines that belong to it if a line of it follows
	text   strings.Builder
	set    func(string)
}

func (o *openString) closed() bool { return !o.attr || strings.HasSuffix(o.text.String(), ")") }

func newTextDecoder(src *source, skipped *int) *textDecoder {
	return &textDecoder{src: src, skipped: skipped, seen: map[string]bool{}}
}

func (d *textDecoder) next() (ptrace.Traces, error) {
	for len(d.done) == 0 {
		if d.ended != nil {
			return ptrace.Traces{}, d.ended
		}
		d.lineNo, d.lineAt = d.src.line, d.src.offset
		line, err := d.src.readLine(d.buf)
		if err != nil {
			if err := d.end(err); err != nil {
				return ptrace.Traces{}, err
			}
			continue
		}
		d.buf = line
		if err := d.feed(string(line)); err != nil {
			return ptrace.Traces{}, err
		}
	}
	td := d.done[0]
	d.done = d.done[1:]
	return td, nil
}

// end takes the end of the file, or a failure to read it, which is returned once the payloads before it are.
func (d *textDecoder) end(cause error) error {
	d.ended = cause
	if fault, ok := cause.(*Error); ok {
		return fault
	}
	if err := d.finishPayload(); err != nil {
		return err
	}
	if d.spans == 0 && *d.skipped == 0 {
		found := "none in the whole file"
		if d.logLines > 0 {
			found = "only the exporter's summary lines: it needs verbosity: detailed"
		}
		return &Error{Name: d.src.name, Line: max(d.lineNo-1, 1), Offset: d.src.offset, Expected: knownFormats, Found: found}
	}
	return nil
}

// feed takes one line.
func (d *textDecoder) feed(line string) error {
	if d.building {
		if d.size += len(line) + 1; d.size > d.src.lim.record {
			return d.fault(fmt.Sprintf("a payload of at most %d bytes", d.src.lim.record), "")
		}
	}
	if d.open.active && !d.open.closed() {
		if beginsPayload(line) || isTimestamped(line) {
			return d.unclosed()
		}
		d.continueOpen(line)
		return nil
	}
	if strings.TrimSpace(line) == "" {
		// At most 64 MiB in all: the size of the payload is counted above.
		if d.open.active {
			d.open.blanks = append(d.open.blanks, line)
		}
		return nil
	}
	s := d.parse(line)
	if s.op == opNone {
		switch {
		case d.open.active:
			d.continueOpen(line)
			return nil
		case d.section == secOutside || d.section == secOtherSignal:
			return nil
		}
		return d.fault("a line of the debug exporter's text at verbosity detailed", quoted(line))
	}
	if err := d.closeOpen(); err != nil {
		return err
	}
	return d.apply(s)
}

func (d *textDecoder) continueOpen(line string) {
	for _, l := range append(d.open.blanks, line) {
		d.open.text.WriteByte('\n')
		d.open.text.WriteString(l)
	}
	d.open.blanks = d.open.blanks[:0]
}

func (d *textDecoder) openString(attr bool, text string, set func(string)) {
	d.open.active, d.open.attr, d.open.set = true, attr, set
	d.open.line, d.open.offset, d.open.blanks = d.lineNo, d.lineAt, d.open.blanks[:0]
	d.open.text.Reset()
	d.open.text.WriteString(text)
}

func (d *textDecoder) closeOpen() error {
	d.open.blanks = d.open.blanks[:0]
	if !d.open.active {
		return nil
	}
	if !d.open.closed() {
		return d.unclosed()
	}
	text := d.open.text.String()
	if d.open.attr {
		text = text[:len(text)-1]
	}
	d.open.set(text)
	d.open.active = false
	return nil
}

func (d *textDecoder) unclosed() error {
	return &Error{
		Name: d.src.name, Line: d.open.line, Offset: d.open.offset,
		Expected: "a value that ends with \")\"", Found: fmt.Sprintf("no end up to line %d", d.lineNo),
	}
}

func (d *textDecoder) fault(expected, found string) error {
	return &Error{Name: d.src.name, Line: d.lineNo, Offset: d.lineAt, Expected: expected, Found: found}
}

// parse takes line apart as far as it can stand in the present section.
func (d *textDecoder) parse(line string) statement {
	if name, index, ok := payloadStart(line); ok {
		if name == "ResourceSpans" {
			return statement{op: opResourceSpans, index: index}
		}
		return statement{op: opOtherSignal}
	}
	if isLogLine(line) {
		return statement{op: opLog, arg: line}
	}
	if d.section == secOtherSignal {
		return statement{}
	}
	text := strings.TrimLeft(line, " \t")
	if index, ok := numbered(text, "Span #"); ok {
		return statement{op: opSpan, index: index}
	}
	if d.section == secOutside {
		return statement{}
	}
	if index, ok := numbered(text, "ScopeSpans #"); ok {
		return statement{op: opScopeSpans, index: index}
	}
	if item, ok := strings.CutPrefix(text, "->"); ok {
		return d.parseItem(strings.TrimPrefix(item, " "))
	}
	switch d.section {
	case secResource, secResourceAttrs, secEntities:
		if arg, ok := strings.CutPrefix(text, "Resource SchemaURL:"); ok {
			return statement{op: opResourceSchemaURL, arg: strings.TrimPrefix(arg, " ")}
		}
		switch text {
		case "Resource attributes:":
			return statement{op: opResourceAttrs}
		case "Resource entity refs:":
			return statement{op: opEntities}
		}
	case secScope, secScopeAttrs:
		if arg, ok := strings.CutPrefix(text, "ScopeSpans SchemaURL:"); ok {
			return statement{op: opScopeSchemaURL, arg: strings.TrimPrefix(arg, " ")}
		}
		if text == "InstrumentationScope attributes:" {
			return statement{op: opScopeAttrs}
		}
		if arg, ok := strings.CutPrefix(text, "InstrumentationScope"); ok && (arg == "" || arg[0] == ' ') {
			return statement{op: opScope, arg: strings.TrimPrefix(arg, " ")}
		}
	case secSpan, secSpanAttrs, secEvents, secEvent, secEventAttrs, secLinks, secLink, secLinkAttrs:
		switch text {
		case "Attributes:":
			return statement{op: opSpanAttrs}
		case "Events:":
			return statement{op: opEvents}
		case "Links:":
			return statement{op: opLinks}
		}
		if index, ok := numbered(text, "SpanEvent #"); ok {
			return statement{op: opEvent, index: index}
		}
		if index, ok := numbered(text, "SpanLink #"); ok {
			return statement{op: opLink, index: index}
		}
		if d.section == secSpan {
			if key, arg, ok := strings.Cut(text, ":"); ok {
				if key = strings.TrimRight(key, " "); spanFields[key] {
					return statement{op: opSpanField, key: key, arg: strings.TrimPrefix(arg, " ")}
				}
			}
		}
	}
	return statement{}
}

// parseItem takes the line of a list apart, without its arrow.
func (d *textDecoder) parseItem(item string) statement {
	key, arg, colon := strings.Cut(item, ":")
	arg = strings.TrimPrefix(arg, " ")
	switch d.section {
	case secEvent:
		if key == "Attributes" && colon {
			return statement{op: opEventAttrs}
		}
		if eventFields[key] && colon {
			return statement{op: opEventField, key: key, arg: arg}
		}
	case secLink:
		if key == "Attributes" && colon {
			return statement{op: opLinkAttrs}
		}
		if linkFields[key] && colon {
			return statement{op: opLinkField, key: key, arg: arg}
		}
	case secEntities:
		if _, ok := numbered(strings.TrimSuffix(item, ":"), "Entity ref #"); ok {
			return statement{op: opEntity}
		}
		return statement{op: opEntityField, key: key, arg: item}
	default:
		if d.section.holdsAttributes() {
			if key, kind, arg, ok := cutAttribute(item); ok {
				return statement{op: opAttr, key: key, kind: kind, arg: arg}
			}
		}
	}
	return statement{}
}

var (
	spanFields = map[string]bool{
		"Trace ID": true, "Parent ID": true, "ID": true, "Name": true, "Kind": true, "TraceState": true,
		"Start time": true, "End time": true, "Status code": true, "Status message": true,
		"DroppedAttributesCount": true, "DroppedEventsCount": true, "DroppedLinksCount": true,
	}
	eventFields = map[string]bool{"Name": true, "Timestamp": true, "DroppedAttributesCount": true}
	linkFields  = map[string]bool{"Trace ID": true, "ID": true, "TraceState": true, "DroppedAttributesCount": true}
)

// apply puts a line into the payload.
func (d *textDecoder) apply(s statement) error {
	if s.op != opAttr && s.op != opSpanField && s.op != opEventField && s.op != opLinkField {
		if err := d.charge(1); err != nil {
			return err
		}
	}
	switch s.op {
	case opLog:
		if strings.Contains(s.arg, `"spans": `) {
			d.logLines++
		}
		return d.finishPayload()
	case opOtherSignal:
		if err := d.finishPayload(); err != nil {
			return err
		}
		*d.skipped++
		d.section = secOtherSignal
	case opResourceSpans:
		// Resources of one payload are numbered on; a 0 begins the next payload.
		if d.building && (d.implicit || s.index == 0) {
			if err := d.finishPayload(); err != nil {
				return err
			}
		}
		if err := d.finishSpan(); err != nil {
			return err
		}
		d.begin(false)
		d.rs = d.payload.ResourceSpans().AppendEmpty()
		d.section = secResource
	case opResourceSchemaURL:
		d.rs.SetSchemaUrl(s.arg)
	case opResourceAttrs:
		d.section, d.attrs = secResourceAttrs, d.rs.Resource().Attributes()
	case opEntities:
		d.section, d.entity = secEntities, entity.EntityRef{}
	case opEntity:
		d.entity = entity.ResourceEntityRefs(d.rs.Resource()).AppendEmpty()
		d.entityTo = ""
	case opEntityField:
		return d.entityField(s)
	case opScopeSpans:
		if err := d.finishSpan(); err != nil {
			return err
		}
		d.ss = d.rs.ScopeSpans().AppendEmpty()
		d.section = secScope
	case opScopeSchemaURL:
		d.ss.SetSchemaUrl(s.arg)
	case opScope:
		// The exporter prints "name version"; a version has no blank in it.
		scope := d.ss.Scope()
		d.openString(false, s.arg, func(text string) {
			name, version := text, ""
			if i := strings.LastIndexByte(text, ' '); i >= 0 {
				name, version = text[:i], text[i+1:]
			}
			scope.SetName(name)
			scope.SetVersion(version)
		})
	case opScopeAttrs:
		d.section, d.attrs = secScopeAttrs, d.ss.Scope().Attributes()
	case opSpan:
		return d.beginSpan(s.index)
	case opSpanField:
		return d.spanField(s)
	case opSpanAttrs:
		d.section, d.attrs = secSpanAttrs, d.span.Attributes()
	case opEvents:
		d.section = secEvents
	case opEvent:
		d.event = d.span.Events().AppendEmpty()
		d.section = secEvent
	case opEventField:
		return d.eventField(s)
	case opEventAttrs:
		d.section, d.attrs = secEventAttrs, d.event.Attributes()
	case opLinks:
		d.section = secLinks
	case opLink:
		d.link = d.span.Links().AppendEmpty()
		d.section = secLink
	case opLinkField:
		return d.linkField(s)
	case opLinkAttrs:
		d.section, d.attrs = secLinkAttrs, d.link.Attributes()
	case opAttr:
		return d.attribute(s)
	}
	return nil
}

// charge counts parts of the payload against the limit.
func (d *textDecoder) charge(n int) error {
	if d.elements += n; d.building && d.elements > d.src.lim.elements {
		return d.fault(fmt.Sprintf("a payload of at most %d parts", d.src.lim.elements), "")
	}
	return nil
}

func (d *textDecoder) begin(implicit bool) {
	if d.building {
		return
	}
	d.building, d.implicit, d.size, d.elements = true, implicit, 0, 0
	d.payload = ptrace.NewTraces()
	d.ss = ptrace.ScopeSpans{}
}

func (d *textDecoder) beginSpan(index int) error {
	if err := d.finishSpan(); err != nil {
		return err
	}
	switch d.section {
	case secResource, secResourceAttrs, secEntities:
		return d.fault("ScopeSpans #0 before the first span of a resource", fmt.Sprintf("Span #%d", index))
	case secOutside:
		// Blocks cut out of the output have no resource and no scope, and begin at any number.
		d.begin(true)
		d.rs = d.payload.ResourceSpans().AppendEmpty()
		d.ss = d.rs.ScopeSpans().AppendEmpty()
	default:
		switch want := d.ss.Spans().Len(); {
		case d.implicit && index == 0:
			if err := d.finishPayload(); err != nil {
				return err
			}
			return d.beginSpan(index)
		case !d.implicit && index != want:
			return d.fault(fmt.Sprintf("Span #%d", want), fmt.Sprintf("Span #%d", index))
		}
	}
	d.span = d.ss.Spans().AppendEmpty()
	d.section, d.spanLine = secSpan, d.lineNo
	clear(d.seen)
	d.spans++
	return nil
}

// finishSpan refuses a span whose block is cut off: without its times it would distort every figure.
func (d *textDecoder) finishSpan() error {
	if d.section < secSpan {
		return nil
	}
	for _, field := range []string{"Trace ID", "ID", "Name", "Start time", "End time"} {
		if !d.seen[field] {
			return &Error{
				Name: d.src.name, Line: d.spanLine, Offset: d.lineAt,
				Expected: fmt.Sprintf("a span with %q", field), Found: fmt.Sprintf("none up to line %d", d.lineNo),
			}
		}
	}
	return nil
}

func (d *textDecoder) finishPayload() error {
	if err := d.closeOpen(); err != nil {
		return err
	}
	if err := d.finishSpan(); err != nil {
		return err
	}
	if d.building {
		d.done = append(d.done, d.payload)
	}
	d.building, d.section = false, secOutside
	return nil
}

func (d *textDecoder) entityField(s statement) error {
	if d.entity == (entity.EntityRef{}) {
		return d.fault("Entity ref #0", quoted(s.arg))
	}
	value := strings.TrimPrefix(strings.TrimPrefix(s.arg, s.key+":"), " ")
	switch {
	case s.key == "Type" && d.entityTo == "":
		d.entity.SetType(value)
	case s.key == "Schema URL" && d.entityTo == "":
		d.entity.SetSchemaUrl(value)
	case s.key == "ID keys" || s.key == "Description keys":
		d.entityTo = s.key
	case d.entityTo == "ID keys":
		d.entity.IdKeys().Append(s.arg)
	case d.entityTo == "Description keys":
		d.entity.DescriptionKeys().Append(s.arg)
	default:
		return d.fault("a field of an entity", quoted(s.arg))
	}
	return nil
}

func (d *textDecoder) spanField(s statement) error {
	d.seen[s.key] = true
	span := d.span
	var err error
	switch s.key {
	case "Trace ID":
		var id pcommon.TraceID
		err = d.id(id[:], s.arg)
		span.SetTraceID(id)
	case "Parent ID":
		var id pcommon.SpanID
		err = d.id(id[:], s.arg)
		span.SetParentSpanID(id)
	case "ID":
		var id pcommon.SpanID
		err = d.id(id[:], s.arg)
		span.SetSpanID(id)
	case "Name":
		d.openString(false, s.arg, span.SetName)
	case "Kind":
		kind, ok := kinds[strings.TrimSpace(s.arg)]
		if !ok {
			return d.fault("a kind of span such as Server", quoted(s.arg))
		}
		span.SetKind(kind)
	case "TraceState":
		span.TraceState().FromRaw(s.arg)
	case "Start time":
		var t pcommon.Timestamp
		t, err = d.time(s.arg)
		span.SetStartTimestamp(t)
	case "End time":
		var t pcommon.Timestamp
		t, err = d.time(s.arg)
		span.SetEndTimestamp(t)
	case "Status code":
		code, ok := codes[strings.TrimSpace(s.arg)]
		if !ok {
			return d.fault("a status code: Unset, Ok or Error", quoted(s.arg))
		}
		span.Status().SetCode(code)
	case "Status message":
		d.openString(false, s.arg, span.Status().SetMessage)
	case "DroppedAttributesCount":
		err = d.count(s.arg, span.SetDroppedAttributesCount)
	case "DroppedEventsCount":
		err = d.count(s.arg, span.SetDroppedEventsCount)
	case "DroppedLinksCount":
		err = d.count(s.arg, span.SetDroppedLinksCount)
	}
	return err
}

func (d *textDecoder) eventField(s statement) error {
	switch s.key {
	case "Name":
		d.openString(false, s.arg, d.event.SetName)
		return nil
	case "Timestamp":
		t, err := d.time(s.arg)
		d.event.SetTimestamp(t)
		return err
	}
	return d.count(s.arg, d.event.SetDroppedAttributesCount)
}

func (d *textDecoder) linkField(s statement) error {
	switch s.key {
	case "Trace ID":
		var id pcommon.TraceID
		err := d.id(id[:], s.arg)
		d.link.SetTraceID(id)
		return err
	case "ID":
		var id pcommon.SpanID
		err := d.id(id[:], s.arg)
		d.link.SetSpanID(id)
		return err
	case "TraceState":
		d.link.TraceState().FromRaw(s.arg)
		return nil
	}
	return d.count(s.arg, d.link.SetDroppedAttributesCount)
}

var kinds = map[string]ptrace.SpanKind{
	"": ptrace.SpanKindUnspecified, "Unspecified": ptrace.SpanKindUnspecified, "Internal": ptrace.SpanKindInternal,
	"Server": ptrace.SpanKindServer, "Client": ptrace.SpanKindClient,
	"Producer": ptrace.SpanKindProducer, "Consumer": ptrace.SpanKindConsumer,
}

var codes = map[string]ptrace.StatusCode{
	"": ptrace.StatusCodeUnset, "Unset": ptrace.StatusCodeUnset, "Ok": ptrace.StatusCodeOk, "Error": ptrace.StatusCodeError,
}

// id reads hexadecimal digits into id; an empty ID is all zero.
func (d *textDecoder) id(id []byte, arg string) error {
	arg = strings.TrimSpace(arg)
	if arg == "" {
		return nil
	}
	raw, err := hex.DecodeString(arg)
	if err != nil || len(raw) != len(id) {
		return d.fault(fmt.Sprintf("an ID of %d hexadecimal digits", 2*len(id)), quoted(arg))
	}
	copy(id, raw)
	return nil
}

const timeLayout = "2006-01-02 15:04:05.999999999 -0700 MST"

// The times that nanoseconds in 64 bits can tell, which are all that the exporter can print.
var earliest, latest = time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)

func (d *textDecoder) time(arg string) (pcommon.Timestamp, error) {
	t, err := time.Parse(timeLayout, strings.TrimSpace(arg))
	if err != nil || t.Before(earliest) || t.After(latest) {
		return 0, d.fault("a time such as 2026-01-02 15:04:05.123456789 +0000 UTC", quoted(arg))
	}
	return pcommon.NewTimestampFromTime(t), nil
}

func (d *textDecoder) count(arg string, set func(uint32)) error {
	n, err := strconv.ParseUint(strings.TrimSpace(arg), 10, 32)
	if err != nil {
		return d.fault("a count", quoted(arg))
	}
	set(uint32(n))
	return nil
}

// payloadStart tells the first line of a payload. The console logger puts its time, level and more before it.
func payloadStart(line string) (name string, index int, ok bool) {
	hash := strings.LastIndexByte(line, '#')
	if hash < 0 || !strings.Contains(line, "Resource") {
		return "", 0, false
	}
	line = line[strings.LastIndexByte(line, '\t')+1:]
	for _, name := range []string{"ResourceSpans", "ResourceMetrics", "ResourceLog", "ResourceLogs", "ResourceProfiles"} {
		if index, ok := numbered(line, name+" #"); ok {
			return name, index, true
		}
	}
	return "", 0, false
}

func beginsPayload(line string) bool {
	_, _, ok := payloadStart(line)
	return ok
}

// numbered tells a heading such as "Span #12".
func numbered(line, heading string) (int, bool) {
	digits, ok := strings.CutPrefix(line, heading)
	if !ok || digits == "" || digits[0] < '0' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// isLogLine tells a line of the logger: one with a time before it, the summary before a payload, or the
// fields after it.
func isLogLine(line string) bool {
	if isTimestamped(line) {
		return true
	}
	for _, signal := range []string{"Traces\t{", "Metrics\t{", "Logs\t{", "Profiles\t{"} {
		if strings.HasPrefix(line, signal) {
			return true
		}
	}
	text := strings.TrimPrefix(line, "\t")
	return strings.HasPrefix(text, `{"`) && strings.HasSuffix(text, "}")
}

// isTimestamped tells a line that begins as the console logger's: 2026-01-02T15:04:05.000Z, then a tab.
func isTimestamped(line string) bool {
	stamp, _, tab := strings.Cut(line, "\t")
	if !tab || len(stamp) < len("2006-01-02T15:04:05Z") || stamp[10] != 'T' {
		return false
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999Z0700", time.RFC3339Nano} {
		if _, err := time.Parse(layout, stamp); err == nil {
			return true
		}
	}
	return false
}
