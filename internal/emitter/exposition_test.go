// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package emitter

// What Prometheus gets, through the real exporter: names, units, labels and buckets are frozen by
// testdata/exposition.prom. Dashboards and alerts depend on every line of it. Write it anew with
// go test -run TestExposition -update.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/otelcol-serving/otelcol-serving/internal/emitter/collectortest"
	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

var update = flag.Bool("update", false, "write testdata/exposition.prom anew")

// prometheus is the exporter, with a page to read.
type prometheus struct {
	consumer.Metrics
	client http.Client
}

func newPrometheus(t testing.TB) *prometheus {
	factory := prometheusexporter.NewFactory()
	cfg := factory.CreateDefaultConfig().(*prometheusexporter.Config)
	socket := filepath.Join(t.TempDir(), "p")
	cfg.ServerConfig.NetAddr = confignet.AddrConfig{Endpoint: socket, Transport: confignet.TransportTypeUnix}
	cfg.WithoutScopeInfo = true // three labels on every line, which the golden file of the processor has
	require.NoError(t, cfg.Validate())
	exporter, err := factory.CreateMetrics(t.Context(), exportertest.NewNopSettings(factory.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, exporter.Start(t.Context(), componenttest.NewNopHost()))
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, exporter.Shutdown(context.Background()))
	})
	return &prometheus{exporter, http.Client{Transport: transport}}
}

func (p *prometheus) scrape(t testing.TB) string {
	response, err := p.client.Get("http://prometheus/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	return string(body)
}

// now is the clock of the emitter under test, set by hand.
type handClock struct{ elapsed time.Duration }

func (c *handClock) clock() serving.Clock {
	return serving.Clock{
		Wall:    func() time.Time { return time.Unix(1_790_960_700, 0).Add(c.elapsed) },
		Elapsed: func() time.Duration { return c.elapsed },
	}
}

// newExposition makes an emitter in front of the exporter that collects when told to.
func newExposition(t testing.TB, configure func(*serving.Config)) (*fixture, *handClock, *prometheus) {
	c := serving.NewDefaultConfig()
	c.Interval = 30 * time.Minute // never by itself
	configure(&c)
	require.NoError(t, c.Validate())
	clock := &handClock{}
	tel := componenttest.NewTelemetry()
	build := component.BuildInfo{Command: "otelcol-serving", Version: "1.2.3"}
	e, err := newEmitter(&c, tel.NewTelemetrySettings(), build, "processor", testID, clock.clock())
	require.NoError(t, err)
	p := newPrometheus(t)
	o := e.Output(p)
	require.NoError(t, o.Start(componenttest.NewNopHost()))
	t.Cleanup(func() {
		o.Shutdown(context.Background())
		e.Close()
		require.NoError(t, tel.Shutdown(context.Background()))
	})
	return &fixture{Emitter: e, telemetry: tel}, clock, p
}

func (f *fixture) collectNow(t testing.TB) {
	require.True(t, f.acquire(t.Context()))
	f.collect(t.Context())
	<-f.sending
}

func TestExposition(t *testing.T) {
	f, clock, p := newExposition(t, func(c *serving.Config) {
		c.Compatibility = []string{"vllm"}
		c.SLO = serving.SLOConfig{TTFT: time.Second, TPOT: 100 * time.Millisecond, E2E: 10 * time.Second}
		c.Engine.Models = map[string]string{"vllm": "my-org/my-model"}
	})
	f.Record(collectortest.Engine(collectortest.V0(t), "vllm-v0", "old"), false)
	// two engines of one service: nothing but the instance tells them apart
	f.Record(collectortest.Engine(collectortest.V1(t), "vllm", "replica-a"), false)
	f.Record(collectortest.Engine(collectortest.V1(t), "vllm", "replica-b"), false)
	clock.elapsed = 15 * time.Second
	f.collectNow(t)
	got := p.scrape(t)

	golden := filepath.Join("testdata", "exposition.prom")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Empty(t, firstDifference(string(want), got))

	// What the file says, so that an update cannot break it unseen.
	value := func(series string) string {
		m := regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(series)+`[^}]*} (\S+)$`).FindAllStringSubmatch(got, -1)
		require.Len(t, m, 1, series)
		return m[0][1]
	}
	assert.Equal(t, "1", value(`llm_serving_request_count_total{gen_ai_provider_name="vllm",gen_ai_response_model="/data-fast/s3/ml-dev-sfc-or-dev-misc1-k8s/yak/hf_models/meta-llama/Meta-Llama-3-70B",instance="old"`))
	assert.Equal(t, "12", value(`llm_serving_request_count_total{gen_ai_provider_name="vllm",gen_ai_response_model="my-org/my-model",instance="replica-a"`))
	assert.Equal(t, "12", value(`llm_serving_request_count_total{gen_ai_provider_name="vllm",gen_ai_response_model="my-org/my-model",instance="replica-b"`))
	assert.True(t, strings.Contains(got, `job="vllm"`))
	assert.True(t, strings.Contains(got, "gen_ai_server_request_duration_seconds_bucket{"))
	assert.True(t, strings.Contains(got, "llm_serving_request_queue_share_bucket{"))
	assert.True(t, strings.Contains(got, "vllm:e2e_request_latency_seconds_bucket{"))
	assert.True(t, strings.Contains(got, `llm_serving_request_goodput_total{`))
	assert.True(t, strings.Contains(got, "target_info{"))
	assertNoDuplicates(t, got)
}

