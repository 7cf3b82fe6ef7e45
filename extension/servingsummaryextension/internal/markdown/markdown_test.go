// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr[T any](v T) *T { return &v }

func report() (*summary.Report, *summary.EngineReport, summary.Source) {
	at := time.Date(2026, 3, 14, 12, 3, 20, 0, time.UTC)
	start := at.Add(-5 * time.Minute)
	source := summary.Source{ID: "processor/serving_metrics", Spans: 100, Requests: 98, Objectives: summary.Objectives{TTFT: ptr(1.0)}}
	e := summary.Engine{
		Key: "k", Service: "llama|8b", Instance: "llama|8b-0", Kind: "vllm", Generation: "v0", Models: []string{"org/model_*x*"}, KeySource: "service.instance.id",
		Status: summary.StatusCurrent, Start: &start, End: &at,
	}
	e.Diagnosis.Finding = summary.Finding{
		Verdict: "host_bound", Confidence: "high", Title: "The device waits for its host", Sentence: "It waits <42 %> of the time.",
		Evidence: []summary.Evidence{{Text: "wait", Value: .42, Unit: "1", Condition: "> 0.4", Formula: "1 - u / o"}},
		Gain:     &summary.Gain{Factor: 1.7, Of: "throughput"},
		Actions:  []summary.Action{{Text: "Turn it on", Setting: "--a `b`", Versions: "vLLM >= 0.6.0"}, {Text: "Upgrade"}},
		Caveats:  []string{"# not a heading"},
	}
	e.Diagnosis.Also = []summary.Finding{{Verdict: "idle", Confidence: "low", Title: "Idle too", Sentence: "Little to do."}}
	e.Figures = summary.Figures{Utilization: ptr(.58), UtilizationLower: ptr(.5), UtilizationUpper: ptr(.6), CapacityPeak: ptr(.3), WaitingLower: ptr(1080.), WaitingUpper: ptr(1400.), Running: ptr(16.), RunningLower: ptr(15.), RunningUpper: ptr(16.5), Step: ptr(.0117), OutputThroughput: ptr(1700.0), States: map[string]float64{"idle": .4, "decode": .6}}
	e.Requests = summary.Requests{Count: 98, Failed: 1, TTFT: &summary.Spread{P50: .1, P95: .2, P99: .3}, Goodput: map[string]float64{"ttft": .99}}
	e.Certainty = summary.Certainty{Completeness: ptr(.98), Late: 2, Mode: "masked", Tier: "device", Findings: []string{"async_output"}, Missing: []summary.Missing{{What: "KV cache", Why: "Spans do not say.", Remedy: "vLLM's /metrics."}}}
	other := summary.Engine{Key: "o", Instance: "o", Status: summary.StatusStale}
	other.Figures.WaitingLower = ptr(40.)
	other.Diagnosis.Verdict, other.Diagnosis.Confidence = "overload_building", "high"
	full := &summary.EngineReport{Time: at, Engine: e, Slowest: []summary.SlowRequest{{End: at, TraceID: "abcd", E2E: 9.3, TTFT: ptr(.2)}}}
	return &summary.Report{Time: at, Collector: summary.Collector{Name: "otelcol-serving", Version: "0.1.0"}, Sources: []summary.Source{source}, Engines: []summary.Engine{e, other}}, full, source
}

func TestGolden(t *testing.T) {
	fleet, engine, source := report()
	var out bytes.Buffer
	for name, write := range map[string]func(){
		"fleet":     func() { Fleet(&out, fleet) },
		"engine":    func() { Engine(&out, engine, source) },
		"no_source": func() { Fleet(&out, &summary.Report{Time: fleet.Time}) },
		"no_engine": func() { Fleet(&out, &summary.Report{Time: fleet.Time, Sources: fleet.Sources}) },
		"bare":      func() { Engine(&out, &summary.EngineReport{}, summary.Source{}) },
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			write()
			path := filepath.Join("testdata", "golden", name+".md")
			if *update {
				require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "run with -update to write it")
			assert.Equal(t, string(want), out.String())
		})
	}
}

func TestCode(t *testing.T) {
	for text, want := range map[string]string{"a": "`a`", "a`b": "``a`b``", "`a": "`` `a ``", "a\nb|c": "`a b\\|c`", "a``b": "```a``b```"} {
		assert.Equal(t, want, code(text))
	}
}
