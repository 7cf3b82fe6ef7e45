// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package enginesim

// The simulation against what must hold whatever the figures: sums, identities, one span per request.

import (
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func preset(t testing.TB, name string, change ...func(*Config)) Config {
	c, err := Preset(name)
	require.NoError(t, err)
	c.KeepRequests = true
	for _, f := range change {
		f(&c)
	}
	return c
}

// drained runs load for d, then lets all requests finish.
func drained(t testing.TB, cfg Config, w Workload, load float64, d time.Duration) (*Sim, []Export) {
	c, err := Capacity(cfg, w)
	require.NoError(t, err)
	s, err := New(cfg, w, load*c.Requests)
	require.NoError(t, err)
	out := s.Advance(cfg.Start.Add(d))
	require.NoError(t, s.SetRate(0))
	for range 3600 {
		out = append(out, s.Advance(s.Now().Add(10*time.Second))...)
		if n := s.Counts(); n.Arrived == n.Finished+n.Aborted {
			break
		}
	}
	n := s.Counts()
	require.Equal(t, n.Arrived, n.Finished+n.Aborted)
	return s, append(out, s.Close()...)
}

func spansOf(exports []Export) []ptrace.Span {
	var out []ptrace.Span
	for _, e := range exports {
		for i := range e.Traces.ResourceSpans().Len() {
			rs := e.Traces.ResourceSpans().At(i)
			for k := range rs.ScopeSpans().Len() {
				for j := range rs.ScopeSpans().At(k).Spans().Len() {
					out = append(out, rs.ScopeSpans().At(k).Spans().At(j))
				}
			}
		}
	}
	return out
}

func attr(t testing.TB, s ptrace.Span, name string) float64 {
	v, ok := s.Attributes().Get("gen_ai." + name)
	require.True(t, ok, name)
	if v.Type() == pcommon.ValueTypeInt {
		return float64(v.Int())
	}
	require.Equal(t, pcommon.ValueTypeDouble, v.Type(), name)
	return v.Double()
}

// TestConservation: time, requests, tokens and memory add up, for every preset.
func TestConservation(t *testing.T) {
	for _, name := range Presets() {
		t.Run(name, func(t *testing.T) {
			w := Workload{Lengths: LengthsChat, Arrivals: Bursty}
			if name == "v1-longcontext" {
				w.Lengths = LengthsMooncake
			}
			cfg := preset(t, name, func(c *Config) { c.AbortRate, c.Patience, c.Engines, c.Sampling = .05, 20*time.Second, 2, .8 })
			s, exports := drained(t, cfg, w, 1.05, 4*time.Minute)

			n := s.Counts()
			require.Positive(t, n.Finished)
			assert.Positive(t, n.Aborted)
			assert.Equal(t, n.Finished, n.Spans+n.Unsampled)
			assert.InDelta(t, .8, float64(n.Spans)/float64(n.Finished), .08)
			assert.Len(t, s.Requests(), n.Arrived)

			seen := map[pcommon.TraceID]bool{}
			var promptTokens, outputTokens float64
			for _, span := range spansOf(exports) {
				assert.False(t, seen[span.TraceID()], "one span per request")
				seen[span.TraceID()] = true
				promptTokens += attr(t, span, "usage.prompt_tokens")
				outputTokens += attr(t, span, "usage.completion_tokens")
			}
			assert.Len(t, seen, n.Spans)
			var made, wantPrompt, wantOutput [3]int64 // by engine; all
			for _, r := range s.Requests() {
				made[r.Engine] += int64(r.Made)
				if r.Sampled {
					wantPrompt[2] += int64(r.Prompt)
					wantOutput[2] += int64(r.Output)
				}
				if !r.Aborted {
					assert.Equal(t, r.Output, r.Made)
				}
			}
			assert.EqualValues(t, wantPrompt[2], promptTokens)
			assert.EqualValues(t, wantOutput[2], outputTokens)

			for i, e := range s.engines {
				truth := s.Truth(i)
				a, b := truth.Begin(), truth.End()
				assert.Equal(t, made[i], truth.OutputTokens(a, b))
				assert.Equal(t, cfg.Start.UnixNano(), a)
				assert.Equal(t, time.Duration(b-a), truth.Times(a, b).Total())
				for k := int64(1); k < 200; k++ {
					from := a + int64(mix(7, uint64(k)))&(1<<37-1)
					to := from + int64(mix(8, uint64(k)))&(1<<34-1)
					mid := (from + to) / 2
					whole, left, right := truth.Times(from, to), truth.Times(from, mid), truth.Times(mid, to)
					assert.Equal(t, time.Duration(to-from), whole.Total())
					for st := range NumStates {
						assert.Equal(t, whole[st], left[st]+right[st])
						assert.GreaterOrEqual(t, whole[st], time.Duration(0))
					}
					assert.LessOrEqual(t, whole.Forward(), truth.Occupied(from, to), "forward passes need a running request")
				}
				var forward int64
				for _, st := range truth.Steps(a, b) {
					forward += st.ForwardEnd - st.ForwardStart
					require.LessOrEqual(t, st.Start, st.ForwardStart)
					require.LessOrEqual(t, st.ForwardEnd, st.End)
				}
				assert.Equal(t, time.Duration(forward), truth.Times(a, b).Forward())
				// Nothing is left behind.
				assert.Empty(t, e.running)
				assert.Zero(t, e.waiting.len())
				assert.Zero(t, e.nWaiting)
				assert.EqualValues(t, cfg.KVTokens/blockSize, e.freeBlocks)
				assert.Zero(t, e.truth.running.last())
				assert.Zero(t, e.truth.waiting.last())
			}
		})
	}
}

// TestCountsAreIntegrals: running and waiting over time are the sums over requests, to the nanosecond.
func TestCountsAreIntegrals(t *testing.T) {
	for _, name := range []string{"v0-default", "v0-async", "v0-chunked", "v1", "v1-async"} {
		t.Run(name, func(t *testing.T) {
			s, exports := drained(t, preset(t, name), Workload{Lengths: LengthsChat, Arrivals: OnOff}, .9, 5*time.Minute)
			truth := s.Truth(0)
			a, b := truth.Begin(), truth.End()
			require.Zero(t, truth.Preemptions(a, b))
			var running, waiting int64
			peak := 0
			for _, r := range s.Requests() {
				running += r.Finish - r.FirstScheduled
				waiting += r.FirstScheduled - r.Arrival
				at := 0
				for _, o := range s.Requests() {
					if o.FirstScheduled <= r.FirstScheduled && r.FirstScheduled < o.Finish {
						at++
					}
				}
				peak = max(peak, at)
			}
			mean, greatest := truth.Running(a, b)
			assert.InEpsilon(t, float64(running), mean*float64(b-a), 1e-9)
			assert.Equal(t, peak, greatest)
			if !s.cfg.Dialect.V1() {
				mean, _ = truth.Waiting(a, b)
				assert.InEpsilon(t, float64(waiting), mean*float64(b-a), 1e-9)
			} else {
				var queued float64
				for _, span := range spansOf(exports) {
					queued += attr(t, span, "latency.time_in_queue")
				}
				mean, _ = truth.Waiting(a, b)
				if !s.cfg.Async { // there the pass is hidden and so is the wait for it
					assert.InDelta(t, queued, mean*float64(b-a)/1e9, 1e-3)
				}
			}
			// Occupied is the union of the runs.
			type run struct{ a, b int64 }
			var runs []run
			for _, r := range s.Requests() {
				runs = append(runs, run{r.FirstScheduled, r.Finish})
			}
			slices.SortFunc(runs, func(x, y run) int { return int(x.a - y.a) })
			var union, end int64
			for _, r := range runs {
				union += max(0, r.b-max(r.a, end))
				end = max(end, r.b)
			}
			assert.Equal(t, time.Duration(union), truth.Occupied(a, b))
		})
	}
}

// TestForwardIdentities: the forward time on a span is the device's busy time over the request's run with
// chunked prefill, and over the run without the others' prefill windows by default.
func TestForwardIdentities(t *testing.T) {
	for _, name := range []string{"v0-default", "v0-hostbound", "v0-chunked"} {
		t.Run(name, func(t *testing.T) {
			s, exports := drained(t, preset(t, name), Workload{Lengths: LengthsChat}, .8, 5*time.Minute)
			truth := s.Truth(0)
			require.Zero(t, truth.Preemptions(truth.Begin(), truth.End()))
			busy := func(a, b int64) int64 { return int64(truth.Times(a, b).Forward()) }
			// The union of the prefill windows; windows of one batch are equal, others are apart.
			type window struct{ a, b int64 }
			windows := map[window]bool{}
			for _, r := range s.Requests() {
				windows[window{r.FirstScheduled, r.FirstToken}] = true
			}
			var prefill []window
			for w := range windows {
				prefill = append(prefill, w)
			}
			sort.Slice(prefill, func(i, j int) bool { return prefill[i].a < prefill[j].a })
			masked := s.cfg.Mode == PrefillPriority
			naive := 0
			for _, r := range s.Requests() {
				want := busy(r.FirstScheduled, r.Finish)
				if masked {
					for _, w := range prefill {
						if w.b <= r.FirstToken || w.a >= r.Finish {
							continue
						}
						require.True(t, w.a >= r.FirstToken && w.b <= r.Finish, "a prefill step lies within a decode or apart")
						want -= busy(w.a, w.b)
						naive++
					}
				}
				require.Equal(t, want, int64(r.Forward))
			}
			if masked {
				assert.Positive(t, naive, "the mask matters")
			}

			// The same from the steps, and on the spans.
			steps := truth.Steps(truth.Begin(), truth.End())
			byArrival := map[int64]RequestTruth{}
			for _, r := range s.Requests() {
				var forward int64
				for _, st := range steps[sort.Search(len(steps), func(i int) bool { return steps[i].ForwardStart >= r.FirstScheduled }):] {
					if st.ForwardStart >= r.Finish {
						break
					}
					if !masked || st.Prefills == 0 || st.ForwardEnd < r.FirstToken {
						forward += st.ForwardEnd - st.ForwardStart
					}
				}
				require.Equal(t, forward, int64(r.Forward))
				byArrival[int64(pyTime(r.Arrival)*1e9)] = r
			}
			for _, span := range spansOf(exports) {
				r, ok := byArrival[int64(span.StartTimestamp())]
				require.True(t, ok)
				const python = 5e-7 // what time.time() resolves, twice
				require.InDelta(t, r.Forward.Seconds(), attr(t, span, "latency.time_in_model_forward"), 1e-9)
				require.InDelta(t, r.Execute.Seconds(), attr(t, span, "latency.time_in_model_execute"), 1e-9)
				require.InDelta(t, r.Scheduler.Seconds(), attr(t, span, "latency.time_in_scheduler"), 1e-9)
				require.InDelta(t, float64(r.FirstScheduled-r.Arrival)/1e9, attr(t, span, "latency.time_in_queue"), python)
				require.InDelta(t, float64(r.FirstToken-r.Arrival)/1e9, attr(t, span, "latency.time_to_first_token"), python)
				require.InDelta(t, float64(r.Finish-r.Arrival)/1e9, attr(t, span, "latency.e2e"), python)
				require.Less(t, r.Forward, r.Execute)
			}
		})
	}
}

// TestSchedulerTime: every pass counts for all that run after it.
func TestSchedulerTime(t *testing.T) {
	s, _ := drained(t, preset(t, "v0-default"), Workload{}, .6, 2*time.Minute)
	truth := s.Truth(0)
	for _, r := range s.Requests() {
		// The pass that schedules a request first ends at its stamp, and the run ends before another.
		first := truth.Times(r.Arrival, r.FirstScheduled)[Scheduler]
		rest := truth.Times(r.FirstScheduled, r.Finish)[Scheduler]
		require.GreaterOrEqual(t, r.Scheduler, rest)
		require.LessOrEqual(t, r.Scheduler-rest, first+time.Duration(v1Stamp)+s.cfg.Host.Scheduler*2+256*s.cfg.Host.SchedulerPerSeq)
		require.Greater(t, r.Scheduler, rest, "the first pass counts, too")
	}
}

// TestDecodeSteps: each token but the first is a decode; asynchronous processing runs one more in vain.
func TestDecodeSteps(t *testing.T) {
	for name, wasted := range map[string]int64{"v0-default": 0, "v0-chunked": 0, "v1": 0, "v0-async": 1, "v1-async": 1} {
		t.Run(name, func(t *testing.T) {
			s, _ := drained(t, preset(t, name), Workload{}, .7, 3*time.Minute)
			truth := s.Truth(0)
			require.Zero(t, truth.Preemptions(truth.Begin(), truth.End()))
			var decodes, want, prompts, wantPrompts int64
			for _, st := range truth.Steps(truth.Begin(), truth.End()) {
				decodes += int64(st.Decodes)
				prompts += int64(st.PromptTokens)
				if s.cfg.Mode == PrefillPriority {
					require.True(t, st.Prefills == 0 || st.Decodes == 0)
				}
				require.LessOrEqual(t, int(st.PromptTokens), s.cfg.MaxBatchedTokens)
				require.LessOrEqual(t, int(st.Decodes+st.Prefills), s.cfg.MaxNumSeqs)
			}
			for _, r := range s.Requests() {
				want += int64(r.Output) - 1 + wasted
				wantPrompts += int64(r.Prompt)
			}
			if name == "v0-async" {
				// Where prompts came next, the finished request was not scheduled again.
				n := int64(len(s.Requests()))
				assert.True(t, decodes <= want && decodes > want-n*2/3, "%d decodes, %d requests, at most %d", decodes, n, want)
			} else {
				assert.Equal(t, want, decodes)
			}
			assert.Equal(t, wantPrompts, prompts)
		})
	}
}

// TestAsyncStamps: with asynchronous output processing the first token is stamped while the next step's
// forward pass runs.
func TestAsyncStamps(t *testing.T) {
	s, _ := drained(t, preset(t, "v0-async"), Workload{}, .5, time.Minute)
	truth := s.Truth(0)
	for _, r := range s.Requests() {
		steps := truth.Steps(r.FirstScheduled-int64(time.Second), r.FirstToken)
		last := steps[len(steps)-1]
		require.Equal(t, last.ForwardStart, r.FirstToken)
		require.Greater(t, last.Start, r.FirstScheduled, "it is the step after the prompt's")
	}
}

// TestPreemption: what was preempted is computed again, and everything still comes out whole.
func TestPreemption(t *testing.T) {
	for _, name := range []string{"v0-preempt", "v1-preempt"} {
		for _, async := range []bool{false, true} {
			s, _ := drained(t, preset(t, name, func(c *Config) { c.Async = async }), Workload{}, 1.1, 3*time.Minute)
			truth := s.Truth(0)
			a, b := truth.Begin(), truth.End()
			n := 0
			var prompts, computed int64
			for _, r := range s.Requests() {
				n += r.Preemptions
				prompts += int64(r.Prompt)
			}
			for _, st := range truth.Steps(a, b) {
				computed += int64(st.PromptTokens)
			}
			assert.Positive(t, n)
			assert.Equal(t, n, truth.Preemptions(a, b))
			assert.Equal(t, n, s.Counts().Preemptions)
			assert.Greater(t, computed, prompts)
		}
	}
}

// TestLoad: below the capacity the engine keeps up, above it the queue grows; the device is as busy as
// the preset says.
func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name        string
		least, most float64 // device utilisation while occupied, at any load
	}{
		{"v0-default", .68, .85},
		{"v0-async", .70, .87},
		{"v0-chunked", .70, .86},
		{"v0-preempt", .68, .85},
		{"v0-hostbound", .33, .52},
		{"v1", .85, .95},
		{"v1-async", .93, 1},
		{"v1-hostbound", .33, .52},
	} {
		t.Run(c.name, func(t *testing.T) {
			capacity, err := Capacity(preset(t, c.name), Workload{})
			require.NoError(t, err)
			assert.InDelta(t, (c.least+c.most)/2, capacity.Busy, (c.most-c.least)/2)
			assert.Greater(t, capacity.Running, 150.)
			for _, load := range []float64{.05, .5, .8, 1.3} {
				r, err := New(preset(t, c.name), Workload{}, load*capacity.Requests)
				require.NoError(t, err)
				r.Advance(r.cfg.Start.Add(10 * time.Minute))
				a, b := r.cfg.Start.Add(2*time.Minute).UnixNano(), r.cfg.Start.Add(10*time.Minute).UnixNano()
				truth := r.Truth(0)
				busy := float64(truth.Times(a, b).Forward()) / float64(truth.Occupied(a, b))
				assert.True(t, busy > c.least && busy < c.most, "load %v: busy %.3f of occupied", load, busy)
				waiting, _ := truth.Waiting(a, b)
				if load > 1 {
					assert.Greater(t, waiting, 200.)
				} else {
					assert.Less(t, waiting, 20.)
				}
				if load < .5 {
					continue // too few requests to hold the mean to
				}
				tokens := float64(truth.OutputTokens(a, b)) / 480
				assert.InEpsilon(t, min(1, load)*capacity.OutputTokens, tokens, .15, "load %v", load)
			}
		})
	}
}

