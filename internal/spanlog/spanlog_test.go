// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// What the tests share: payloads, and what the real exporters write of them.

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtelemetry"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	recordedV0 = "../../testdata/spans/vllm_v0_detailed.debug.log"
	recordedV1 = "../../testdata/spans/vllm_v1_concurrency8.otlp.json"
)

// readAll reads a recording to its end.
func readAll(t testing.TB, content []byte) []ptrace.Traces {
	t.Helper()
	payloads, _, err := read(content)
	require.NoError(t, err)
	return payloads
}

func read(content []byte) ([]ptrace.Traces, *Reader, error) {
	r, err := NewReader(bytes.NewReader(content), "recording")
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	var payloads []ptrace.Traces
	for {
		td, err := r.Next()
		if errors.Is(err, io.EOF) {
			return payloads, r, nil
		}
		if err != nil {
			return payloads, r, err
		}
		payloads = append(payloads, td)
	}
}

func requireFault(t testing.TB, err error) *Error {
	t.Helper()
	var fault *Error
	require.ErrorAs(t, err, &fault)
	return fault
}

// requireEqual compares what OTLP JSON says of two payloads.
func requireEqual(t testing.TB, want, got ptrace.Traces) {
	t.Helper()
	marshaler := &ptrace.JSONMarshaler{}
	w, err := marshaler.MarshalTraces(want)
	require.NoError(t, err)
	g, err := marshaler.MarshalTraces(got)
	require.NoError(t, err)
	require.Equal(t, indent(t, w), indent(t, g))
}

func indent(t testing.TB, document []byte) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, document, "", " "))
	return out.String()
}

// everything is a payload with all that the debug exporter prints.
func everything() ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.SetSchemaUrl("https://opentelemetry.io/schemas/1.38.0")
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	rs.Resource().Attributes().PutStr("odd: Key(", "Str(nested) ")
	ref := entity.ResourceEntityRefs(rs.Resource()).AppendEmpty()
	ref.SetType("service")
	ref.SetSchemaUrl("https://example.com/entities")
	ref.IdKeys().Append("service.name", "service.instance.id")
	ref.DescriptionKeys().Append("service.version")
	entity.ResourceEntityRefs(rs.Resource()).AppendEmpty().SetType("host")

	ss := rs.ScopeSpans().AppendEmpty()
	ss.SetSchemaUrl("https://opentelemetry.io/schemas/1.37.0")
	ss.Scope().SetName("vllm tracing")
	ss.Scope().SetVersion("v0.9.1")
	ss.Scope().Attributes().PutBool("scope.bool", true)
	fill(ss.Spans().AppendEmpty(), 1)
	fill(ss.Spans().AppendEmpty(), 2)
	ss2 := rs.ScopeSpans().AppendEmpty()
	ss2.Scope().SetName("nameonly")
	fill(ss2.Spans().AppendEmpty(), 3)

	rs2 := td.ResourceSpans().AppendEmpty() // no attributes, no scope name
	bare := rs2.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	bare.SetName("bare")
	return td
}

