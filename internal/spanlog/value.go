// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// The debug exporter's text: attributes and their values.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxAttributes is the largest number of attributes of one element. Putting one into a pcommon.Map looks at all
// that are there, so that a file without a limit could keep a reader busy for hours.
const maxAttributes = 4096

var valueTypes = []string{"Str", "Int", "Double", "Bool", "Bytes", "Map", "Slice", "Empty"}

// cutAttribute takes "key: Type(value)" apart. The value keeps its closing parenthesis, which may be on a later
// line. A key may hold ": " too: the first place where a type follows decides.
func cutAttribute(item string) (key, kind, value string, ok bool) {
	for at := 0; ; {
		i := strings.Index(item[at:], ": ")
		if i < 0 {
			return "", "", "", false
		}
		at += i
		rest := item[at+2:]
		for _, t := range valueTypes {
			if strings.HasPrefix(rest, t) && len(rest) > len(t) && rest[len(t)] == '(' {
				return item[:at], t, rest[len(t)+1:], true
			}
		}
		at += 2
	}
}

func (d *textDecoder) attribute(s statement) error {
	if err := d.charge(1); err != nil {
		return err
	}
	if d.attrs.Len() >= maxAttributes {
		return d.fault(fmt.Sprintf("at most %d attributes", maxAttributes), "")
	}
	dest := d.attrs.PutEmpty(s.key)
	if s.kind == "Str" {
		d.openString(true, s.arg, dest.SetStr)
		return nil
	}
	text, ok := strings.CutSuffix(s.arg, ")")
	if !ok {
		return d.fault("a value that ends with \")\"", quoted(s.arg))
	}
	var err error
	switch s.kind {
	case "Int":
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		dest.SetInt(n)
	case "Double":
		// The exporter prints NaN, Infinity and -Infinity, all of which ParseFloat knows.
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		dest.SetDouble(f)
	case "Bool":
		var b bool
		b, err = strconv.ParseBool(text)
		dest.SetBool(b)
	case "Bytes":
		var raw []byte
		raw, err = base64.StdEncoding.DecodeString(text)
		dest.SetEmptyBytes().FromRaw(raw)
	case "Map":
		m := dest.SetEmptyMap()
		err = d.structured(text, '{', func(v any) error { return d.fillMap(m, v.(map[string]any), 1) })
	case "Slice":
		s := dest.SetEmptySlice()
		err = d.structured(text, '[', func(v any) error { return d.fillSlice(s, v.([]any), 1) })
	case "Empty":
		if text != "" {
			err = fmt.Errorf("an empty value has no content")
		}
	}
	if err == nil {
		return nil
	}
	if fault, ok := err.(*Error); ok {
		return fault
	}
	return &Error{
		Name: d.src.name, Line: d.lineNo, Offset: d.lineAt,
		Expected: fmt.Sprintf("a value of type %s", s.kind), Found: quoted(text), Err: err,
	}
}

// structured decodes a Map or a Slice, which the exporter prints as JSON, and as nothing if JSON cannot say it.
func (d *textDecoder) structured(text string, opening byte, fill func(any) error) error {
	if text == "" {
		return nil
	}
	if text[0] != opening {
		return fmt.Errorf("it does not begin with %q", opening)
	}
	if err := d.charge(strings.Count(text, ",") + strings.Count(text, "{") + strings.Count(text, "[")); err != nil {
		return err
	}
	if !json.Valid([]byte(text)) {
		return fmt.Errorf("it is not JSON")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return err
	}
	return fill(v)
}

// fillMap puts the keys in order: the exporter prints them so, and Go's maps have none.
func (d *textDecoder) fillMap(dest pcommon.Map, m map[string]any, depth int) error {
	if len(m) > maxAttributes {
		return fmt.Errorf("more than %d attributes in a map", maxAttributes)
	}
	dest.EnsureCapacity(len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := d.fillValue(dest.PutEmpty(key), m[key], depth); err != nil {
			return err
		}
	}
	return nil
}

func (d *textDecoder) fillSlice(dest pcommon.Slice, s []any, depth int) error {
	dest.EnsureCapacity(len(s))
	for _, v := range s {
		if err := d.fillValue(dest.AppendEmpty(), v, depth); err != nil {
			return err
		}
	}
	return nil
}

func (d *textDecoder) fillValue(dest pcommon.Value, v any, depth int) error {
	if depth > d.src.lim.depth {
		return fmt.Errorf("values are nested more than %d deep", d.src.lim.depth)
	}
	switch v := v.(type) {
	case string:
		dest.SetStr(v)
	case bool:
		dest.SetBool(v)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			dest.SetInt(n)
			return nil
		}
		f, err := v.Float64()
		if err != nil {
			return err
		}
		dest.SetDouble(f)
	case map[string]any:
		return d.fillMap(dest.SetEmptyMap(), v, depth+1)
	case []any:
		return d.fillSlice(dest.SetEmptySlice(), v, depth+1)
	}
	return nil // null stays empty
}
