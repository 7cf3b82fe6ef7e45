// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package deploy

// The built collector, simulated engines that send to it as in the demo, and a real Prometheus with deploy/prometheus: every
// query of every dashboard, rule and runbook section gives data, or is listed here with the reason why it rightly does not.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // what the collector compresses with

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// patience bounds the whole of TestQueries.
const patience = 90 * time.Second

// engines are what the simulation has: one for each trouble that a query needs to be seen.
var engines = []struct{ service, kind, workload, load string }{
	{"slow-host", "v0-hostbound", "chat", "0.5"},
	{"overloaded", "v0-default", "azure-conv", "1.15"},
	{"modern", "v1", "chat", "0.7"},
	{"idle", "v0-chunked", "chat", "0.003"},
}

// absent are series that these engines and this collector rightly do not give, by the beginning of their selector.
var absent = map[string]string{
	`llm_serving_request_count_total{error_type!=""`: "simulated engines send no failed requests",
	`otelcol_serving_metrics_values_rejected`:        "begins with the first value that cannot be true",
	`otelcol_receiver_llm_span_other_spans`:          "simulated engines send nothing but requests",
	`otelcol_exporter_send_failed`:                   "begins with the first failure",
	`otelcol_exporter_enqueue_failed`:                "begins with the first failure",
}

// firing are the alerts whose condition holds for one of these engines. All others are quiet here, and only the series that
// they ask for must be there.
var firing = map[string]string{
	"LLMServingRequestsWaiting":       "overloaded",
	"LLMServingEngineHostBound":       "slow-host",
	"LLMServingEngineFull":            "overloaded",
	"LLMServingSLOBurnFast":           "overloaded",
	"LLMServingSLOBurnSlow":           "overloaded",
	"LLMServingEngineOverProvisioned": "idle",
}

func TestPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	folder := filepath.Join(root, "deploy", "prometheus")
	for _, args := range [][]string{
		{"check", "config", filepath.Join(folder, "prometheus.yml")},
		{"check", "rules", filepath.Join(folder, "rules.yaml")},
		{"test", "rules", filepath.Join(folder, "rules_test.yaml")},
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("promtool %s: %s", strings.Join(args[:2], " "), strings.TrimSpace(string(out)))
	}
}

