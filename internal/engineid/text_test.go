// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package engineid

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// nested is a list in a list in a list.
func nested(depth int) pcommon.Value {
	v := pcommon.NewValueSlice()
	at := v
	for range depth - 1 {
		at = at.Slice().AppendEmpty()
		at.SetEmptySlice()
	}
	return v
}

func TestText(t *testing.T) {
	list := pcommon.NewValueSlice()
	list.Slice().AppendEmpty().SetStr("a")
	list.Slice().AppendEmpty().SetInt(1)
	m := pcommon.NewValueMap()
	m.Map().PutBool("b", true)
	assert.Equal(t, "x", Text(pcommon.NewValueStr("x")))
	assert.Equal(t, "1.5", Text(pcommon.NewValueDouble(1.5)))
	assert.Equal(t, `["a",1]`, Text(list))
	assert.Equal(t, `{"b":true}`, Text(m))
	assert.Empty(t, Text(pcommon.NewValueEmpty()))

	assert.Equal(t, "[[[[[[[[]]]]]]]]", Text(nested(8)))
	assert.Empty(t, Text(nested(9)))
	for range 62 {
		list.Slice().AppendEmpty().SetInt(1)
	}
	assert.Empty(t, Text(list), "65 values, the list among them")
}

// Without the limit, this ends the process: a stack of 700 bytes a level is over the most that Go allows.
func TestTextOfWhatIsNestedDeeply(t *testing.T) {
	resource := pcommon.NewMap()
	nested(790_000).MoveTo(resource.PutEmpty("service.name"))
	r, err := NewResolver(DefaultKeys())
	assert.NoError(t, err)
	assert.Equal(t, "none", r.Resolve(resource).Source)
}
