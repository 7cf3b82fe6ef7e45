// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configtelemetry"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.uber.org/zap"
)

// The exporter's own logger (use_internal_logger: false) writes neither time nor level.
func TestOwnLogger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.log")
	one, two := everything(), small(2)
	export(t, zap.NewNop(), &debugexporter.Config{
		Verbosity: configtelemetry.LevelDetailed, SamplingInitial: 2, SamplingThereafter: 1, OutputPaths: []string{path},
	}, one, someMetrics(), someLogs(), two)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	payloads := readAll(t, content)
	require.Len(t, payloads, 2)
	requireEqual(t, one, payloads[0])
	requireEqual(t, two, payloads[1])

	// Windows ends lines with a carriage return. Strings of several lines lose none of theirs.
	payloads = readAll(t, []byte(strings.ReplaceAll(string(content), "\n", "\r\n")))
	require.Len(t, payloads, 2)
	requireEqual(t, one, payloads[0])
}

// Blocks that were cut out of the output, with and without what was around them.
func TestBareBlocks(t *testing.T) {
	recorded, err := os.ReadFile(recordedV0)
	require.NoError(t, err)
	block := string(recorded)
	bare := block[:strings.LastIndex(block, "{")]
	want := readAll(t, recorded)[0]

	for name, tt := range map[string]struct {
		content string
		spans   []int
	}{
		"recorded twice":        {block + block, []int{1, 1}},
		"no log line":           {bare + bare, []int{1, 1}},
		"numbered":              {bare + strings.Replace(bare, "Span #0", "Span #1", 1), []int{2}},
		"from the middle":       {strings.Replace(bare, "Span #0", "Span #7", 1) + strings.Replace(bare, "Span #0", "Span #8", 1), []int{2}},
		"blank lines":           {"\n" + strings.ReplaceAll(bare, "Attributes:\n", "Attributes:\n\n") + "\n\n" + bare, []int{1, 1}},
		"no last line feed":     {strings.TrimSuffix(bare, "\n"), []int{1}},
		"indented":              {strings.ReplaceAll(bare, "\n", "\n    "), []int{1}},
		"notes before":          {"what vLLM sent today:\n\n" + bare, []int{1}},
		"then a whole payload":  {bare + "ResourceSpans #0\nScopeSpans #0\n" + bare, []int{1, 1}},
		"payloads without log":  {"ResourceSpans #0\nScopeSpans #0\n" + bare + "ResourceSpans #0\nScopeSpans #0\n" + bare, []int{1, 1}},
		"payloads cut from log": {"ResourceSpans #3\nScopeSpans #2\n" + bare + "ResourceSpans #4\nScopeSpans #0\n" + bare, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			var spans []int
			for _, td := range readAll(t, []byte(tt.content)) {
				spans = append(spans, td.SpanCount())
				first := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
				assert.Equal(t, want.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().AsRaw(), first.Attributes().AsRaw())
			}
			assert.Equal(t, tt.spans, spans)
		})
	}
}

