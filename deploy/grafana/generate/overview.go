// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The overview, for operators: which engine suffers, from what, and what users felt of it.

const toEngine = "/d/" + uidEngine + "/llm-serving-engine?var-datasource=${datasource}&var-job=${__data.fields.job}&var-instance=${__data.fields.instance}&${__url_time_range}"

// toEngineOf is toEngine from a line.
const toEngineOf = "/d/" + uidEngine + "/llm-serving-engine?var-datasource=${datasource}&var-job=${__field.labels.job}&var-instance=${__field.labels.instance}&${__url_time_range}"

func overview() *dashboard {
	d := newDashboard(uidOverview, "LLM serving: overview",
		"Every engine that sends its request spans to otelcol-serving: verdict, load, and what users felt. Figures of engines come about a minute and a half after the fact.",
		labelVariable("job", "Service", "service.namespace/service.name", `llm_serving_engine_info_ratio`, "job").several(),
		labelVariable("instance", "Engine", "service.instance.id", `llm_serving_engine_info_ratio{job=~"$job"}`, "instance").several(),
		labelVariable("model", "Model", "Of panels about requests. All has requests of unknown models too: vLLM V1 names none.",
			`llm_serving_request_count_total{job=~"$job"}`, "gen_ai_response_model").several(),
	)

	d.add("",
		stat(3, 4, about{
			title: "Engines", text: "Engines with a request or an idle window of late.",
			formula: "`llm_serving_engine_info_ratio`, counted by job and instance.", unit: "short", absent: "no request spans yet",
		}, now("", `count(count by (job, instance) (llm_serving_engine_info_ratio{`+engines+`}))`)),
		stat(3, 4, about{
			title: "Requests", text: "Requests that finished, per second.",
			formula: "`llm_serving_request_count_total`, rate over 5 minutes.", unit: "reqps", absent: requestsAbsent,
		}, now("", rate("", "llm_serving_request_count_total", "", "5m"))),
		stat(3, 4, about{
			title: "Output tokens", text: "Tokens of finished requests, per second.",
			formula: "`llm_serving_token_count_total` of type output, rate over 5 minutes.", unit: "suffix:tok/s", absent: requestsAbsent,
		}, now("", rate("", "llm_serving_token_count_total", `,gen_ai_token_type="output"`, "5m"))),
		stat(3, 4, about{
			title: "Waiting requests", text: "Requests before their first schedule, over all engines.",
			formula: waitingFormula + "; summed.", unit: "short", absent: windowsAbsent,
		}, now("", `sum(`+estimate("llm_serving_engine_requests_waiting")+`)`)).steps("green", 1, "orange", 10, "red"),
		stat(3, 4, about{
			title: "TTFT p95", text: "95 % of successful requests had their first token within this time.",
			formula: "`gen_ai_server_time_to_first_token_seconds`, 0.95 quantile over 5 minutes; it ends at the last bucket, 10 s.", unit: "s", absent: requestsAbsent,
		}, now("", quantile("0.95", "", "gen_ai_server_time_to_first_token_seconds", "5m"))),
		stat(3, 4, about{
			title: "TPOT p95", text: "95 % of successful requests had a mean time per output token, after the first, within this.",
			formula: "`gen_ai_server_time_per_output_token_seconds`, 0.95 quantile over 5 minutes.", unit: "s", absent: requestsAbsent,
		}, now("", quantile("0.95", "", "gen_ai_server_time_per_output_token_seconds", "5m"))),
		stat(3, 4, about{
			title: "Met all objectives", text: "Share of finished requests that met every objective. Failed ones meet none.",
			formula: "`llm_serving_request_goodput_total` with slo=all / `llm_serving_request_count_total`, rates over 5 minutes.", unit: "percentunit", absent: sloAbsent,
		}, now("", rate("", "llm_serving_request_goodput_total", `,slo="all"`, "5m")+` / (`+rate("", "llm_serving_request_count_total", "", "5m")+` > 0)`)).
			steps("red", 0.95, "orange", 0.99, "green"),
		stat(3, 4, about{
			title: "Failed", text: "Share of finished requests whose span says that they failed. vLLM V1 sends no span of a request whose client went away.",
			formula: "`llm_serving_request_count_total` with error_type / all, rates over 5 minutes.", unit: "percentunit", absent: requestsAbsent,
		}, now("", `(`+rate("", "llm_serving_request_count_total", `,error_type!=""`, "5m")+` or vector(0)) / (`+rate("", "llm_serving_request_count_total", "", "5m")+` > 0)`)),
	)

	d.add("Fleet", fleet())

	d.add("",
		timeline(24, 8, about{
			title: "Verdicts", text: "What each engine suffers from, over time. The runbook says what each word means and what to do.",
			formula: "`llm_serving_engine_verdict_ratio`, the verdict that is 1, as a number.", unit: "none", absent: verdictAbsent,
		}, over("{{job}} {{instance}}", verdictNumber(engines))).verdictWords(),
	)

	d.add("Load",
		series(12, 8, about{
			title: "Device busy", text: "Share of the time in which the device runs a forward pass. Busy is not full: it is high at a tenth of the load already. Low while requests run means that the device waits for its host.",
			formula: "`llm_serving_device_utilization_ratio`: time of forward passes / window, an estimate.", unit: "percentunit", absent: deviceAbsent,
		}, over("{{job}} {{instance}}", gauge("llm_serving_device_utilization_ratio", ""))).upTo(1).link("Engine", toEngineOf),
		series(12, 8, about{
			title: "Capacity used", text: "How much of the output tokens per second that a full engine would give is made. This is the headroom. Where it cannot be told within a tenth the engine's dashboard has its bracket.",
			formula: "`llm_serving_engine_capacity_utilization_ratio` with basis=fit: throughput / that of a full engine, measured or by the step law.", unit: "percentunit", absent: capacityAbsent,
		}, over("{{job}} {{instance}}", gauge("llm_serving_engine_capacity_utilization_ratio", `,basis="fit"`))).upTo(1.2).link("Engine", toEngineOf),
		series(12, 8, about{
			title: "Waiting requests", text: "Requests before their first schedule. In a lasting overload nobody has seen who still waits, and the middle of what is possible is shown; the engine's dashboard has the bracket.",
			formula: waitingFormula + ".", unit: "short", absent: windowsAbsent,
		}, over("{{job}} {{instance}}", estimate("llm_serving_engine_requests_waiting"))).link("Engine", toEngineOf),
		series(12, 8, about{
			title: "Running requests", text: "Requests between first schedule and last token.",
			formula: runningFormula + ".", unit: "short", absent: windowsAbsent,
		}, over("{{job}} {{instance}}", estimate("llm_serving_engine_requests_running"))).link("Engine", toEngineOf),
	)

	d.add("What users felt",
		series(12, 8, about{
			title: "Time to first token, p95", text: "By service. Dots are single requests with their trace, where exemplars are kept.",
			formula: "`gen_ai_server_time_to_first_token_seconds`, 0.95 quantile of successful requests; it ends at the last bucket, 10 s.", unit: "s", absent: requestsAbsent,
		}, over("{{job}}", quantile("0.95", "job", "gen_ai_server_time_to_first_token_seconds", interval)).exemplars()),
		series(12, 8, about{
			title: "Time per output token, p95", text: "By service, after the first token.",
			formula: "`gen_ai_server_time_per_output_token_seconds`, 0.95 quantile of successful requests with 2 output tokens or more.", unit: "s", absent: requestsAbsent,
		}, over("{{job}}", quantile("0.95", "job", "gen_ai_server_time_per_output_token_seconds", interval)).exemplars()),
		series(12, 8, about{
			title: "Met the objective", text: "Share of finished requests that met each objective, by service.",
			formula: goodputFormula, unit: "percentunit", absent: sloAbsent,
		}, over("{{job}} {{slo}}", goodput("job", interval))).upTo(1),
		series(12, 8, about{
			title: "Error budget burn", text: "How many times faster than allowed the error budget is used up, over the last hour. 14.4 alerts at once, 6 over 6 hours. Needs deploy/prometheus/rules.yaml.",
			formula: "`job_model_slo:llm_serving_request_error_budget_burn:ratio_rate1h`: (1 - share that met the objective) / (1 - 0.99).", unit: "suffix:x", absent: "no objectives (slo in serving_metrics), or the rules are not loaded",
		}, over("{{job}} {{gen_ai_response_model}} {{slo}}", `job_model_slo:llm_serving_request_error_budget_burn:ratio_rate1h{job=~"$job",gen_ai_response_model=~"$model"}`)),
	)

	d.add("Where the time went",
		series(12, 9, about{
			title: "Of engines", text: "All engines together. Green: the device runs forward passes; yellow to red: its host works while it waits; blue: a request ran and V1 says no more; grey: no request.",
			formula: stateFormula, unit: "percentunit", absent: windowsAbsent,
		}, over("{{state}}", share("state", "llm_serving_engine_time_seconds_total", engines))).stacked().upTo(1).stateColors(),
		series(12, 9, about{
			title: "Of requests", text: "The life of a request: waiting, reading the prompt, making tokens, and on V1 the front end.",
			formula: "`llm_serving_request_stage_time_seconds_total` by stage, its rate / the rate over all stages.", unit: "percentunit", absent: requestsAbsent,
		}, over("{{stage}}", share("stage", "llm_serving_request_stage_time_seconds_total", requests))).stacked().upTo(1),
	)

	d.add("Traffic",
		series(12, 8, about{
			title: "Requests", text: "Finished requests per second, by service and model.",
			formula: "`llm_serving_request_count_total`, rate.", unit: "reqps", absent: requestsAbsent,
		}, over("{{job}} {{gen_ai_response_model}}", rate("job, gen_ai_response_model", "llm_serving_request_count_total", "", interval))),
		series(12, 8, about{
			title: "Tokens", text: "Tokens of finished requests per second, by service.",
			formula: "`llm_serving_token_count_total` by gen_ai_token_type, rate.", unit: "suffix:tok/s", absent: requestsAbsent,
		}, over("{{job}} {{gen_ai_token_type}}", rate("job, gen_ai_token_type", "llm_serving_token_count_total", "", interval))),
	)
	return d
}

