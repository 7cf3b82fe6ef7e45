// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// One engine: what it suffers from, where its time went, what its users felt, and how sure all of that is.

func engine() *dashboard {
	d := newDashboard(uidEngine, "LLM serving: engine",
		"One inference engine, from its finished requests. Figures of windows come about a minute and a half after the fact, and are absent where the requests do not tell them.",
		labelVariable("job", "Service", "service.namespace/service.name", `llm_serving_engine_info_ratio`, "job"),
		labelVariable("instance", "Engine", "service.instance.id", `llm_serving_engine_info_ratio{job=~"$job"}`, "instance"),
		labelVariable("model", "Model", "Of panels about requests. All has requests of unknown models too: vLLM V1 names none.",
			`llm_serving_request_count_total{job=~"$job",instance=~"$instance"}`, "gen_ai_response_model").several(),
	)

	d.add("What it suffers from",
		stat(6, 4, about{
			title: "Verdict", text: "What the engine suffers from most. The runbook says what each word means and what to do.",
			formula: "`llm_serving_engine_verdict_ratio`, the verdict that is 1, as a number.", unit: "none", absent: verdictAbsent,
		}, now("", verdictNumber(engines))).verdictWords().link("What it means and what to do", repository+"docs/runbook.md#verdicts"),
		stat(3, 4, about{
			title: "Device busy", text: "Share of the last window in which the device ran a forward pass.",
			formula: "`llm_serving_device_utilization_ratio`: time of forward passes / window, an estimate.", unit: "percentunit", absent: deviceAbsent,
		}, now("", gauge("llm_serving_device_utilization_ratio", ""))),
		stat(3, 4, about{
			title: "Waits for host", text: "Share of the time with a running request in which no forward pass ran. Above 40 % the engine is host-bound.",
			formula: "`llm_serving_device_wait_ratio`: 1 - device utilization / occupancy.", unit: "percentunit", absent: deviceAbsent,
		}, now("", gauge("llm_serving_device_wait_ratio", ""))).steps("green", 0.25, "orange", 0.4, "red"),
		stat(3, 4, about{
			title: "Capacity used", text: "Throughput by that of a full engine. Without a figure, see its bracket below.",
			formula: "`llm_serving_engine_capacity_utilization_ratio` with basis=fit.", unit: "percentunit", absent: capacityAbsent,
		}, now("", gauge("llm_serving_engine_capacity_utilization_ratio", `,basis="fit"`))).steps("green", 0.7, "orange", 0.85, "red"),
		stat(3, 4, about{
			title: "Waiting", text: "Requests before their first schedule, mean of the last window. In a lasting overload the middle of what is possible.",
			formula: waitingFormula + ".", unit: "short", absent: windowsAbsent,
		}, now("", estimate("llm_serving_engine_requests_waiting"))).steps("green", 1, "orange", 10, "red"),
		stat(3, 4, about{
			title: "Seen", text: "Share of the last window's running time that was known when it was closed. Below 80 % do not trust the figures of windows.",
			formula: "`llm_serving_estimate_completeness_ratio`.", unit: "percentunit", absent: windowsAbsent,
		}, now("", gauge("llm_serving_estimate_completeness_ratio", ""))).steps("red", 0.8, "orange", 0.95, "green"),
		infoTable(),
		timeline(24, 4, about{
			title: "Verdict over time", text: "What the engine suffered from.",
			formula: "`llm_serving_engine_verdict_ratio`, the verdict that is 1, as a number.", unit: "none", absent: verdictAbsent,
		}, over("{{instance}}", verdictNumber(engines))).verdictWords(),
	)

	d.add("Where its time went",
		series(24, 9, about{
			title: "Time by state", text: "Every second of the engine in one state. Green: forward passes; yellow to red: its host works while the device waits; blue: a request ran and V1 says no more; grey: no request; black: withheld. With chunked prefill prompts and decoding share a pass, and all is decode.",
			formula: stateFormula, unit: "percentunit", absent: windowsAbsent,
		}, over("{{state}}", share("state", "llm_serving_engine_time_seconds_total", engines))).stacked().upTo(1).stateColors(),
		bracket(),
		series(12, 8, about{
			title: "Decode step", text: "How long a step takes that makes one token for each running request, and how much of it passes without a forward pass. With speculative decoding a step is the time per accepted token.",
			formula: "`llm_serving_engine_step_duration_seconds`: decode time without others' prompts / (output tokens - 1); `llm_serving_engine_step_host_gap_seconds`: its part without a forward pass (V0).", unit: "s", absent: "no requests with 2 output tokens or more",
		}, over("step", gauge("llm_serving_engine_step_duration_seconds", "")), over("host gap", gauge("llm_serving_engine_step_host_gap_seconds", ""))).color("host gap", "orange"),
	)

	d.add("Queue, batch, capacity",
		runningAndWaiting(),
		capacity(),
		series(12, 8, about{
			title: "Token throughput", text: "Tokens per second, spread over the time in which they were read or made.",
			formula: "`llm_serving_engine_token_throughput_per_second` by gen_ai_token_type.", unit: "suffix:tok/s", absent: windowsAbsent,
		},
			over("input", gauge("llm_serving_engine_token_throughput_per_second", `,gen_ai_token_type="input"`)),
			over("output", gauge("llm_serving_engine_token_throughput_per_second", `,gen_ai_token_type="output"`))),
		series(12, 8, about{
			title: "Queue", text: "Pressure is the share of the time in which any request waits. The share of a request's life that it waited is given for the median and for the worst twentieth.",
			formula: "`llm_serving_engine_queue_pressure_ratio`: time with a waiting request / window; `llm_serving_request_queue_share`: queue / e2e, quantiles.", unit: "percentunit", absent: requestsAbsent,
		},
			over("pressure", gauge("llm_serving_engine_queue_pressure_ratio", "")),
			over("share of a request, p50", quantile("0.5", "", "llm_serving_request_queue_share", interval)),
			over("share of a request, p95", quantile("0.95", "", "llm_serving_request_queue_share", interval))).upTo(1),
	)

	d.add("What its users felt",
		latencies("Time to first token", "Of successful requests.", "gen_ai_server_time_to_first_token_seconds", "as reported; it ends at the last bucket, 10 s"),
		latencies("Time per output token", "Of successful requests with 2 output tokens or more.", "gen_ai_server_time_per_output_token_seconds", "(e2e - time to first token) / (output tokens - 1)"),
		latencies("Request duration", "From arrival to last token.", "gen_ai_server_request_duration_seconds", "e2e"),
		spread("Time to first token", "gen_ai_server_time_to_first_token_seconds"),
		spread("Time per output token", "gen_ai_server_time_per_output_token_seconds"),
		spread("Time in queue", "llm_serving_request_time_in_queue_seconds"),
		series(12, 8, about{
			title: "Met the objective", text: "Share of finished requests that met each objective.",
			formula: goodputFormula, unit: "percentunit", absent: sloAbsent,
		}, over("{{slo}}", goodput("", interval))).upTo(1),
		series(12, 8, about{
			title: "Requests", text: "Finished requests per second, failed ones by their error.",
			formula: "`llm_serving_request_count_total` by error_type, rate.", unit: "reqps", absent: requestsAbsent,
		}, over("{{error_type}}", rate("error_type", "llm_serving_request_count_total", "", interval))),
	)

	d.add("Its requests",
		series(12, 8, about{
			title: "Life of requests", text: "Where the time of requests goes: waiting, reading the prompt, making tokens, and on V1 the front end.",
			formula: "`llm_serving_request_stage_time_seconds_total` by stage, its rate / the rate over all stages.", unit: "percentunit", absent: requestsAbsent,
		}, over("{{stage}}", share("stage", "llm_serving_request_stage_time_seconds_total", requests))).stacked().upTo(1),
		series(12, 8, about{
			title: "Running time of requests", text: "What requests report of their running time. Not the device's utilisation: requests of a batch share its steps, and in V0's default mode a request is left out of others' prompts.",
			formula: "`llm_serving_request_component_time_seconds_total` by component, its rate / the rate over all components.", unit: "percentunit", absent: deviceAbsent,
		}, over("{{component}}", share("component", "llm_serving_request_component_time_seconds_total", requests))).stacked().upTo(1),
		series(24, 8, about{
			title: "Length of requests", text: "Tokens of the prompt (input) and of the answer (output). A shift here is a change of workload, not of the engine.",
			formula: "`llm_serving_request_tokens` by gen_ai_token_type, quantiles.", unit: "short", absent: requestsAbsent,
		},
			over("{{gen_ai_token_type}}, p50", quantile("0.5", "gen_ai_token_type", "llm_serving_request_tokens", interval)),
			over("{{gen_ai_token_type}}, p95", quantile("0.95", "gen_ai_token_type", "llm_serving_request_tokens", interval))),
	)

	d.add("How sure",
		series(8, 8, about{
			title: "Seen", text: "Share of a window's running time that was known when it was closed.",
			formula: "`llm_serving_estimate_completeness_ratio`.", unit: "percentunit", absent: windowsAbsent,
		}, over("seen", gauge("llm_serving_estimate_completeness_ratio", ""))).upTo(1),
		series(8, 8, about{
			title: "Late requests", text: "Requests that ended after a window they belong to was closed. They are in all metrics of requests.",
			formula: "`llm_serving_estimate_late_requests_total`, rate.", unit: "reqps", absent: windowsAbsent,
		}, over("late", `sum by (job, instance) (rate(llm_serving_estimate_late_requests_total{`+engines+`}[`+interval+`]))`)),
		findings(),
	)
	return d
}