func TestQueries(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := startAll(ctx, t)

	t.Run("absent", func(t *testing.T) {
		for _, s := range slices.Sorted(maps.Keys(absent)) {
			name, matchers, found := strings.Cut(s, "{")
			query := fmt.Sprintf(`{__name__=~"%s.*"`, regexp.QuoteMeta(name))
			if found {
				query += "," + matchers
			}
			assert.Empty(t, db.query(ctx, t, query+"}"), "%s is there; say no longer that %s", s, absent[s])
		}
	})
	t.Run("dashboards", func(t *testing.T) {
		queries, without := 0, 0
		for _, d := range readDashboards(t) {
			for _, v := range d.Templating.List {
				if v.Type == "query" {
					query, _ := v.Query.(map[string]any)["query"].(string)
					metric, _, _ := strings.Cut(strings.TrimPrefix(query, "label_values("), ", ")
					assert.NotEmpty(t, db.query(ctx, t, anything.in(metric)), "%s: variable %s", d.Title, v.Name)
				}
			}
			for _, choice := range choices(d) {
				for _, p := range d.Panels {
					for _, target := range p.Targets {
						queries++
						query := choice.variables.in(target.Expr)
						samples := db.query(ctx, t, query)
						if reason := choice.without(p.Title + "/" + target.RefID); reason != "" {
							without++
							assert.Empty(t, samples, "%s: %s: there are data, although %s", d.Title, p.Title, reason)
						} else if reason := choice.perhaps(p.Title + "/" + target.RefID); reason != "" && len(samples) == 0 {
							without++
							t.Logf("%s: %s %s: none: %s", d.Title, p.Title, target.RefID, reason)
						} else if reason := absentSeries(t, query); reason != "" && len(samples) == 0 {
							without++
							t.Logf("%s: %s %s: none: %s", d.Title, p.Title, target.RefID, reason)
						} else {
							assert.NotEmpty(t, samples, "%s, %s: %s %s gives nothing: %s", d.Title, choice.name, p.Title, target.RefID, query)
						}
					}
				}
			}
		}
		t.Logf("%d queries of panels, %d of them rightly without data", queries, without)
	})
	t.Run("waiting", func(t *testing.T) {
		// Every engine has its queue, however much of it is known; who asks for the gauge alone loses sight of the overloaded one.
		for _, query := range []string{
			"llm_serving_engine_requests_waiting_lower", "llm_serving_engine_requests_running_lower",
			"job_instance:llm_serving_engine_requests_waiting:avg5m", "job_instance:llm_serving_engine_requests_waiting:max5m", "job_instance:llm_serving_engine_requests_running:avg5m",
		} {
			assert.Len(t, db.query(ctx, t, query), len(engines), query)
		}
		n := 0
		for _, d := range readDashboards(t) {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					if strings.Contains(target.Expr, `stat="mean"`) && !strings.HasPrefix(target.Expr, "sum(") {
						n++
						assert.Len(t, db.query(ctx, t, anything.in(target.Expr)), len(engines), "%s: %s: %s", d.Title, p.Title, target.Expr)
					}
				}
			}
		}
		assert.Equal(t, 7, n, "panels with the running or the waiting requests")
	})
	t.Run("recording rules", func(t *testing.T) {
		n := 0
		for _, r := range readRules(t) {
			if r.Record == "" {
				continue
			}
			n++
			samples := db.query(ctx, t, r.Record)
			if reason := absentSeries(t, r.Record); reason != "" {
				assert.Empty(t, samples, reason)
				t.Logf("%s: none: %s", r.Record, reason)
				continue
			}
			assert.NotEmpty(t, samples, "%s records nothing", r.Record)
			allowed := append(level(r.Record), "__name__")
			for _, s := range samples {
				for label := range s.labels {
					assert.Contains(t, allowed, label, "%s: a label that its level does not name", r.Record)
				}
			}
		}
		t.Logf("%d recording rules", n)
	})
	t.Run("alerts", func(t *testing.T) {
		n := 0
		for _, r := range readRules(t) {
			if r.Alert == "" {
				continue
			}
			n++
			samples := db.query(ctx, t, r.Expr)
			if service := firing[r.Alert]; service != "" {
				assert.True(t, slices.ContainsFunc(samples, func(s sample) bool { return s.labels["job"] == service }), "%s does not see %s: %v", r.Alert, service, samples)
			}
			for _, s := range selectors(t, r.Expr) {
				if strings.HasPrefix(r.Expr, "absent(") || absentSeries(t, s.String()) != "" {
					continue
				}
				assert.NotEmpty(t, db.query(ctx, t, s.String()), "%s asks for series that are not there", r.Alert)
			}
			t.Logf("%-36s %d", r.Alert, len(samples))
		}
		t.Logf("%d alerts", n)
		for name, state := range db.rules(ctx, t) {
			assert.Equal(t, "ok", state, "Prometheus cannot evaluate %s", name)
		}
	})
	t.Run("runbook", func(t *testing.T) {
		for _, query := range runbookQueries(t) {
			samples := db.query(ctx, t, query)
			if absentSeries(t, query) == "" && !strings.Contains(query, " offset ") {
				assert.NotEmpty(t, samples, "%s gives nothing", query)
			}
		}
		t.Logf("%d queries", len(runbookQueries(t)))
	})
}

// absentSeries says why a query has none of its data.
func absentSeries(t *testing.T, query string) string {
	t.Helper()
	for _, s := range selectors(t, query) {
		for beginning, reason := range absent {
			name, matcher, _ := strings.Cut(beginning, "{")
			if strings.HasPrefix(s.Name, name) && (matcher == "" || slices.ContainsFunc(matched(s), func(m *labels.Matcher) bool { return m.String() == matcher })) {
				return reason
			}
		}
	}
	return ""
}

// choice is what a user selects on a dashboard, and what it rightly has no data for.
type choice struct {
	name      string
	variables variables
	nothing   map[string]string
	// may be without data, or not
	may map[string]string
}

func (c *choice) perhaps(query string) string { return c.may[query] }

// without says why a panel's query, as title/refId or title, has no data.
func (c *choice) without(query string) string {
	title, _, _ := strings.Cut(query, "/")
	if reason := c.nothing[query]; reason != "" {
		return reason
	}
	return c.nothing[title]
}

