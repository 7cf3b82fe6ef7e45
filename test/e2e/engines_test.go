// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// What the collector says of engines, held against what simulated engines really did: their spans go in at 20
// times their pace and the windows come out over OTLP.

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

const (
	window = 10 * time.Second // timeline::window and --truth-window by default
	// warmUp and coolDown are left out: the engine fills up, and what ran when the simulation ended was not sent.
	warmUp   = 2 * time.Minute
	coolDown = 3 * time.Minute

	// The aims of docs/accuracy.md.
	maxUtilizationMAE  = 0.03
	maxUtilizationBias = 0.02
	waitsForHost       = 0.4
	// bracketSlack is for spans, whose durations are floating-point seconds.
	bracketSlack = 1e-4

	// maxNumSeqs is the limit of the simulated engines.
	maxNumSeqs = 256
)

// TestSimulatedEngines: utilisation, its bracket, occupancy and running requests of every window are near the
// truth, what an engine's spans do not support is absent, and engines are told apart.
func TestSimulatedEngines(t *testing.T) {
	t.Parallel()
	const duration = 10 * time.Minute
	start := startOf(duration)
	simulate := func(flags ...string) *simulation {
		return startSimulation(t, slices.Concat([]string{
			"--load", "0.7", "--workload", "chat", "--start", start, "--duration", duration.String(), "--speed", "20",
		}, flags)...)
	}
	// All at once: each of them takes half a minute.
	byDefault := simulate("--engine", "v0-default", "--engines", "2")
	hostBound := simulate("--engine", "v0-hostbound")
	v1 := simulate("--engine", "v1")
	onOff := simulate("--engine", "v0-default", "--arrivals", "onoff", "--load", "0.3")
	pooled := simulate("--engine", "v0-default", "--engines", "4", "--pooled")
	for _, s := range []*simulation{byDefault, hostBound, v1, onOff, pooled} {
		s.await(t)
		s.collector.terminate(t)
	}

	t.Run("v0-default", func(t *testing.T) {
		engines := byDefault.windows(t)
		require.Len(t, engines, 2)
		for i, name := range []string{"vllm-0", "vllm-1"} {
			truths := byDefault.truth(t, i)
			e := engines[name]
			judgeUtilization(t, name, e, truths)
			judgeLoad(t, name, e, truths)
			judgeTime(t, name, e)
			for _, truth := range compared(truths) {
				assert.Less(t, truth.wait(), waitsForHost, "%s %v: the truth", name, truth.End)
				assert.Less(t, e.at(t, truth.End)["llm.serving.device.wait.ratio"], waitsForHost, "%s %v", name, truth.End)
				assert.Zero(t, e.at(t, truth.End)["llm.serving.estimate.finding/mixed_engines"], "%s %v", name, truth.End)
			}
			// The two are under the same load, but not in the same moment.
			own, other := e.runningMAE(t, truths), e.runningMAE(t, byDefault.truth(t, 1-i))
			t.Logf("%s: running requests are off by %.3f from the engine's own truth, by %.3f from the other's", name, own, other)
			assert.Less(t, own, other/4, "%s is not of one engine", name)
		}
	})

	t.Run("v0-hostbound", func(t *testing.T) {
		e := hostBound.only(t, "vllm-0")
		truths := hostBound.truth(t, 0)
		judgeUtilization(t, "v0-hostbound", e, truths)
		judgeLoad(t, "v0-hostbound", e, truths)
		judgeTime(t, "v0-hostbound", e)
		for _, truth := range compared(truths) {
			assert.Greater(t, truth.wait(), waitsForHost, "%v: the truth", truth.End)
			assert.Greater(t, e.at(t, truth.End)["llm.serving.device.wait.ratio"], waitsForHost, "%v", truth.End)
		}
	})

	t.Run("v1", func(t *testing.T) {
		e := v1.only(t, "vllm-0")
		judgeLoad(t, "v1", e, v1.truth(t, 0))
		judgeTime(t, "v1", e)
		for end, figures := range e {
			for name := range figures {
				assert.False(t, strings.HasPrefix(name, "llm.serving.device."), "%v: %s, of which V1 reports nothing", end, name)
				assert.NotEqual(t, "llm.serving.engine.step.host_gap", name, "%v", end)
				if state, ok := strings.CutPrefix(name, "llm.serving.engine.time/"); ok {
					assert.Contains(t, []string{"occupied", "idle", "unknown"}, state, "%v", end)
				}
			}
		}
	})

	// Half a minute of requests, half a minute of none.
	t.Run("onoff", func(t *testing.T) {
		e := onOff.only(t, "vllm-0")
		truths := onOff.truth(t, 0)
		judgeUtilization(t, "onoff", e, truths)
		judgeLoad(t, "onoff", e, truths)
		judgeTime(t, "onoff", e)
		rests := slices.ContainsFunc(compared(truths), func(truth truthWindow) bool { return truth.Occupancy == 0 })
		assert.True(t, rests, "no window without a request: nothing is said of idle engines")
	})

	t.Run("pooled", func(t *testing.T) {
		e := pooled.only(t, "vllm-0")
		judgeTime(t, "pooled", e)
		truths, judged := pooled.truth(t, 0), 0
		begin, last := truths[0].Start, truths[len(truths)-1].End
		for end, figures := range e {
			if end.Before(begin.Add(warmUp)) || end.After(last) {
				continue // not found yet, or no more than the requests of the engines' last steps
			}
			judged++
			assert.Equal(t, 1.0, figures["llm.serving.estimate.finding/mixed_engines"], "%v", end)
			for name := range figures {
				assert.False(t, strings.HasPrefix(name, "llm.serving.device."), "%v: %s of four engines at once", end, name)
			}
		}
		assert.Greater(t, judged, 40)
		t.Logf("pooled: mixed_engines, and nothing of the device, in %d windows", judged)
	})
}