// bracket is the utilisation with the least and the most that the requests allow as a band.
func bracket() *panel {
	p := series(12, 8, about{
		title: "Device busy, with its bracket", text: "The line is the estimate; the band is the least and the most that the requests' own times allow. Occupancy is the time with a running request: what is between it and the device is the host's. Busy is not full.",
		formula: "`llm_serving_device_utilization_ratio`, `llm_serving_device_utilization_lower_ratio`, `llm_serving_device_utilization_upper_ratio`: time of forward passes / window; `llm_serving_engine_occupancy_ratio`: time with a running request / window.", unit: "percentunit", absent: deviceAbsent,
	},
		over("at most", gauge("llm_serving_device_utilization_upper_ratio", "")),
		over("at least", gauge("llm_serving_device_utilization_lower_ratio", "")),
		over("device busy", gauge("llm_serving_device_utilization_ratio", "")),
		over("occupied", gauge("llm_serving_engine_occupancy_ratio", ""))).upTo(1)
	p.band("device busy", "at most", "at least", "green")
	p.override("occupied", property{"color", object{"mode": "fixed", "fixedColor": "blue"}}, property{"custom.lineStyle", object{"fill": "dash", "dash": []int{8, 8}}})
	return p
}

// capacity is how full the engine is, with the least and the most that is used of it as a band.
func capacity() *panel {
	p := series(12, 8, about{
		title: "Capacity and batch", text: "Fit: throughput by that of a full engine; the band is the least and the most of it that may be used, and is there where fit is not. Peak: by the most seen so far, which is no limit. Batch: running requests by the most that may run.",
		formula: "`llm_serving_engine_capacity_utilization_ratio` by basis, `llm_serving_engine_capacity_utilization_lower_ratio`, `llm_serving_engine_capacity_utilization_upper_ratio`; `llm_serving_engine_batch_utilization_ratio`: mean running requests while any runs / engine::max_num_seqs.", unit: "percentunit", absent: capacityAbsent,
	},
		over("capacity, at most", gauge("llm_serving_engine_capacity_utilization_upper_ratio", "")),
		over("capacity, at least", gauge("llm_serving_engine_capacity_utilization_lower_ratio", "")),
		over("capacity, fit", gauge("llm_serving_engine_capacity_utilization_ratio", `,basis="fit"`)),
		over("capacity, peak", gauge("llm_serving_engine_capacity_utilization_ratio", `,basis="peak"`)),
		over("batch", gauge("llm_serving_engine_batch_utilization_ratio", "")))
	p.band("capacity, fit", "capacity, at most", "capacity, at least", "green")
	return p
}

