// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// What holds whatever comes in: sums, order, time, limits.

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// run adds all requests and closes all windows.
func run(cfg Config, reqs []llmrequest.Request) ([]Window, *Timeline) {
	t := New(cfg)
	for i := range reqs {
		t.Add(&reqs[i])
	}
	t.Flush(true)
	return t.Windows(), t
}

// plain is a V0 request that runs from start+queue for length seconds, without forward times.
func plain(start, queue, length float64, tokens int) llmrequest.Request {
	var r llmrequest.Request
	r.Start = pcommon.Timestamp(simEpoch.UnixNano() + int64(start*sec))
	r.Sequences, r.Generation = 1, llmrequest.GenerationV0
	r.Set(llmrequest.Queue, queue)
	r.Set(llmrequest.TimeToFirstToken, queue+length/10)
	r.Set(llmrequest.E2E, queue+length)
	r.Set(llmrequest.OutputTokens, float64(tokens))
	r.End = r.Start + pcommon.Timestamp((queue+length)*sec)
	return r
}

// checkWindows asserts what holds of any series of windows.
func checkWindows(t *testing.T, ws []Window, length time.Duration) {
	t.Helper()
	for i := range ws {
		w := &ws[i]
		var total time.Duration
		for _, d := range w.States {
			require.GreaterOrEqual(t, d, time.Duration(0))
			total += d
		}
		require.Equal(t, length, total, "states of window %d", i)
		require.Equal(t, length, w.End.Sub(w.Start))
		require.Zero(t, w.Start.UnixNano()%int64(length), "aligned")
		if i > 0 {
			require.False(t, w.Start.Before(ws[i-1].End), "window %d starts before the one before ends", i)
		}
		for f := range NumFigures {
			v, ok := w.Get(f)
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0) || v < 0, "figure %d is %v", f, v)
			if !ok {
				require.Zero(t, v)
			}
		}
		for _, f := range []Figure{Occupancy, QueuePressure, DeviceUtilization, DeviceLower, DeviceUpper, DeviceWaitRatio, BatchUtilization, MarginalRatio, Completeness} {
			require.LessOrEqual(t, w.Value(f), 1+1e-9, "figure %d", f)
		}
		if u, ok := w.Get(DeviceUtilization); ok {
			require.LessOrEqual(t, w.Value(DeviceLower), u+1e-9)
			require.GreaterOrEqual(t, w.Value(DeviceUpper), u-1e-9)
		}
		for _, x := range [][4]Figure{{RunningLower, RunningMean, RunningUpper, RunningMax}, {WaitingLower, WaitingMean, WaitingUpper, WaitingMax}} {
			mean, ok := w.Get(x[1])
			if !ok {
				continue
			}
			slack := 1e-6 * max(mean, 1)
			require.LessOrEqual(t, w.Value(x[0]), mean+slack, "least")
			if upper, ok := w.Get(x[2]); ok {
				require.GreaterOrEqual(t, upper, mean-slack, "most, on average")
			}
			require.GreaterOrEqual(t, w.Value(x[3]), mean-slack, "most")
		}
	}
}

func TestWindowOfKnownRequests(t *testing.T) {
	reqs := []llmrequest.Request{
		plain(1, 0.5, 4, 41), // runs 1.5 to 5.5
		plain(3, 1, 2, 21),   // runs 4 to 6
		plain(8, 0, 4, 11),   // runs 8 to 12
	}
	ws, _ := run(Config{MaxNumSeqs: 4}, reqs)
	require.Len(t, ws, 2)
	checkWindows(t, ws, 10*time.Second)
	w := ws[0]
	assert.InDelta(t, 0.8, w.Value(RunningMean), 1e-6)
	assert.EqualValues(t, 2, w.Value(RunningMax))
	assert.InDelta(t, 0.15, w.Value(WaitingMean), 1e-6)
	assert.EqualValues(t, 1, w.Value(WaitingMax))
	assert.InDelta(t, 0.65, w.Value(Occupancy), 1e-6)
	assert.InDelta(t, 0.15, w.Value(QueuePressure), 1e-6)
	assert.InDelta(t, 0.8/0.65/4, w.Value(BatchUtilization), 1e-6)
	assert.EqualValues(t, 2, w.Requests)
	assert.EqualValues(t, 1, ws[1].Requests)
	assert.Equal(t, 6500*time.Millisecond, w.States[StateOccupied].Round(time.Microsecond))
	assert.Equal(t, 3500*time.Millisecond, w.States[StateIdle].Round(time.Microsecond))
	// 41 and 21 tokens, and of 11 the first at 8.4 s and 1.6/3.6 of the rest.
	assert.InDelta(t, 4.1+2.1+0.1+16.0/3.6/10, w.Value(OutputThroughput), 1e-6)
	assert.False(t, w.Has(DeviceUtilization), "no forward times")
	assert.InDelta(t, 0.1, w.Value(StepDuration), 0.02, "90, 90 and 324 ms, the last one seldom seen")
}

