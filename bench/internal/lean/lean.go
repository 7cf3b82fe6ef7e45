// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package lean is a prototype that reads requests off the wire without decoding whole spans, to see what that would gain. It
// knows vLLM's attributes only and refuses nothing that is implausible: a product would have to do more.
package lean

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// Resource is what names an engine. The strings alias the wire.
type Resource struct{ Service, Instance string }

var errWire = errors.New("not OTLP")

// Requests walks an export request and visits every request span. r is good until visit returns.
func Requests(wire []byte, visit func(resource *Resource, r *llmrequest.Request)) error {
	var r llmrequest.Request
	return fields(wire, func(number protowire.Number, resourceSpans []byte) error {
		if number != 1 {
			return nil
		}
		var resource Resource
		// The resource comes after its spans in what some encoders write.
		err := fields(resourceSpans, func(number protowire.Number, value []byte) error {
			if number != 1 {
				return nil
			}
			return fields(value, func(number protowire.Number, attribute []byte) error {
				if number != 1 {
					return nil
				}
				key, v, err := keyValue(attribute)
				switch string(key) {
				case "service.name":
					resource.Service = v.text()
				case "service.instance.id":
					resource.Instance = v.text()
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		return fields(resourceSpans, func(number protowire.Number, scopeSpans []byte) error {
			if number != 2 {
				return nil
			}
			return fields(scopeSpans, func(number protowire.Number, span []byte) error {
				if number != 2 {
					return nil
				}
				is, err := request(span, &r)
				if is && err == nil {
					visit(&resource, &r)
				}
				return err
			})
		})
	})
}

// fields calls f with every field of a message that is a message, string or bytes.
func fields(message []byte, f func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errWire
		}
		message = message[n:]
		if wireType != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
				return errWire
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return errWire
		}
		message = message[n:]
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}

// request reads a span and tells whether it is a request.
func request(span []byte, r *llmrequest.Request) (is bool, err error) {
	*r = llmrequest.Request{Figures: llmrequest.Figures{Sequences: 1}}
	for len(span) > 0 {
		number, wireType, n := protowire.ConsumeTag(span)
		if n < 0 {
			return false, errWire
		}
		span = span[n:]
		switch {
		case number == 9 && wireType == protowire.BytesType:
			value, n := protowire.ConsumeBytes(span)
			if n < 0 {
				return false, errWire
			}
			span = span[n:]
			latency, err := attribute(value, r)
			if err != nil {
				return false, err
			}
			is = is || latency
		case number <= 2 && wireType == protowire.BytesType:
			value, n := protowire.ConsumeBytes(span)
			if n < 0 {
				return false, errWire
			}
			span = span[n:]
			if number == 1 && len(value) == 16 {
				r.TraceID = pcommon.TraceID(value)
			} else if number == 2 && len(value) == 8 {
				r.SpanID = pcommon.SpanID(value)
			}
		case (number == 7 || number == 8) && wireType == protowire.Fixed64Type:
			if len(span) < 8 {
				return false, errWire
			}
			t := pcommon.Timestamp(binary.LittleEndian.Uint64(span))
			span = span[8:]
			if number == 7 {
				r.Start = t
			} else {
				r.End = t
			}
		default:
			n := protowire.ConsumeFieldValue(number, wireType, span)
			if n < 0 {
				return false, errWire
			}
			span = span[n:]
		}
	}
	return is, nil
}

func attribute(message []byte, r *llmrequest.Request) (latency bool, err error) {
	key, v, err := keyValue(message)
	if err != nil {
		return false, err
	}
	set := func(f llmrequest.Field) {
		if v.wireType == protowire.Fixed64Type {
			r.Set(f, math.Float64frombits(v.bits))
		}
	}
	count := func(f llmrequest.Field) {
		if v.wireType == protowire.VarintType {
			r.Set(f, float64(v.bits))
		}
	}
	switch string(key) {
	case "gen_ai.latency.e2e":
		set(llmrequest.E2E)
	case "gen_ai.latency.time_to_first_token":
		set(llmrequest.TimeToFirstToken)
	case "gen_ai.latency.time_in_queue":
		set(llmrequest.Queue)
	case "gen_ai.latency.time_in_scheduler":
		set(llmrequest.Scheduler)
	case "gen_ai.latency.time_in_model_forward":
		set(llmrequest.Forward)
	case "gen_ai.latency.time_in_model_execute":
		set(llmrequest.Execute)
	case "gen_ai.latency.time_in_model_prefill":
		set(llmrequest.Prefill)
	case "gen_ai.latency.time_in_model_decode":
		set(llmrequest.Decode)
	case "gen_ai.latency.time_in_model_inference":
		set(llmrequest.Inference)
	case "gen_ai.usage.prompt_tokens":
		count(llmrequest.InputTokens)
		return false, nil
	case "gen_ai.usage.completion_tokens":
		count(llmrequest.OutputTokens)
		return false, nil
	case "gen_ai.request.max_tokens":
		count(llmrequest.MaxTokens)
		return false, nil
	case "gen_ai.response.model":
		r.Model = v.text()
		return false, nil
	default:
		return false, nil
	}
	return true, nil
}

// value is an AnyValue that is a string, an integer or a double.
type value struct {
	wireType protowire.Type
	bits     uint64
	bytes    []byte
}

func (v *value) text() string { return unsafe.String(unsafe.SliceData(v.bytes), len(v.bytes)) }

func keyValue(message []byte) (key []byte, v value, err error) {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 || wireType != protowire.BytesType {
			return nil, v, errWire
		}
		message = message[n:]
		b, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return nil, v, errWire
		}
		message = message[n:]
		if number == 1 {
			key = b
			continue
		}
		_, v.wireType, n = protowire.ConsumeTag(b)
		if n < 0 {
			continue // an empty value
		}
		b = b[n:]
		switch v.wireType {
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v.bits, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v.bits, n = protowire.ConsumeFixed64(b)
		default:
			n = protowire.ConsumeFieldValue(1, v.wireType, b)
		}
		if n < 0 {
			return nil, v, errWire
		}
	}
	return key, v, nil
}