// fleet is the table of engines, with a link to each one's dashboard.
func fleet() *panel {
	type column struct{ name, expr, unit string }
	columns := []column{
		{"device busy", gauge("llm_serving_device_utilization_ratio", ""), "percentunit"},
		{"waits for host", gauge("llm_serving_device_wait_ratio", ""), "percentunit"},
		{"capacity used", gauge("llm_serving_engine_capacity_utilization_ratio", `,basis="fit"`), "percentunit"},
		{"running", estimate("llm_serving_engine_requests_running"), "short"},
		{"waiting", estimate("llm_serving_engine_requests_waiting"), "short"},
		{"TTFT p95", quantile("0.95", "job, instance", "gen_ai_server_time_to_first_token_seconds", "5m"), "s"},
		{"TPOT p95", quantile("0.95", "job, instance", "gen_ai_server_time_per_output_token_seconds", "5m"), "s"},
		{"output", gauge("llm_serving_engine_token_throughput_per_second", `,gen_ai_token_type="output"`), "suffix:tok/s"},
		{"seen", gauge("llm_serving_estimate_completeness_ratio", ""), "percentunit"},
	}
	targets := []target{
		cells(`max by (job, instance, verdict) (llm_serving_engine_verdict_ratio{` + engines + `} == 1)`),
		cells(`max by (job, instance, llm_serving_engine_generation) (llm_serving_engine_info_ratio{` + engines + `})`),
	}
	for _, c := range columns {
		targets = append(targets, cells(c.expr))
	}
	p := newPanel("table", 24, 10, about{
		title: "Engines", text: "Sorted by requests that wait. A click on an engine opens its dashboard. An empty cell is a figure that its requests do not tell: vLLM V1 has no device figures, and capacity needs engine::max_num_seqs and engine::kv_cache_tokens. Seen is the share of the running time that was known when the last window was closed.",
		formula: "`llm_serving_engine_verdict_ratio`, `llm_serving_engine_info_ratio`, `llm_serving_device_utilization_ratio`, `llm_serving_device_wait_ratio`, `llm_serving_engine_capacity_utilization_ratio` (fit), `llm_serving_engine_token_throughput_per_second`, `llm_serving_estimate_completeness_ratio` as they are; running: " + runningFormula + "; waiting: " + waitingFormula + "; `gen_ai_server_time_to_first_token_seconds`, `gen_ai_server_time_per_output_token_seconds`: 0.95 quantile over 5 minutes.",
		unit:    "short", absent: "-",
	}, targets...)
	p.FieldConfig.Defaults["custom"] = object{"align": "auto", "cellOptions": object{"type": "auto"}, "filterable": true, "inspect": false}
	p.Options = object{"showHeader": true, "cellHeight": "sm", "frameIndex": 0, "sortBy": []object{{"displayName": "waiting", "desc": true}}}
	rename := object{"llm_serving_engine_generation": "generation"}
	order := object{"job": 0, "instance": 1, "verdict": 2, "llm_serving_engine_generation": 3}
	for i, c := range columns {
		field := "Value #" + targets[i+2].RefID
		rename[field], order[field] = c.name, i+4
		p.override(c.name, property{"unit", c.unit})
	}
	p.Transformations = []object{
		{"id": "merge", "options": object{}},
		{"id": "organize", "options": object{
			"excludeByName": object{"Time": true, "Value #A": true, "Value #B": true}, "renameByName": rename, "indexByName": order,
		}},
	}
	p.override("instance", property{"links", []object{{"title": "Open the engine", "url": toEngine}}})
	p.override("verdict",
		property{"mappings", verdictMappings(true)},
		property{"custom.cellOptions", object{"type": "color-background", "mode": "gradient"}},
		property{"links", []object{{"title": "What it means and what to do", "url": repository + "docs/runbook.md#verdicts", "targetBlank": true}}},
	)
	p.override("waiting", property{"thresholds", object{"mode": "absolute", "steps": []object{{"color": "text", "value": nil}, {"color": "orange", "value": 1}, {"color": "red", "value": 10}}}},
		property{"custom.cellOptions", object{"type": "color-text"}})
	for _, name := range []string{"device busy", "capacity used"} {
		p.override(name, property{"max", 1}, property{"min", 0}, property{"custom.cellOptions", object{"type": "gauge", "mode": "basic"}})
	}
	return p
}

// verdictWords shows numbers of verdicts as words.
func (p *panel) verdictWords() *panel {
	p.FieldConfig.Defaults["mappings"] = verdictMappings(false)
	p.FieldConfig.Defaults["color"] = object{"mode": "thresholds"}
	return p
}