func TestTokensAreConserved(t *testing.T) {
	m := modelOf("default")
	tr := m.run(5, chat, 3, 200, 1e9)
	ws, _ := run(Config{FromStart: true, Grace: 3 * time.Minute}, m.spans(tr, 5, 5, 0))
	checkWindows(t, ws, 10*time.Second)
	var out, in, requests float64
	for i := range ws {
		out += ws[i].Value(OutputThroughput) * 10 * ws[i].Value(Completeness)
		in += ws[i].Value(InputThroughput) * 10 * ws[i].Value(Completeness)
		requests += float64(ws[i].Requests)
	}
	var wantOut, wantIn float64
	for _, q := range tr.requests {
		wantOut += float64(q.out)
		wantIn += float64(q.prompt)
	}
	// Each window looks anew at when the tokens of a request were made.
	assert.InEpsilon(t, wantOut, out, 1e-3)
	assert.InEpsilon(t, wantIn, in, 1e-6)
	assert.EqualValues(t, len(tr.requests), requests)
}

func TestRecordingV1(t *testing.T) {
	const name = "vllm_v1_concurrency8.otlp.json"
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "spans", name))
	require.NoError(t, err)
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw)
	require.NoError(t, err)
	var reqs []llmrequest.Request
	first, last := int64(math.MaxInt64), int64(0)
	for _, rs := range traces.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			src := llmrequest.NewSource(rs.Resource().Attributes(), ss.Scope().Name())
			for _, span := range ss.Spans().All() {
				var r llmrequest.Request
				if llmrequest.Read(span, &src, &r) {
					reqs = append(reqs, r)
					first = min(first, int64(r.Start))
					last = max(last, int64(r.Start)+int64(r.Value(llmrequest.E2E)*sec))
				}
			}
		}
	}
	require.Len(t, reqs, 12)
	wall := float64(last-first) / sec
	for _, live := range []bool{false, true} {
		tl := New(Config{MaxNumSeqs: 8})
		for i := range reqs {
			tl.Add(&reqs[i])
		}
		if live {
			now := time.Unix(0, last).Add(time.Second)
			for range 300 {
				tl.Advance(now)
				now = now.Add(time.Second)
			}
		} else {
			tl.Flush(true)
		}
		ws := tl.Windows()
		require.NotEmpty(t, ws)
		checkWindows(t, ws, 10*time.Second)
		w := ws[0]
		assert.InDelta(t, 5.86, w.Value(RunningMean)*10/wall, 0.005, "concurrency")
		assert.InDelta(t, 0.986, w.Value(Occupancy)*10/wall, 0.0005, "occupancy")
		assert.EqualValues(t, 8, w.Value(RunningMax))
		assert.EqualValues(t, 12, w.Requests)
		assert.InDelta(t, 0.0033, w.Value(StepDuration), 0.0003)
		assert.Equal(t, ModeUnknown, w.Mode)
		for _, f := range []Figure{DeviceUtilization, DeviceLower, DeviceUpper, DeviceWaitRatio, HostGap} {
			assert.False(t, w.Has(f), "V1 says nothing of the device")
		}
		assert.Zero(t, w.States[StateUnknown])
		assert.InDelta(t, 0.986*wall, w.States[StateOccupied].Seconds(), 0.001)
		if live {
			assert.Zero(t, ws[1].Value(RunningMean))
			assert.True(t, ws[1].Has(Occupancy))
		}
	}
}

