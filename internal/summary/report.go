// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package summary

// The report. Its JSON is a published interface (schema.json): fields are added and never change their meaning within a
// major version. What is not known is left out, never zero. Times are in seconds, ratios in [0, 1], lengths in tokens.

import "time"

// SchemaVersion is the version of the JSON of Report and EngineReport.
const SchemaVersion = "1.0"

// Report is what a Collector knows of all engines at a moment.
type Report struct {
	SchemaVersion string    `json:"schema_version"`
	Time          time.Time `json:"time"`
	Collector     Collector `json:"collector"`
	// Sources are the serving_metrics components that report here. None: nothing is configured to.
	Sources []Source `json:"sources"`
	// Engines, those that need attention most first.
	Engines []Engine `json:"engines"`
}

// EngineReport is one engine in full.
type EngineReport struct {
	SchemaVersion string    `json:"schema_version"`
	Time          time.Time `json:"time"`
	Engine        Engine    `json:"engine"`
	History       History   `json:"history"`
	// Slowest are the slowest requests of the last hour, slowest first.
	Slowest []SlowRequest `json:"slowest"`
}

// Collector is the program that made the report.
type Collector struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Source is one serving_metrics component and what it received since it was started.
type Source struct {
	// ID is the component's, as "processor/serving_metrics".
	ID string `json:"id"`
	// Spans are those received, Requests those of them that are finished requests and were counted, Duplicates those that were
	// resent, Dropped those that came after the end.
	Spans      int64 `json:"spans"`
	Requests   int64 `json:"requests"`
	Duplicates int64 `json:"duplicates"`
	Dropped    int64 `json:"dropped"`
	// Rejected are single values that cannot be true, by reason.
	Rejected map[string]int64 `json:"rejected,omitempty"`
	// LastSpan is when the last span came; absent before the first.
	LastSpan *time.Time `json:"last_span,omitempty"`
	// Window is the length of the windows; 0: none are wanted, so there is no diagnosis.
	WindowSeconds float64 `json:"window_seconds"`
	// IntervalSeconds is how often the figures change.
	IntervalSeconds float64 `json:"interval_seconds"`
	// Objectives are the limits configured in slo.
	Objectives Objectives `json:"objectives"`
	// MaxNumSeqs as configured; absent: unknown.
	MaxNumSeqs int `json:"max_num_seqs,omitempty"`
	// KVCacheTokens as configured; absent: unknown.
	KVCacheTokens int `json:"kv_cache_tokens,omitempty"`
	// EnginesNotListed are beyond the limit and have no report.
	Overflow bool `json:"overflow,omitempty"`
}

// Objectives in seconds; absent: none.
type Objectives struct {
	TTFT *float64 `json:"ttft,omitempty"`
	TPOT *float64 `json:"tpot,omitempty"`
	E2E  *float64 `json:"e2e,omitempty"`
}

// Status is how far an engine's figures can be used.
type Status string

// The statuses.
const (
	// StatusCollecting: requests came, but no window is closed yet.
	StatusCollecting Status = "collecting"
	// StatusCurrent: the last window is as recent as can be.
	StatusCurrent Status = "current"
	// StatusIdle: no request came for a while, and windows go on without work.
	StatusIdle Status = "idle"
	// StatusStale: nothing was heard of the engine for so long that its figures are of the past.
	StatusStale Status = "stale"
)

// Engine is one engine over the last minutes.
type Engine struct {
	// Key names the engine in URLs: stable for the same service.namespace, service.name and service.instance.id.
	Key       string `json:"key"`
	Service   string `json:"service_name,omitempty"`
	Namespace string `json:"service_namespace,omitempty"`
	Instance  string `json:"service_instance_id"`
	// Attributes are the other resource attributes.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Source is the ID of the component that reports it.
	Source string `json:"source"`
	// Kind is the engine's gen_ai.provider.name, Generation v0, v1 or absent.
	Kind       string   `json:"kind"`
	Generation string   `json:"generation,omitempty"`
	Models     []string `json:"models,omitempty"`
	// KeySource is the resource attribute that told this engine from others, MayMix whether replicas are likely to share it.
	KeySource string `json:"key_source"`
	MayMix    bool   `json:"may_mix,omitempty"`

	Status Status `json:"status"`
	// Start and End are the time that Diagnosis, Figures and Requests are about; absent while collecting.
	Start *time.Time `json:"start,omitempty"`
	End   *time.Time `json:"end,omitempty"`
	// AgeSeconds is how long ago End was when the report was made. Below 0: the engine's clock is ahead. An engine that is
	// current and has figures of long ago has a clock that is behind, or its spans are replayed.
	AgeSeconds *float64 `json:"age_seconds,omitempty"`

	Diagnosis Diagnosis `json:"diagnosis"`
	Figures   Figures   `json:"figures"`
	Requests  Requests  `json:"requests"`
	Certainty Certainty `json:"certainty"`
}

