// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Queries that several panels have in common. All of them are on the collector's own metrics, so that the dashboards
// work without the recording rules; only the error budget, whose objective is a rule, needs them.

import "fmt"

const (
	// engines selects the series of windows, requests those of requests, which know the model.
	engines  = `job=~"$job",instance=~"$instance"`
	requests = engines + `,gen_ai_response_model=~"$model"`

	interval = "$__rate_interval"
)

// gauge is the value of an engine's gauge. Labels of the scope go; several collectors may tell of one engine.
func gauge(metric, more string) string {
	return fmt.Sprintf(`max by (job, instance) (%s{%s%s})`, metric, engines, more)
}

// estimate is how many requests of an engine run or wait: the mean, or the middle of its bracket, or the lower end where no more is known.
func estimate(metric string) string {
	lower, upper := gauge(metric+"_lower", ""), gauge(metric+"_upper", "")
	return fmt.Sprintf(`%s or (%s + %s) / 2 or %s`, gauge(metric, `,stat="mean"`), lower, upper, lower)
}

// quantile is one of a histogram of requests.
func quantile(q, by, metric, window string) string {
	if by != "" {
		by += ", "
	}
	return fmt.Sprintf(`histogram_quantile(%s, sum by (%sle) (rate(%s_bucket{%s}[%s])))`, q, by, metric, requests, window)
}

// share is the part of each value of label in a counter of time.
func share(label, metric, selector string) string {
	return fmt.Sprintf(`sum by (%s) (rate(%s{%s}[%s])) / ignoring (%[1]s) group_left () (sum(rate(%[2]s{%[3]s}[%[4]s])) > 0)`, label, metric, selector, interval)
}

// rate is that of a counter of requests.
func rate(by, metric, more, window string) string {
	if by == "" {
		return fmt.Sprintf(`sum(rate(%s{%s%s}[%s]))`, metric, requests, more, window)
	}
	return fmt.Sprintf(`sum by (%s) (rate(%s{%s%s}[%s]))`, by, metric, requests, more, window)
}

// goodput is the share of requests that met an objective. A request of one token has no time per output token and is left
// out of that objective's share.
func goodput(by, window string) string {
	on := by
	if on != "" {
		on += ", "
	}
	all := `(` + rate(by, "llm_serving_request_count_total", "", window) + ` > 0)`
	tpot := fmt.Sprintf(`(sum by (%s) (rate(llm_serving_request_count_total{%s,error_type!=""}[%s]) or rate(gen_ai_server_time_per_output_token_seconds_count{%[2]s}[%[3]s])) > 0)`, by, requests, window)
	return rate(on+"slo", "llm_serving_request_goodput_total", `,slo!="tpot"`, window) + ` / ignoring (slo) group_left () ` + all +
		` or ` + rate(on+"slo", "llm_serving_request_goodput_total", `,slo="tpot"`, window) + ` / ignoring (slo) group_left () ` + tpot
}

const (
	goodputFormula = "`llm_serving_request_goodput_total` by slo, its rate / rate of `llm_serving_request_count_total`; for tpot / rate of the count of `gen_ai_server_time_per_output_token_seconds` and of failed requests."
	waitingFormula = "`llm_serving_engine_requests_waiting` with stat=mean; where more than one request may wait unseen, the middle of `llm_serving_engine_requests_waiting_lower` and `llm_serving_engine_requests_waiting_upper`, or the lower end alone"
	runningFormula = "`llm_serving_engine_requests_running` with stat=mean; where that is not known, the middle of `llm_serving_engine_requests_running_lower` and `llm_serving_engine_requests_running_upper`, or the lower end alone"
	stateFormula   = "`llm_serving_engine_time_seconds_total` by state, its rate / the rate over all states."
)
