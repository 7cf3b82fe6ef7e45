// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// What is simulated: the engine, its host, its device, and how its spans leave it.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Mode is how an engine's scheduler makes batches.
type Mode uint8

// The modes.
const (
	// PrefillPriority is vLLM V0's default: a step runs waiting prompts if any can be admitted, else it
	// decodes; never both.
	PrefillPriority Mode = iota
	// ChunkedPrefill fills a token budget with decodes first, then with pieces of prompts: vLLM V1, and
	// V0 with --enable-chunked-prefill.
	ChunkedPrefill
)

// Dialect is the vLLM version whose spans are sent.
type Dialect uint8

// The dialects: versions at which the span changed.
const (
	// VLLM055 is v0.5.5: V0 with scheduler, forward and execute time, and with best_of.
	VLLM055 Dialect = iota
	// VLLM064 is v0.6.4 to v0.10.1: V0, without best_of.
	VLLM064
	// VLLM0102 is v0.10.2 to v0.15: the first V1 spans.
	VLLM0102
	// VLLM016 is v0.16 on: V1, with another scope name and vllm.* resource attributes.
	VLLM016
)

// V1 reports whether the dialect is of vLLM's second engine.
func (d Dialect) V1() bool { return d >= VLLM0102 }

// Detail is vLLM's --collect-detailed-traces: which device times V0 collects. V1 ignores it.
type Detail uint8

// The details; they can be combined.
const (
	// DetailModel adds gen_ai.latency.time_in_model_forward.
	DetailModel Detail = 1 << iota
	// DetailWorker adds gen_ai.latency.time_in_model_execute.
	DetailWorker
	// DetailAll is both.
	DetailAll = DetailModel | DetailWorker
	// DetailNone is neither.
	DetailNone Detail = 0
)

// HostCosts is what the host adds to each step.
type HostCosts struct {
	// The scheduler's pass, per step and per running request.
	Scheduler, SchedulerPerSeq time.Duration
	// Input preparation before the forward pass; logits, sampling and synchronisation after it. Per step
	// and per scheduled request.
	Prepare, PreparePerSeq time.Duration
	Sample, SamplePerSeq   time.Duration
	// Output processing, per step and per scheduled request. Asynchronous output processing does it
	// during the next forward pass.
	Output, OutputPerSeq time.Duration
	// The rest of the loop, per step and per running request; in vLLM before v0.6.0 the API server, which
	// shared the process.
	Loop, LoopPerSeq time.Duration
}

// FrontEnd is the API server of vLLM V1, a process of its own. V0 uses Tokenize and TokenizePerToken only.
type FrontEnd struct {
	// Tokenize is the time from a request's arrival to the engine, plus TokenizePerToken for each token
	// of its prompt.
	Tokenize, TokenizePerToken time.Duration
	// Transfer is the way of outputs from the engine core to the front end. Output and OutputPerSeq are
	// what the front end spends on the outputs of a step; one step's wait for the step's before.
	Transfer, Output, OutputPerSeq time.Duration
}