// Diagnosis is the verdict and what follows from it.
type Diagnosis struct {
	Finding
	// Since is when the verdict came into force.
	Since *time.Time `json:"since,omitempty"`
	// Also are other findings that hold.
	Also []Finding `json:"also,omitempty"`
}

// Finding is one thing that an engine suffers from.
type Finding struct {
	// Verdict is its name, as host_bound; Confidence none, low, medium or high.
	Verdict    string     `json:"verdict"`
	Confidence string     `json:"confidence"`
	Cause      string     `json:"cause,omitempty"`
	Title      string     `json:"title"`
	Sentence   string     `json:"sentence"`
	Evidence   []Evidence `json:"evidence,omitempty"`
	Gain       *Gain      `json:"gain,omitempty"`
	Actions    []Action   `json:"actions,omitempty"`
	Caveats    []string   `json:"caveats,omitempty"`
}

// Evidence is one figure beside the threshold it met.
type Evidence struct {
	Text      string  `json:"text"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Condition string  `json:"condition,omitempty"`
	Metric    string  `json:"metric,omitempty"`
	Formula   string  `json:"formula,omitempty"`
}

// Gain bounds what a remedy can give.
type Gain struct {
	Factor float64 `json:"factor"`
	// AtLeast: the factor is the least there is room for; else the most that can be had.
	AtLeast bool   `json:"at_least,omitempty"`
	Of      string `json:"of"`
	Formula string `json:"formula,omitempty"`
}

// Action is something to do.
type Action struct {
	Text     string `json:"text"`
	Why      string `json:"why,omitempty"`
	Setting  string `json:"setting,omitempty"`
	Versions string `json:"versions,omitempty"`
	Source   string `json:"source,omitempty"`
}

// Figures are means over Start to End. Absent: the spans do not say.
type Figures struct {
	Utilization      *float64 `json:"device_utilization,omitempty"`
	UtilizationLower *float64 `json:"device_utilization_lower,omitempty"`
	UtilizationUpper *float64 `json:"device_utilization_upper,omitempty"`
	WaitRatio        *float64 `json:"device_wait_ratio,omitempty"`
	Occupancy        *float64 `json:"occupancy,omitempty"`
	QueuePressure    *float64 `json:"queue_pressure,omitempty"`
	// States are shares of the time; they sum to 1.
	States       map[string]float64 `json:"states,omitempty"`
	Running      *float64           `json:"requests_running_mean,omitempty"`
	RunningMax   *float64           `json:"requests_running_max,omitempty"`
	RunningLower *float64           `json:"requests_running_lower,omitempty"`
	RunningUpper *float64           `json:"requests_running_upper,omitempty"`
	// Waiting counts the middle of the bracket where more than one request may wait unseen; WaitingCount has all that is known.
	Waiting          *float64 `json:"requests_waiting_mean,omitempty"`
	WaitingMax       *float64 `json:"requests_waiting_max,omitempty"`
	WaitingLower     *float64 `json:"requests_waiting_lower,omitempty"`
	WaitingUpper     *float64 `json:"requests_waiting_upper,omitempty"`
	Batch            *float64 `json:"batch_mean,omitempty"`
	BatchUtilization *float64 `json:"batch_utilization,omitempty"`
	Step             *float64 `json:"step_duration,omitempty"`
	HostGap          *float64 `json:"step_host_gap,omitempty"`
	CapacityFit      *float64 `json:"capacity_utilization_fit,omitempty"`
	CapacityPeak     *float64 `json:"capacity_utilization_peak,omitempty"`
	// CapacityLower and CapacityUpper bracket CapacityFit; they are there where that is not, too.
	CapacityLower *float64 `json:"capacity_utilization_lower,omitempty"`
	CapacityUpper *float64 `json:"capacity_utilization_upper,omitempty"`
	// Capacity is the output tokens per second of a full engine.
	Capacity         *float64 `json:"capacity,omitempty"`
	Marginal         *float64 `json:"marginal_ratio,omitempty"`
	StepLaw          *StepLaw `json:"step_law,omitempty"`
	InputThroughput  *float64 `json:"input_throughput,omitempty"`
	OutputThroughput *float64 `json:"output_throughput,omitempty"`
}

// StepLaw is step = A + B * running requests, s.
type StepLaw struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
	// Extrapolates: batches were seen near enough to full for the law to be used there.
	Extrapolates bool `json:"extrapolates"`
	// BatchAtObjective is the largest batch that meets the objective for the time per output token; absent: none set.
	BatchAtObjective *float64 `json:"batch_at_objective,omitempty"`
}

// Requests are those that finished between Start and End.
type Requests struct {
	Count  int64    `json:"count"`
	Failed int64    `json:"failed"`
	Rate   *float64 `json:"rate,omitempty"`
	TTFT   *Spread  `json:"ttft,omitempty"`
	TPOT   *Spread  `json:"tpot,omitempty"`
	E2E    *Spread  `json:"e2e,omitempty"`
	// Parts are the mean seconds of a request by queue, prefill, decode and frontend.
	Parts map[string]float64 `json:"parts,omitempty"`
	// Goodput are the shares of requests that met each objective by ttft, tpot, e2e, all.
	Goodput map[string]float64 `json:"goodput,omitempty"`
	Input   *Spread            `json:"input_tokens,omitempty"`
	Output  *Spread            `json:"output_tokens,omitempty"`
	// Before is the same of the day before, where known.
	Before *Workload `json:"before,omitempty"`
}

// Workload is what was asked for in a longer time.
type Workload struct {
	Hours  float64  `json:"hours"`
	Rate   *float64 `json:"rate,omitempty"`
	Input  *Spread  `json:"input_tokens,omitempty"`
	Output *Spread  `json:"output_tokens,omitempty"`
}

// Spread is how one quantity is spread, within 3 % of the value.
type Spread struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
}

// Certainty is how sure the figures are.
type Certainty struct {
	// Completeness is the expected share of the running time that was seen.
	Completeness *float64 `json:"completeness,omitempty"`
	// Late are requests that came after a window they belong to was closed, since the start.
	Late int64 `json:"late_requests"`
	// Mode is masked, mixed or unknown.
	Mode string `json:"mode"`
	// Findings are mixed_engines, sampled, ...: the values of llm.serving.estimate.finding.
	Findings []string `json:"findings,omitempty"`
	// Tier is what the spans support: device (forward times), host (no forward times, but scheduler's), or occupancy.
	Tier string `json:"tier"`
	// Missing is what cannot be known here, Remedy what would add it.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is something that the engine does not report.
type Missing struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Remedy string `json:"remedy,omitempty"`
}

// History is the last hour in columns of equal length, oldest first. A null is what is not known.
type History struct {
	WindowSeconds float64 `json:"window_seconds"`
	// End are the windows' ends in Unix seconds.
	End []int64 `json:"end"`
	// States are shares of each window.
	States map[string][]float64 `json:"states"`
	// Figures by the name they have in Figures, and completeness. The means of running and waiting requests are null in windows of which only the
	// bracket is known; CountAt has both.
	Figures map[string][]*float64 `json:"figures"`
	// Verdicts in force at the windows' ends.
	Verdicts []string `json:"verdicts"`
	// Minutes are the latencies by minute.
	Minutes Minutes `json:"minutes"`
}

// Minutes are percentiles of the requests that finished in each minute.
type Minutes struct {
	// End are the minutes' ends in Unix seconds.
	End     []int64    `json:"end"`
	Count   []int64    `json:"count"`
	TTFTP50 []*float64 `json:"ttft_p50"`
	TTFTP95 []*float64 `json:"ttft_p95"`
	TTFTP99 []*float64 `json:"ttft_p99"`
	TPOTP50 []*float64 `json:"tpot_p50"`
	TPOTP95 []*float64 `json:"tpot_p95"`
	TPOTP99 []*float64 `json:"tpot_p99"`
	E2EP50  []*float64 `json:"e2e_p50"`
	E2EP95  []*float64 `json:"e2e_p95"`
	E2EP99  []*float64 `json:"e2e_p99"`
}

// SlowRequest is one request of the slowest.
type SlowRequest struct {
	End     time.Time `json:"end"`
	TraceID string    `json:"trace_id"`
	SpanID  string    `json:"span_id"`
	Model   string    `json:"model,omitempty"`
	Error   string    `json:"error,omitempty"`
	E2E     float64   `json:"e2e"`
	TTFT    *float64  `json:"ttft,omitempty"`
	TPOT    *float64  `json:"tpot,omitempty"`
	// Parts are seconds by queue, prefill, decode and frontend.
	Parts        map[string]float64 `json:"parts,omitempty"`
	InputTokens  *int64             `json:"input_tokens,omitempty"`
	OutputTokens *int64             `json:"output_tokens,omitempty"`
}