// runningAndWaiting are both, each with the least and the most that there can be as a band.
func runningAndWaiting() *panel {
	p := series(12, 8, about{
		title: "Running and waiting requests", text: "Running are between first schedule and last token, waiting before their first schedule. The bands are the least and the most that there can be, as a request is seen when it has ended. In a lasting overload only the band of the waiting is known, and the line is its middle, or its lower end where no more is known yet.",
		formula: "Running: " + runningFormula + ". Waiting: " + waitingFormula + ". Max: stat=max.", unit: "short", absent: windowsAbsent,
	},
		over("running, at most", gauge("llm_serving_engine_requests_running_upper", "")), over("running, at least", gauge("llm_serving_engine_requests_running_lower", "")),
		over("running", estimate("llm_serving_engine_requests_running")), over("running, max", gauge("llm_serving_engine_requests_running", `,stat="max"`)),
		over("waiting, at most", gauge("llm_serving_engine_requests_waiting_upper", "")), over("waiting, at least", gauge("llm_serving_engine_requests_waiting_lower", "")),
		over("waiting", estimate("llm_serving_engine_requests_waiting")), over("waiting, max", gauge("llm_serving_engine_requests_waiting", `,stat="max"`)))
	p.band("running", "running, at most", "running, at least", "green").band("waiting", "waiting, at most", "waiting, at least", "red")
	return p.color("running, max", "light-green").color("waiting, max", "light-red")
}

