// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func number(v float64) *float64 { return &v }

func report() *summary.Report {
	return &summary.Report{
		SchemaVersion: "1.0",
		Sources:       []summary.Source{{ID: "processor/serving_metrics", Spans: 500, Requests: 400}},
		Engines: []summary.Engine{
			{
				Service: "chat", Instance: "pod-1", Status: summary.StatusCurrent,
				Diagnosis: summary.Diagnosis{
					Finding: summary.Finding{
						Verdict: "host_bound", Confidence: "high", Title: "Waits for its host", Sentence: "The device waits for its host 41 % of the time.",
						Gain:    &summary.Gain{Factor: 1.69, Of: "throughput"},
						Actions: []summary.Action{{Text: "Run several steps per schedule.", Setting: "--num-scheduler-steps 8", Versions: "vLLM 0.6.0 to 0.8, V0"}, {Text: "Upgrade."}},
					},
					Also: []summary.Finding{{Title: "Headroom", Sentence: "More requests cost little."}},
				},
				Figures: summary.Figures{
					Utilization: number(.59), UtilizationLower: number(.57), UtilizationUpper: number(.62), Occupancy: number(1), CapacityFit: number(.38),
					Running: number(31), Waiting: number(0), Step: number(.0117), OutputThroughput: number(2650),
				},
				Requests:  summary.Requests{Count: 400, Failed: 2, TTFT: &summary.Spread{Count: 398, P50: .2, P95: .9, P99: 1.4}, Goodput: map[string]float64{"all": .97}},
				Certainty: summary.Certainty{Completeness: number(.99), Late: 3, Findings: []string{"async_output"}},
			},
			{
				Service: "v1", Instance: "v1", Status: summary.StatusIdle, MayMix: true, KeySource: "service.name",
				Diagnosis: summary.Diagnosis{Finding: summary.Finding{Verdict: "no_verdict", Confidence: "none", Title: "No verdict", Sentence: "12 requests are too few."}},
				Certainty: summary.Certainty{Missing: []summary.Missing{{What: "Device utilization", Why: "no forward time.", Remedy: "Use DCGM."}}},
			},
		},
	}
}

func TestWriteRoom(t *testing.T) {
	var b bytes.Buffer
	r := report()
	r.Engines[0].Diagnosis.Gain.AtLeast = true
	require.NoError(t, Write(&b, r))
	assert.Contains(t, b.String(), "\n  at least   1.7x throughput\n")
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, report()))
	assert.Equal(t, `chat/pod-1
  WAITS FOR ITS HOST  (host_bound, confidence high)
  The device waits for its host 41 % of the time.
  at most    1.7x throughput
  what to do Run several steps per schedule.  --num-scheduler-steps 8  (vLLM 0.6.0 to 0.8, V0)
             Upgrade.
  also       Headroom: More requests cost little.
  figures    device busy 59 % (57 to 62 %), occupied 100 %, capacity used 38 %, running 31.0, waiting 0.0, step 11.7 ms, output 2650 tokens/s
  requests   400 finished, 2 failed, ttft p50 200 ms p95 900 ms p99 1.4 s, objectives met 97 %
  how sure   seen 99 %, 3 since the start came after their windows had closed, async_output

v1
  NO VERDICT  [idle]
  12 requests are too few.
  how sure   replicas may be mixed under service.name
  not known  Device utilization: no forward time. Use DCGM.
`, b.String())
}

// A capacity that is not known as one figure is from-to, and what it may be at most only where that is all.
func TestWriteCapacity(t *testing.T) {
	for want, f := range map[string]summary.Figures{
		"capacity used 38 %":         {CapacityFit: number(.38), CapacityLower: number(.35), CapacityUpper: number(.4)},
		"capacity used 40 to 60 %":   {CapacityLower: number(.4), CapacityUpper: number(.6), CapacityPeak: number(.9)},
		"capacity used at most 90 %": {CapacityPeak: number(.9)},
	} {
		assert.Equal(t, want, figures(&summary.Engine{Figures: f}))
	}
}

