// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// The llm_request span as vLLM makes it, and the batch span processor that sends it.

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Export is one OTLP request as it leaves an engine's process.
type Export struct {
	// At is when the receiver gets it.
	At time.Time
	// Engine is the engine's number, or -1 where pooled engines share the exporter. Process is the number
	// of the front-end process.
	Engine, Process int
	Traces          ptrace.Traces
}

// spanData is a finished request on its way into a span.
type spanData struct {
	r   *request
	end int64 // the span's
	// The moments as stamped: V0's finish, or V1's last token in the engine core.
	finish int64
}

// exporter is a batch span processor: it sends when its delay is over or a batch is full. Its queue never
// overflows, because the receiver always answers.
type exporter struct {
	cfg             *Config
	engine, process int
	resource        pcommon.Resource
	boot            int64 // zero of the host's monotonic clock
	ended           spanHeap
	queue           []spanData
	deadline        int64
}

func newExporter(cfg *Config, engine, instance, process int) *exporter {
	x := &exporter{cfg: cfg, engine: engine, process: process, resource: pcommon.NewResource()}
	h := mix(cfg.Seed, uint64(instance)<<20|uint64(process)|1<<60)
	// Processes do not start together, so neither do their timers.
	x.deadline = cfg.Start.UnixNano() + int64(h%uint64(cfg.ExportDelay)) + 1
	x.boot = cfg.Start.UnixNano() - int64(time.Hour)*int64(24+mix(cfg.Seed, uint64(instance)|1<<61)%240)
	a := x.resource.Attributes()
	a.PutStr("telemetry.sdk.language", "python")
	a.PutStr("telemetry.sdk.name", "opentelemetry")
	a.PutStr("telemetry.sdk.version", "1.26.0")
	if cfg.ServiceName != "" {
		a.PutStr("service.name", cfg.ServiceName)
	} else {
		a.PutStr("service.name", "unknown_service")
	}
	if !cfg.NoInstanceID {
		name := fmt.Sprintf("%s-%d", cfg.ServiceName, instance)
		a.PutStr("service.instance.id", strings.TrimPrefix(name, "-"))
	}
	keys := make([]string, 0, len(cfg.ResourceAttributes))
	for k := range cfg.ResourceAttributes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		a.PutStr(k, cfg.ResourceAttributes[k])
	}
	if cfg.Dialect >= VLLM016 {
		a.PutStr("vllm.instrumenting_module_name", "vllm.llm_engine")
		a.PutStr("vllm.process_id", strconv.Itoa(100+process*37+int(h%30000)))
	}
	return x
}

// run plays the processor up to a moment; flush sends all, as a shutdown does: also what ends a little later, because the last step ends after
// the simulation does, and its requests have finished.
func (x *exporter) run(until int64, flush bool, send func(Export)) {
	emit := func(at int64) {
		for len(x.queue) > 0 {
			n := min(len(x.queue), x.cfg.ExportBatch)
			at += int64(x.cfg.ExportTime)
			send(Export{At: time.Unix(0, at).UTC(), Engine: x.engine, Process: x.process, Traces: x.traces(x.queue[:n])})
			x.queue = slices.Delete(x.queue, 0, n)
		}
	}
	if flush {
		for _, s := range x.ended {
			until = max(until, s.end)
		}
	}
	for {
		next := until + 1
		if len(x.ended) > 0 {
			next = x.ended[0].end
		}
		if x.deadline <= min(next, until) {
			at := x.deadline
			emit(at)
			x.deadline = at + int64(x.cfg.ExportDelay)
			continue
		}
		if next > until {
			break
		}
		x.queue = append(x.queue, heap.Pop(&x.ended).(spanData))
		if len(x.queue) >= x.cfg.ExportBatch {
			emit(next)
			x.deadline = next + int64(x.cfg.ExportDelay)
		}
	}
	if flush {
		emit(until)
	}
}

func (x *exporter) traces(spans []spanData) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	x.resource.CopyTo(rs.Resource())
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	if x.cfg.Dialect >= VLLM016 {
		ss.Scope().SetName("vllm.tracing.otel")
	}
	ss.Spans().EnsureCapacity(len(spans))
	for _, s := range spans {
		x.span(s, ss.Spans().AppendEmpty())
	}
	return td
}

// pyTime is a moment as Python's time.time() gives it: seconds in a double, which resolves 0.24 µs today.
// Durations on spans are differences of such values.
func pyTime(ns int64) float64 { return float64(ns) / 1e9 }

