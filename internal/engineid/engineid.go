// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package engineid

import (
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// PeerAddress is the resource attribute with the address that the spans came from, which the
// llm_span receiver adds where nothing better than service.name names the engine.
const PeerAddress = "network.peer.address"

// Unknown names the engine of a resource that has none of the keys.
const Unknown = "unknown"

// sourceServiceName is the key that several replicas are likely to share.
const sourceServiceName = "service.name"

// DefaultKeys are tried in this order. Never a process id: one vLLM with several API servers
// exports from several processes.
func DefaultKeys() []string {
	return []string{
		"service.instance.id",
		"k8s.pod.uid",
		"k8s.namespace.name+k8s.pod.name",
		"container.id",
		"host.name+service.name",
		"service.name+" + PeerAddress,
		sourceServiceName,
	}
}

// ID is an engine's name.
type ID struct {
	// Name is the value of the key, parts joined by "/".
	Name string
	// Source is the key that gave the name, or "none".
	Source string
}

// MayMix reports whether several engines are likely to share this name.
func (id ID) MayMix() bool { return id.Source == sourceServiceName || id.Source == "none" }

// Resolver finds the engine of a resource. It is safe for concurrent use.
type Resolver struct {
	keys []key
}

type key struct {
	source string
	parts  []string
}

// NewResolver takes keys in the order in which they are tried: resource attributes, or several
// joined by "+" of which all must be there.
func NewResolver(keys []string) (*Resolver, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key: name at least one resource attribute, such as service.instance.id")
	}
	r := &Resolver{}
	for _, source := range keys {
		parts := strings.Split(source, "+")
		for _, part := range parts {
			if part == "" || strings.TrimSpace(part) != part {
				return nil, fmt.Errorf("%q is no key: write a resource attribute, or several joined by + without spaces", source)
			}
			if part == "process.pid" || part == "vllm.process_id" {
				return nil, fmt.Errorf("%q: a process is no engine: one vLLM with several API servers exports from several processes; use service.instance.id", source)
			}
		}
		r.keys = append(r.keys, key{source, parts})
	}
	return r, nil
}

// Resolve returns the engine that resource belongs to. For a key of one part the name aliases
// the resource.
func (r *Resolver) Resolve(resource pcommon.Map) ID {
	for i := range r.keys {
		k := &r.keys[i]
		if name := k.resolve(resource); name != "" {
			return ID{Name: name, Source: k.source}
		}
	}
	return ID{Name: Unknown, Source: "none"}
}

func (k *key) resolve(resource pcommon.Map) string {
	if len(k.parts) == 1 {
		return text(resource, k.parts[0])
	}
	var joined [4]string
	values := joined[:0]
	for _, part := range k.parts {
		value := text(resource, part)
		if value == "" {
			return ""
		}
		values = append(values, value)
	}
	return strings.Join(values, "/")
}

func text(resource pcommon.Map, attribute string) string {
	v, ok := resource.Get(attribute)
	if !ok {
		return ""
	}
	return Text(v)
}