// TestRun: capacity and rate are those of all engines together.
func TestRun(t *testing.T) {
	one, err := Run(preset(t, "v1"), Workload{Arrivals: Bursty}, .7, 5*time.Minute)
	require.NoError(t, err)
	three, err := Run(preset(t, "v1", func(c *Config) { c.Engines = 3 }), Workload{Arrivals: Bursty}, .7, 5*time.Minute)
	require.NoError(t, err)
	assert.InEpsilon(t, 3*one.Capacity.Requests, three.Capacity.Requests, 1e-9)
	assert.InEpsilon(t, .7*three.Capacity.Requests*300, three.Counts().Arrived, .05)
	assert.Len(t, spansOf(three.Exports), three.Counts().Spans-stillOpen(three))
	for i := range 3 {
		assert.InEpsilon(t, three.Counts().Arrived, 3*three.EngineCounts(i).Arrived, .02)
	}
}

// stillOpen is the number of spans that end after the last moment.
func stillOpen(r *Result) (n int) {
	for _, x := range r.exporters {
		n += len(x.ended)
	}
	return n
}

// TestProfiledRequest repeats the one request whose profile vllm-project/vllm#7089 shows: 2106 tokens in,
// 256 out, alone on the engine.
func TestProfiledRequest(t *testing.T) {
	cfg := preset(t, "v0-default", func(c *Config) { c.Dialect = VLLM055 })
	s, err := New(cfg, Workload{}, 0)
	require.NoError(t, err)
	s.fifo[0].push(demand{id: 1, at: cfg.Start.Add(time.Second).UnixNano(), prompt: 2106, output: 256})
	spans := spansOf(s.Advance(cfg.Start.Add(time.Minute)))
	require.Len(t, spans, 1)
	get := func(name string) float64 { return attr(t, spans[0], "latency."+name) }
	run := get("e2e") - get("time_in_queue")
	assert.InEpsilon(t, (3.7758-.2346)/255, (get("e2e")-get("time_to_first_token"))/255, .05, "decode step")
	assert.InDelta(t, .837, get("time_in_model_forward")/run, .02)
	assert.InDelta(t, .969, get("time_in_model_execute")/run, .02)
	assert.InDelta(t, .0047, get("time_in_scheduler")/run, .01)
}