// choices are everything at once and, for the dashboard of an engine, one of each generation.
func choices(d *dashboard) []choice {
	if d.UID != "llm-serving-engine" {
		return []choice{{name: "all", variables: anything}}
	}
	one := func(service string) variables {
		v := maps.Clone(anything)
		v["job"], v["instance"] = service, service+"-0"
		return v
	}
	const noForward = "vLLM V1 reports no forward time"
	return []choice{
		{name: "V0", variables: one("overloaded"), may: map[string]string{
			"Running and waiting requests/D": "an overloaded engine may be too young for its longest requests to be known",
			"Running and waiting requests/H": "more than one request may wait unseen",
		}},
		{name: "V1", variables: one("modern"), nothing: map[string]string{
			"Device busy": noForward, "Waits for host": noForward, "Decode step/B": noForward, "Running time of requests": noForward,
			"Device busy, with its bracket/A": noForward, "Device busy, with its bracket/B": noForward, "Device busy, with its bracket/C": noForward,
		}},
	}
}

// startAll starts everything and waits until the series that come last are there.
func startAll(ctx context.Context, t *testing.T) *database {
	t.Helper()
	started := time.Now()
	sink := startSink(ctx, t)
	grpcPort, httpPort, metrics, self, health, web := program.FreePort(), program.FreePort(), program.FreePort(), program.FreePort(), program.FreePort(), program.FreePort()
	arguments := []string{
		"--config", filepath.Join(root, "otelcol-config.yaml"), "--config", filepath.Join(root, "scripts", "demo-config.yaml"),
		"--config", "yaml:receivers::llm_span::protocols::grpc::endpoint: " + program.Address(grpcPort),
		"--config", "yaml:receivers::llm_span::protocols::http::endpoint: " + program.Address(httpPort),
		"--config", "yaml:exporters::prometheus::endpoint: " + program.Address(metrics),
		"--config", "yaml:exporters::otlp_grpc/traces::endpoint: " + sink,
		"--config", "yaml:extensions::healthcheckv2::http::endpoint: " + program.Address(health),
		"--config", "yaml:service::telemetry::metrics::readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: " + self + "}}}}]",
		"--config", "yaml:service::pipelines::traces::exporters: [otlp_grpc/traces]",
		"--config", "yaml:extensions::serving_summary::endpoint: " + program.Address(program.FreePort()),
	}
	collector := program.StartFor(ctx, t, nil, built("E2E_BIN", "dist", "otelcol-serving"), arguments...)
	require.NoError(t, collector.AwaitOK(ctx, "http://"+program.Address(health)+"/status", patience/3))

	// The shipped configuration, with our ports, and faster.
	config := read(t, "deploy", "prometheus", "prometheus.yml")
	rules, err := filepath.Abs(filepath.Join(root, "deploy", "prometheus", "rules.yaml"))
	require.NoError(t, err)
	for old, put := range map[string]string{
		"localhost:9464": program.Address(metrics), "localhost:8888": program.Address(self), "- rules.yaml": "- " + rules,
		"scrape_interval: 15s": "scrape_interval: 1s", "evaluation_interval: 15s": "evaluation_interval: 1s",
	} {
		require.Equal(t, 1, strings.Count(config, old), old)
		config = strings.Replace(config, old, put, 1)
	}
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	db := &database{url: "http://" + program.Address(web)}
	prometheus := program.StartFor(ctx, t, nil, tool(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+t.TempDir(),
		"--web.listen-address="+program.Address(web), "--log.level=warn", "--enable-feature=exemplar-storage")
	require.NoError(t, prometheus.AwaitOK(ctx, db.url+"/-/ready", patience/3))

	for i, e := range engines {
		program.StartFor(ctx, t, nil, built("E2E_SERVINGCTL", ".tools", "bin", "servingctl"), "simulate", "--speed", "30", "--duration", "12h", "--service", e.service, "--engine", e.kind,
			"--workload", e.workload, "--load", e.load, "--seed", strconv.Itoa(i+1), "--endpoint", program.Address(grpcPort))
	}
	for _, query := range []string{
		`count(job_instance:llm_serving_engine_occupancy:ratio_rate5m) == 4`,
		`count(llm_serving_device_utilization_ratio) == 3`,
		`llm_serving_engine_capacity_utilization_ratio{basis="fit",job="overloaded"}`,
		`llm_serving_engine_capacity_utilization_ratio{basis="fit",job="modern"}`,
		`job_instance_basis:llm_serving_engine_capacity_utilization:avg5m{basis="fit"} >= 0.85`,
		`job_instance:llm_serving_device_wait:ratio_rate5m{job="slow-host"}`,
		`job_instance:llm_serving_engine_occupancy:ratio_rate5m{job="idle"} < 0.3`,
		`job_instance:llm_serving_engine_requests_waiting:avg5m{job="overloaded"} >= 5`,
		`llm_serving_engine_requests_waiting_upper{job="overloaded"} unless ignoring (stat) llm_serving_engine_requests_waiting{job="overloaded",stat="mean"}`,
		`sum(increase(llm_serving_request_count_total{job="overloaded"}[5m])) > 100`,
		`job_model_slo:llm_serving_request_error_budget_burn:ratio_rate6h{job="overloaded"} > 14.4`,
		`count(count by (job, instance) (llm_serving_engine_verdict_ratio)) == 4`,
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			samples, err := db.ask(ctx, query)
			assert.NoError(c, err)
			assert.NotEmpty(c, samples)
		}, time.Until(started.Add(patience-15*time.Second)), 200*time.Millisecond, query)
	}
	t.Logf("filled after %v", time.Since(started).Round(time.Second))
	return db
}

