// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// The collector's own health, from its own telemetry.

const (
	collectors = `job=~"$job",instance=~"$instance"`
	// selfAbsent is said where the metric begins with the first event.
	selfAbsent   = "none so far, or the collector's own telemetry (localhost:8888) is not scraped"
	errorsAbsent = "none so far: the metric begins with the first"
)

// self is the rate of a counter of the collector's own telemetry.
func self(by, metric string) string {
	if by != "" {
		by = ", " + by
	}
	return `sum by (instance` + by + `) (rate(` + metric + `{` + collectors + `}[` + interval + `]))`
}

func collector() *dashboard {
	d := newDashboard(uidCollector, "Collector health",
		"Whether the collector takes every span, derives its metrics and gets rid of them. From its own telemetry, localhost:8888 by default.",
		labelVariable("job", "Job", "Job of the scrape of the collector's own telemetry.", `otelcol_serving_metrics_engines`, "job").several(),
		labelVariable("instance", "Collector", "Target of the scrape.", `otelcol_serving_metrics_engines{job=~"$job"}`, "instance").several(),
	)
	d.add("",
		stat(4, 4, about{
			title: "Last collect", text: "How long ago derived metrics were last handed over successfully, of the collector where that is longest. Normal is up to the interval, 15 s.",
			formula: "time() - `otelcol_serving_metrics_last_collect`.", unit: "s", absent: "no successful collect yet",
		}, now("", `max(time() - otelcol_serving_metrics_last_collect{`+collectors+`})`)).steps("green", 60, "orange", 120, "red"),
		stat(4, 4, about{
			title: "Requests", text: "Requests counted in the derived metrics, per second.",
			formula: "`otelcol_serving_metrics_requests`, rate over 5 minutes.", unit: "reqps", absent: "no request spans yet",
		}, now("", `sum(rate(otelcol_serving_metrics_requests{`+collectors+`}[5m]))`)),
		stat(4, 4, about{
			title: "Spans refused", text: "Spans that were not accepted, per second. Engines send them again for a while, and then drop them.",
			formula: "`otelcol_receiver_refused_spans` + `otelcol_receiver_failed_spans`, rates over 5 minutes.", unit: "suffix:spans/s", absent: selfAbsent,
		}, now("", `sum(rate(otelcol_receiver_refused_spans{`+collectors+`}[5m])) + sum(rate(otelcol_receiver_failed_spans{`+collectors+`}[5m]))`)).steps("green", 1e-9, "red"),
		stat(4, 4, about{
			title: "Engines", text: "Engines that are kept. Over limits::engines, 1000, requests are counted in overflow series.",
			formula: "`otelcol_serving_metrics_engines`, summed.", unit: "short", absent: selfAbsent,
		}, now("", `sum(otelcol_serving_metrics_engines{`+collectors+`})`)),
		stat(4, 4, about{
			title: "Series", text: "Sets of attributes that are kept, over all engines; limits::series bounds them.",
			formula: "`otelcol_serving_metrics_series`, summed.", unit: "short", absent: selfAbsent,
		}, now("", `sum(otelcol_serving_metrics_series{`+collectors+`})`)),
		stat(4, 4, about{
			title: "Queue", text: "How full the fullest sending queue is.",
			formula: "`otelcol_exporter_queue_size` / `otelcol_exporter_queue_capacity`, the most.", unit: "percentunit", absent: "no exporter has a sending_queue",
		}, now("", `max(otelcol_exporter_queue_size{`+collectors+`} / otelcol_exporter_queue_capacity{`+collectors+`})`)).steps("green", 0.5, "orange", 0.8, "red"),
	)
	d.add("What comes in",
		series(12, 8, about{
			title: "Spans", text: "Spans accepted, and spans refused because the pipeline did not take them (memory_limiter, a full queue) or failed otherwise.",
			formula: "`otelcol_receiver_accepted_spans`, `otelcol_receiver_refused_spans`, `otelcol_receiver_failed_spans`, rates.", unit: "suffix:spans/s", absent: selfAbsent,
		},
			over("accepted {{receiver}} {{transport}}", self("receiver, transport", "otelcol_receiver_accepted_spans")),
			over("refused {{receiver}} {{transport}}", self("receiver, transport", "otelcol_receiver_refused_spans")),
			over("failed {{receiver}} {{transport}}", self("receiver, transport", "otelcol_receiver_failed_spans"))),
		series(12, 8, about{
			title: "What they are", text: "Request spans by make and generation of the engine, and other spans, which are passed on or dropped.",
			formula: "`otelcol_receiver_llm_span_requests`, `otelcol_receiver_llm_span_other_spans` by outcome, rates.", unit: "suffix:spans/s", absent: "no spans through the llm_span receiver",
		},
			over("requests {{engine_kind}} {{engine_generation}}", self("engine_kind, engine_generation", "otelcol_receiver_llm_span_requests")),
			over("other, {{outcome}}", self("outcome", "otelcol_receiver_llm_span_other_spans"))),
	)
	d.add("What is made of it",
		series(12, 8, about{
			title: "Requests", text: "Requests counted, and received again (counted once).",
			formula: "`otelcol_serving_metrics_requests`, `otelcol_serving_metrics_requests_duplicate`, rates.", unit: "reqps", absent: selfAbsent,
		},
			over("{{instance}} counted {{kind}} {{generation}}", self("kind, generation", "otelcol_serving_metrics_requests")),
			over("{{instance}} duplicate", self("", "otelcol_serving_metrics_requests_duplicate"))),
		series(12, 8, about{
			title: "Counted, but not everywhere", text: "Late: after their window was closed. Outlying: their time is too far from that of others to be in a window. Overflow: without model and dimensions, at a limit.",
			formula: "`otelcol_serving_metrics_requests_late`, `otelcol_serving_metrics_requests_outlying`, `otelcol_serving_metrics_requests_overflow`, rates.", unit: "reqps", absent: selfAbsent,
		},
			over("late", self("", "otelcol_serving_metrics_requests_late")),
			over("outlying", self("", "otelcol_serving_metrics_requests_outlying")),
			over("overflow", self("", "otelcol_serving_metrics_requests_overflow"))),
		series(12, 8, about{
			title: "Lost", text: "Requests and collects that are in no derived metric. All of these are 0 in a healthy collector.",
			formula: "`otelcol_serving_metrics_requests_dropped`, `otelcol_serving_metrics_requests_lost`, `otelcol_serving_metrics_collects_lost`, rates.", unit: "cps", absent: selfAbsent,
		},
			over("requests after the final collect", self("", "otelcol_serving_metrics_requests_dropped")),
			over("requests, no room to keep", self("", "otelcol_serving_metrics_requests_lost")),
			over("collects", self("", "otelcol_serving_metrics_collects_lost"))),
		series(12, 8, about{
			title: "Values that cannot be true", text: "Left out one by one; the rest of the request counts. docs/engines.md explains each reason.",
			formula: "`otelcol_serving_metrics_values_rejected` by reason, rate.", unit: "cps", absent: errorsAbsent,
		}, over("{{reason}}", self("reason", "otelcol_serving_metrics_values_rejected"))),
		series(8, 8, about{
			title: "Limits", text: "Remembered spans that had to be forgotten (raise dedupe::max_entries), and attribute values over 256 bytes.",
			formula: "`otelcol_serving_metrics_dedupe_forgotten`, `otelcol_serving_metrics_attributes_cut`, rates.", unit: "cps", absent: selfAbsent,
		},
			over("dedupe forgotten", self("", "otelcol_serving_metrics_dedupe_forgotten")),
			over("attribute values cut", self("", "otelcol_serving_metrics_attributes_cut"))),
		series(8, 8, about{
			title: "Windows skipped", text: "Windows of engines that were due faster than there is time for: a backlog of idle hours, or clocks far apart. Engine metrics have gaps there; metrics of requests are whole. 0 in a healthy collector.",
			formula: "`otelcol_serving_metrics_windows_skipped`, rate.", unit: "suffix:windows/s", absent: selfAbsent,
		}, over("{{instance}}", self("", "otelcol_serving_metrics_windows_skipped"))),
		series(8, 8, about{
			title: "Engines and series", text: "What is kept. Steps up without new engines come from a dimension with many values.",
			formula: "`otelcol_serving_metrics_engines`, `otelcol_serving_metrics_series`.", unit: "short", absent: selfAbsent,
		},
			over("engines", `sum by (instance) (otelcol_serving_metrics_engines{`+collectors+`})`),
			over("series", `sum by (instance) (otelcol_serving_metrics_series{`+collectors+`})`)),
	)
	d.add("What goes out",
		series(12, 8, about{
			title: "Sent", text: "Spans and metric points that exporters handed over.",
			formula: "`otelcol_exporter_sent_spans`, `otelcol_exporter_sent_metric_points`, rates.", unit: "cps", absent: selfAbsent,
		},
			over("spans {{exporter}}", self("exporter", "otelcol_exporter_sent_spans")),
			over("points {{exporter}}", self("exporter", "otelcol_exporter_sent_metric_points"))),
		series(12, 8, about{
			title: "Failed", text: "Given up by exporters, refused by full queues, and collects that the metrics pipeline refused (kept and sent with later ones).",
			formula: "`otelcol_exporter_send_failed_spans`, `otelcol_exporter_send_failed_metric_points`, `otelcol_exporter_enqueue_failed_spans`, `otelcol_exporter_enqueue_failed_metric_points`, `otelcol_serving_metrics_send_failed`, rates.", unit: "cps", absent: errorsAbsent,
		},
			over("spans {{exporter}}", self("exporter", "otelcol_exporter_send_failed_spans")),
			over("points {{exporter}}", self("exporter", "otelcol_exporter_send_failed_metric_points")),
			over("spans not queued {{exporter}}", self("exporter", "otelcol_exporter_enqueue_failed_spans")),
			over("points not queued {{exporter}}", self("exporter", "otelcol_exporter_enqueue_failed_metric_points")),
			over("collects", self("", "otelcol_serving_metrics_send_failed"))),
		series(24, 8, about{
			title: "Queues", text: "How full each sending queue is. A full one refuses data, and clients send again.",
			formula: "`otelcol_exporter_queue_size` / `otelcol_exporter_queue_capacity`.", unit: "percentunit", absent: "no exporter has a sending_queue",
		}, over("{{instance}} {{exporter}} {{data_type}}", `otelcol_exporter_queue_size{`+collectors+`} / otelcol_exporter_queue_capacity{`+collectors+`}`)).upTo(1),
	)
	d.add("What it takes",
		series(8, 8, about{
			title: "CPU", text: "Cores in use.", formula: "`otelcol_process_cpu_seconds`, rate.", unit: "short", absent: selfAbsent,
		}, over("{{instance}}", self("", "otelcol_process_cpu_seconds"))),
		series(8, 8, about{
			title: "Memory", text: "Resident memory, and what of it is Go's heap.", formula: "`otelcol_process_memory_rss`, `otelcol_process_runtime_heap_alloc_bytes`.", unit: "bytes", absent: selfAbsent,
		},
			over("{{instance}} resident", `otelcol_process_memory_rss{`+collectors+`}`),
			over("{{instance}} heap", `otelcol_process_runtime_heap_alloc_bytes{`+collectors+`}`)),
		series(8, 8, about{
			title: "Uptime", text: "Back to 0 is a restart.", formula: "`otelcol_process_uptime`.", unit: "s", absent: selfAbsent,
		}, over("{{instance}}", `otelcol_process_uptime{`+collectors+`}`)),
	)
	return d
}