func TestForget(t *testing.T) {
	cfg := preset(t, "v0-preempt")
	s, err := New(cfg, Workload{}, 20)
	require.NoError(t, err)
	s.Advance(cfg.Start.Add(4 * time.Minute))
	truth := s.Truth(0)
	a, b := cfg.Start.Add(180*time.Second).UnixNano(), cfg.Start.Add(230*time.Second).UnixNano()+45
	type view struct {
		times   Times
		occ     time.Duration
		mean    [2]float64
		most    [2]int
		steps   StepStats
		preempt int
		tokens  int64
	}
	look := func() (v view) {
		v.times, v.occ, v.steps, v.preempt, v.tokens = truth.Times(a, b), truth.Occupied(a, b), truth.StepStats(a, b), truth.Preemptions(a, b), truth.OutputTokens(a, b)
		v.mean[0], v.most[0] = truth.Running(a, b)
		v.mean[1], v.most[1] = truth.Waiting(a, b)
		return v
	}
	before, n := look(), len(truth.steps)
	require.Positive(t, before.preempt)
	require.Positive(t, before.tokens)
	s.Forget(cfg.Start.Add(3 * time.Minute))
	assert.Equal(t, before, look())
	assert.Less(t, len(truth.steps), n/2)
	assert.LessOrEqual(t, truth.states.begin(), a)
	assert.Greater(t, truth.states.begin(), cfg.Start.UnixNano())
	// It goes on as if nothing had happened.
	s.Advance(cfg.Start.Add(5 * time.Minute))
	assert.Equal(t, before, look())
	to := cfg.Start.Add(5 * time.Minute).UnixNano()
	assert.Equal(t, time.Duration(to-a), truth.Times(a, to).Total())
}

