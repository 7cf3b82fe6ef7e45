#!/usr/bin/env bash
# The demo: the built collector on otelcol-config.yaml and recorded vLLM requests sent to it in a loop, as if
# they happened now. Ctrl-C ends all of it. With TRACES_ENDPOINT=host:port the spans go to that backend.
set -euo pipefail
cd "$(dirname "$0")/.."

for port in 4317 4318 9464 8888 13133; do
  if (exec 3<> "/dev/tcp/localhost/$port") 2> /dev/null; then
    echo "Port $port is taken: stop what listens there (another collector?) and start the demo again." >&2
    exit 1
  fi
done

log=demo.log
pids=()
: > demo-replay.log
stop() {
  trap - EXIT INT TERM
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2> /dev/null || true
  wait 2> /dev/null || true
  echo
  echo "The demo is over. The collector's log: $log"
}
trap stop EXIT
trap 'exit 0' INT TERM

overlay=scripts/demo-config.yaml
if [ -n "${TRACES_ENDPOINT:-}" ]; then overlay='yaml:processors::serving_metrics::interval: 5s'; fi
dist/otelcol-serving --config otelcol-config.yaml --config "$overlay" > "$log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
  curl -fs localhost:13133/status > /dev/null && break
  kill -0 "${pids[0]}" 2> /dev/null || { cat "$log"; exit 1; }
  sleep 0.1
done
for recording in vllm_v0_detailed.debug.log vllm_v1_concurrency8.otlp.json; do
  .tools/bin/servingctl replay --now --loop "testdata/spans/$recording" >> demo-replay.log 2>&1 &
  pids+=($!)
done

cat <<'TEXT'
The collector runs and receives recorded vLLM requests as if they happened now.

  metrics              http://localhost:9464/metrics
  the collector's own  http://localhost:8888/metrics
  health               http://localhost:13133/status

Type this in another terminal:

  curl -s localhost:9464/metrics | grep -E '^llm_serving_request_(stage|component)_time'

or, with a Prometheus that scrapes localhost:9464, ask it

  where the running time goes  sum by (component) (rate(llm_serving_request_component_time_seconds_total[1m]))
                                 / ignoring(component) group_left sum(rate(llm_serving_request_component_time_seconds_total[1m]))
  time in queue, 95th          histogram_quantile(0.95, sum by (le) (rate(llm_serving_request_time_in_queue_seconds_bucket[1m])))
  forward share of requests    sum(rate(llm_serving_request_forward_share_sum[1m])) / sum(rate(llm_serving_request_forward_share_count[1m]))

TEXT
for _ in $(seq 300); do
  kill -0 "${pids[@]}" 2> /dev/null || { tail -5 "$log" demo-replay.log; exit 1; }
  curl -s localhost:9464/metrics > .tools/demo-metrics || true
  if grep -q '^llm_serving_request_component_time' .tools/demo-metrics; then break; fi
  sleep 0.2
done
echo "The first command says now (seconds of request time, by where they went):"
echo
grep -E '^llm_serving_request_(stage|component)_time' .tools/demo-metrics | sed -E 's/\{.*(stage|component)="([a-z_]+)".*\}/ \1=\2/; s/^/  /'
echo
echo "Ctrl-C ends the demo."
wait -n "${pids[@]}" || { tail -5 "$log" demo-replay.log; exit 1; }