// shuffled delays every request by up to d seconds and sorts them by arrival.
func shuffled(reqs []llmrequest.Request, d float64, seed uint64) []llmrequest.Request {
	r := rand.New(rand.NewPCG(seed, 1))
	type arrival struct {
		at float64
		q  llmrequest.Request
	}
	as := make([]arrival, len(reqs))
	for i := range reqs {
		as[i] = arrival{float64(int64(reqs[i].End)-simEpoch.UnixNano())/sec + d*r.Float64(), reqs[i]}
	}
	slices.SortFunc(as, func(a, b arrival) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	out := make([]llmrequest.Request, len(as))
	for i := range as {
		out[i] = as[i].q
	}
	return out
}

func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	for _, name := range []string{"default", "chunked", "v1"} {
		m := modelOf(name)
		reqs := m.spans(m.run(2, chat, 5, 400, 1e9), 2, 0, 0)
		want, inOrder := run(Config{MaxNumSeqs: 128}, reqs)
		require.Greater(t, len(want), 35)
		longest := inOrder.Stats().Late // took longer than the grace, whatever the order
		assert.LessOrEqual(t, longest, int64(2))
		for seed := range uint64(5) {
			got, tl := run(Config{MaxNumSeqs: 128}, shuffled(reqs, 9.9, seed))
			require.Equal(t, want, got, "seed %d", seed)
			assert.Equal(t, longest, tl.Stats().Late)
		}
	}
}

func TestReplayGivesTheWindowsOfTheLiveDay(t *testing.T) {
	m := modelOf("default")
	busy := m.spans(m.run(2, chat, 4, 300, 1e9), 2, 5, 0)
	// Then silence for 10 minutes, a little work, silence beyond the idle timeout, work.
	reqs := append(busy, m.spans(m.run(3, chat, 1, 60, 1e9), 3, 5, 900)...)
	reqs = append(reqs, m.spans(m.run(4, chat, 2, 200, 1e9), 4, 5, 4000)...)

	replay := New(Config{})
	for i := range reqs {
		replay.Add(&reqs[i])
	}
	end := simEpoch.Add(4400 * time.Second)
	finish := func(tl *Timeline, from time.Time) {
		for now := from; now.Before(from.Add(1300 * time.Second)); now = now.Add(time.Second) {
			tl.Advance(now)
		}
	}
	finish(replay, end.Add(7*time.Hour)) // the clock of the wall does not matter
	want := replay.Windows()
	checkWindows(t, want, 10*time.Second)

	live := New(Config{})
	i := 0
	var got []Window
	for now := simEpoch; now.Before(end); now = now.Add(time.Second) {
		for i < len(reqs) && reqs[i].End.AsTime().Add(5*time.Second).Before(now) {
			live.Add(&reqs[i])
			i++
		}
		live.Advance(now)
		got = append(got, live.Windows()...)
	}
	require.Equal(t, len(reqs), i)
	finish(live, end)
	got = append(got, live.Windows()...)
	require.Equal(t, want, got)
	// From the first end to the idle timeout, twice.
	assert.Greater(t, len(want), 100)
	assert.Less(t, want[len(want)-1].Start, end.Add(16*time.Minute))
}

func TestSilentEngineIsIdleThenGone(t *testing.T) {
	tl := New(Config{IdleTimeout: 5 * time.Minute})
	reqs := []llmrequest.Request{plain(0, 0, 5, 50), plain(3, 0, 5, 50)}
	for i := range reqs {
		tl.Add(&reqs[i])
	}
	now := simEpoch.Add(9 * time.Second)
	var ws []Window
	for range 1800 {
		tl.Advance(now)
		ws = append(ws, tl.Windows()...)
		now = now.Add(time.Second)
	}
	checkWindows(t, ws, 10*time.Second)
	require.InDelta(t, 31, len(ws), 1)
	for _, w := range ws[1:] {
		assert.Zero(t, w.Value(RunningMean))
		assert.Equal(t, 10*time.Second, w.States[StateIdle])
	}
	// It comes back.
	back := plain(now.Sub(simEpoch).Seconds()-6, 0, 5, 50)
	require.Equal(t, Accepted, tl.Add(&back))
	for range 200 {
		tl.Advance(now)
		now = now.Add(time.Second)
	}
	again := tl.Windows()
	require.NotEmpty(t, again)
	assert.Positive(t, again[0].Value(RunningMean))
	assert.True(t, again[0].Start.After(ws[len(ws)-1].End))
}