// TestReplayEqualsLive: the same requests give the same windows, whether they come in live or as a recording all at once.
func TestReplayEqualsLive(t *testing.T) {
	t.Parallel()
	const duration = 6 * time.Minute
	flags := []string{
		"--engine", "v0-default", "--engines", "2", "--load", "0.7", "--workload", "chat", "--seed", "7",
		"--start", startOf(duration), "--duration", duration.String(),
	}
	live := startSimulation(t, append(flags, "--speed", "20")...)

	recording := filepath.Join(t.TempDir(), "spans.jsonl")
	out, err := run(t, nil, servingctl(t), append([]string{"simulate", "--out", recording}, flags...)...)
	require.NoError(t, err, out)
	replayed := startEngineCollector(t)
	replayed.collector.replay(t, recording)

	fromReplay := replayed.settled(t)
	live.await(t)
	fromLive := live.settled(t)
	require.Len(t, fromLive, 2)
	require.Len(t, fromReplay, 2)
	values := 0
	for name, e := range fromLive {
		require.Greater(t, len(e), 20, name)
		for end, figures := range e {
			assert.Equal(t, figures, fromReplay[name][end], "%s %v", name, end)
			values += len(figures)
		}
		assert.Len(t, fromReplay[name], len(e), "%s: the watermark closes the same windows", name)
		t.Logf("%s: %d windows are the same", name, len(e))
	}
	t.Logf("%d values are the same", values)
	for _, s := range []*simulation{live, replayed} {
		s.collector.terminate(t)
	}
}