func fill(span ptrace.Span, n byte) {
	span.SetTraceID(pcommon.TraceID{1, 2, 3, 15: n})
	span.SetSpanID(pcommon.SpanID{4, 5, 7: n})
	if n > 1 {
		span.SetParentSpanID(pcommon.SpanID{4, 5, 7: n - 1})
	}
	span.SetName("llm_request: one\nof two lines")
	span.SetKind(ptrace.SpanKind(n))
	span.TraceState().FromRaw("ot=th:8")
	span.SetStartTimestamp(1722622719590171648)
	span.SetEndTimestamp(1722622723366565895)
	span.Status().SetCode(ptrace.StatusCodeError)
	span.Status().SetMessage("out of memory\n\nat step 3: Name : x\n  and on")
	span.SetDroppedAttributesCount(1)
	span.SetDroppedEventsCount(2)
	span.SetDroppedLinksCount(3)

	a := span.Attributes()
	a.PutStr("plain", "text")
	a.PutStr("empty string", "")
	a.PutStr("parentheses", "f(x)\n)\n\n(again)\n")
	a.PutStr("prompt", "first line\n{\"json\": 1}\n\n  -> indented: yes\nEvents\n")
	a.PutInt("max", math.MaxInt64)
	a.PutInt("min", math.MinInt64)
	a.PutDouble("third", 1.0/3)
	a.PutDouble("tiny", 3.4356489777565e-05)
	a.PutDouble("smallest", math.SmallestNonzeroFloat64)
	a.PutDouble("largest", -math.MaxFloat64)
	a.PutDouble("nan", math.NaN())
	a.PutDouble("inf", math.Inf(1))
	a.PutDouble("-inf", math.Inf(-1))
	a.PutBool("yes", true)
	a.PutBool("no", false)
	a.PutEmptyBytes("bytes").FromRaw([]byte{0, 1, 0xff, '\n'})
	a.PutEmptyBytes("no bytes")
	a.PutEmpty("nothing")
	m := a.PutEmptyMap("map")
	m.PutStr("a", "<b>\n)\"")
	m.PutDouble("double", 0.25)
	m.PutInt("int", math.MaxInt64)
	m.PutEmpty("null")
	inner := m.PutEmptySlice("slice")
	inner.AppendEmpty().SetBool(true)
	inner.AppendEmpty().SetEmptyMap().PutStr("deep", "er")
	a.PutEmptyMap("empty map")
	s := a.PutEmptySlice("slice")
	s.AppendEmpty().SetStr("x, y")
	s.AppendEmpty().SetInt(-1)
	a.PutEmptySlice("empty slice")

	e := span.Events().AppendEmpty()
	e.SetName("exception: two\nlines")
	e.SetTimestamp(1722622720000000001)
	e.SetDroppedAttributesCount(4)
	e.Attributes().PutStr("Name", "not the event's name")
	e.Attributes().PutStr("exception.stacktrace", "Traceback:\n  File \"a.py\", line 1\n    f()\n")
	span.Events().AppendEmpty().SetName("first token")

	l := span.Links().AppendEmpty()
	l.SetTraceID(pcommon.TraceID{9, 15: n})
	l.SetSpanID(pcommon.SpanID{9, 7: n})
	l.TraceState().FromRaw("a=b")
	l.SetDroppedAttributesCount(5)
	l.Attributes().PutStr("link", "one")
	span.Links().AppendEmpty()
}

// small is a payload of n request spans.
func small(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	ss := rs.ScopeSpans().AppendEmpty()
	for i := range n {
		span := ss.Spans().AppendEmpty()
		span.SetTraceID(pcommon.TraceID{1, 15: byte(i + 1)})
		span.SetSpanID(pcommon.SpanID{1, 7: byte(i + 1)})
		span.SetName("llm_request")
		span.SetStartTimestamp(1722622719590171648)
		span.SetEndTimestamp(1722622723366565895)
		span.Attributes().PutDouble("gen_ai.latency.e2e", 3.775825023651123)
	}
	return td
}

// debugText is what the real debug exporter makes of payloads, through the encoder of the Collector's
// own logger: "console" or "json".
func debugText(t testing.TB, encoding string, verbosity configtelemetry.Level, payloads ...any) []byte {
	t.Helper()
	var out bytes.Buffer
	conf := zap.NewProductionEncoderConfig()
	var encoder zapcore.Encoder
	if encoding == "console" {
		conf.EncodeTime = zapcore.ISO8601TimeEncoder
		encoder = zapcore.NewConsoleEncoder(conf)
	} else {
		encoder = zapcore.NewJSONEncoder(conf)
	}
	logger := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.InfoLevel)).
		With(zap.String("otelcol.component.id", "debug"), zap.String("otelcol.signal", "traces"))
	logger.Info("Everything is ready. Begin running and processing data.")
	export(t, logger, &debugexporter.Config{Verbosity: verbosity, SamplingInitial: 2, SamplingThereafter: 1, UseInternalLogger: true}, payloads...)
	logger.Warn("Shutting down", zap.Int("Span #", 1))
	return out.Bytes()
}

func export(t testing.TB, logger *zap.Logger, cfg *debugexporter.Config, payloads ...any) {
	t.Helper()
	cfg.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	f := debugexporter.NewFactory()
	set := exportertest.NewNopSettings(f.Type())
	set.Logger = logger
	traces, err := f.CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	metrics, err := f.CreateMetrics(t.Context(), set, cfg)
	require.NoError(t, err)
	logs, err := f.CreateLogs(t.Context(), set, cfg)
	require.NoError(t, err)
	for _, c := range []component.Component{traces, metrics, logs} {
		require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
		defer func() { require.NoError(t, c.Shutdown(t.Context())) }()
	}
	for _, p := range payloads {
		switch p := p.(type) {
		case ptrace.Traces:
			require.NoError(t, traces.ConsumeTraces(t.Context(), p))
		case pmetric.Metrics:
			require.NoError(t, metrics.ConsumeMetrics(t.Context(), p))
		case plog.Logs:
			require.NoError(t, logs.ConsumeLogs(t.Context(), p))
		}
	}
}

