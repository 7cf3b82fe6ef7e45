// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

// Span to Request, in one pass over the span's attributes and without allocation.

import (
	"math"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Read fills r from span and reports whether the span is a finished request of an inference
// engine. If it is not, r holds nothing of use. What makes a span a request is that it carries a
// latency attribute of a known dialect: names and scopes have changed between versions.
func Read(span ptrace.Span, src *Source, r *Request) bool {
	r.reset()

	var (
		seen  marks
		names names
		got   uint32 // fields that had an attribute, good or bad
		i     uint
	)
	for key, value := range span.Attributes().All() {
		a := src.order.guess(i)
		if a.key != key {
			a = src.order.find(i, key)
		}
		i++
		seen |= a.marks
		switch a.role {
		case roleNone:
		case roleSeconds:
			// Nearly all are such that there is nothing to refuse yet. What is no double is 0 here.
			if v := value.Double(); v > 0 && v <= maxDuration && got&(1<<a.field) == 0 {
				got |= 1 << a.field
				r.Set(a.field, v)
				continue
			}
			got = r.readFigure(a, value, got)
		case roleCount:
			if n := value.Int(); n > 0 && n <= maxCount && got&(1<<a.field) == 0 {
				got |= 1 << a.field
				r.Set(a.field, float64(n))
				continue
			}
			got = r.readFigure(a, value, got)
		default:
			r.readName(a.role, value, &names)
		}
	}
	if seen&markRequest == 0 {
		return false
	}
	r.canonical = uint32(seen >> canonicalShift)

	r.TraceID, r.SpanID = span.TraceID(), span.SpanID()
	r.Start, r.End = span.StartTimestamp(), span.EndTimestamp()
	switch {
	case names.responseModel != "":
		r.Model = names.responseModel
	case names.requestModel != "":
		r.Model = names.requestModel
	default:
		r.Model = src.Model
	}
	r.Failed = r.ErrorType != "" || span.Status().Code() == ptrace.StatusCodeError
	if r.Failed && r.ErrorType == "" {
		r.ErrorType = "_OTHER"
	}
	r.identify(span.Name(), src, seen)
	r.refuseImplausible()
	return true
}

// IsRequest reports whether span is a finished request, as Read would, without reading it.
func IsRequest(span ptrace.Span) bool {
	for key := range span.Attributes().All() {
		if a := table.find(key); a != nil && a.request {
			return true
		}
	}
	return false
}

// PutCanonical adds to attributes what the span lacks of the names that OpenTelemetry and the
// engines share: gen_ai.provider.name, gen_ai.usage.input_tokens and output_tokens, and
// gen_ai.latency.*. It removes and replaces nothing. The request must have been read from them.
func (r *Request) PutCanonical(attributes pcommon.Map) {
	for f := range NumFields {
		if !r.Has(f) || r.canonical&(1<<f) != 0 || canonicalKeys[f] == "" {
			continue
		}
		if f < numDurations {
			attributes.PutDouble(canonicalKeys[f], r.values[f])
		} else {
			attributes.PutInt(canonicalKeys[f], int64(r.values[f]))
		}
		r.canonical |= 1 << f
	}
	if !r.provider && r.Kind != KindUnknown {
		attributes.PutStr("gen_ai.provider.name", r.Kind.String())
		r.provider = true
	}
}

// canonicalKeys has the attribute that PutCanonical writes for each field.
var canonicalKeys = func() (keys [NumFields]string) {
	for f := range numDurations {
		keys[f] = "gen_ai.latency." + f.String()
	}
	keys[InputTokens] = "gen_ai.usage.input_tokens"
	keys[OutputTokens] = "gen_ai.usage.output_tokens"
	keys[MaxTokens] = "gen_ai.request.max_tokens"
	return keys
}()

func (r *Request) reset() {
	r.present, r.nRejections = 0, 0
	r.operation, r.provider, r.Failed = false, false, false
	r.Model, r.Operation, r.ErrorType = "", "", ""
	r.Kind, r.Generation, r.Sequences = KindUnknown, GenerationUnknown, 1
	if r.hasFurther {
		r.further, r.hasFurther = [NumReasons]uint32{}, false
	}
}

// names are the two that a request may have for its model.
type names struct{ responseModel, requestModel string }

// readName takes what is no figure.
func (r *Request) readName(role role, value pcommon.Value, n *names) {
	switch role {
	case roleSequences:
		if value.Type() == pcommon.ValueTypeInt && value.Int() > 0 {
			r.Sequences = value.Int()
		}
	case roleResponseModel:
		n.responseModel = str(value)
	case roleRequestModel:
		n.requestModel = str(value)
	case roleOperation:
		r.Operation, r.operation = str(value), true
	case roleProvider:
		r.provider = true
	case roleErrorType:
		r.ErrorType = str(value)
	}
}

// readFigure takes the first attribute of each field. Later ones, be it the same key twice or two
// dialects' keys for one figure, are refused only if they contradict it.
// got has the fields that had an attribute before, good or bad, and is returned with this one.
func (r *Request) readFigure(a *attribute, value pcommon.Value, got uint32) uint32 {
	v, reason := number(value, a.role == roleCount)
	if got&(1<<a.field) != 0 {
		if reason != 0 || !r.Has(a.field) || r.values[a.field] != v {
			r.reject(a.field, ReasonDuplicateAttribute)
		}
		return got
	}
	if reason != 0 {
		r.reject(a.field, reason)
	} else {
		r.Set(a.field, v)
	}
	return got | 1<<a.field
}

// number reads a figure as it came. An integer is a good double and a whole double a good
// integer: SDKs of languages with one number type send both. Text never is a number.
func number(value pcommon.Value, whole bool) (float64, Reason) {
	var v float64
	switch value.Type() {
	case pcommon.ValueTypeDouble:
		v = value.Double() + 0 // which makes -0 a 0
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, ReasonNotFinite
		}
		if whole && v != math.Trunc(v) {
			return 0, ReasonWrongType
		}
	case pcommon.ValueTypeInt:
		v = float64(value.Int())
	default:
		return 0, ReasonWrongType
	}
	if v < 0 {
		if v == -1 {
			return 0, ReasonSentinel
		}
		return 0, ReasonNegative
	}
	return v, 0
}

// identify sets kind and generation.
func (r *Request) identify(name string, src *Source, seen marks) {
	for _, d := range dialects {
		if src.Kind == d.kind || src.Kind == KindUnknown && d.recognise(name, r, seen) {
			r.Kind = d.kind
			d.normalise(r, seen)
			return
		}
	}
	r.Kind = src.Kind
}

func (r *Request) reject(f Field, reason Reason) {
	if int(r.nRejections) < len(r.rejections) {
		r.rejections[r.nRejections] = Rejection{Field: f, Reason: reason}
		r.nRejections++
		return
	}
	r.further[reason]++
	r.hasFurther = true
}

// str is a model's or operation's name. Numbers and booleans, seen where a name looked like one,
// are spelled out; anything else is no name.
func str(value pcommon.Value) string {
	switch value.Type() {
	case pcommon.ValueTypeStr:
		return strings.TrimSpace(value.Str())
	case pcommon.ValueTypeInt:
		return strconv.FormatInt(value.Int(), 10)
	default:
		return ""
	}
}
