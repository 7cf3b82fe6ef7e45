// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmrequest

// How the attributes of many engines are read in one pass: every dialect lists its attributes, and
// one hash table over all of them says what each attribute of a span means.

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// dialect is what one engine calls its figures. A new engine is a new file with one dialect
// that registers itself.
type dialect struct {
	kind Kind
	// attributes of a request span. The same key may be in several dialects if it means the same.
	attributes []attribute
	// scopes are prefixes of the instrumentation scope's name, resources prefixes of resource
	// attribute keys, that only this engine uses.
	scopes, resources []string
	// recognise says whether a request span whose resource and scope tell nothing is this
	// engine's, from its name and from what was read of it.
	recognise func(name string, r *Request, seen marks) bool
	// normalise brings the values as read to the canonical meaning and sets the generation.
	normalise func(r *Request, seen marks)
}

// attribute is the meaning of one span attribute.
type attribute struct {
	key  string
	role role
	// field is what a figure fills.
	field Field
	// canonical: the key is the one PutCanonical writes for this field.
	canonical bool
	// request: a span that carries this attribute is a request.
	request bool
	// marks are evidence for the dialect, 0 for none. In the table, canonical and request are in them, too.
	marks marks
}

type role uint8

const (
	roleNone      role = iota // only a mark
	roleSeconds               // a duration in seconds
	roleCount                 // a number of things
	roleSequences             // Request.Sequences
	roleResponseModel
	roleRequestModel
	roleOperation
	roleProvider
	roleErrorType
)

// marks are what is known of a span from which attributes it has: evidence that dialects leave, a bit each, got from newMark;
// above them, a bit per field whose canonical attribute it carries; and markRequest.
type marks uint64

const (
	canonicalShift       = 32
	markRequest    marks = 1 << 63
)

var marksTaken int

func newMark() marks {
	if marksTaken == canonicalShift {
		panic("llmrequest: the registered dialects use more than 32 marks")
	}
	marksTaken++
	return 1 << (marksTaken - 1)
}

var dialects []*dialect

func register(d *dialect) {
	dialects = append(dialects, d)
	for _, a := range d.attributes {
		if a.canonical {
			a.marks |= 1 << (canonicalShift + a.field)
		}
		if a.request {
			a.marks |= markRequest
		}
		table.add(a)
	}
}

// attributeTable is an open-addressed hash table from attribute key to meaning. Its hash looks at
// the length and three bytes only, which tells the known keys apart and costs a few instructions
// for the many attributes that are none of them.
type attributeTable struct {
	slots [tableSize]attribute
	used  int
}

const tableSize = 256 // at least twice the number of known keys; attributeOrder has slots in a byte

var table attributeTable

func hashKey(key string) uint {
	n := len(key)
	h := uint(n)*0x9e5 + uint(key[n-1])*0x1f + uint(key[n/2])*0x3d7 + uint(key[n-n/4-1])*0x85
	return h & (tableSize - 1)
}

func (t *attributeTable) add(a attribute) {
	i := hashKey(a.key)
	for t.slots[i].key != "" {
		if t.slots[i].key == a.key {
			return // two dialects share the key
		}
		i = (i + 1) & (tableSize - 1)
	}
	t.used++
	if t.used > tableSize/2 {
		panic("llmrequest: attribute table too small for the registered dialects")
	}
	t.slots[i] = a
}

func (t *attributeTable) find(key string) *attribute {
	slot, ok := t.slot(key)
	if !ok {
		return nil
	}
	return &t.slots[slot]
}

func (t *attributeTable) slot(key string) (uint8, bool) {
	if key == "" {
		return 0, false
	}
	i := hashKey(key)
	for {
		a := &t.slots[i]
		if a.key == key {
			return uint8(i), true
		}
		if a.key == "" {
			return 0, false
		}
		i = (i + 1) & (tableSize - 1)
	}
}

// attributeOrder is which slot of the table each attribute of the last span was found in. An engine
// writes the attributes of all its spans in the same order, so that the guess is right but for those
// that are in no slot.
type attributeOrder [32]uint8

// guess is what the i-th attribute of a span means if its key is that of the guess.
func (o *attributeOrder) guess(i uint) *attribute { return &table.slots[o[i%uint(len(o))]] }

// find is what the i-th attribute of a span means, to be guessed from then on.
func (o *attributeOrder) find(i uint, key string) *attribute {
	slot, ok := table.slot(key)
	if !ok {
		return &unknown
	}
	o[i%uint(len(o))] = slot
	return &table.slots[slot]
}

// unknown is the meaning of all attributes that no dialect has.
var unknown attribute

// Source is what resource and scope say about every request span below them. Make it once per
// scope, not per span. Its strings alias the resource. Read learns from one span to the next, so that a
// Source is for one goroutine at a time.
type Source struct {
	// Kind is KindUnknown where only the spans can tell.
	Kind Kind
	// Model names the model where no span does.
	Model string

	order attributeOrder
}

// modelResourceAttribute names the model of KServe's LLMInferenceService, which vLLM V1 needs
// since its spans name none.
const modelResourceAttribute = "llmisvc.name"

// NewSource reads a resource and the name of an instrumentation scope.
func NewSource(resource pcommon.Map, scope string) Source {
	var s Source
	for key, value := range resource.All() {
		if key == modelResourceAttribute && value.Type() == pcommon.ValueTypeStr {
			s.Model = value.Str()
			continue
		}
		if s.Kind == KindUnknown {
			s.Kind = kindByPrefix(key, func(d *dialect) []string { return d.resources })
		}
	}
	if kind := kindByPrefix(scope, func(d *dialect) []string { return d.scopes }); kind != KindUnknown {
		s.Kind = kind
	}
	return s
}

func kindByPrefix(name string, prefixes func(*dialect) []string) Kind {
	for _, d := range dialects {
		for _, p := range prefixes(d) {
			if strings.HasPrefix(name, p) {
				return d.kind
			}
		}
	}
	return KindUnknown
}
