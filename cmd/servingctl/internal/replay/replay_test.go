// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	recordedV0 = "../../../../testdata/spans/vllm_v0_detailed.debug.log"
	recordedV1 = "../../../../testdata/spans/vllm_v1_concurrency8.otlp.json"
)

// peer is a real OTLP receiver that keeps what it gets.
type peer struct {
	grpc, http string

	mu       sync.Mutex
	payloads []ptrace.Traces
	header   []string
	answer   func(n int) error // to the n-th request, from 1
	requests int
}

func (p *peer) consume(ctx context.Context, td ptrace.Traces) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.header = append(p.header, client.FromContext(ctx).Metadata.Get("x-token")...)
	if p.answer != nil {
		if err := p.answer(p.requests); err != nil {
			return err
		}
	}
	kept := ptrace.NewTraces()
	td.CopyTo(kept)
	p.payloads = append(p.payloads, kept)
	return nil
}

func (p *peer) spans() []ptrace.Span {
	p.mu.Lock()
	defer p.mu.Unlock()
	var spans []ptrace.Span
	for _, td := range p.payloads {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					spans = append(spans, span)
				}
			}
		}
	}
	return spans
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{grpc: freePort(t), http: freePort(t)}
	f := otlpreceiver.NewFactory()
	cfg := f.CreateDefaultConfig().(*otlpreceiver.Config)
	g := cfg.Protocols.GRPC.GetOrInsertDefault()
	g.NetAddr.Endpoint, g.IncludeMetadata = p.grpc, true
	h := cfg.Protocols.HTTP.GetOrInsertDefault()
	h.ServerConfig.NetAddr.Endpoint, h.ServerConfig.IncludeMetadata = p.http, true
	next, err := consumer.NewTraces(p.consume)
	require.NoError(t, err)
	r, err := f.CreateTraces(t.Context(), receivertest.NewNopSettings(f.Type()), cfg, next)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return p
}

func (p *peer) target(protocol string) Target {
	t := Target{Protocol: protocol, Endpoint: p.grpc, Timeout: 10 * time.Second, RetryTime: 10 * time.Second, UserAgentVersion: "test"}
	if protocol == "http" {
		t.Endpoint = p.http
	}
	return t
}