func (x *exporter) span(s spanData, span ptrace.Span) {
	r, cfg := s.r, x.cfg
	h := mix(cfg.Seed, uint64(r.id))
	ids := mix(cfg.idSeed(), uint64(r.id))
	span.SetName("llm_request")
	span.SetKind(ptrace.SpanKindServer)
	span.SetTraceID(r.traceID(cfg.idSeed()))
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], mix(ids, 2)|1)
	span.SetSpanID(id)
	span.SetFlags(0x100) // "parent is remote" is known, and false
	if r.hasParent(cfg) {
		binary.BigEndian.PutUint64(id[:], mix(ids, 3)|1)
		span.SetParentSpanID(id)
		span.SetFlags(0x300)
		if cfg.TraceState && cfg.Sampling < 1 {
			span.TraceState().FromRaw("ot=th:" + threshold(cfg.Sampling))
		}
	}
	arrival := pyTime(r.at)
	span.SetStartTimestamp(pcommon.Timestamp(int64(arrival * 1e9)))
	span.SetEndTimestamp(pcommon.Timestamp(s.end))

	temperature := [4]float64{0, .7, 1, .2}[h>>8%4]
	topP := [2]float64{1, .95}[h>>12%2]
	maxTokens := int64(r.output)
	if h>>16%4 != 0 { // most stop before their limit
		for maxTokens = 64; maxTokens < int64(r.output); maxTokens *= 2 {
		}
	}
	requestID := fmt.Sprintf("chatcmpl-%016x%016x", mix(h, 4), mix(h, 5))
	a := span.Attributes()
	a.EnsureCapacity(16)
	if !cfg.Dialect.V1() {
		if cfg.Model != "" {
			a.PutStr("gen_ai.response.model", cfg.Model)
		}
		a.PutStr("gen_ai.request.id", requestID)
		a.PutDouble("gen_ai.request.temperature", temperature)
		a.PutDouble("gen_ai.request.top_p", topP)
		a.PutInt("gen_ai.request.max_tokens", maxTokens)
		if cfg.Dialect == VLLM055 {
			a.PutInt("gen_ai.request.best_of", 1)
		}
		a.PutInt("gen_ai.request.n", 1)
		a.PutInt("gen_ai.usage.num_sequences", 1)
		a.PutInt("gen_ai.usage.prompt_tokens", int64(r.prompt))
		a.PutInt("gen_ai.usage.completion_tokens", int64(r.output))
		a.PutDouble("gen_ai.latency.time_in_queue", pyTime(r.firstScheduled)-arrival)
		a.PutDouble("gen_ai.latency.time_to_first_token", pyTime(r.firstToken)-arrival)
		a.PutDouble("gen_ai.latency.e2e", pyTime(s.finish)-arrival)
		a.PutDouble("gen_ai.latency.time_in_scheduler", float64(r.scheduler)/1e9)
		if cfg.Detail&DetailModel != 0 {
			a.PutDouble("gen_ai.latency.time_in_model_forward", float64(r.forward)/1e9)
		}
		if cfg.Detail&DetailWorker != 0 {
			a.PutDouble("gen_ai.latency.time_in_model_execute", float64(r.execute)/1e9)
		}
		return
	}
	mono := func(ns int64) float64 { return pyTime(ns - x.boot) }
	a.PutDouble("gen_ai.latency.time_to_first_token", pyTime(r.firstReceived)-arrival)
	a.PutDouble("gen_ai.latency.e2e", pyTime(r.lastReceived)-arrival)
	a.PutDouble("gen_ai.latency.time_in_queue", mono(r.firstScheduled)-mono(r.queued))
	a.PutInt("gen_ai.usage.prompt_tokens", int64(r.prompt))
	a.PutInt("gen_ai.usage.completion_tokens", int64(r.output))
	a.PutDouble("gen_ai.latency.time_in_model_prefill", mono(r.firstToken)-mono(r.firstScheduled))
	a.PutDouble("gen_ai.latency.time_in_model_decode", mono(s.finish)-mono(r.firstToken))
	a.PutDouble("gen_ai.latency.time_in_model_inference", mono(s.finish)-mono(r.firstScheduled))
	a.PutStr("gen_ai.request.id", requestID)
	a.PutDouble("gen_ai.request.top_p", topP)
	a.PutInt("gen_ai.request.max_tokens", maxTokens)
	if temperature != 0 {
		a.PutDouble("gen_ai.request.temperature", temperature)
	}
	a.PutInt("gen_ai.request.n", 1)
}

// traceID is random in its last seven bytes, as consistent probability sampling wants it.
func (r *request) traceID(seed uint64) (id pcommon.TraceID) {
	h := mix(seed, uint64(r.id))
	binary.BigEndian.PutUint64(id[:8], mix(h, 0))
	binary.BigEndian.PutUint64(id[8:], mix(h, 1)|1<<63)
	return id
}

// hasParent reports whether the request came with a traceparent. Where callers sample, all do.
func (r *request) hasParent(cfg *Config) bool {
	return cfg.Sampling < 1 || unit(mix(mix(cfg.Seed, uint64(r.id)), 6)) < cfg.Parents
}

// sampled is the caller's decision, by the trace's randomness against the threshold.
func (r *request) sampled(cfg *Config) bool {
	id := r.traceID(cfg.idSeed())
	return float64(binary.BigEndian.Uint64(id[8:])&(1<<56-1)) >= (1-cfg.Sampling)*(1<<56)
}

// threshold is th of an ot tracestate entry for a sampling probability below 1.
func threshold(p float64) string {
	return strings.TrimRight(fmt.Sprintf("%014x", uint64((1-p)*(1<<56))), "0")
}

// mix is a hash of two numbers (the finaliser of SplitMix64).
func mix(a, b uint64) uint64 {
	z := a + 0x9e3779b97f4a7c15*(b+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// idSeed is the seed of trace and span IDs. Two simulations with the same Seed, of different engines or times, have
// different ones: a collector counts each span once.
func (c *Config) idSeed() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.Name, "\x00", c.ServiceName, "\x00", c.Start.UnixNano())
	return mix(c.Seed, h.Sum64())
}

// unit is h as a number in [0,1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// spanHeap orders spans by their end, then by request.
type spanHeap []spanData

func (h spanHeap) Len() int { return len(h) }
func (h spanHeap) Less(i, j int) bool {
	if h[i].end != h[j].end {
		return h[i].end < h[j].end
	}
	return h[i].r.id < h[j].r.id
}
func (h spanHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *spanHeap) Push(x any)   { *h = append(*h, x.(spanData)) }
func (h *spanHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