// assertNoDuplicates asserts that no series is there twice: Prometheus would refuse the whole page.
func assertNoDuplicates(t testing.TB, page string) {
	seen := map[string]bool{}
	for line := range strings.Lines(page) {
		if series, _, ok := strings.Cut(line, "} "); ok && !strings.HasPrefix(line, "#") {
			assert.False(t, seen[series], series)
			seen[series] = true
		}
	}
	assert.NotEmpty(t, seen)
}

// The ended series go, with no word of them left, and the others stay.
func TestExpositionOfEndedSeries(t *testing.T) {
	f, clock, p := newExposition(t, func(c *serving.Config) {
		c.Compatibility = []string{"vllm"}
		c.SLO.E2E = time.Second
		c.Dimensions = []serving.Dimension{{Name: "tenant"}}
	})
	record := func(engine, tenant string, first int) {
		td := collectortest.Requests(engine, first, 2)
		firstSpan(td).Attributes().PutStr("tenant", tenant)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1).Attributes().PutStr("tenant", tenant)
		f.Record(td, false)
	}
	record("gone", "a", 0)
	record("stays", "ended", 10)
	record("stays", "ended-too", 20)
	record("stays", "stays", 30)
	f.collectNow(t)
	page := p.scrape(t)
	for _, text := range []string{`instance="gone"`, `tenant="ended"`, `tenant="ended-too"`, `tenant="stays"`} {
		require.Contains(t, page, text)
	}
	before := lines(page, `tenant="stays"`)

	clock.elapsed += 29 * time.Minute
	record("stays", "stays", 40)
	f.collectNow(t)
	require.Contains(t, p.scrape(t), `tenant="ended"`, "not before it is time")

	clock.elapsed += 2 * time.Minute
	f.collectNow(t)
	page = p.scrape(t)
	assert.NotContains(t, page, `tenant="ended"`)
	assert.NotContains(t, page, `tenant="ended-too"`)
	assert.NotContains(t, page, `tenant="a"`)
	assert.NotContains(t, page, `llm_serving_engine_info_ratio{gen_ai_provider_name="vllm",instance="gone"`)
	assert.Equal(t, before, lines(page, `tenant="stays"`), "all series of it are there")
	assert.Contains(t, page, `instance="stays"`)

	// A return starts anew.
	record("stays", "ended", 50)
	f.collectNow(t)
	assert.Regexp(t, `llm_serving_request_count_total\{[^}]*tenant="ended"\} 2\n`, p.scrape(t))
}

// lines counts the lines with text.
func lines(page, text string) (n int) {
	for line := range strings.Lines(page) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// firstDifference is short, unlike the page.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		switch {
		case i >= len(w):
			return fmt.Sprintf("line %d: new: %s", i+1, g[i])
		case i >= len(g):
			return fmt.Sprintf("line %d: gone: %s", i+1, w[i])
		case w[i] != g[i]:
			return fmt.Sprintf("line %d:\nwant %s\ngot  %s", i+1, w[i], g[i])
		}
	}
	return ""
}