// TestSIGTERMFlushesWindows: what the last window of a recording holds comes out when the collector ends. The
// recordings are shorter than a window.
func TestSIGTERMFlushesWindows(t *testing.T) {
	t.Parallel()
	s := startSink(t)
	c := startCollector(t, testConfig("processor.yaml"), collectorOptions{env: s.env(longInterval, "cumulative")})
	c.replay(t, recordingV1)
	c.terminate(t)
	for protocol, metrics := range map[string]*consumertest.MetricsSink{"grpc": &s.grpcMetrics, "http": &s.httpMetrics} {
		engines := windowsOf(t, metrics)
		require.Len(t, engines, 1, protocol)
		for _, e := range engines {
			require.Len(t, e, 1, protocol)
			judgeTime(t, protocol, e)
			for end, figures := range e {
				first, last, inference, occupied := addUpIntervals(t)
				require.False(t, first.Before(end.Add(-window)) || last.After(end), "the window holds the recording")
				wall := last.Sub(first).Seconds()
				// The mean is divided by the completeness, for those that still run. Here none do.
				running := figures["llm.serving.engine.requests.running/mean"] * figures["llm.serving.estimate.completeness"] * window.Seconds()
				assert.InEpsilon(t, inference, running, 1e-6, protocol)
				assert.InEpsilon(t, occupied, figures["llm.serving.engine.occupancy"]*window.Seconds(), 1e-6, protocol)
				concurrency, occupancy := running/wall, figures["llm.serving.engine.occupancy"]*window.Seconds()/wall
				assert.InDelta(t, 5.86, concurrency, 0.005, "%s: concurrency, as testdata/spans/README.md has it", protocol)
				assert.InDelta(t, 0.986, occupancy, 0.0005, "%s: occupancy, as it says too", protocol)
				t.Logf("%s: concurrency %.4f and occupancy %.4f of %.3f s; the window is %.3f complete", protocol, concurrency, occupancy, wall,
					figures["llm.serving.estimate.completeness"])
			}
		}
	}
}