// TestTruthIsFinal: what lies before Now does not change any more.
func TestTruthIsFinal(t *testing.T) {
	for _, name := range Presets() {
		cfg := preset(t, name)
		s, err := New(cfg, Workload{Arrivals: Bursty}, 25)
		require.NoError(t, err)
		var views []Window
		const slice = 701 * time.Millisecond
		for range 120 {
			from := s.Now()
			s.Advance(from.Add(slice))
			views = append(views, s.Truth(0).Window(from.UnixNano(), s.Now().UnixNano()))
		}
		s.Advance(s.Now().Add(time.Minute))
		for _, v := range views {
			require.Equal(t, v, s.Truth(0).Window(v.Start.UnixNano(), v.End.UnixNano()), name)
			require.InDelta(t, slice.Seconds(), v.Idle+v.Prefill+v.Decode+v.Mixed+v.ExecuteHost+v.Scheduler+v.HostOther, 1e-9)
			require.InDelta(t, v.DeviceUtilization*slice.Seconds(), v.Prefill+v.Decode+v.Mixed, 1e-9)
			require.LessOrEqual(t, v.DeviceUtilization, v.Occupancy)
			if v.DecodeStep != nil {
				require.Less(t, *v.HostGap, *v.DecodeStep)
			}
		}
	}
}