func someMetrics() pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "vllm")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("Span #0")
	m.SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(1)
	return md
}

func someLogs() plog.Logs {
	ld := plog.NewLogs()
	r := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.Body().SetStr("hello\nSpan #0\n")
	return ld
}

func marshalJSON(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	b, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	return b
}

func marshalProto(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	return b
}

func delimited(messages ...[]byte) []byte {
	var out []byte
	for _, m := range messages {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(m))), m...)
	}
	return out
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func zstandard(t testing.TB, content []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	return w.EncodeAll(content, nil)
}

func TestRecordedV0(t *testing.T) {
	r, err := Open(recordedV0)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	assert.Equal(t, FormatDebugText, r.Format())
	td, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, 1, td.SpanCount())
	span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	assert.Equal(t, "e3e70682c2094cac629f6fbed82c07cd", span.TraceID().String())
	assert.Equal(t, "0a5d2f346baa9455", span.SpanID().String())
	assert.True(t, span.ParentSpanID().IsEmpty())
	assert.Equal(t, "llm_request", span.Name())
	assert.Equal(t, ptrace.SpanKindServer, span.Kind())
	assert.Equal(t, "2024-08-02 18:18:39.590171648 +0000 UTC", span.StartTimestamp().String())
	assert.Equal(t, "2024-08-02 18:18:43.366565895 +0000 UTC", span.EndTimestamp().String())
	assert.Equal(t, ptrace.StatusCodeUnset, span.Status().Code())
	assert.Equal(t, map[string]any{
		"gen_ai.response.model":                "/data-fast/s3/ml-dev-sfc-or-dev-misc1-k8s/yak/hf_models/meta-llama/Meta-Llama-3-70B",
		"gen_ai.request.id":                    "fcdae8c235f84b618c24b656f3ad4024",
		"gen_ai.request.temperature":           0.0,
		"gen_ai.request.top_p":                 1.0,
		"gen_ai.request.max_tokens":            int64(256),
		"gen_ai.request.best_of":               int64(1),
		"gen_ai.request.n":                     int64(1),
		"gen_ai.usage.num_sequences":           int64(1),
		"gen_ai.usage.prompt_tokens":           int64(2106),
		"gen_ai.usage.completion_tokens":       int64(256),
		"gen_ai.latency.time_in_queue":         0.012117147445678711,
		"gen_ai.latency.time_to_first_token":   0.2345738410949707,
		"gen_ai.latency.e2e":                   3.775825023651123,
		"gen_ai.latency.time_in_scheduler":     0.017550230026245117,
		"gen_ai.latency.time_in_model_forward": 3.151565277099609,
		"gen_ai.latency.time_in_model_execute": 3.6468167304992676,
	}, span.Attributes().AsRaw())
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF, "the end is final")
}

func TestRecordedV1(t *testing.T) {
	content, err := os.ReadFile(recordedV1)
	require.NoError(t, err)
	payloads, r, err := read(content)
	require.NoError(t, err)
	assert.Equal(t, FormatJSON, r.Format())
	require.Len(t, payloads, 1)
	assert.Equal(t, 16, payloads[0].SpanCount())
	want, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(content)
	require.NoError(t, err)
	requireEqual(t, want, payloads[0])
}

func TestOpenErrors(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	path := filepath.Join(t.TempDir(), "binary")
	require.NoError(t, os.WriteFile(path, []byte("\x7fELF\x00\x00\x00"), 0o600))
	_, err = Open(path)
	require.ErrorContains(t, err, path+": byte 0: expected recorded spans")
	assert.Zero(t, requireFault(t, err).Line)
}

func TestClosed(t *testing.T) {
	r, err := Open(recordedV0)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Next()
	require.ErrorIs(t, err, os.ErrClosed)
}