func TestOutlierDoesNotMoveTime(t *testing.T) {
	m := modelOf("default")
	reqs := m.spans(m.run(2, chat, 4, 600, 1e9), 2, 0, 0)
	want, _ := run(Config{}, reqs)
	tl := New(Config{})
	for i := range reqs {
		if i == 100 || i == 500 {
			for _, years := range []int{1, 40} {
				bad := plain(float64(years)*365*24*3600, 0, 3, 9)
				assert.Equal(t, Quarantined, tl.Add(&bad))
			}
			old := plain(-9e6, 0, 3, 9)
			assert.Equal(t, Quarantined, tl.Add(&old))
		}
		assert.Equal(t, Accepted, tl.Add(&reqs[i]))
	}
	tl.Flush(true)
	assert.Equal(t, want, tl.Windows())
	assert.EqualValues(t, 6, tl.Stats().Outliers)
}

// What is ahead of the wall clock has to be confirmed by more than a few.
func TestTimesBeyondTheWallClock(t *testing.T) {
	m := modelOf("default")
	reqs := m.spans(m.run(2, chat, 4, 600, 1e9), 2, 0, 0)
	want, _ := run(Config{}, reqs)
	tl := New(Config{})
	ahead := func() {
		wrong := plain(400*24*3600, 0, 3, 9)
		assert.Equal(t, Quarantined, tl.Add(&wrong))
	}
	for i := range reqs {
		if i%100 == 0 {
			tl.Advance(time.Unix(0, int64(reqs[i].End)))
		}
		if i == 500 {
			for range confirmBack - 1 {
				ahead()
			}
		}
		assert.Equal(t, Accepted, tl.Add(&reqs[i]))
	}
	tl.Flush(true)
	assert.Equal(t, want, tl.Windows())
	assert.EqualValues(t, confirmBack-1, tl.Stats().Outliers)

	require.Less(t, tl.watermark, simEpoch.Add(24*time.Hour).UnixNano())
	for range confirmBack {
		ahead()
	}
	assert.Greater(t, tl.watermark, simEpoch.Add(399*24*time.Hour).UnixNano(), "its clock is ahead")
}

func TestJumpIsFollowed(t *testing.T) {
	for _, jump := range []float64{10 * 24 * 3600, -10 * 24 * 3600} {
		m := modelOf("default")
		tl := New(Config{})
		first := m.spans(m.run(2, chat, 4, 300, 1e9), 2, 0, 0)
		then := m.spans(m.run(3, chat, 4, 300, 1e9), 3, 0, jump)
		for i := range first {
			tl.Add(&first[i])
		}
		tl.Windows()
		for i := range then {
			tl.Add(&then[i])
		}
		tl.Flush(true)
		ws := tl.Windows()
		require.NotEmpty(t, ws)
		n := 0
		for _, w := range ws {
			if math.Abs(w.Start.Sub(simEpoch).Seconds()-jump) < 400 {
				n++
			}
		}
		assert.Greater(t, n, 25, "jump %v", jump)
		assert.Less(t, len(ws), 200, "no window for every moment between")
	}
}

func TestLateRequestsAreCounted(t *testing.T) {
	tl := New(Config{Grace: 20 * time.Second})
	for i := range 200 {
		r := plain(float64(i), 0, 2, 20)
		require.Equal(t, Accepted, tl.Add(&r))
	}
	closed := len(tl.Windows())
	require.Greater(t, closed, 10)
	late := plain(20, 0, 2, 20)
	assert.Equal(t, Late, tl.Add(&late))
	for i := range 60 {
		r := plain(200+float64(i), 0, 2, 20)
		tl.Add(&r)
	}
	var n int64
	for _, w := range tl.Windows() {
		n += w.Late
	}
	assert.EqualValues(t, 1, n)
	assert.EqualValues(t, 1, tl.Stats().Late)
}

func TestBounds(t *testing.T) {
	tl := New(Config{MaxRequests: 500, MaxWindows: 20})
	for i := range 20000 {
		r := plain(float64(i)/50, 0, 4, 20)
		tl.Add(&r)
		require.LessOrEqual(t, tl.Retained(), 500)
	}
	tl.Flush(true)
	ws := tl.Windows()
	assert.LessOrEqual(t, len(ws), 20)
	checkWindows(t, ws, 10*time.Second)
	mid := ws[10]
	assert.True(t, mid.Flags.Has(Thinned))
	assert.InEpsilon(t, 200, mid.Value(RunningMean), 0.15, "thinned requests count for those let go")
	assert.False(t, mid.Has(DeviceUtilization))
	assert.Positive(t, tl.Stats().Thinned)
	assert.Positive(t, tl.Stats().DroppedWindows)
}