// TestStateLog holds the running totals against a plain sum over a hand-made day.
func TestStateLog(t *testing.T) {
	truth := newTruth(1000)
	var states []State // by nanosecond
	for k := uint64(0); k < 400; k++ {
		s := State(mix(3, k) % uint64(NumStates))
		for range mix(4, k) % 7 {
			states = append(states, s)
		}
		truth.states.until(1000+int64(len(states)), s)
	}
	end := int64(1000 + len(states))
	require.Equal(t, end, truth.End())
	for k := uint64(0); k < 2000; k++ {
		a := 990 + int64(mix(5, k)%uint64(len(states)+20))
		b := 990 + int64(mix(6, k)%uint64(len(states)+20))
		if a > b {
			a, b = b, a
		}
		var want Times
		for at := max(a, 1000); at < min(b, end); at++ {
			want[states[at-1000]]++
		}
		require.Equal(t, want, truth.Times(a, b))
	}
}

func TestStepStats(t *testing.T) {
	truth := newTruth(0)
	truth.steps = []Step{
		{Start: 0, ForwardStart: 2, ForwardEnd: 8, End: 10, Prefills: 1, PromptTokens: 7},
		{Start: 10, ForwardStart: 11, ForwardEnd: 19, End: 20, Decodes: 3},
		{Start: 20, ForwardStart: 21, ForwardEnd: 31, End: 34, Decodes: 5},
		{Start: 50, ForwardStart: 51, ForwardEnd: 61, End: 64, Decodes: 9}, // after a pause: the one before does not count
		{Start: 64, ForwardStart: 64, ForwardEnd: 70, End: 80, Decodes: 1},
		{Start: 80, ForwardStart: 81, ForwardEnd: 100, End: 108, Decodes: 2, Prefills: 1, PromptTokens: 5}, // mixed
		{Start: 108, ForwardStart: 111, ForwardEnd: 115, End: 118, Decodes: 2},                             // the last of the window
		{Start: 118, ForwardStart: 119, ForwardEnd: 121, End: 122, Decodes: 2},
	}
	want := StepStats{Steps: 7, DecodeSteps: 5, DecodeStep: 13, DecodeGap: 5, Batch: 13. / 3, PromptTokens: 12, DecodingSteps: 4, StepDuration: 17}
	assert.Equal(t, want, truth.StepStats(0, 118))
	w := truth.Window(0, 118)
	assert.InDelta(t, 17e-9, *w.StepDuration, 1e-15)
	assert.InDelta(t, 13e-9, *w.DecodeStep, 1e-15)
	assert.Equal(t, 4, w.DecodingSteps)
	assert.Nil(t, truth.Window(200, 300).StepDuration)
	assert.Equal(t, StepStats{}, truth.StepStats(200, 300))
	assert.Equal(t, StepStats{}, truth.StepStats(300, 200))
}