// Config is a deployment of one model.
type Config struct {
	// Name is the preset's.
	Name    string
	Mode    Mode
	Dialect Dialect
	Detail  Detail

	// MaxNumSeqs bounds the running requests, MaxBatchedTokens the tokens of a step, MaxModelLen prompt
	// and output of one request.
	MaxNumSeqs, MaxBatchedTokens, MaxModelLen int
	// KVTokens is the room of the KV cache, in blocks of 16 tokens. Where it runs out, the newest running
	// request is preempted and recomputed later.
	KVTokens int
	// Async is asynchronous output processing on V0 (default there from v0.6.0) and asynchronous
	// scheduling on V1. Both run a finished request once more, in vain.
	Async bool

	Law      Law
	Host     HostCosts
	FrontEnd FrontEnd
	// Jitter is the relative standard deviation of every forward pass and host part.
	Jitter float64

	// Engines is the number of replicas; requests go to them in turn.
	Engines int
	// Pooled replicas share one resource and one exporter, as data-parallel ranks behind one front end
	// do. Otherwise each has its own, with a service.instance.id unless NoInstanceID.
	Pooled       bool
	NoInstanceID bool
	// APIServers is the number of front-end processes, each with its exporter and vllm.process_id.
	APIServers int

	// ServiceName and Model as the operator set them; ResourceAttributes as in OTEL_RESOURCE_ATTRIBUTES.
	ServiceName, Model string
	ResourceAttributes map[string]string

	// Sampling is the share of requests whose caller's span is sampled, in (0,1]: vLLM follows the parent.
	// TraceState makes the sampled spans say so, as ot=th in the tracestate.
	Sampling   float64
	TraceState bool
	// Parents is the share of requests that come with a traceparent, in [0,1].
	Parents float64
	// AbortRate is the share of requests whose client goes away while tokens are made, in [0,1]. Patience
	// is how long clients wait to be scheduled; 0: for ever.
	AbortRate float64
	Patience  time.Duration

	// ExportDelay and ExportBatch are the batch span processor's; ExportTime is how long a send takes.
	ExportDelay, ExportTime time.Duration
	ExportBatch             int

	// Start is the moment at which the simulation starts.
	Start time.Time
	Seed  uint64
	// KeepRequests keeps every request's own truth (Sim.Requests).
	KeepRequests bool
}

// Costs and laws of the presets. The profiled request of vllm-project/vllm#7089 (Llama-3-70B, v0.5.5)
// took 13.9 ms a step, and in each 1.9 ms in execute outside forward, 0.07 ms in the scheduler, 0.4 ms in
// the rest. The costs per sequence bring a half-loaded v0-default to 79 % of its time in the device, 12 %
// in execute outside forward and 5 % in the scheduler.
var (
	law70B = LawLlama70BH100.Scaled("llama-3-70b (vllm#7089), shape of splitwise h100", 11600*time.Microsecond)
	// An 8B model on an H100: 5 ms a step (vLLM's V1 announcement).
	law8B = LawLlama70BH100.Scaled("8b h100, shape of splitwise h100", 5*time.Millisecond)

	hostV0 = HostCosts{
		Scheduler: 150 * time.Microsecond, SchedulerPerSeq: 22 * time.Microsecond,
		Prepare: 1000 * time.Microsecond, PreparePerSeq: 14 * time.Microsecond,
		Sample: 900 * time.Microsecond, SamplePerSeq: 10 * time.Microsecond,
		Output: 150 * time.Microsecond, OutputPerSeq: 14 * time.Microsecond,
		Loop: 200 * time.Microsecond, LoopPerSeq: 3 * time.Microsecond,
	}
	// vLLM v0.5.3 on an 8B model: API server 33 %, scheduling with input and output 29 %, device 38 %
	// (vLLM's v0.6.0 announcement, a full engine).
	hostV053 = HostCosts{
		Scheduler: 900 * time.Microsecond, SchedulerPerSeq: 30 * time.Microsecond,
		Prepare: 1400 * time.Microsecond, PreparePerSeq: 18 * time.Microsecond,
		Sample: 1000 * time.Microsecond, SamplePerSeq: 12 * time.Microsecond,
		Output: 500 * time.Microsecond, OutputPerSeq: 20 * time.Microsecond,
		Loop: 1200 * time.Microsecond, LoopPerSeq: 30 * time.Microsecond,
	}
	hostV1 = HostCosts{
		Scheduler: 150 * time.Microsecond, SchedulerPerSeq: 3 * time.Microsecond,
		Prepare: 500 * time.Microsecond, PreparePerSeq: 3 * time.Microsecond,
		Sample: 500 * time.Microsecond, SamplePerSeq: 3 * time.Microsecond,
		Output: 150 * time.Microsecond, OutputPerSeq: 4 * time.Microsecond,
		Loop: 100 * time.Microsecond,
	}
	frontEnd = FrontEnd{
		Tokenize: 500 * time.Microsecond, TokenizePerToken: 500 * time.Nanosecond,
		Transfer: 300 * time.Microsecond, Output: 100 * time.Microsecond, OutputPerSeq: 12 * time.Microsecond,
	}
)

