// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package serving

// The configuration that processor and connector share. Every key has a default that suits one vLLM
// engine; every error names the key and what to write instead.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/engineid"
)

// Config is the configuration of the derived metrics.
type Config struct {
	// Interval is how often the derived metrics go out.
	Interval time.Duration `mapstructure:"interval"`
	// Temporality of sums and histograms: cumulative or delta.
	Temporality Temporality `mapstructure:"temporality"`
	// Dimensions are span or resource attributes that become attributes of the request metrics.
	Dimensions []Dimension     `mapstructure:"dimensions"`
	Histograms HistogramConfig `mapstructure:"histograms"`
	Exemplars  ExemplarConfig  `mapstructure:"exemplars"`
	Engine     EngineConfig    `mapstructure:"engine"`
	Timeline   TimelineConfig  `mapstructure:"timeline"`
	SLO        SLOConfig       `mapstructure:"slo"`
	// Diagnosis are the thresholds of the verdicts.
	Diagnosis diagnosis.Config `mapstructure:"diagnosis"`
	// Summary is the ID of the serving_summary extension that shows the engines on a page, as serving_summary. Nil: none
	// does. With it an hour of windows is kept.
	Summary *component.ID `mapstructure:"summary"`
	Limits  LimitConfig   `mapstructure:"limits"`
	Dedupe  DedupeConfig  `mapstructure:"dedupe"`
	// Compatibility emits metrics under the names of others as well: vllm.
	Compatibility []string `mapstructure:"compatibility"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Temporality is cumulative or delta.
type Temporality string

// The temporalities.
const (
	Cumulative Temporality = "cumulative"
	Delta      Temporality = "delta"
)

// Dimension is an attribute that tells series apart.
type Dimension struct {
	// Name of the attribute of the span or, where the span has none, of the resource.
	Name string `mapstructure:"name"`
	// Default is the value where neither has it. Without a default, the series has no such attribute.
	Default *string `mapstructure:"default"`
}

// HistogramConfig is the shape of the histograms.
type HistogramConfig struct {
	// Type is explicit (buckets with fixed bounds) or exponential.
	Type HistogramType `mapstructure:"type"`
	// MaxSize is the most buckets of an exponential histogram.
	MaxSize int32 `mapstructure:"max_size"`
	// Buckets are the upper bounds of explicit histograms by metric, in the metric's unit, in place
	// of the default ones.
	Buckets map[string][]float64 `mapstructure:"buckets"`
}

// HistogramType is explicit or exponential.
type HistogramType string

// The histogram types.
const (
	Explicit    HistogramType = "explicit"
	Exponential HistogramType = "exponential"
)

// ExemplarConfig bounds the exemplars.
type ExemplarConfig struct {
	// MaxPerPoint is the most exemplars of a histogram point per interval; the slowest request is
	// always among them. 0: none.
	MaxPerPoint int `mapstructure:"max_per_point"`
}

// EngineConfig says what an engine is and what is known of it.
type EngineConfig struct {
	// Key are resource attributes, or several joined by +, of which the first present names the
	// engine.
	Key []string `mapstructure:"key"`
	// ResourceAttributes are kept on the resource of the derived metrics, besides those that
	// identify the engine.
	ResourceAttributes []string `mapstructure:"resource_attributes"`
	// MaxNumSeqs is the engine's limit of requests in one batch, vLLM's --max-num-seqs. 0: unknown, and
	// what needs it is absent.
	MaxNumSeqs int `mapstructure:"max_num_seqs"`
	// KVCacheTokens is how many tokens the engine's KV cache holds, as it logs when it starts. 0: unknown. The largest batch is what
	// both limits allow.
	KVCacheTokens int `mapstructure:"kv_cache_tokens"`
	// Models names the model by service.name, for engines whose spans do not.
	Models map[string]string `mapstructure:"models"`
}

// TimelineConfig is how an engine's time is cut into windows.
type TimelineConfig struct {
	// Window is the length of a window. Windows begin at whole multiples of it in Unix time. 0: no
	// windows, only metrics of requests.
	Window time.Duration `mapstructure:"window"`
	// Grace is how long after its end a window waits for the requests that ran in it.
	Grace Grace `mapstructure:"grace"`
}

// Grace is a duration, or auto (0): as long as nearly all recent requests took, between 10 s and 180 s.
type Grace time.Duration

// UnmarshalText reads a duration or auto.
func (g *Grace) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*g = 0
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is neither auto nor a duration such as 30s", text)
	}
	*g = Grace(d)
	return nil
}

// MarshalText is what UnmarshalText reads.
func (g Grace) MarshalText() ([]byte, error) {
	if g == 0 {
		return []byte("auto"), nil
	}
	return []byte(time.Duration(g).String()), nil
}

// SLOConfig are the objectives that llm.serving.request.goodput counts against. 0: none.
type SLOConfig struct {
	TTFT time.Duration `mapstructure:"ttft"`
	TPOT time.Duration `mapstructure:"tpot"`
	E2E  time.Duration `mapstructure:"e2e"`
}

// LimitConfig bounds the memory.
type LimitConfig struct {
	// Series is the most series over all engines. A series is one combination of attribute values
	// on one engine, with all its metrics: about 10 KiB, and 15 KiB with compatibility.
	Series int `mapstructure:"series"`
	// Engines is the most engines.
	Engines int `mapstructure:"engines"`
	// SeriesExpiration is how long a series is reported after its last request.
	SeriesExpiration time.Duration `mapstructure:"series_expiration"`
}

// DedupeConfig is how resent spans are recognised.
type DedupeConfig struct {
	// Window is how long a span is remembered. 0: every span counts as often as it is received.
	Window time.Duration `mapstructure:"window"`
	// MaxEntries is the most spans remembered; 16 bytes each.
	MaxEntries int `mapstructure:"max_entries"`
}

const (
	compatibilityVLLM = "vllm"
	summaryType       = "serving_summary" // of extensions

	maxBuckets = 250
	// With 8 buckets, values from a billionth to 2^31 fit at scale -3; Prometheus takes -4 and finer.
	minMaxSize, maxMaxSize = 8, 1024
	// minInterval keeps a mistyped interval from flooding the backends.
	minInterval = 100 * time.Millisecond
)

// NewDefaultConfig is the configuration of an empty serving_metrics.
func NewDefaultConfig() Config {
	return Config{
		Interval:    15 * time.Second,
		Temporality: Cumulative,
		Histograms:  HistogramConfig{Type: Explicit, MaxSize: 160},
		Exemplars:   ExemplarConfig{MaxPerPoint: 4},
		Engine:      EngineConfig{Key: engineid.DefaultKeys()},
		Timeline:    TimelineConfig{Window: 10 * time.Second},
		Limits:      LimitConfig{Series: 20_000, Engines: 1_000, SeriesExpiration: 30 * time.Minute},
		Dedupe:      DedupeConfig{Window: 5 * time.Minute, MaxEntries: 1_000_000},
		Diagnosis:   diagnosis.NewDefaultConfig(),
	}
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.Interval < minInterval {
		fail("interval: %v is too short; use %v or more, such as 15s", c.Interval, minInterval)
	}
	if c.Temporality != Cumulative && c.Temporality != Delta {
		fail("temporality: %q is unknown; use cumulative or delta", c.Temporality)
	}
	errs = append(errs, c.validateDimensions()...)
	errs = append(errs, c.Histograms.validate()...)
	if c.Exemplars.MaxPerPoint < 0 || c.Exemplars.MaxPerPoint > 64 {
		fail("exemplars::max_per_point: %d is out of range; use 0 (none) to 64", c.Exemplars.MaxPerPoint)
	}
	if _, err := engineid.NewResolver(c.Engine.Key); err != nil {
		fail("engine::key: %w", err)
	}
	if n := maxResourceAttributes - len(resourceAttributes); len(c.Engine.ResourceAttributes) > n {
		fail("engine::resource_attributes: %d names; use %d at most", len(c.Engine.ResourceAttributes), n)
	}
	for _, name := range c.Engine.ResourceAttributes {
		if name == "" {
			fail("engine::resource_attributes: a name is empty; remove it")
		} else if isProcessAttribute(name) {
			fail("engine::resource_attributes: %q changes at every restart or differs between the processes of one engine; remove it", name)
		}
	}
	if c.Engine.MaxNumSeqs < 0 {
		fail("engine::max_num_seqs: %d is negative; use the engine's --max-num-seqs, or 0 if it is unknown", c.Engine.MaxNumSeqs)
	}
	if c.Engine.KVCacheTokens < 0 {
		fail("engine::kv_cache_tokens: %d is negative; use the tokens that the engine's KV cache holds, which it logs when it starts, or 0 if they are unknown", c.Engine.KVCacheTokens)
	}
	if w := c.Timeline.Window; w != 0 && (w < time.Second || w > time.Hour) {
		fail("timeline::window: %v is out of range; use 1s to 1h, such as 10s, or 0s for no metrics of engines", w)
	}
	if grace := time.Duration(c.Timeline.Grace); grace < 0 || grace > time.Hour {
		fail("timeline::grace: %v is out of range; use auto, or a duration of up to 1h", grace)
	} else if withoutUnit(grace) {
		fail("timeline::grace: %v is too short; write a unit, such as 30s", grace)
	}
	for _, o := range []struct {
		name  string
		value time.Duration
	}{{"ttft", c.SLO.TTFT}, {"tpot", c.SLO.TPOT}, {"e2e", c.SLO.E2E}} {
		if o.value < 0 {
			fail("slo::%s: %v is negative; use a duration such as 500ms, or 0s for no objective", o.name, o.value)
		} else if withoutUnit(o.value) {
			fail("slo::%s: %v is too short; write a unit, such as 1s, or 0s for no objective", o.name, o.value)
		}
	}
	if c.Limits.Series < 1 {
		fail("limits::series: %d is not positive; use 1 or more, such as 20000", c.Limits.Series)
	}
	if c.Limits.Engines < 1 {
		fail("limits::engines: %d is not positive; use 1 or more, such as 1000", c.Limits.Engines)
	}
	if c.Limits.SeriesExpiration < c.Interval {
		fail("limits::series_expiration: %v is shorter than interval (%v), so that series would end between two points; use several intervals, such as 30m", c.Limits.SeriesExpiration, c.Interval)
	}
	if c.Dedupe.Window < 0 {
		fail("dedupe::window: %v is negative; use a duration such as 5m, or 0s to count every span as often as it is received", c.Dedupe.Window)
	}
	if withoutUnit(c.Dedupe.Window) {
		fail("dedupe::window: %v is too short; write a unit, such as 5m", c.Dedupe.Window)
	}
	if c.Dedupe.Window > 0 && (c.Dedupe.MaxEntries < 1 || c.Dedupe.MaxEntries > maxDedupeEntries) {
		fail("dedupe::max_entries: %d is out of range; use 1 to %d, or dedupe::window 0s for no deduplication", c.Dedupe.MaxEntries, maxDedupeEntries)
	}
	for _, err := range c.Diagnosis.Faults() {
		fail("diagnosis::%w", err)
	}
	if c.Summary != nil && c.Summary.Type().String() != summaryType {
		fail("summary: %[1]v shows no summary; name an extension of type %[2]s, such as %[2]s or %[2]s/page", c.Summary, summaryType)
	}
	if c.Summary != nil && c.Timeline.Window == 0 {
		fail("summary: %v has nothing to show without windows; remove timeline::window 0s, or summary", c.Summary)
	}
	for _, name := range c.Compatibility {
		if name != compatibilityVLLM {
			fail("compatibility: %q is unknown; use vllm, or leave the list empty", name)
		}
	}
	return errors.Join(errs...)
}

// withoutUnit tells durations that were meant in seconds: a number without a unit is read as nanoseconds.
func withoutUnit(d time.Duration) bool { return d > 0 && d < time.Microsecond }

// reservedLabels are written by Prometheus or by us, so that a dimension of this name would make two
// labels of one name.
var reservedLabels = []string{"__name__", "job", "instance", "le", "quantile", "otel_scope_name", "otel_scope_version", "otel_metric_overflow"}

func (c *Config) validateDimensions() []error {
	var errs []error
	taken := map[string]string{} // Prometheus label to who takes it
	for _, label := range reservedLabels {
		taken[label] = "Prometheus"
	}
	for _, attribute := range ownAttributes() {
		taken[prometheusLabel(attribute)] = "serving_metrics itself"
	}
	for i, d := range c.Dimensions {
		label := prometheusLabel(d.Name)
		switch {
		case d.Name == "":
			errs = append(errs, fmt.Errorf("dimensions::%d::name: is empty; name a span or resource attribute", i))
			continue
		case isRequestIdentity(d.Name):
			errs = append(errs, fmt.Errorf("dimensions::%d::name: %q has a value of its own for each request, which would make each request a series; remove it", i, d.Name))
		case taken[label] != "":
			errs = append(errs, fmt.Errorf("dimensions::%d::name: %q is already used by %s (as Prometheus label %s); remove it", i, d.Name, taken[label], label))
		}
		taken[label] = fmt.Sprintf("dimensions::%d", i)
	}
	return errs
}

func (h *HistogramConfig) validate() []error {
	var errs []error
	if h.Type != Explicit && h.Type != Exponential {
		errs = append(errs, fmt.Errorf("histograms::type: %q is unknown; use explicit or exponential", h.Type))
	}
	if h.MaxSize < minMaxSize || h.MaxSize > maxMaxSize {
		errs = append(errs, fmt.Errorf("histograms::max_size: %d is out of range; use %d to %d, such as 160", h.MaxSize, minMaxSize, maxMaxSize))
	}
	for _, name := range slices.Sorted(maps.Keys(h.Buckets)) {
		bounds := h.Buckets[name]
		switch {
		case !isHistogram(name):
			errs = append(errs, fmt.Errorf("histograms::buckets: %q is no histogram of serving_metrics; see docs/metrics.md for their names", name))
		case len(bounds) == 0 || len(bounds) > maxBuckets:
			errs = append(errs, fmt.Errorf("histograms::buckets::%s: %d bounds; use 1 to %d", name, len(bounds), maxBuckets))
		case h.Type == Exponential:
			errs = append(errs, fmt.Errorf("histograms::buckets::%s: exponential histograms have no bounds; remove it, or use histograms::type explicit", name))
		}
		for i, bound := range bounds {
			if math.IsNaN(bound) || math.IsInf(bound, 0) || bound < 0 || i > 0 && bound <= bounds[i-1] {
				errs = append(errs, fmt.Errorf("histograms::buckets::%s: bounds must be finite, not negative and ascending, and bound %d is %v", name, i, bound))
				break
			}
		}
	}
	return errs
}

// prometheusLabel is the label that exporters make of an attribute.
func prometheusLabel(attribute string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, attribute)
}

// isProcessAttribute tells the attributes that belong to a process, not to an engine.
func isProcessAttribute(name string) bool {
	return strings.HasPrefix(name, "process.") || strings.HasPrefix(name, "telemetry.") || strings.HasPrefix(name, "vllm.process_")
}

// isRequestIdentity tells the attributes that have a value of their own for each request, or that carry what a user wrote.
func isRequestIdentity(name string) bool {
	switch name {
	case "gen_ai.request.id", "gen_ai.response.id", "rid", "x_request_id", "triton.request_id", "parameters", "input.value", "output.value":
		return true
	}
	return slices.ContainsFunc([]string{
		"gen_ai.latency.", "gen_ai.usage.",
		"llm.serving.request.", // the shares, which annotate writes
		// What users wrote and were answered, by the names of the conventions, OpenLLMetry and OpenInference.
		"gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.call.",
		"llm.prompts", "llm.completions", "llm.input_messages", "llm.output_messages", "traceloop.entity.", "http.request.body", "http.response.body",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