// latencies are quantiles of a time over time.
func latencies(title, text, metric, formula string) *panel {
	return series(8, 8, about{
		title: title, text: text + " Dots are single requests with their trace, where exemplars are kept.",
		formula: "`" + metric + "`: " + formula + ".", unit: "s", absent: requestsAbsent,
	},
		over("p50", quantile("0.5", "", metric, interval)), over("p95", quantile("0.95", "", metric, interval)), over("p99", quantile("0.99", "", metric, interval)).exemplars())
}

// spread is a heatmap of a time.
func spread(title, metric string) *panel {
	return heatmap(8, 8, about{
		title: title + ", spread", text: "How many requests finished with which time. Two bands are two kinds of requests, or a queue that comes and goes.",
		formula: "`" + metric + "`, increase of its buckets.", unit: "s", absent: requestsAbsent,
	}, buckets(`sum by (le) (increase(`+metric+`_bucket{`+requests+`}[`+interval+`]))`))
}

// infoTable is what is known of the engine itself.
func infoTable() *panel {
	p := newPanel("table", 3, 4, about{
		title: "Engine", text: "Make, generation, and step mode: masked where a step is prefill or decode, mixed where they share it.",
		formula: "`llm_serving_engine_info_ratio`, its attributes.", unit: "none", absent: "no request yet",
	}, cells(`max by (gen_ai_provider_name, llm_serving_engine_generation, llm_serving_engine_step_mode) (llm_serving_engine_info_ratio{`+engines+`})`))
	p.Options = object{"showHeader": false, "cellHeight": "sm", "frameIndex": 0}
	p.FieldConfig.Defaults["custom"] = object{"align": "left", "inspect": false}
	p.Transformations = []object{
		{"id": "organize", "options": object{
			"excludeByName": object{"Time": true, "Value": true},
			"renameByName":  object{"gen_ai_provider_name": "make", "llm_serving_engine_generation": "generation", "llm_serving_engine_step_mode": "steps"},
		}},
		{"id": "transpose", "options": object{}},
	}
	return p
}

// findings is what was found about the requests of windows.
func findings() *panel {
	p := timeline(8, 8, about{
		title: "Findings", text: "What was found about the requests of each window. mixed_engines, sampled, thinned and contradiction withhold figures of the device; docs/metrics.md explains each.",
		formula: "`llm_serving_estimate_finding_ratio` by finding: 1 if found, else 0.", unit: "none", absent: windowsAbsent,
	}, over("{{finding}}", `max by (finding) (llm_serving_estimate_finding_ratio{`+engines+`})`))
	p.FieldConfig.Defaults["mappings"] = []object{{"type": "value", "options": object{
		"0": object{"text": " ", "color": "#404040", "index": 0}, "1": object{"text": "found", "color": "orange", "index": 1},
	}}}
	return p
}
