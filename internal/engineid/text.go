// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package engineid

// Attributes of any type as text. Decoders let a list be nested as deeply as a payload is large, and writing such a one as JSON
// would take more stack than there is.

import "go.opentelemetry.io/collector/pdata/pcommon"

// The most values, and the deepest nesting, of a list or map that is used as text. What tells engines and series apart has neither.
const (
	maxTextValues = 64
	maxTextDepth  = 8
)

// Text is the text of an attribute: that of a string, the usual form of a number or a boolean, and JSON of a list or map. It is empty for a list
// or map with more than 64 values, or nested more than 8 deep.
func Text(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return v.Str()
	case pcommon.ValueTypeSlice, pcommon.ValueTypeMap:
		left := maxTextValues
		if !isShort(v, maxTextDepth, &left) {
			return ""
		}
	}
	return v.AsString()
}

// isShort reports whether v has at most left values and is nested at most depth deep.
func isShort(v pcommon.Value, depth int, left *int) bool {
	*left--
	if *left < 0 || depth == 0 {
		return false
	}
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			if !isShort(e, depth-1, left) {
				return false
			}
		}
	case pcommon.ValueTypeMap:
		for _, e := range v.Map().All() {
			if !isShort(e, depth-1, left) {
				return false
			}
		}
	}
	return true
}