func base() Config {
	return Config{
		Mode: PrefillPriority, Dialect: VLLM064, Detail: DetailAll,
		MaxNumSeqs: 256, MaxBatchedTokens: 8192, MaxModelLen: 8192, KVTokens: 1 << 20,
		Law: law70B, Host: hostV0, FrontEnd: FrontEnd{Tokenize: 300 * time.Microsecond, TokenizePerToken: 500 * time.Nanosecond}, Jitter: .03,
		Engines: 1, APIServers: 1, ServiceName: "vllm", Model: "meta-llama/Meta-Llama-3-70B-Instruct",
		Sampling: 1, Parents: .5, ExportDelay: 5 * time.Second, ExportBatch: 512, ExportTime: 8 * time.Millisecond,
		Start: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC), Seed: 1,
	}
}

// presets by name, each a change of the base.
var presets = []struct {
	name, about string
	change      func(*Config)
}{
	{"v0-default", "vLLM V0 as it comes before v0.6: prefill first, decode else", func(*Config) {}},
	{"v0-async", "V0 with asynchronous output processing, the default from v0.6.0", func(c *Config) { c.Async = true }},
	{"v0-chunked", "V0 with chunked prefill", func(c *Config) { c.Mode, c.MaxBatchedTokens = ChunkedPrefill, 2048 }},
	{"v0-hostbound", "V0 with a small model whose device waits for its host (v0.5.5)", func(c *Config) {
		c.Dialect, c.Law, c.Host, c.Model = VLLM055, law8B, hostV053, "meta-llama/Meta-Llama-3-8B-Instruct"
	}},
	{"v0-preempt", "V0 with a KV cache too small for full batches", func(c *Config) { c.KVTokens = 80_000 }},
	{"v1", "vLLM V1", func(c *Config) { c.v1() }},
	{"v1-async", "V1 with asynchronous scheduling: the device hardly waits", func(c *Config) { c.v1(); c.Async = true }},
	{"v1-hostbound", "V1 with a small model and a slow host; its spans look like v1's", func(c *Config) { c.v1(); c.Law, c.Host = law8B, hostV053 }},
	{"v1-preempt", "V1 with a KV cache too small for full batches", func(c *Config) { c.v1(); c.KVTokens = 80_000 }},
	{"v1-frontend", "V1 with an API server that takes 1.5 s to prepare a request (images, long templates)", func(c *Config) { c.v1(); c.FrontEnd.Tokenize = 1500 * time.Millisecond }},
	{"v1-longcontext", "V1 with room for prompts of 100,000 tokens", func(c *Config) { c.v1(); c.MaxModelLen, c.KVTokens = 131072, 1<<21 }},
}

func (c *Config) v1() {
	c.Mode, c.Dialect, c.MaxBatchedTokens, c.Host, c.FrontEnd = ChunkedPrefill, VLLM016, 2048, hostV1, frontEnd
}

// Presets are the names Preset knows.
func Presets() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return names
}

// Kind is what a user is told of a preset: also what a collector must be told of its engines.
type Kind struct {
	Name, About          string
	MaxNumSeqs, KVTokens int
}

// Kinds are the presets.
func Kinds() []Kind {
	kinds := make([]Kind, len(presets))
	for i, p := range presets {
		c := base()
		p.change(&c)
		kinds[i] = Kind{p.name, p.about, c.MaxNumSeqs, c.KVTokens}
	}
	return kinds
}

// Preset is a ready deployment of one engine, of one of the Kinds.
func Preset(name string) (Config, error) {
	for _, p := range presets {
		if p.name == name {
			c := base()
			p.change(&c)
			c.Name = name
			return c, nil
		}
	}
	return Config{}, fmt.Errorf("unknown engine %q: want one of %s", name, strings.Join(Presets(), ", "))
}