func dial(t *testing.T, target Target, warn func(string)) *Exporter {
	t.Helper()
	if warn == nil {
		warn = func(message string) { t.Log(message) }
	}
	e, err := target.Dial(t.Context(), warn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// fakeClock is always there when it is waited for.
type fakeClock struct {
	now   time.Time
	waits []time.Time
	slow  time.Duration // what every look at the clock takes
}

func (c *fakeClock) Now() time.Time {
	c.now = c.now.Add(c.slow)
	return c.now
}

func (c *fakeClock) Wait(ctx context.Context, t time.Time) error {
	c.waits = append(c.waits, t)
	if t.After(c.now) {
		c.now = t
	}
	return ctx.Err()
}

// recorder is a Sender that keeps what it is given, and the time.
type recorder struct {
	clock  *fakeClock
	sent   []ptrace.Traces
	at     []time.Time
	answer func(n int) (int, error)
}

func (r *recorder) Send(_ context.Context, td ptrace.Traces) (int, error) {
	r.sent = append(r.sent, td)
	r.at = append(r.at, r.clock.now)
	if r.answer != nil {
		return r.answer(len(r.sent))
	}
	return 0, nil
}

func (r *recorder) spans() []ptrace.Span { return (&peer{payloads: r.sent}).spans() }

var (
	begin    = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	recorded = pcommon.NewTimestampFromTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
)

// one is a span of trace n that starts and ends at seconds after recorded.
func one(n byte, from, to float64) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.tracing")
	span := ss.Spans().AppendEmpty()
	span.SetTraceID(pcommon.TraceID{15: n})
	span.SetSpanID(pcommon.SpanID{7: n})
	span.SetName(fmt.Sprint("request ", n))
	span.SetStartTimestamp(recorded + pcommon.Timestamp(from*1e9))
	span.SetEndTimestamp(recorded + pcommon.Timestamp(to*1e9))
	span.Attributes().PutDouble("gen_ai.latency.e2e", to-from)
	return td
}

func write(t *testing.T, payloads ...ptrace.Traces) string {
	t.Helper()
	var b strings.Builder
	for _, td := range payloads {
		doc, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		require.NoError(t, err)
		b.Write(doc)
		b.WriteByte('\n')
	}
	path := filepath.Join(t.TempDir(), "recording.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

func load(t *testing.T, files ...string) *Recording {
	t.Helper()
	r, err := Load(t.Context(), files, nil)
	require.NoError(t, err)
	return r
}

func names(spans []ptrace.Span) []string {
	var out []string
	for _, s := range spans {
		out = append(out, s.Name())
	}
	return out
}

func TestLoad(t *testing.T) {
	r := load(t, recordedV1)
	assert.Equal(t, 1, r.Files)
	assert.Equal(t, 1, r.Payloads)
	assert.Equal(t, 16, r.Spans)
	assert.Equal(t, 12, r.Requests)
	assert.NoError(t, r.Check(Options{Speed: 1}))

	f, err := os.Open(recordedV0)
	require.NoError(t, err)
	defer f.Close()
	r, err = Load(t.Context(), []string{recordedV1, "-"}, f)
	require.NoError(t, err)
	assert.Equal(t, 2, r.Files)
	assert.Equal(t, 17, r.Spans)
	assert.Equal(t, 13, r.Requests)
	// 2024 and 2026: waiting that long helps nobody.
	require.ErrorContains(t, r.Check(Options{Speed: 1}), "standard input) to 2026-")
	require.Error(t, r.Check(Options{Now: true}))
	assert.NoError(t, r.Check(Options{}))
}

func TestLoadErrors(t *testing.T) {
	_, err := Load(t.Context(), []string{"absent"}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	metrics := filepath.Join(t.TempDir(), "metrics.json")
	require.NoError(t, os.WriteFile(metrics, []byte(`{"resourceMetrics":[]}`), 0o600))
	_, err = Load(t.Context(), []string{recordedV0, metrics}, nil)
	require.ErrorContains(t, err, "metrics.json: no spans in it (OTLP JSON)")
	_, err = Load(t.Context(), []string{"-"}, strings.NewReader("{\"resourceSpans\":[]}\n{"))
	require.ErrorContains(t, err, "standard input:2: ")
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err = Load(stopped, []string{recordedV0}, nil)
	require.EqualError(t, err, "enough")
}

func TestSkippedIsCounted(t *testing.T) {
	path := write(t, one(1, 0, 1))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"resourceLogs":[]}`)
	require.NoError(t, errors.Join(err, f.Close()))
	assert.Equal(t, 1, load(t, path).Skipped)
}

// Spans leave in the order they ended, at the time the last of their batch did.
func TestOrderAndPacing(t *testing.T) {
	for speed, scale := range map[float64]float64{1: 1, 2: 0.5, 0.1: 10} {
		t.Run(fmt.Sprint(speed), func(t *testing.T) {
			// Batches by the half second since the first start: {2, 3}, {1}, {4}.
			r := load(t, write(t, one(1, 1, 1.75), one(2, 1, 1.2), one(4, 5, 60)), write(t, one(3, 1.1, 1.3)))
			clock := &fakeClock{now: begin}
			out := &recorder{clock: clock}
			progress := 0
			sum := Run(t.Context(), r, out, Options{Speed: speed, Batch: 500 * time.Millisecond, Clock: clock, Progress: func(n int) { progress += n }})
			assert.Equal(t, []string{"request 2", "request 3", "request 1", "request 4"}, names(out.spans()))
			require.Len(t, out.sent, 3)
			// Equal resources of different payloads are one resource again.
			assert.Equal(t, 1, out.sent[0].ResourceSpans().Len())
			assert.Equal(t, 1, out.sent[0].ResourceSpans().At(0).ScopeSpans().Len())
			assert.Equal(t, "vllm.tracing", out.sent[0].ResourceSpans().At(0).ScopeSpans().At(0).Scope().Name())
			for i, seconds := range []float64{0.3, 0.75, 59} {
				assert.WithinDuration(t, begin.Add(time.Duration(seconds*scale*1e9)), out.at[i], time.Microsecond)
			}
			// Without --now the spans are as recorded.
			first := out.spans()[0]
			assert.Equal(t, recorded+1e9, first.StartTimestamp())
			assert.Equal(t, recorded+1.2e9, first.EndTimestamp())
			assert.Equal(t, pcommon.TraceID{15: 2}, first.TraceID())
			assert.Equal(t, 4, progress)
			assert.Equal(t, Summary{Passes: 1, Sent: 4, SentRequests: 4, Duration: time.Duration(59 * scale * 1e9)}, sum)
		})
	}
}

func TestAsFastAsPossible(t *testing.T) {
	r := load(t, write(t, one(1, 0, 10), one(2, 0, 1000)))
	clock := &fakeClock{now: begin}
	out := &recorder{clock: clock}
	sum := Run(t.Context(), r, out, Options{Batch: time.Second, Clock: clock})
	assert.Empty(t, clock.waits)
	require.Len(t, out.sent, 1)
	assert.Equal(t, 2, sum.Sent)
}

func TestLagIsReported(t *testing.T) {
	r := load(t, write(t, one(1, 0, 1), one(2, 0, 2)))
	clock := &fakeClock{now: begin, slow: 3 * time.Second}
	sum := Run(t.Context(), r, &recorder{clock: clock}, Options{Speed: 1, Batch: time.Second, Clock: clock})
	assert.Equal(t, 5*time.Second, sum.MaxLag)
}

// No span is ever stamped later than the time it is sent at.
func TestNow(t *testing.T) {
	for speed, ends := range map[float64]float64{1: 60, 0.5: 60, 4: 15, 0: 0} {
		t.Run(fmt.Sprint(speed), func(t *testing.T) {
			td := one(1, 0, 60)
			span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
			span.Events().AppendEmpty().SetTimestamp(recorded + 30e9)
			span.Events().AppendEmpty()
			r := load(t, write(t, td, one(2, 2, 3)))
			clock := &fakeClock{now: begin}
			out := &recorder{clock: clock}
			Run(t.Context(), r, out, Options{Speed: speed, Now: true, Batch: time.Second, Clock: clock})
			spans := out.spans()
			require.Len(t, spans, 2)
			last := spans[1]
			assert.WithinDuration(t, begin.Add(time.Duration(ends*1e9)), last.EndTimestamp().AsTime(), 0)
			assert.Equal(t, 60*time.Second, last.EndTimestamp().AsTime().Sub(last.StartTimestamp().AsTime()), "durations are not scaled")
			assert.Equal(t, last.StartTimestamp()+30e9, last.Events().At(0).Timestamp())
			assert.Zero(t, last.Events().At(1).Timestamp())
			assert.Equal(t, last.StartTimestamp()+2e9, spans[0].StartTimestamp(), "one offset for all")
			for i, td := range out.sent {
				for _, s := range (&peer{payloads: []ptrace.Traces{td}}).spans() {
					assert.False(t, s.EndTimestamp().AsTime().After(out.at[i]))
				}
			}
		})
	}
}

// Each pass has IDs of its own that hold together like the recorded ones.
func TestLoop(t *testing.T) {
	parent, child := one(1, 0, 2), one(1, 1, 1.5)
	c := child.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	c.SetSpanID(pcommon.SpanID{7: 9})
	c.SetParentSpanID(pcommon.SpanID{7: 1})
	link := c.Links().AppendEmpty()
	link.SetTraceID(pcommon.TraceID{15: 2})
	link.SetSpanID(pcommon.SpanID{7: 2})
	r := load(t, write(t, parent, child, one(2, 0, 1)))

	ctx, cancel := context.WithCancel(t.Context())
	clock := &fakeClock{now: begin}
	out := &recorder{clock: clock}
	out.answer = func(n int) (int, error) {
		if n == 9 {
			cancel()
		}
		return 0, nil
	}
	sum := Run(ctx, r, out, Options{Speed: 1, Loop: true, Batch: 100 * time.Millisecond, Clock: clock})
	assert.Equal(t, 3, sum.Passes)
	assert.Equal(t, 9, sum.Sent)
	assert.Zero(t, sum.Unsent)

	spans := out.spans()
	require.Len(t, spans, 9)
	ids := map[pcommon.SpanID]bool{}
	traces := map[pcommon.TraceID]bool{}
	for pass := range 3 {
		other, kid, root := spans[3*pass], spans[3*pass+1], spans[3*pass+2]
		assert.Equal(t, root.TraceID(), kid.TraceID())
		assert.Equal(t, root.SpanID(), kid.ParentSpanID())
		assert.True(t, root.ParentSpanID().IsEmpty())
		assert.Equal(t, other.TraceID(), kid.Links().At(0).TraceID())
		assert.Equal(t, other.SpanID(), kid.Links().At(0).SpanID())
		assert.Equal(t, begin.Add(time.Duration(pass)*2*time.Second), root.StartTimestamp().AsTime())
		for _, s := range []ptrace.Span{other, kid, root} {
			ids[s.SpanID()] = true
		}
		traces[root.TraceID()], traces[other.TraceID()] = true, true
	}
	assert.Len(t, ids, 9)
	assert.Len(t, traces, 6)

	// The same shift gives the same IDs.
	again := &recorder{clock: &fakeClock{now: begin}}
	Run(t.Context(), r, again, Options{Speed: 1, Now: true, Batch: 100 * time.Millisecond, Clock: again.clock})
	assert.Equal(t, spans[0].TraceID(), again.spans()[0].TraceID())
}

func TestAbsentTimes(t *testing.T) {
	noEnd, none, backwards := one(1, 1, 1), one(2, 0, 0), one(3, 5, 4)
	first := func(td ptrace.Traces) ptrace.Span { return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0) }
	first(noEnd).SetEndTimestamp(0)
	first(none).SetStartTimestamp(0)
	first(none).SetEndTimestamp(0)
	r := load(t, write(t, backwards, noEnd, none, one(4, 1, 2)))
	require.NoError(t, r.Check(Options{Speed: 1, Now: true}))
	clock := &fakeClock{now: begin}
	out := &recorder{clock: clock}
	Run(t.Context(), r, out, Options{Speed: 1, Now: true, Batch: time.Second, Clock: clock})
	spans := out.spans()
	assert.Equal(t, []string{"request 2", "request 1", "request 4", "request 3"}, names(spans))
	assert.Zero(t, spans[0].StartTimestamp())
	assert.Zero(t, spans[0].EndTimestamp())
	assert.Zero(t, spans[1].EndTimestamp())
	assert.Equal(t, begin, spans[1].StartTimestamp().AsTime())
	assert.Equal(t, spans[3].EndTimestamp()+1e9, spans[3].StartTimestamp(), "what was wrong stays wrong by as much")

	onlyNone := load(t, write(t, none))
	assert.Zero(t, onlyNone.Duration())
	sum := Run(t.Context(), onlyNone, out, Options{Speed: 1, Now: true, Batch: time.Second, Clock: clock})
	assert.Equal(t, 1, sum.Sent)
}

// A recording with a broken clock is refused rather than waited for, and does no harm where times do not matter.
func TestBrokenClock(t *testing.T) {
	td := one(1, 0, 1)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetEndTimestamp(math.MaxUint64)
	r := load(t, write(t, td, one(2, 0, 1)))
	require.ErrorContains(t, r.Check(Options{Speed: 1}), "more than a year")
	sum := Run(t.Context(), r, &recorder{clock: &fakeClock{now: begin}}, Options{Batch: time.Second, Clock: &fakeClock{now: begin}})
	assert.Equal(t, 2, sum.Sent)
	p := &player{opts: Options{Speed: 1e-30}}
	assert.Positive(t, p.scaled(time.Hour))
}

func TestBatchLimits(t *testing.T) {
	var payloads []ptrace.Traces
	for i := range maxBatchSpans + 1 {
		payloads = append(payloads, one(byte(i), 0, 1))
	}
	r := load(t, write(t, payloads...))
	out := &recorder{clock: &fakeClock{now: begin}}
	Run(t.Context(), r, out, Options{Batch: time.Second, Clock: out.clock})
	require.Len(t, out.sent, 2)
	assert.Equal(t, maxBatchSpans, out.sent[0].SpanCount())

	large := func(n byte) ptrace.Traces {
		td := one(n, 0, 1)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().PutStr("prompt", strings.Repeat("x", maxBatchBytes*2/3))
		return td
	}
	r = load(t, write(t, large(1), large(2), one(3, 0, 1)))
	out = &recorder{clock: &fakeClock{now: begin}}
	Run(t.Context(), r, out, Options{Batch: time.Second, Clock: out.clock})
	require.Len(t, out.sent, 2)
	assert.Equal(t, 1, out.sent[0].SpanCount())
}

func TestFailures(t *testing.T) {
	files := write(t, one(1, 0, 1), one(2, 0, 2), one(3, 0, 3))
	run := func(answer func(int) (int, error)) (Summary, []string) {
		out := &recorder{clock: &fakeClock{now: begin}, answer: answer}
		var warnings []string
		sum := Run(t.Context(), load(t, files), out, Options{Speed: 1, Batch: time.Second, Clock: out.clock, Warn: func(m string) { warnings = append(warnings, m) }})
		return sum, warnings
	}
	sum, warnings := run(func(n int) (int, error) {
		if n == 2 {
			return 0, consumererror.NewPermanent(errors.New("too odd"))
		}
		return 0, nil
	})
	assert.Equal(t, 2, sum.Sent)
	assert.Equal(t, 1, sum.Failed)
	require.NoError(t, sum.Err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "1 spans that ended at 2026-01-01 00:00:02 +0000 UTC: Permanent error: too odd")

	sum, _ = run(func(n int) (int, error) { return 0, errors.New("gone") })
	assert.Zero(t, sum.Sent)
	assert.Equal(t, 1, sum.Failed)
	assert.Equal(t, 2, sum.Unsent)
	require.ErrorContains(t, sum.Err, "gone")

	sum, warnings = run(func(n int) (int, error) { return n - 1, nil })
	assert.Equal(t, 1, sum.Sent)
	assert.Equal(t, 1, sum.SentRequests)
	assert.Equal(t, 2, sum.Failed, "never more than were sent")
	assert.Contains(t, warnings[0], "rejected 1 of 1 spans")
}

func TestStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &recorder{clock: &fakeClock{now: begin}}
	out.answer = func(int) (int, error) { cancel(); return 0, nil }
	sum := Run(ctx, load(t, write(t, one(1, 0, 1), one(2, 0, 2))), out, Options{Speed: 1, Batch: time.Second, Clock: out.clock})
	assert.Equal(t, 1, sum.Sent, "the request in flight counts")
	assert.Equal(t, 1, sum.Unsent)
	require.NoError(t, sum.Err)
}

func TestRealClock(t *testing.T) {
	c := RealClock{}
	require.NoError(t, c.Wait(t.Context(), c.Now().Add(time.Millisecond)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Wait(ctx, c.Now().Add(time.Hour)), context.Canceled)
}

// Everything arrives, once, over both protocols, with headers, retries included.
func TestRealReceiver(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			p := newPeer(t)
			p.answer = func(n int) error {
				if n == 1 {
					return errors.New("not ready yet") // Unavailable: to be tried again
				}
				return nil
			}
			target := p.target(protocol)
			target.Headers = []string{"x-token=a=b"}
			var warnings []string
			e := dial(t, target, func(m string) { warnings = append(warnings, m) })
			clock := &fakeClock{now: begin}
			sum := Run(t.Context(), load(t, recordedV1), e, Options{Speed: 1, Batch: 500 * time.Millisecond, Clock: clock})
			require.NoError(t, sum.Err)
			assert.Equal(t, 16, sum.Sent)
			assert.Equal(t, 12, sum.SentRequests)
			assert.Len(t, p.spans(), 16)
			assert.Greater(t, len(p.payloads), 1)
			assert.Contains(t, p.header, "a=b")
			require.NotEmpty(t, warnings)
			assert.Contains(t, warnings[0], "not ready yet")

			// What arrives is what was recorded.
			r := load(t, recordedV1)
			want := map[pcommon.SpanID]map[string]any{}
			for _, it := range r.items {
				want[it.span.SpanID()] = it.span.Attributes().AsRaw()
			}
			got := map[pcommon.SpanID]map[string]any{}
			for _, s := range p.spans() {
				got[s.SpanID()] = s.Attributes().AsRaw()
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestPermanentRefusal(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			p := newPeer(t)
			p.answer = func(int) error { return status.Error(codes.InvalidArgument, "no such tenant") }
			sum := Run(t.Context(), load(t, recordedV0), dial(t, p.target(protocol), nil), Options{Batch: time.Second})
			assert.Equal(t, 1, sum.Failed)
			require.NoError(t, sum.Err)
			assert.Equal(t, 1, p.requests)
		})
	}
}

func TestNobodyThere(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		for _, retry := range []time.Duration{0, 100 * time.Millisecond} {
			target := Target{Protocol: protocol, Endpoint: freePort(t), Timeout: time.Second, RetryTime: retry}
			sum := Run(t.Context(), load(t, recordedV0), dial(t, target, nil), Options{Batch: time.Second})
			assert.Equal(t, 1, sum.Failed)
			require.ErrorContains(t, sum.Err, "refused")
		}
	}
}

type partial struct {
	ptraceotlp.UnimplementedGRPCServer
}

func (*partial) Export(context.Context, ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	resp := ptraceotlp.NewExportResponse()
	resp.PartialSuccess().SetRejectedSpans(3)
	return resp, nil
}

// A partial success is no error to the exporter; the spans are lost all the same.
func TestPartialSuccess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, &partial{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Stop(); require.NoError(t, <-done) }()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/custom/v1/traces", r.URL.Path)
		assert.Contains(t, r.UserAgent(), "servingctl/test")
		_, _ = io.Copy(io.Discard, r.Body)
		resp, _ := (&partial{}).Export(r.Context(), ptraceotlp.NewExportRequest())
		body, _ := resp.MarshalProto()
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(body)
	}))
	defer web.Close()
	for protocol, endpoints := range map[string][]string{
		"grpc": {l.Addr().String()}, "http": {web.URL + "/custom", web.URL + "/custom/v1/traces"},
	} {
		for _, endpoint := range endpoints {
			e := dial(t, Target{Protocol: protocol, Endpoint: endpoint, Timeout: time.Second, UserAgentVersion: "test"}, nil)
			sum := Run(t.Context(), load(t, recordedV1), e, Options{Batch: time.Second})
			assert.Equal(t, 3, sum.Failed)
			assert.Equal(t, 13, sum.Sent)
			assert.Equal(t, 9, sum.SentRequests, "at least")
		}
	}
}

func TestResolve(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		target   Target
		address  string
		insecure bool
	}{
		{Target{Protocol: "grpc"}, "localhost:4317", true},
		{Target{Protocol: "http"}, "http://localhost:4318", true},
		{Target{Protocol: "grpc", Endpoint: "127.0.0.7:1"}, "127.0.0.7:1", true},
		{Target{Protocol: "grpc", Endpoint: "[::1]:1"}, "[::1]:1", true},
		{Target{Protocol: "grpc", Endpoint: "example.com:1"}, "example.com:1", false},
		{Target{Protocol: "grpc", Endpoint: "example.com:1", Insecure: &yes}, "example.com:1", true},
		{Target{Protocol: "grpc", Endpoint: "http://example.com:1"}, "example.com:1", true},
		{Target{Protocol: "grpc", Endpoint: "https://localhost:1/"}, "localhost:1", false},
		{Target{Protocol: "grpc", CAFile: "ca.pem"}, "localhost:4317", false},
		{Target{Protocol: "grpc", Insecure: &no}, "localhost:4317", false},
		{Target{Protocol: "http", Endpoint: "example.com:1"}, "https://example.com:1", false},
		{Target{Protocol: "http", Endpoint: "https://example.com/otlp"}, "https://example.com/otlp", false},
		{Target{Protocol: "http", Endpoint: "http://example.com"}, "http://example.com", true},
		{Target{Protocol: "http", SkipVerify: true}, "https://localhost:4318", false},
	} {
		p, err := tt.target.resolve()
		require.NoError(t, err)
		assert.Equal(t, tt.address, p.address)
		assert.Equal(t, tt.insecure, p.tls.Insecure, tt.address)
	}
	for _, tt := range []struct {
		target  Target
		message string
	}{
		{Target{Protocol: "udp"}, "--protocol must be grpc or http"},
		{Target{Protocol: "grpc", Endpoint: "unix:///a"}, "must be host:port"},
		{Target{Protocol: "grpc", Endpoint: "a b:1"}, "must be host:port"},
		{Target{Protocol: "grpc", Endpoint: ":1"}, "must be host:port"},
		{Target{Protocol: "http", Endpoint: "http://user@host:1"}, "must be host:port"},
		{Target{Protocol: "grpc", Endpoint: "example.com"}, "needs a port, such as example.com:4317"},
		{Target{Protocol: "grpc", Endpoint: "https://example.com"}, "needs a port"},
		{Target{Protocol: "http", Endpoint: "example.com"}, "needs a port, such as example.com:4318"},
		{Target{Protocol: "grpc", Endpoint: "example.com:1/v1/traces"}, "has no path"},
		{Target{Protocol: "grpc", Endpoint: "https://example.com:1", Insecure: &yes}, "--insecure contradicts"},
		{Target{Protocol: "grpc", Endpoint: "http://example.com:1", Insecure: &no}, "--insecure=false contradicts"},
		{Target{Protocol: "grpc", Insecure: &yes, CAFile: "ca.pem"}, "without TLS"},
		{Target{Protocol: "grpc", Endpoint: "http://example.com:1", ServerName: "a"}, "without TLS"},
		{Target{Protocol: "grpc", CertFile: "a"}, "go together"},
		{Target{Protocol: "grpc", Headers: []string{"secret"}}, "--header must be key=value"},
		{Target{Protocol: "grpc", Headers: []string{" =secret"}}, "--header must be key=value"},
		{Target{Protocol: "grpc", CAFile: "absent.pem"}, "absent.pem"},
		{Target{Protocol: "grpc", Timeout: -1}, "timeout"},
	} {
		_, err := tt.target.Dial(t.Context(), nil)
		require.ErrorContains(t, err, tt.message)
		assert.NotContains(t, err.Error(), "secret")
	}
}