// TestRateChange: an engine that was silent takes up new arrivals.
func TestRateChange(t *testing.T) {
	cfg := preset(t, "v1")
	s, err := New(cfg, Workload{}, 0)
	require.NoError(t, err)
	assert.Empty(t, s.Advance(cfg.Start.Add(time.Hour)))
	assert.Equal(t, time.Hour, s.Truth(0).Times(0, math.MaxInt64)[Idle])
	require.NoError(t, s.SetRate(5))
	spans := spansOf(s.Advance(cfg.Start.Add(time.Hour + time.Minute)))
	assert.InDelta(t, 5*55, len(spans), 90)
	for _, span := range spans {
		assert.True(t, span.StartTimestamp().AsTime().After(cfg.Start.Add(time.Hour)))
	}
	// From one request in eleven days to five a second: the next one does not wait for the former.
	require.NoError(t, s.SetRate(1e-6))
	s.Advance(s.Now().Add(time.Hour))
	require.NoError(t, s.SetRate(5))
	assert.Greater(t, len(spansOf(s.Advance(s.Now().Add(time.Minute)))), 150)
	require.NoError(t, s.SetRate(0))
	s.Advance(s.Now().Add(10 * time.Minute))
	n := s.Counts()
	assert.Equal(t, n.Arrived, n.Finished)
	assert.Error(t, s.SetRate(-1))
	assert.Error(t, s.SetRate(math.NaN()))
	assert.Nil(t, s.Advance(cfg.Start), "time does not go back")
	s.Close()
	assert.Nil(t, s.Close())
	assert.Nil(t, s.Advance(cfg.Start.Add(2*time.Hour)))
}