// addUpIntervals reads the V1 recording without any code of the product: when it begins and ends, the time in which
// requests ran, and the time in which any ran, in s.
func addUpIntervals(t *testing.T) (first, last time.Time, inference, occupied float64) {
	t.Helper()
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(readFile(t, recordingV1))
	require.NoError(t, err)
	type interval struct{ from, to float64 } // s
	var intervals []interval
	for _, span := range spansOf(td) {
		if !isRequest(span) {
			continue
		}
		get := func(name string) float64 {
			v, ok := span.Attributes().Get("gen_ai.latency." + name)
			require.True(t, ok, name)
			return v.Double()
		}
		start := span.StartTimestamp().AsTime()
		end := start.Add(time.Duration(get("e2e") * 1e9))
		if first.IsZero() || start.Before(first) {
			first = start
		}
		if end.After(last) {
			last = end
		}
		// The engine core took the request later than the front end did, and the two ended together.
		ran := interval{to: float64(end.UnixNano()) / 1e9}
		ran.from = ran.to - get("time_in_model_inference")
		intervals = append(intervals, ran)
		inference += get("time_in_model_inference")
	}
	slices.SortFunc(intervals, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	until := 0.0
	for _, ran := range intervals {
		occupied += max(0, ran.to-max(ran.from, until))
		until = max(until, ran.to)
	}
	return first, last, inference, occupied
}

// startOf is the --start of a simulation that has ended by now. It is the start of a window, so that every run has the
// same windows.
func startOf(duration time.Duration) string {
	return time.Now().Add(-duration).Truncate(window).UTC().Format(time.RFC3339)
}

// judgeUtilization compares device utilisation and its bracket.
func judgeUtilization(t *testing.T, name string, e engineWindows, truths []truthWindow) {
	t.Helper()
	var off, bias, width float64
	var waits, trueWaits []float64
	judged := compared(truths)
	for _, truth := range judged {
		figures := e.at(t, truth.End)
		u, ok := figures["llm.serving.device.utilization"]
		lower, hasLower := figures["llm.serving.device.utilization.lower"]
		upper, hasUpper := figures["llm.serving.device.utilization.upper"]
		if !assert.True(t, ok && hasLower && hasUpper, "%s %v: no device utilization", name, truth.End) {
			return
		}
		off += math.Abs(u - truth.DeviceUtilization)
		bias += u - truth.DeviceUtilization
		width += upper - lower
		wait, ok := figures["llm.serving.device.wait.ratio"]
		if assert.Equal(t, truth.Occupancy > 0, ok, "%s %v: wait ratio", name, truth.End) && ok {
			waits = append(waits, wait)
			trueWaits = append(trueWaits, truth.wait())
		}
		assert.LessOrEqual(t, lower, truth.DeviceUtilization+bracketSlack, "%s %v: lower", name, truth.End)
		assert.GreaterOrEqual(t, upper, truth.DeviceUtilization-bracketSlack, "%s %v: upper", name, truth.End)
	}
	n := float64(len(judged))
	t.Logf("%s: device utilization of %d windows: MAE %.4f, bias %+.4f, mean width of the bracket %.3f; wait ratio %.3f to %.3f of true %.3f to %.3f",
		name, len(judged), off/n, bias/n, width/n, slices.Min(waits), slices.Max(waits), slices.Min(trueWaits), slices.Max(trueWaits))
	assert.LessOrEqual(t, off/n, maxUtilizationMAE, "%s: MAE of device utilization", name)
	assert.LessOrEqual(t, math.Abs(bias/n), maxUtilizationBias, "%s: bias of device utilization", name)

	// The same by the counter, as rate() has it: the share of each state in the time of all these windows.
	first, last := e.at(t, judged[0].End), e.at(t, judged[len(judged)-1].End)
	wall := judged[len(judged)-1].End.Sub(judged[0].End).Seconds()
	for state, of := range trueStates {
		want := 0.0
		for _, truth := range judged[1:] {
			want += of(truth) / wall
		}
		got := (last["llm.serving.engine.time/"+state] - first["llm.serving.engine.time/"+state]) / wall
		assert.InDelta(t, want, got, maxUtilizationMAE, "%s: share of %s", name, state)
		t.Logf("%s: %-12s %.4f of true %.4f", name, state, got, want)
	}
}

// judgeLoad compares what the engine had to do, which is known of every engine.
func judgeLoad(t *testing.T, name string, e engineWindows, truths []truthWindow) {
	t.Helper()
	var worstRunning, worstOccupancy, tokens, trueTokens float64
	for _, truth := range compared(truths) {
		figures := e.at(t, truth.End)
		running, ok := figures["llm.serving.engine.requests.running/mean"]
		assert.True(t, ok, "%s %v", name, truth.End)
		assert.InDelta(t, truth.RunningMean, running, 1+0.01*truth.RunningMean, "%s %v: running requests", name, truth.End)
		occupancy, ok := figures["llm.serving.engine.occupancy"]
		assert.True(t, ok, "%s %v", name, truth.End)
		assert.InDelta(t, truth.Occupancy, occupancy, 0.01, "%s %v: occupancy", name, truth.End)
		worstRunning = max(worstRunning, math.Abs(running-truth.RunningMean))
		worstOccupancy = max(worstOccupancy, math.Abs(occupancy-truth.Occupancy))
		tokens += figures["llm.serving.engine.token.throughput/output"] * window.Seconds()
		trueTokens += float64(truth.OutputTokens)
	}
	t.Logf("%s: running requests within %.3f, occupancy within %.4f, output tokens %.0f of %.0f", name, worstRunning, worstOccupancy, tokens, trueTokens)
	assert.InEpsilon(t, trueTokens, tokens, 0.02, "%s: output tokens", name)
}

// judgeTime: the states of engine.time add up to wall time.
func judgeTime(t *testing.T, name string, e engineWindows) {
	t.Helper()
	require.NotEmpty(t, e, name)
	for end, figures := range e {
		sum := 0.0
		for figure, v := range figures {
			if strings.HasPrefix(figure, "llm.serving.engine.time/") {
				sum += v
			}
		}
		assert.InDelta(t, figures["wall"], sum, 1e-6, "%s %v: the states of engine.time", name, end)
	}
}

// figures are the values of one window by metric, those with an attribute by metric/value. wall is the time that
// llm.serving.engine.time covers.
type figures map[string]float64

// engineWindows are those of one engine by their end.
type engineWindows map[time.Time]figures

func (e engineWindows) at(t *testing.T, end time.Time) figures {
	t.Helper()
	require.Contains(t, e, end, "no such window came out")
	return e[end]
}

func (e engineWindows) runningMAE(t *testing.T, truths []truthWindow) float64 {
	t.Helper()
	judged, off := compared(truths), 0.0
	for _, truth := range judged {
		off += math.Abs(e.at(t, truth.End)["llm.serving.engine.requests.running/mean"] - truth.RunningMean)
	}
	return off / float64(len(judged))
}

// windowsOf are the windows that came out, by service.instance.id. Each is there once.
func windowsOf(t *testing.T, s *consumertest.MetricsSink) map[string]engineWindows {
	t.Helper()
	engines := map[string]engineWindows{}
	for _, md := range s.AllMetrics() {
		for _, rm := range md.ResourceMetrics().All() {
			instance, _ := rm.Resource().Attributes().Get("service.instance.id")
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if !isOfWindows(m.Name()) {
						continue
					}
					e := engines[instance.Str()]
					if e == nil {
						e = engineWindows{}
						engines[instance.Str()] = e
					}
					e.add(t, m)
				}
			}
		}
	}
	return engines
}