// Validate says what is wrong and what would be right.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Mode <= ChunkedPrefill, "mode %d is unknown", c.Mode)
	check(c.Dialect <= VLLM016, "dialect %d is unknown", c.Dialect)
	check(!c.Dialect.V1() || c.Mode == ChunkedPrefill, "vLLM V1 always chunks prefill: set the mode ChunkedPrefill")
	check(c.MaxNumSeqs >= 1 && c.MaxNumSeqs <= 1<<16, "max_num_seqs %d must be in [1, 65536]", c.MaxNumSeqs)
	check(c.MaxModelLen >= 2 && c.MaxModelLen <= maxLength, "max_model_len %d must be in [2, %d]", c.MaxModelLen, maxLength)
	// A chunked step decodes every running request; a whole prompt must fit a step otherwise.
	check(c.Mode != PrefillPriority || c.MaxBatchedTokens >= c.MaxModelLen, "max_num_batched_tokens %d must be at least max_model_len %d without chunked prefill", c.MaxBatchedTokens, c.MaxModelLen)
	check(c.MaxBatchedTokens <= 1<<30, "max_num_batched_tokens %d is over 2^30", c.MaxBatchedTokens)
	check(c.Mode != ChunkedPrefill || c.MaxBatchedTokens > c.MaxNumSeqs, "max_num_batched_tokens %d must be over max_num_seqs %d", c.MaxBatchedTokens, c.MaxNumSeqs)
	check(c.KVTokens <= 1<<30, "a KV cache of %d tokens is over 2^30", c.KVTokens)
	check(c.KVTokens >= 2*(c.MaxModelLen+2*blockSize), "a KV cache of %d tokens cannot hold two requests of max_model_len %d", c.KVTokens, c.MaxModelLen)
	l := c.Law
	check(l.DecodeBase > 0 && l.PrefillPerToken >= 0 && l.PrefillFloor > 0 && l.DecodePerSeq >= 0 && l.DecodePerKVToken >= 0, "the step-time law needs positive base times and no negative ones")
	h, f := c.Host, c.FrontEnd
	check(slices.Min([]time.Duration{
		h.Scheduler, h.SchedulerPerSeq, h.Prepare, h.PreparePerSeq, h.Sample, h.SamplePerSeq, h.Output, h.OutputPerSeq, h.Loop, h.LoopPerSeq,
		f.Tokenize, f.TokenizePerToken, f.Transfer, f.Output, f.OutputPerSeq,
		c.Patience, c.ExportTime,
	}) >= 0, "no duration can be negative")
	check(c.Jitter >= 0 && c.Jitter <= .5, "jitter %v must be in [0, 0.5]", c.Jitter)
	check(c.Engines >= 1 && c.Engines <= 10_000, "%d engines: want 1 to 10000", c.Engines)
	check(c.APIServers >= 1 && c.APIServers <= 1000, "%d API servers: want 1 to 1000", c.APIServers)
	check(c.APIServers == 1 || c.Dialect.V1(), "several API servers are vLLM V1's")
	check(c.Sampling > 0 && c.Sampling <= 1, "sampling %v must be in (0, 1]", c.Sampling)
	check(c.Parents >= 0 && c.Parents <= 1, "parents %v must be in [0, 1]", c.Parents)
	check(c.AbortRate >= 0 && c.AbortRate <= 1, "abort rate %v must be in [0, 1]", c.AbortRate)
	check(c.ExportDelay > 0, "export delay %v must be positive", c.ExportDelay)
	check(c.ExportBatch >= 1, "export batch %d must be positive", c.ExportBatch)
	check(c.Start.Unix() > 0 && c.Start.Year() < 2200, "start %v must be between 1970 and 2200", c.Start)
	return errors.Join(errs...)
}