// A queue is told however much of it is known.
func TestWriteQueues(t *testing.T) {
	for want, f := range map[string]summary.Figures{
		"":                                  {RunningLower: number(0), WaitingLower: number(0)},
		"running 16.0, waiting 1240":        {Running: number(16), RunningLower: number(10), RunningUpper: number(30), Waiting: number(1240), WaitingLower: number(1230), WaitingUpper: number(1250)},
		"running 15.0, waiting 900 to 1300": {RunningLower: number(10), RunningUpper: number(20), WaitingLower: number(900), WaitingUpper: number(1300)},
		"running at least 10.0, waiting at least 40.0": {RunningLower: number(10), Waiting: number(2), WaitingLower: number(40)},
	} {
		assert.Equal(t, want, figures(&summary.Engine{Figures: f}))
	}
}

// How many wait at least decides what it can.
func TestConditionsOnQueues(t *testing.T) {
	point := summary.Figures{Waiting: number(50), WaitingLower: number(49), WaitingUpper: number(52)}
	bracket := summary.Figures{WaitingLower: number(40), WaitingUpper: number(60)}
	least := summary.Figures{WaitingLower: number(40), RunningLower: number(7)}
	grown := summary.Figures{Waiting: number(2), WaitingLower: number(40)}
	r := &summary.Report{}
	for _, f := range []summary.Figures{point, bracket, least, grown, {}} {
		r.Engines = append(r.Engines, summary.Engine{Figures: f})
	}
	for text, want := range map[string]string{
		"requests_waiting_mean>30":   "met met met met unknown",
		"requests_waiting_mean>=40":  "met met met met unknown",
		"requests_waiting_mean>45":   "met met unknown unknown unknown",
		"requests_waiting_mean<30":   "not not not not unknown",
		"requests_waiting_mean<45":   "not not unknown unknown unknown",
		"requests_waiting_mean<=40":  "not not unknown unknown unknown",
		"requests_waiting_lower>45":  "met not not not unknown",
		"requests_waiting_upper<=55": "met not unknown unknown unknown",
		"requests_running_mean>6":    "unknown unknown met unknown unknown",
		"requests_running_lower>6":   "unknown unknown met unknown unknown",
		"requests_running_upper>6":   "unknown unknown unknown unknown unknown",
	} {
		c, err := ParseCondition(text)
		require.NoError(t, err, text)
		var got []string
		for _, f := range Check(r, []*Condition{c}) {
			got = append(got, map[[2]bool]string{{true, false}: "met", {false, true}: "unknown", {false, false}: "not"}[[2]bool{f.Met, f.Unknown}])
		}
		assert.Equal(t, want, strings.Join(got, " "), text)
	}
	c, err := ParseCondition("requests_waiting_mean>30")
	require.NoError(t, err)
	assert.Equal(t, "at least 40", Check(r, []*Condition{c})[2].Is)
}

func TestWriteWithoutEngines(t *testing.T) {
	for want, r := range map[string]*summary.Report{
		"Nothing reports here: set summary: serving_summary in serving_metrics.\n": {},
		"x has received no span.\n": {Sources: []summary.Source{{ID: "x"}}},
		"x has received 412 spans, and none of them is a finished request (an llm_request span).\n": {Sources: []summary.Source{{ID: "x", Spans: 412}}},
		"x has counted 9 requests, of engines that are gone.\n":                                     {Sources: []summary.Source{{ID: "x", Spans: 412, Requests: 9}}},
	} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, r))
		assert.Equal(t, want, b.String())
	}
}

// Names are whatever a sender wrote, and the terminal must not obey them.
func TestWriteDrivesNoTerminal(t *testing.T) {
	r := report()
	r.Engines[0].Instance = "pod\x1b[2J\u009b1m\r\n"
	var b bytes.Buffer
	require.NoError(t, Write(&b, r))
	assert.NotContains(t, b.String(), "\x1b")
	assert.NotContains(t, b.String(), "\u009b")
	assert.NotContains(t, b.String(), "\r")
}