func isOfWindows(name string) bool {
	return name != "llm.serving.engine.info" &&
		(strings.HasPrefix(name, "llm.serving.engine.") || strings.HasPrefix(name, "llm.serving.device.") || strings.HasPrefix(name, "llm.serving.estimate."))
}

func (e engineWindows) add(t *testing.T, m pmetric.Metric) {
	t.Helper()
	var points pmetric.NumberDataPointSlice
	switch m.Type() {
	case pmetric.MetricTypeSum:
		points = m.Sum().DataPoints()
	case pmetric.MetricTypeGauge:
		points = m.Gauge().DataPoints()
	default:
		require.FailNow(t, "neither sum nor gauge", m.Name())
	}
	for _, p := range points.All() {
		if p.Flags().NoRecordedValue() {
			continue // the end of a series
		}
		end := p.Timestamp().AsTime()
		require.Equal(t, end, end.Truncate(window), "%s is stamped with the window's end", m.Name())
		if e[end] == nil {
			e[end] = figures{}
		}
		name := m.Name()
		require.LessOrEqual(t, p.Attributes().Len(), 1, name)
		p.Attributes().Range(func(_ string, v pcommon.Value) bool {
			name += "/" + v.AsString()
			return true
		})
		require.NotContains(t, e[end], name, "a window that comes out twice")
		e[end][name] = p.DoubleValue() + float64(p.IntValue())
		if m.Name() == "llm.serving.engine.time" {
			e[end]["wall"] = end.Sub(p.StartTimestamp().AsTime()).Seconds()
		}
	}
}

// simulation is a run of simulated engines into a collector of its own.
type simulation struct {
	*process
	collector *collector
	sink      *sink
	truthFile string
	sent      int // spans, when it has ended
}

// startEngineCollector is a collector for engines, whose windows go to a sink as soon as they are closed.
func startEngineCollector(t *testing.T) *simulation {
	t.Helper()
	s := &simulation{sink: startSink(t), truthFile: filepath.Join(t.TempDir(), "truth.jsonl")}
	s.collector = startCollector(t, testConfig("processor.yaml"), collectorOptions{
		env: s.sink.env("1s", "cumulative"),
		set: []string{"processors.serving_metrics.engine.max_num_seqs=" + strconv.Itoa(maxNumSeqs)},
	})
	return s
}

func startSimulation(t *testing.T, flags ...string) *simulation {
	t.Helper()
	s := startEngineCollector(t)
	args := append([]string{"simulate", "--endpoint", program.Address(s.collector.grpc), "--truth", s.truthFile}, flags...)
	s.process = start(t, nil, servingctl(t), args...)
	return s
}