func TestTextFaults(t *testing.T) {
	recorded, err := os.ReadFile(recordedV0)
	require.NoError(t, err)
	block := string(recorded)
	attr := func(line string) string {
		return strings.Replace(block, "-> gen_ai.request.n: Int(1)", line, 1) // line 18
	}
	replace := func(old, by string) string {
		require.Contains(t, block, old)
		return strings.Replace(block, old, by, 1)
	}
	full := "ResourceSpans #0\nResource entity refs:\n"
	for name, tt := range map[string]struct {
		content string
		line    int
		message string
	}{
		"prose":               {"Dear diary,\ntoday I read spans.\n", 2, "found none in the whole file"},
		"summaries only":      {string(debugText(t, "console", configtelemetry.LevelNormal, small(1))), 7, "verbosity: detailed"},
		"trace id":            {replace("e3e70682", "e3e7068g"), 2, "expected an ID of 32 hexadecimal digits"},
		"span id":             {replace("0a5d2f346baa9455", "0a5d2f346baa94"), 4, "expected an ID of 16 hexadecimal digits"},
		"kind":                {replace("Kind : Server", "Kind : Waiter"), 6, "a kind of span"},
		"start":               {replace("2024-08-02 18:18:39.590171648 +0000 UTC", "yesterday"), 7, "expected a time such as"},
		"end out of range":    {replace("2024-08-02 18:18:43.366565895 +0000 UTC", "9999-08-02 18:18:43 +0000 UTC"), 8, "expected a time such as"},
		"status":              {replace("Status code : Unset", "Status code : Great"), 9, "expected a status code"},
		"unknown line":        {replace("Kind : Server", "Kind : Server\nColour : red"), 7, "found \"Colour : red\""},
		"count":               {replace("Attributes:", "DroppedLinksCount: many"), 11, "expected a count"},
		"int":                 {attr("-> gen_ai.request.n: Int(1.5)"), 18, "a value of type Int"},
		"double":              {attr("-> gen_ai.request.n: Double(one)"), 18, "a value of type Double"},
		"bool":                {attr("-> gen_ai.request.n: Bool(si)"), 18, "a value of type Bool"},
		"bytes":               {attr("-> gen_ai.request.n: Bytes(!)"), 18, "a value of type Bytes"},
		"map":                 {attr("-> gen_ai.request.n: Map([1])"), 18, "a value of type Map"},
		"map syntax":          {attr("-> gen_ai.request.n: Map({\"a\":})"), 18, "it is not JSON"},
		"slice":               {attr("-> gen_ai.request.n: Slice({})"), 18, "a value of type Slice"},
		"slice number":        {attr("-> gen_ai.request.n: Slice([1e999])"), 18, "a value of type Slice"},
		"empty":               {attr("-> gen_ai.request.n: Empty(1)"), 18, "a value of type Empty"},
		"int not closed":      {attr("-> gen_ai.request.n: Int(1"), 18, "a value that ends with \")\""},
		"string not closed":   {block[:strings.LastIndex(block, "-> ")] + "-> a: Str(1\n2024-08-02T18:18:43.366Z\tinfo\tTraces\t{}\n", 27, "a value that ends with \")\""},
		"string, log, string": {block[:strings.LastIndex(block, "-> ")] + "-> a: Str(1\n2024-08-02T18:18:43.366Z\tinfo\tready (now)\n", 27, "a value that ends with \")\""},
		"string at the end":   {block[:strings.Index(block, "-> gen_ai.request.id")] + "-> a: Str(x", 13, "a value that ends with \")\""},
		"string then payload": {block[:strings.Index(block, "-> gen_ai.request.id")] + "-> a: Str(x\nResourceSpans #0\n", 13, "a value that ends with \")\""},
		"cut off":             {block[:strings.Index(block, "End time")], 1, "expected a span with \"End time\""},
		"cut off before next": {block[:strings.Index(block, "End time")] + block, 1, "expected a span with \"End time\""},
		"cut off, scope":      {block[:strings.Index(block, "End time")] + "ScopeSpans #1\n", 1, "expected a span with \"End time\""},
		"cut off, resource":   {block[:strings.Index(block, "End time")] + "ResourceMetrics #0\n", 1, "expected a span with \"End time\""},
		"lines are missing":   {"ResourceSpans #0\nScopeSpans #0\n" + strings.Replace(block, "Span #0", "Span #4", 1), 3, "expected Span #0, found Span #4"},
		"no scope":            {"ResourceSpans #0\n" + block, 2, "expected ScopeSpans #0"},
		"entity":              {full + "-> Type: host\n", 3, "expected Entity ref #0"},
		"entity field":        {full + "-> Entity ref #0:\n-> Colour: red\n", 4, "expected a field of an entity"},
		"event time":          {block[:strings.LastIndex(block, "{")] + "Events:\nSpanEvent #0\n-> Timestamp: then\n", 30, "expected a time such as"},
		"link id":             {block[:strings.LastIndex(block, "{")] + "Links:\nSpanLink #0\n-> ID: 1\n", 30, "an ID of 16 hexadecimal digits"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read([]byte(tt.content))
			require.ErrorContains(t, err, tt.message)
			fault := requireFault(t, err)
			assert.Equal(t, tt.line, fault.Line)
			assert.Contains(t, err.Error(), "recording:")
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

// What was read before a fault is not lost.
func TestFaultAfterPayload(t *testing.T) {
	text := debugText(t, "console", configtelemetry.LevelDetailed, small(2), small(1))
	payloads, _, err := read([]byte(strings.Replace(string(text), "ResourceSpans #0\nResource SchemaURL: \nResource attributes:\n     -> service.name: Str(vllm)\nScopeSpans #0\nScopeSpans SchemaURL: \nInstrumentationScope  \nSpan #0\n    Trace ID       : 01000000000000000000000000000001\n    Parent ID      : \n    ID             : 0100000000000001\n    Name           : llm_request\n    Kind           : Unspecified\n    Start time     : 2024-08-02 18:18:39.590171648 +0000 UTC\n    End time       : 2024-08-02 18:18:43.366565895 +0000 UTC\n    Status code    : Unset\n    Status message : \n    DroppedAttributesCount: 0\n    DroppedEventsCount: 0\n    DroppedLinksCount: 0\nAttributes:\n     -> gen_ai.latency.e2e: Double(3.775825023651123)\n\t{", "ResourceSpans #0\nnonsense\n\t{", 1)))
	require.ErrorContains(t, err, "nonsense")
	require.Len(t, payloads, 1)
	assert.Equal(t, 2, payloads[0].SpanCount())
}

func TestJSONFaults(t *testing.T) {
	log := string(debugText(t, "json", configtelemetry.LevelDetailed, small(1)))
	for name, tt := range map[string]struct {
		content string
		line    int
		message string
	}{
		"not spans":        {"\n{\"a\": {\"resourceSpans\": 1}}", 2, "expected an OTLP JSON document"},
		"key as value":     {`{"a":"resourceSpans"}`, 1, "expected an OTLP JSON document"},
		"text after":       {"{\"resourceSpans\":[]}\n\nand more", 3, `found "a"`},
		"syntax":           {"{\"resourceSpans\":[\n\n{,}\n]}", 3, "expected JSON"},
		"cut off":          {"{\"resourceSpans\":[]}\n{\"resourceSpans\":[{", 2, "the end of the JSON document that begins here"},
		"cut off in text":  {"{\"resourceSpans\":\"\\\"", 1, "the end of the JSON document that begins here"},
		"wrong type":       {"{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"xyz\"}]}]}]}", 1, "expected an OTLP JSON document"},
		"text in the log":  {strings.Replace(log, "Trace ID       : 01", "Trace ID       : 0", 1), 3, "an ID of 32 hexadecimal digits"},
		"truncated in log": {`{"msg":"Span #0\nTrace ID : "}`, 1, `expected a span with "ID"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read([]byte(tt.content))
			require.ErrorContains(t, err, tt.message)
			assert.Equal(t, tt.line, requireFault(t, err).Line)
		})
	}
}

func TestProtoFaults(t *testing.T) {
	message := marshalProto(t, everything())
	for name, tt := range map[string]struct {
		content []byte
		offset  int64
		message string
	}{
		"cut off":          {message[:len(message)-3], int64(len(message)) - 22, "the end of the file"},
		"tag":              {append(append([]byte{}, message...), 0x12, 0), int64(len(message)), "field 1 (resource_spans)"},
		"tag overflow":     {append(append([]byte{}, message...), 0xff), int64(len(message)), "the tag of a protobuf field"},
		"inside":           {bareProto([]byte{0x0a, 0x02, 0x0a, 0x05}), 4, "field 1 of Resource"},
		"tag inside":       {bareProto([]byte{0x12, 0x01, 0xff}), 4, "the tag of a field of ScopeSpans"},
		"trace id":         {bareProto(field(0x12, field(0x12, field(0x0a, []byte{1, 2})))), 0, "an OTLP TracesData message"},
		"delimited":        {delimited(message, []byte{0x0a, 0x02, 0x0a, 0x05}), int64(len(message)) + 10, "field 1 of ResourceSpans"},
		"delimited length": {append(delimited(message), 0, 0), int64(len(message)) + 4, "a length of 4 bytes"},
		"delimited json":   {delimited(message, []byte("{}{\n\n?}")), int64(len(message)) + 8, "expected JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(tt.content)
			require.ErrorContains(t, err, tt.message)
			fault := requireFault(t, err)
			assert.Zero(t, fault.Line)
			assert.Equal(t, tt.offset, fault.Offset)
		})
	}
}