// TestAbsurdInput feeds what no engine reports: nothing may panic, and what must hold does.
func TestAbsurdInput(t *testing.T) {
	values := []float64{0, -1, 1e-9, 0.5, 30, 1e5, 1e300, -1e300, math.NaN(), math.Inf(1), math.Inf(-1)}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 5))
		tl := New(Config{Window: time.Second << (seed % 5), MaxNumSeqs: int(seed % 3 * 8), MaxRequests: 300, MaxWindows: 100})
		now := simEpoch
		var ws []Window
		for range 3000 {
			q := plain(r.Float64()*600, r.Float64(), r.ExpFloat64()*10, r.IntN(500))
			if r.IntN(3) == 0 {
				q.Set(llmrequest.Field(r.IntN(int(llmrequest.NumFields))), values[r.IntN(len(values))])
			}
			for f := range llmrequest.NumFields {
				if r.IntN(12) == 0 {
					q.Set(f, q.Value(llmrequest.E2E)*r.Float64())
				}
				if r.IntN(12) == 0 {
					q.Unset(f)
				}
			}
			switch r.IntN(200) {
			case 0:
				q.Start = 0
			case 1:
				q.Start = math.MaxUint64
			case 2:
				q.Start = math.MaxInt64 - 5
			case 3:
				q.End = 1
			case 4:
				q.Start += pcommon.Timestamp(r.Int64N(1e18))
			case 5:
				q.Start -= pcommon.Timestamp(r.Int64N(1e18))
			}
			tl.Add(&q)
			if r.IntN(50) == 0 {
				now = now.Add(time.Duration(r.Int64N(int64(5 * time.Minute))))
				if r.IntN(20) == 0 {
					now = now.Add(-time.Hour)
				}
				tl.Advance(now)
			}
			if r.IntN(30) == 0 {
				ws = append(ws, tl.Windows()...)
			}
		}
		tl.Flush(seed%2 == 0)
		ws = append(ws, tl.Windows()...)
		if tl.Stats().Restarts == 0 {
			checkWindows(t, ws, time.Second<<(seed%5))
		}
		assert.LessOrEqual(t, tl.Retained(), 300+confirmBack)
	}
}

// One request with a wrong time, minutes ahead, closes no window and blinds nothing.
func TestOneTimeAheadIsSetAside(t *testing.T) {
	m := modelOf("default")
	reqs := m.spans(m.run(2, chat, 5, 400, 1e9), 2, 0, 0)
	want, _ := run(Config{}, reqs)
	wrong := reqs[len(reqs)/2]
	wrong.Start += pcommon.Timestamp(5 * time.Minute)
	wrong.End += pcommon.Timestamp(5 * time.Minute)
	mixed := slices.Insert(slices.Clone(reqs), len(reqs)/2, wrong)
	got, tl := run(Config{}, mixed)
	assert.EqualValues(t, 1, tl.Stats().Outliers)
	require.Equal(t, want, got)
}

// TestClockThatJumps: an engine's clock that goes back and forth by up to an hour breaks none of what holds of windows.
func TestClockThatJumps(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		tl := New(Config{MaxRequests: 1000})
		at, gap, scale := 0.0, math.Pow(10, -2*r.Float64()), 30*r.Float64()
		var ws []Window
		for range 2000 {
			at += gap * r.ExpFloat64()
			if r.IntN(200) == 0 {
				at += 60 * r.NormFloat64()
			}
			e2e := scale * (0.2 + r.ExpFloat64())
			queue := 0.3 * e2e * r.Float64()
			q := plain(at, queue, e2e-queue, 50)
			tl.Add(&q)
			ws = append(ws, tl.Windows()...)
		}
		tl.Flush(false)
		ws = append(ws, tl.Windows()...)
		if tl.Stats().Restarts == 0 {
			checkWindows(t, ws, 10*time.Second)
		}
	}
}