// await waits until all is sent.
func (s *simulation) await(t *testing.T) {
	t.Helper()
	require.NoError(t, s.wait(t), s.Output())
	s.sent = spansSent(t, s.Output())
}

var spansSentIn = regexp.MustCompile(`; (\d+) of \d+ spans sent`)

// spansSent is what servingctl simulate says.
func spansSent(t *testing.T, summary string) int {
	t.Helper()
	m := spansSentIn.FindStringSubmatch(summary)
	require.NotNil(t, m, summary)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	require.Positive(t, n)
	return n
}

// windows are those of the collector after its end. It must have counted every request, and the windows must have come
// out while it ran.
func (s *simulation) windows(t *testing.T) map[string]engineWindows {
	t.Helper()
	assert.Equal(t, float64(s.sent), total(last(t, &s.sink.grpcMetrics), "llm.serving.request.count", nil))
	collects := 0
	for _, md := range s.sink.grpcMetrics.AllMetrics() {
		if total(md, "llm.serving.engine.time", nil) > 0 {
			collects++
		}
	}
	assert.Greater(t, collects, 10, "collects with windows")
	return windowsOf(t, &s.sink.grpcMetrics)
}

// only is the windows of the only engine.
func (s *simulation) only(t *testing.T, name string) engineWindows {
	t.Helper()
	engines := s.windows(t)
	require.Len(t, engines, 1)
	require.Contains(t, engines, name)
	return engines[name]
}

// settled are the windows that the requests themselves have closed: those that come out while the collector runs, when
// all was sent.
func (s *simulation) settled(t *testing.T) map[string]engineWindows {
	t.Helper()
	// A collect may have begun before the last request came. The one after that has them all.
	seen := len(s.sink.grpcMetrics.AllMetrics())
	require.Eventually(t, func() bool { return len(s.sink.grpcMetrics.AllMetrics()) >= seen+2 }, patience, poll)
	return windowsOf(t, &s.sink.grpcMetrics)
}

// truthWindow is a line of what servingctl simulate --truth writes.
type truthWindow struct {
	Engine            int
	Start, End        time.Time
	DeviceUtilization float64 `json:"device_utilization"`
	Occupancy         float64
	RunningMean       float64 `json:"running_mean"`
	OutputTokens      int64   `json:"output_tokens"`
	// Seconds by state.
	Prefill, Decode, Mixed float64
	ExecuteHost            float64 `json:"execute_host"`
	Scheduler              float64
	HostOther              float64 `json:"host_other"`
	Idle                   float64
}

// trueStates are the states of llm.serving.engine.time that the truth knows.
var trueStates = map[string]func(truthWindow) float64{
	"prefill":      func(w truthWindow) float64 { return w.Prefill },
	"decode":       func(w truthWindow) float64 { return w.Decode + w.Mixed },
	"execute_host": func(w truthWindow) float64 { return w.ExecuteHost },
	"scheduler":    func(w truthWindow) float64 { return w.Scheduler },
	"host_other":   func(w truthWindow) float64 { return w.HostOther },
	"idle":         func(w truthWindow) float64 { return w.Idle },
}

// wait is the share of the occupied time in which the device waits.
func (w truthWindow) wait() float64 { return 1 - w.DeviceUtilization/w.Occupancy }

func (s *simulation) truth(t *testing.T, engine int) []truthWindow {
	t.Helper()
	return readTruth(t, s.truthFile, engine)
}

func readTruth(t *testing.T, path string, engine int) []truthWindow {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var out []truthWindow
	for decoder := json.NewDecoder(f); ; {
		var w truthWindow
		if err := decoder.Decode(&w); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if w.Engine == engine {
			out = append(out, w)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// compared are the windows of a run that are judged.
func compared(truths []truthWindow) []truthWindow {
	from, to := truths[0].Start.Add(warmUp), truths[len(truths)-1].End.Add(-coolDown)
	var out []truthWindow
	for _, w := range truths {
		if !w.Start.Before(from) && !w.End.After(to) {
			out = append(out, w)
		}
	}
	return out
}