// startSink is a tracing backend that takes everything.
func startSink(ctx context.Context, t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", program.Address(program.FreePort()))
	require.NoError(t, err)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	ptraceotlp.RegisterGRPCServer(server, &sink{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

type sink struct {
	ptraceotlp.UnimplementedGRPCServer
}

func (*sink) Export(context.Context, ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	return ptraceotlp.NewExportResponse(), nil
}

// database is a running Prometheus.
type database struct{ url string }

type sample struct {
	labels map[string]string
	value  float64
}

// query is the answer to an instant query, without NaN, which is no data.
func (db *database) query(ctx context.Context, t *testing.T, query string) []sample {
	t.Helper()
	samples, err := db.ask(ctx, query)
	require.NoError(t, err, query)
	return samples
}

func (db *database) ask(ctx context.Context, query string) ([]sample, error) {
	var result []struct {
		Metric map[string]string
		Value  [2]any
	}
	answer := struct{ Result any }{&result}
	if err := db.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
		return nil, err
	}
	var samples []sample
	for _, r := range result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(value) {
			samples = append(samples, sample{r.Metric, value})
		}
	}
	return samples, nil
}

// rules is the health of every rule by name.
func (db *database) rules(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	var answer struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	require.NoError(t, db.get(ctx, "/api/v1/rules", &answer))
	health := map[string]string{}
	for _, g := range answer.Groups {
		for _, r := range g.Rules {
			health[r.Name] = r.Health + r.LastError
		}
	}
	require.NotEmpty(t, health)
	return health
}

// get decodes the data of an answer of the API.
func (db *database) get(ctx context.Context, path string, data any) error {
	body, err := program.Fetch(ctx, db.url+path)
	if err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	return json.Unmarshal(body, &struct{ Data any }{data})
}

// tool is prometheus or promtool, which test/e2e/run.sh finds or unpacks. Only CI has them for sure.
func tool(t *testing.T, name string) string {
	t.Helper()
	places := []string{filepath.Join(root, ".tools", "prometheus", "usr", "bin", name)}
	if found := os.Getenv("E2E_PROMETHEUS"); found != "" {
		places = slices.Insert(places, 0, filepath.Join(filepath.Dir(found), name))
	} else if found, err := exec.LookPath(name); err == nil {
		places = slices.Insert(places, 0, found)
	}
	for _, place := range places {
		if _, err := os.Stat(place); err == nil {
			return place
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no %s: run test/e2e/run.sh", name)
	}
	t.Skipf("no %s: test/e2e/run.sh says why", name)
	return ""
}

// built is one of this repository, from the variable that run.sh sets or where make puts it.
func built(variable string, place ...string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	return filepath.Join(root, filepath.Join(place...))
}
