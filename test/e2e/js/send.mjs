// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Sends request spans with the exporters of OpenTelemetry's JavaScript SDK:
//   node send.mjs grpc|proto|http URL COUNT
// JavaScript has one type of number, so that figures without a fraction go out as integers.
import { SpanKind } from '@opentelemetry/api';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import * as grpc from '@opentelemetry/exporter-trace-otlp-grpc';
import * as proto from '@opentelemetry/exporter-trace-otlp-proto';
import * as http from '@opentelemetry/exporter-trace-otlp-http';

const [protocol, url, count] = process.argv.slice(2);
const { OTLPTraceExporter } = { grpc, proto, http }[protocol];
const exporter = new OTLPTraceExporter({ url });

// The processor reports a failed export to nobody who would fail for it.
let failure;
const send = exporter.export.bind(exporter);
exporter.export = (spans, done) => send(spans, (result) => {
  failure ??= result.error;
  done(result);
});

const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'js', 'service.instance.id': `js-${protocol}`, 'process.pid': process.pid }),
  spanProcessors: [new BatchSpanProcessor(exporter)],
});
const tracer = provider.getTracer('a-client-that-is-not-ours');
const end = Date.now();
for (let i = 0; i < Number(count); i++) {
  tracer.startSpan('llm_request', {
    kind: SpanKind.SERVER,
    startTime: end - 3000,
    attributes: {
      'gen_ai.response.model': 'js/model',
      'gen_ai.latency.e2e': 3,
      'gen_ai.latency.time_in_queue': 1,
      'gen_ai.latency.time_to_first_token': 2,
      'gen_ai.latency.time_in_model_prefill': 0.5,
      'gen_ai.latency.time_in_model_decode': 0.5,
      'gen_ai.latency.time_in_model_inference': 1,
      'gen_ai.usage.prompt_tokens': 10,
      'gen_ai.usage.completion_tokens': 3,
    },
  }).end(end);
}
tracer.startSpan('no request').end();
await provider.shutdown();
if (failure) throw failure;