func TestConditions(t *testing.T) {
	r := report()
	for text, want := range map[string][2]string{ // of the two engines
		"verdict=host_bound":             {"met", "unknown"},
		"verdict==host_bound":            {"met", "unknown"},
		"verdict!=healthy":               {"met", "unknown"},
		"verdict=idle":                   {"not", "unknown"},
		"verdict=no_verdict":             {"not", "met"},
		"verdict!=no_verdict":            {"met", "not"},
		"ttft_p99>1s":                    {"met", "unknown"},
		"ttft_p99 > 1500ms":              {"not", "unknown"},
		"ttft_p50<=0.2":                  {"met", "unknown"},
		"device_utilization<60%":         {"met", "unknown"},
		"capacity_utilization_fit>=0.39": {"not", "unknown"},
		"requests_waiting_mean>0":        {"not", "unknown"},
		"goodput_all<99%":                {"met", "unknown"},
		"failed>0":                       {"met", "not"},
	} {
		c, err := ParseCondition(text)
		require.NoError(t, err, text)
		findings := Check(r, []*Condition{c})
		require.Len(t, findings, 2)
		for i, f := range findings {
			got := "not"
			switch {
			case f.Met:
				got = "met"
			case f.Unknown:
				got = "unknown"
			}
			assert.Equal(t, want[i], got, "%s of %s", text, f.Engine)
		}
	}
}

func TestWrongConditions(t *testing.T) {
	for text, want := range map[string]string{
		"":              "is no condition",
		"ttft_p99":      "is no condition",
		">1":            "is no condition",
		"verdict=tired": `there is no verdict "tired"; there are no_verdict, idle`,
		"verdict>idle":  "not more or less",
		"speed>1":       `there is no figure "speed"; there are verdict, batch_utilization`,
		"ttft_p99=1s":   "compare a figure by",
		"ttft_p99>fast": `"fast" is no number, percentage or duration`,
		"ttft_p99>NaN":  "is no number",
		"ttft_p99>":     "is no number",
	} {
		_, err := ParseCondition(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzParseCondition(f *testing.F) {
	for _, text := range []string{"verdict=idle", "ttft_p99>1s", "goodput_all<90%", "a!=b", "=", "x>=1e999"} {
		f.Add(text)
	}
	r := report()
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCondition(text)
		if err == nil {
			Check(r, []*Condition{c})
		}
	})
}

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	c, err := NewClient(Options{Endpoint: strings.TrimPrefix(s.URL, "http://"), Headers: []string{"Authorization=Bearer x"}, Timeout: time.Second})
	require.NoError(t, err)
	return c
}

func TestClient(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer x", r.Header.Get("Authorization"))
		switch {
		case r.URL.Path == "/api/v1/summary":
			_ = json.NewEncoder(w).Encode(report())
		case r.URL.Path == "/" && r.URL.Query().Get("format") == "markdown":
			_, _ = w.Write([]byte("# Serving"))
		default:
			http.NotFound(w, r)
		}
	})
	r, body, err := c.Report(t.Context())
	require.NoError(t, err)
	assert.Len(t, r.Engines, 2)
	assert.True(t, json.Valid(body))
	text, err := c.Markdown(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "# Serving", string(text))
}

func TestClientErrors(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		"is it the address of a serving_summary extension?": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		`schema version "2.0"`:                              func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"schema_version":"2.0"}`)) },
		"answers 401":                                       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	} {
		_, _, err := serve(t, answer).Report(t.Context())
		assert.ErrorContains(t, err, want)
	}
	for want, o := range map[string]Options{
		"--endpoint must be": {Endpoint: "ftp://x"},
		"--header must be":   {Endpoint: "x", Headers: []string{"nothing"}},
		"--ca-file":          {Endpoint: "https://x", CAFile: "absent.pem"},
	} {
		_, err := NewClient(o)
		assert.ErrorContains(t, err, want)
	}
}

// A wait ends when every engine has a verdict.
func TestWait(t *testing.T) {
	var asked atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		r := report()
		if asked.Add(1) >= 2 {
			r.Engines = r.Engines[:1]
		}
		_ = json.NewEncoder(w).Encode(r)
	})
	r, _, err := c.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Len(t, r.Engines, 1)
	assert.EqualValues(t, 2, asked.Load())
}

func TestWaitInVain(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(report()) })
	_, _, err := c.Wait(t.Context(), 50*time.Millisecond)
	require.ErrorIs(t, err, ErrNoDiagnosis)
	assert.ErrorContains(t, err, "v1: 12 requests are too few.")
	gone, err := NewClient(Options{Endpoint: "127.0.0.1:1", Timeout: time.Second})
	require.NoError(t, err)
	_, _, err = gone.Wait(t.Context(), 50*time.Millisecond)
	assert.ErrorContains(t, err, "refused")
}