// Every format, plain and compressed, carries the same payloads.
func TestFormats(t *testing.T) {
	one, two := everything(), small(3)
	pretty := func(td ptrace.Traces) []byte {
		return []byte(indent(t, marshalJSON(t, td)))
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, tt := range map[string]struct {
		content []byte
		format  Format
		split   bool // each ResourceSpans is a payload
	}{
		"json lines":         {join(marshalJSON(t, one), []byte("\n"), marshalJSON(t, two), []byte("\n")), FormatJSON, false},
		"json no last line":  {join([]byte("\n\n"), marshalJSON(t, one), []byte("\r\n"), marshalJSON(t, two)), FormatJSON, false},
		"json pretty":        {join(utf8BOM, pretty(one), pretty(two)), FormatJSON, false},
		"json other signals": {join([]byte(`{"resourceMetrics":[]}{}`), marshalJSON(t, one), []byte(` {"resourceLogs": [{"x":"resourceSpans"}]}`), marshalJSON(t, two)), FormatJSON, false},
		"proto":              {join(marshalProto(t, one), marshalProto(t, two)), FormatProto, true},
		"delimited":          {delimited(marshalProto(t, one), nil, marshalProto(t, two)), FormatDelimited, false},
		"delimited zstd":     {delimited(zstandard(t, marshalProto(t, one)), zstandard(t, marshalProto(t, two))), FormatDelimited, false},
		"delimited json":     {delimited(zstandard(t, marshalJSON(t, one)), marshalJSON(t, two)), FormatDelimited, false},
		"debug text":         {debugText(t, "console", configtelemetry.LevelDetailed, one, someMetrics(), someLogs(), two), FormatDebugText, false},
		"debug json logs":    {debugText(t, "json", configtelemetry.LevelDetailed, one, someMetrics(), two), FormatJSON, false},
	} {
		for compression, compress := range map[string]func(testing.TB, []byte) []byte{
			"": func(_ testing.TB, b []byte) []byte { return b }, "gzip": gzipped, "zstd": zstandard,
		} {
			t.Run(name+" "+compression, func(t *testing.T) {
				payloads, r, err := read(compress(t, tt.content))
				require.NoError(t, err)
				assert.Equal(t, tt.format, r.Format())
				if tt.split {
					require.Len(t, payloads, 3)
					payloads[1].ResourceSpans().MoveAndAppendTo(payloads[0].ResourceSpans())
					payloads = []ptrace.Traces{payloads[0], payloads[2]}
				}
				require.Len(t, payloads, 2)
				requireEqual(t, one, payloads[0])
				requireEqual(t, two, payloads[1])
			})
		}
	}
}

func TestSkipped(t *testing.T) {
	content := []byte(`{"resourceMetrics":[]} {"resource_logs":[]} {"level":"info","msg":"Span # of attention"} {"msg": 1}`)
	payloads, r, err := read(content)
	require.NoError(t, err)
	assert.Empty(t, payloads)
	assert.Equal(t, 2, r.Skipped())

	_, r, err = read(debugText(t, "console", configtelemetry.LevelDetailed, someMetrics(), someLogs()))
	require.NoError(t, err)
	assert.Equal(t, 2, r.Skipped())
}

func TestEmpty(t *testing.T) {
	for _, content := range []string{"", "\n \r\n\t"} {
		payloads, r, err := read([]byte(content))
		require.NoError(t, err)
		assert.Empty(t, payloads)
		assert.Equal(t, FormatEmpty, r.Format())
	}
	assert.Equal(t, "empty", FormatEmpty.String())
	assert.Equal(t, "debug exporter text", FormatDebugText.String())
	assert.Equal(t, "OTLP JSON", FormatJSON.String())
	assert.Equal(t, "OTLP protobuf", FormatProto.String())
	assert.Equal(t, "length-delimited OTLP", FormatDelimited.String())
	assert.Equal(t, "Format(9)", Format(9).String())
}

// failing fails after its content.
type failing struct{ io.Reader }

var errDisk = errors.New("disk on fire")

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errDisk
	}
	return n, err
}

func TestReadFailure(t *testing.T) {
	text := debugText(t, "console", configtelemetry.LevelDetailed, small(1))
	proto := marshalProto(t, small(1))
	for name, content := range map[string][]byte{
		"nothing": nil, "short": []byte("ab"), "text": bytes.Repeat(text, 50), "json": bytes.Repeat(marshalJSON(t, small(1)), 20),
		"json inside": bytes.Repeat(append(marshalJSON(t, small(100)), marshalJSON(t, small(100))[:9000]...), 1),
		"proto":       bytes.Repeat(proto, 60), "proto inside": append(bytes.Repeat(proto, 60), proto[:50]...),
		"proto tag": append(bytes.Repeat(proto, 60), 0x0a), "delimited": bytes.Repeat(delimited(proto), 60),
		"delimited length": append(bytes.Repeat(delimited(proto), 60), 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(failing{bytes.NewReader(content)}, "recording")
			for err == nil {
				_, err = r.Next()
			}
			require.ErrorIs(t, err, errDisk)
			requireFault(t, err)
		})
	}
}