func BenchmarkFullEngine(b *testing.B) {
	cfg, err := Preset("v0-default")
	require.NoError(b, err)
	c, err := Capacity(cfg, Workload{})
	require.NoError(b, err)
	s, err := New(cfg, Workload{}, c.Requests)
	require.NoError(b, err)
	s.Advance(cfg.Start.Add(5 * time.Minute))
	for b.Loop() {
		s.Advance(s.Now().Add(10 * time.Second))
		s.Forget(s.Now().Add(-time.Minute))
	}
	b.ReportMetric(10*float64(b.N)/b.Elapsed().Seconds(), "x-real-time")
}

// TestCloseSendsAll: what counts as a span is sent, also where the last step ends after the simulation.
func TestCloseSendsAll(t *testing.T) {
	for _, name := range Presets() {
		t.Run(name, func(t *testing.T) {
			late := 0
			for seed := range uint64(12) {
				cfg := preset(t, name, func(c *Config) { c.Seed, c.Engines = seed, 2 })
				s, err := New(cfg, Workload{}, 40)
				require.NoError(t, err)
				exports := s.Advance(cfg.Start.Add(20 * time.Second))
				exports = append(exports, s.Close()...)
				spans := spansOf(exports)
				assert.Len(t, spans, s.Counts().Spans, "seed %d", seed)
				for _, e := range exports {
					for _, span := range spansOf([]Export{e}) {
						assert.False(t, span.EndTimestamp().AsTime().After(e.At), "no span is sent before it has ended")
					}
				}
				for _, span := range spans {
					if span.EndTimestamp().AsTime().After(s.Now()) {
						late++
					}
				}
			}
			assert.Positive(t, late, "no run ended within a step that finished a request")
		})
	}
}
