// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package engineid

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func TestResolveDefaultOrder(t *testing.T) {
	resolver, err := NewResolver(DefaultKeys())
	require.NoError(t, err)

	// From the weakest key to the strongest: each takes over from the ones before.
	resource := pcommon.NewMap()
	assert.Equal(t, ID{"unknown", "none"}, resolver.Resolve(resource))
	assert.True(t, resolver.Resolve(resource).MayMix())
	resource.PutStr("vllm.process_id", "17")
	resource.PutInt("process.pid", 17)
	assert.Equal(t, "none", resolver.Resolve(resource).Source, "a process is no engine")

	for _, step := range []struct {
		attribute, value string
		want             ID
	}{
		{"service.name", "vllm", ID{"vllm", "service.name"}},
		{"network.peer.address", "10.0.0.7", ID{"vllm/10.0.0.7", "service.name+network.peer.address"}},
		{"host.name", "gpu-1", ID{"gpu-1/vllm", "host.name+service.name"}},
		{"container.id", "c0ffee", ID{"c0ffee", "container.id"}},
		{"k8s.pod.name", "pod-0", ID{"c0ffee", "container.id"}},
		{"k8s.namespace.name", "llm", ID{"llm/pod-0", "k8s.namespace.name+k8s.pod.name"}},
		{"k8s.pod.uid", "uid-1", ID{"uid-1", "k8s.pod.uid"}},
		{"service.instance.id", "engine-1", ID{"engine-1", "service.instance.id"}},
	} {
		resource.PutStr(step.attribute, step.value)
		id := resolver.Resolve(resource)
		assert.Equal(t, step.want, id, step.attribute)
		assert.Equal(t, step.attribute == "service.name", id.MayMix(), step.attribute)
	}
}

func TestResolveOddValues(t *testing.T) {
	resolver, err := NewResolver([]string{"rank", "service.name"})
	require.NoError(t, err)
	resource := pcommon.NewMap()
	resource.PutStr("service.name", "vllm")
	resource.PutStr("rank", "")
	assert.Equal(t, "vllm", resolver.Resolve(resource).Name, "an empty attribute names nothing")
	resource.PutInt("rank", 3)
	assert.Equal(t, ID{"3", "rank"}, resolver.Resolve(resource))
}

func TestNewResolverErrors(t *testing.T) {
	for _, test := range []struct {
		keys []string
		want string
	}{
		{nil, "no key"},
		{[]string{""}, `"" is no key`},
		{[]string{"a+"}, `"a+" is no key`},
		{[]string{"a + b"}, "without spaces"},
		{[]string{"service.name+process.pid"}, "a process is no engine"},
		{[]string{"vllm.process_id"}, "service.instance.id"},
	} {
		_, err := NewResolver(test.keys)
		assert.ErrorContains(t, err, test.want)
	}
}
