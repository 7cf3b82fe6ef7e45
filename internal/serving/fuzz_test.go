// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// FuzzRecord: whatever comes over the wire, nothing panics and every request counts once. Run it with
// -fuzzminimizetime 10x: hashes are seeded anew in each process, so that coverage varies and minimising
// inputs would take all the time.
func FuzzRecord(f *testing.F) {
	var marshaler ptrace.ProtoMarshaler
	for _, name := range []string{recordedV0, recordedV1} {
		data, err := marshaler.MarshalTraces(recording(f, name))
		require.NoError(f, err)
		f.Add(data)
	}
	td, spans := payload("engine-1")
	addV0(spans, 1, "llama\xff")
	addV1(spans, 2).Attributes().PutDouble("gen_ai.latency.e2e", math.Inf(1))
	span := addV1(spans, 3)
	span.Attributes().PutStr("error.type", "x")
	span.Attributes().PutEmptySlice("tenant").AppendEmpty().SetInt(1)
	data, err := marshaler.MarshalTraces(td)
	require.NoError(f, err)
	f.Add(data)

	f.Fuzz(func(t *testing.T, data []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			return
		}
		requests := 0
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					if llmrequest.IsRequest(span) {
						requests++
					}
				}
			}
		}
		for _, kind := range []HistogramType{Explicit, Exponential} {
			a, clock := newTestAggregator(t, func(c *Config) {
				c.Histograms.Type = kind
				c.Dimensions = []Dimension{{Name: "tenant"}}
				c.Limits.Series, c.Limits.Engines = 2, 2
				c.SLO.TTFT = time.Second
				c.Compatibility = []string{"vllm"}
			})
			a.Record(td, false)
			own := copyOf(td)
			a.Record(own, true)
			md := tick(a, clock)
			recorded := int64(0)
			for _, generations := range a.Stats().Requests {
				for _, n := range generations {
					recorded += n
				}
			}
			require.EqualValues(t, 2*requests, recorded+a.Stats().Duplicates)
			require.EqualValues(t, recorded, total(md, countName))
			for name, points := range allPoints(md) {
				for _, p := range points {
					require.False(t, math.IsNaN(p.value) || math.IsInf(p.value, 0) || p.value < 0, "%s: %v", name, p.value)
					checkPoint(t, name, &p)
				}
			}
			_, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
			require.NoError(t, err)
		}
	})
}

func checkPoint(t *testing.T, name string, p *found) {
	sum := uint64(0)
	switch {
	case p.explicit != (pmetric.HistogramDataPoint{}):
		for _, n := range p.explicit.BucketCounts().All() {
			sum += n
		}
		require.LessOrEqual(t, p.explicit.Min(), p.explicit.Max(), name)
	case p.exponential != (pmetric.ExponentialHistogramDataPoint{}):
		sum = p.exponential.ZeroCount()
		for _, n := range p.exponential.Positive().BucketCounts().All() {
			sum += n
		}
		require.GreaterOrEqual(t, p.exponential.Scale(), int32(-4), name)
	}
	require.Equal(t, p.count, sum, name)
}

// FuzzSeriesKey: keys are equal if, and only if, the emitted attributes are.
func FuzzSeriesKey(f *testing.F) {
	f.Add("a", "b", "c", "d", "e", "a", "b", "c", "d", "e", byte(1), byte(1))
	f.Add("a", "", "", "b", "", "a", "", "b", "", "", byte(1), byte(1))
	f.Add("\x00", "\x01", "", "", "", "\x00\x01", "", "", "", "", byte(0), byte(0))
	f.Add("a\xff", "", "", "", "", "a\xfe", "", "", "", "", byte(1), byte(2))
	f.Add("a\n", "\u0085", "", "", "", "a\r", "\x7f", "", "", "", byte(1), byte(1))
	f.Add(string(make([]byte, 300)), "", "", "", "", string(make([]byte, 256)), "", "", "", "", byte(1), byte(1))
	fallback := "fallback"
	c := NewDefaultConfig()
	c.Dimensions = []Dimension{{Name: "tenant"}, {Name: "zone", Default: &fallback}}
	c.Engine.ResourceAttributes = []string{"zone"}
	id, err := newIdentifier(&c)
	require.NoError(f, err)

	series := func(model, operation, errorType, tenant, zone string, kind byte) ([]byte, pcommon.Map) {
		r := llmrequest.Request{Figures: llmrequest.Figures{Kind: llmrequest.Kind(kind) % llmrequest.NumKinds}, Model: model, Operation: operation, ErrorType: errorType}
		span, resource := pcommon.NewMap(), pcommon.NewMap()
		span.PutStr("tenant", tenant)
		resource.PutStr("zone", zone)
		var cut int64
		key := id.seriesKey(nil, &r, "", span, resource, &cut)
		return key, id.seriesAttributes(key)
	}
	engine := func(name, namespace, instance, host, zone string) (*engineKey, pcommon.Map) {
		resource := pcommon.NewMap()
		resource.PutStr(serviceName, name)
		resource.PutStr(serviceNamespace, namespace)
		resource.PutStr(serviceInstanceID, instance)
		resource.PutStr("host.name", host)
		resource.PutStr("zone", zone)
		var cut int64
		key := &engineKey{}
		id.engineKey(key, resource, &cut)
		return key, id.engineAttributes(key.identity, key.description)
	}
	identityOf := func(m pcommon.Map) [3]string {
		return [3]string{attributeText(m, serviceName), attributeText(m, serviceNamespace), attributeText(m, serviceInstanceID)}
	}

	f.Fuzz(func(t *testing.T, a1, a2, a3, a4, a5, b1, b2, b3, b4, b5 string, aKind, bKind byte) {
		keyA, attributesA := series(a1, a2, a3, a4, a5, aKind)
		keyB, attributesB := series(b1, b2, b3, b4, b5, bKind)
		require.Equal(t, attributesA.Equal(attributesB), string(keyA) == string(keyB))
		require.NotEmpty(t, keyA)
		for _, v := range attributesA.All() {
			require.NotEmpty(t, v.Str())
			require.LessOrEqual(t, len(v.Str()), maxValueLength)
		}

		engineA, resourceA := engine(a1, a2, a3, a4, a5)
		engineB, resourceB := engine(b1, b2, b3, b4, b5)
		require.Equal(t, identityOf(resourceA) == identityOf(resourceB), string(engineA.identity) == string(engineB.identity))
		require.Equal(t, resourceA.Equal(resourceB),
			string(engineA.identity) == string(engineB.identity) && string(engineA.description) == string(engineB.description))
		require.NotEmpty(t, attributeText(resourceA, serviceInstanceID))

		both := id.mergeDescriptions(engineA.description, engineB.description)
		described := id.engineAttributes(engineB.identity, both)
		for name, v := range resourceB.All() {
			require.Equal(t, v.Str(), attributeText(described, name), "the newest value")
		}
		for _, name := range []string{"host.name", "zone"} {
			if attributeText(resourceB, name) == "" {
				require.Equal(t, attributeText(resourceA, name), attributeText(described, name), "what it lacks, from before")
			}
		}
	})
}
