// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// Identity: what tells engines and series apart. The key of each is the length-prefixed bytes of exactly
// the attributes that are emitted, so that two keys never mean the same series, nor one key two.
//
// An empty value is an absent one throughout: Prometheus knows no difference, and would get two series
// of one name.

import (
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/engineid"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// maxValueLength is the most bytes of an attribute value; longer ones are cut.
const maxValueLength = 256

// resourceAttributes are what is kept of a resource, in the order of the key, besides what the
// configuration adds. The first three are an engine's identity, as Prometheus makes its labels job and
// instance of them and ignores all others. The rest describes the engine and may change in its life: a
// restarted pod has a new name, yet goes on with the series of its service.instance.id. Were it another
// engine, Prometheus would get two writers for one series.
var resourceAttributes = []string{
	serviceName, serviceNamespace, serviceInstanceID,
	"host.name", "k8s.cluster.name", "k8s.namespace.name", "k8s.node.name", "k8s.pod.name", "k8s.container.name",
	"k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name", "k8s.replicaset.name", "k8s.job.name",
}

const (
	serviceName       = "service.name"
	serviceNamespace  = "service.namespace"
	serviceInstanceID = "service.instance.id"

	identityAttributes = 3 // of resourceAttributes
)

// identifier makes the keys of engines and series.
type identifier struct {
	resolver   *engineid.Resolver
	resource   []string       // attributes kept, in key order
	position   map[string]int // in resource
	dimensions []Dimension
	models     map[string]string // by service.name
}

func newIdentifier(c *Config) (*identifier, error) {
	resolver, err := engineid.NewResolver(c.Engine.Key)
	if err != nil {
		return nil, err
	}
	id := &identifier{resolver: resolver, position: map[string]int{}, dimensions: c.Dimensions, models: c.Engine.Models}
	for _, names := range [][]string{resourceAttributes, c.Engine.ResourceAttributes} {
		for _, name := range names {
			if _, ok := id.position[name]; !ok {
				id.position[name] = len(id.resource)
				id.resource = append(id.resource, name)
			}
		}
	}
	return id, nil
}

const maxResourceAttributes = 64

// engineKey is what a resource says of its engine.
type engineKey struct {
	identity    []byte // empty: stands for all engines over the limit
	description []byte
	id          engineid.ID
	service     string // aliases the resource
	made        bool
}

// engineKey makes the key of the engine that resource belongs to, in the memory of the key before.
func (id *identifier) engineKey(key *engineKey, resource pcommon.Map, cut *int64) {
	key.made = true
	key.id = id.resolver.Resolve(resource)
	key.service = attributeText(resource, serviceName)
	key.identity, key.description = key.identity[:0], key.description[:0]
	var found [maxResourceAttributes]pcommon.Value
	var has [maxResourceAttributes]bool
	for name, value := range resource.All() {
		if i, ok := id.position[name]; ok && i < maxResourceAttributes && !has[i] {
			found[i], has[i] = value, true
		}
	}
	for i, name := range id.resource {
		to := &key.description
		if i < identityAttributes {
			to = &key.identity
		}
		switch {
		case name == serviceInstanceID:
			// Prometheus tells engines apart by nothing else, so it is always there.
			*to = appendOptional(*to, key.id.Name, cut)
		case i < maxResourceAttributes && has[i]:
			*to = appendOptional(*to, valueText(found[i]), cut)
		default:
			*to = appendAbsent(*to)
		}
	}
}

// mergeDescriptions is what is known of an engine by an old and a new description: the new value of
// each attribute and, where the new one has none, the old. Resources of one engine that say more and
// less, as detection at start may make them, do not take turns so.
func (id *identifier) mergeDescriptions(old, description []byte) []byte {
	merged := make([]byte, 0, len(old)+len(description))
	for range id.resource[identityAttributes:] {
		before, after := len(old), len(description)
		_, _, oldRest := cutValue(old)
		_, ok, rest := cutValue(description)
		if ok || len(old) == 0 {
			merged = append(merged, description[:after-len(rest)]...)
		} else {
			merged = append(merged, old[:before-len(oldRest)]...)
		}
		old, description = oldRest, rest
	}
	return merged
}

// seriesKey appends the key of the series that the request belongs to.
func (id *identifier) seriesKey(buf []byte, r *llmrequest.Request, service string, span, resource pcommon.Map, cut *int64) []byte {
	buf = append(buf, byte(r.Kind))
	model := r.Model
	if model == "" && id.models != nil {
		model = id.models[service]
	}
	buf = appendOptional(buf, model, cut)
	buf = appendOptional(buf, r.Operation, cut)
	buf = appendOptional(buf, r.ErrorType, cut)
	for i := range id.dimensions {
		d := &id.dimensions[i]
		text := attributeText(span, d.Name)
		if text == "" {
			text = attributeText(resource, d.Name)
		}
		if text == "" && d.Default != nil {
			text = *d.Default
		}
		buf = appendOptional(buf, text, cut)
	}
	return buf
}

// sameSeries reports whether the keys of two requests of one resource are known to be the same without making them.
func (id *identifier) sameSeries(r, o *llmrequest.Request) bool {
	return len(id.dimensions) == 0 && r.Kind == o.Kind && r.Model == o.Model && r.Operation == o.Operation && r.ErrorType == o.ErrorType
}

// overflowKey is the key of the series of all requests over a limit. No series key is empty.
const overflowKey = ""

// engineAttributes and seriesAttributes are the attributes that a key was made of.
func (id *identifier) engineAttributes(identity, description []byte) pcommon.Map {
	m := pcommon.NewMap()
	put := func(names []string, key []byte) {
		for _, name := range names {
			var value string
			var ok bool
			if value, ok, key = cutValue(key); ok {
				m.PutStr(name, value)
			}
		}
	}
	put(id.resource[:identityAttributes], identity)
	put(id.resource[identityAttributes:], description)
	return m
}

func (id *identifier) seriesAttributes(key []byte) pcommon.Map {
	m := pcommon.NewMap()
	if string(key) == overflowKey {
		m.PutBool(attrOverflow, true)
		return m
	}
	m.PutStr(attrProvider, llmrequest.Kind(key[0]).String())
	key = key[1:]
	put := func(name string) {
		var value string
		var ok bool
		if value, ok, key = cutValue(key); ok {
			m.PutStr(name, value)
		}
	}
	put(attrModel)
	put(attrOperation)
	put(attrErrorType)
	for i := range id.dimensions {
		put(id.dimensions[i].Name)
	}
	return m
}

// appendValue appends 1 + length and the value, cut at maxValueLength, with invalid UTF-8 and control characters replaced: the
// first two would be refused by some backend, with all that is in the same payload, and the last go on to whoever reads a label.
func appendValue(buf []byte, value string, cut *int64) []byte {
	if len(value) > maxValueLength {
		value = cutText(value)
		*cut++
	}
	if !printable(value) {
		value = cutText(cleanText(value)) // which may be longer
	}
	buf = binary.AppendUvarint(buf, uint64(len(value))+1)
	return append(buf, value...)
}

// printable reports whether value is all ASCII without control characters, as nearly all are: eight bytes at a time, for it is asked for
// each request.
func printable(value string) bool {
	const each = 0x0101010101010101
	for len(value) >= 8 {
		// No carry goes from a byte below 0x80 to the next, and one that is not says so itself.
		x := uint64(value[0]) | uint64(value[1])<<8 | uint64(value[2])<<16 | uint64(value[3])<<24 |
			uint64(value[4])<<32 | uint64(value[5])<<40 | uint64(value[6])<<48 | uint64(value[7])<<56
		if (x|(x+each)|^(x+0x60*each))&(0x80*each) != 0 {
			return false
		}
		value = value[8:]
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// cleanText puts U+FFFD in the place of control characters and of each run of invalid UTF-8.
func cleanText(value string) string {
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, value) // value itself where nothing changes
}

// cutText cuts at maxValueLength, but not within a character.
func cutText(value string) string {
	if len(value) <= maxValueLength {
		return value
	}
	end := maxValueLength
	for end > maxValueLength-utf8.UTFMax && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

func appendAbsent(buf []byte) []byte { return append(buf, 0) }

func appendOptional(buf []byte, value string, cut *int64) []byte {
	if value == "" {
		return appendAbsent(buf)
	}
	return appendValue(buf, value, cut)
}

// cutValue takes the first value off a key; what follows the last one is absent.
func cutValue(key []byte) (value string, ok bool, rest []byte) {
	length, n := binary.Uvarint(key)
	if length == 0 {
		return "", false, key[n:]
	}
	end := n + int(length) - 1
	return string(key[n:end]), true, key[end:]
}

// attributeText is the text of the attribute of that name, "" if there is none.
func attributeText(attributes pcommon.Map, name string) string {
	v, ok := attributes.Get(name)
	if !ok {
		return ""
	}
	return valueText(v)
}

// valueText is the text of an attribute. Values of all types become text: backends that know only
// labels would take 1 and "1" for one series.
func valueText(v pcommon.Value) string { return engineid.Text(v) }