func TestDamagedCompression(t *testing.T) {
	for name, content := range map[string][]byte{
		"gzip header":    {0x1f, 0x8b, 9, 9},
		"gzip cut":       gzipped(t, []byte(strings.Repeat(string(marshalJSON(t, small(5))), 9)))[:150],
		"zstd cut":       zstandard(t, []byte(strings.Repeat(string(marshalJSON(t, small(5))), 9)))[:150],
		"zstd in length": delimited(zstdMagic),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(content)
			require.Error(t, err)
			assert.NotErrorIs(t, err, io.EOF)
			requireFault(t, err)
		})
	}
}

// A small file must not become a large memory, whatever it claims.
func TestBombs(t *testing.T) {
	lim := limits{record: 64 << 10, elements: 1000, depth: 20}
	zeros := bytes.Repeat([]byte{' '}, 1<<20)
	nested := func(open, closing string, n int) string {
		return strings.Repeat(open, n) + strings.Repeat(closing, n)
	}
	header := "ResourceSpans #0\nResource attributes:\n"
	for name, tt := range map[string]struct {
		content []byte
		message string
	}{
		"json size":          {append([]byte(`{"resourceSpans":`), zeros...), "at most 65536 bytes"},
		"json depth":         {[]byte(`{"resourceSpans":` + nested("[", "]", 50)), "at most 20 deep"},
		"json parts":         {[]byte(`{"resourceSpans":[` + strings.Repeat("{},", 2000) + `{}]}`), "at most 1000 parts"},
		"gzip json size":     {gzipped(t, append([]byte(`{"resourceSpans":`), zeros...)), "at most 65536 bytes"},
		"text line":          {append([]byte("Span"), zeros...), "lines of at most 65536 bytes"},
		"text size":          {[]byte(header + strings.Repeat("-> a: Str(b)\n", 9000)), "at most"},
		"text parts":         {[]byte(header + strings.Repeat("ScopeSpans #0\n", 2000)), "at most 1000 parts"},
		"text attributes":    {[]byte(header + strings.Repeat("-> a: Int(1)\n", 2000)), "at most 1000 parts"},
		"text slice":         {[]byte(header + "-> a: Slice([" + strings.Repeat("1,", 2000) + "1])\n"), "at most 1000 parts"},
		"text depth":         {[]byte(header + "-> a: Slice(" + nested("[", "]", 50) + ")\n"), "more than 20 deep"},
		"text map depth":     {[]byte(header + "-> a: Map(" + nested(`{"a":`, "}", 50)[:50*5] + "1" + strings.Repeat("}", 50) + ")\n"), "more than 20 deep"},
		"proto size":         {[]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x12}, "at most 65536 bytes"},
		"proto parts":        {bareProto(bytes.Repeat([]byte{0x12, 0}, 2000)), "more than 1000 parts"},
		"proto depth":        {bareProto(deepProto(30)), "more than 20 deep"},
		"delimited size":     {[]byte{0x03, 0, 0, 0, 1}, "at most 65536"},
		"delimited zstd":     {delimited(zstandard(t, zeros)), "zstd message"},
		"delimited zstd cut": {[]byte{0, 0, 0xff, 0xff, 1}, "the end of the file at byte 5"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newReader(bytes.NewReader(tt.content), "recording", lim)
			for err == nil {
				_, err = r.Next()
			}
			require.ErrorContains(t, err, tt.message)
			requireFault(t, err)
		})
	}
}

// Attributes are counted per element, distinct ones most of all.
func TestManyAttributes(t *testing.T) {
	var b strings.Builder
	b.WriteString("ResourceSpans #0\nResource attributes:\n")
	for i := range maxAttributes + 1 {
		b.WriteString("-> key" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + json.Number(itoa(i)).String() + ": Int(1)\n")
	}
	_, _, err := read([]byte(b.String()))
	require.ErrorContains(t, err, "at most 4096 attributes")
	assert.Equal(t, maxAttributes+3, requireFault(t, err).Line)
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

// bareProto is a TracesData message of one ResourceSpans with the given content.
func bareProto(resourceSpans []byte) []byte {
	return append(binary.AppendUvarint([]byte{0x0a}, uint64(len(resourceSpans))), resourceSpans...)
}

func field(tag byte, content []byte) []byte {
	return append(binary.AppendUvarint([]byte{tag}, uint64(len(content))), content...)
}

// deepProto is a ResourceSpans message with arrays nested n deep in an attribute of its resource.
func deepProto(n int) []byte {
	var value []byte
	for range n {
		value = field(0x2a, field(0x0a, value))
	}
	return field(0x0a, field(0x0a, field(0x12, value)))
}
