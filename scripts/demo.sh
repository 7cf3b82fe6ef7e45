#!/usr/bin/env bash
# The demo: the built collector on otelcol-config.yaml, and two simulated vLLM engines with different troubles that
# send it their spans, live, ten times as fast as real ones. Ctrl-C ends all of it. With TRACES_ENDPOINT=host:port the
# spans go on to that tracing backend.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v curl > /dev/null || { echo "curl is needed: apt-get install curl" >&2; exit 1; }
for port in 4317 4318 8686 9464 8888 13133; do
  if (exec 3<> "/dev/tcp/localhost/$port") 2> /dev/null; then
    echo "Port $port is taken: stop what listens there (another collector?) and start the demo again." >&2
    exit 1
  fi
done

log=demo.log
metrics=.tools/demo-metrics
pids=()
stop() {
  trap - EXIT INT TERM
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2> /dev/null || true
  wait 2> /dev/null || true
  echo
  echo "The demo is over. The collector's log: $log"
}
trap stop EXIT
trap 'exit 0' INT TERM

exporters=(--config scripts/demo-config.yaml)
if [ -n "${TRACES_ENDPOINT:-}" ]; then exporters+=(--config 'yaml:service::pipelines::traces::exporters: [otlp_grpc/traces]'); fi
dist/otelcol-serving --config otelcol-config.yaml "${exporters[@]}" > "$log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
  curl -fs localhost:13133/status > /dev/null && break
  kill -0 "${pids[0]}" 2> /dev/null || { cat "$log"; exit 1; }
  sleep 0.1
done
simulate() {
  .tools/bin/servingctl simulate --speed 10 --duration 12h "$@" >> "$log" 2>&1 &
  pids+=($!)
}
simulate --service slow-host --engine v0-hostbound --load 0.5 --workload chat --seed 1
simulate --service overloaded --engine v0-default --load 1.15 --workload azure-conv --seed 2

cat <<'TEXT'
The collector runs. Two simulated vLLM engines send it their spans, at ten times the pace of real ones:

  slow-host    an engine whose device waits for its host
  overloaded   an engine that gets more requests than it can serve

  the summary page     http://localhost:8686
  metrics              http://localhost:9464/metrics
  the collector's own  http://localhost:8888/metrics
  health               http://localhost:13133/status

Type this in another terminal:

  curl -s localhost:9464/metrics | grep -E '^llm_serving_(device|engine)'

or, with a Prometheus that scrapes localhost:9464, ask it

  is the device busy           llm_serving_device_utilization_ratio
  or does it wait              llm_serving_device_wait_ratio
  where an engine's time goes  sum by (job, state) (rate(llm_serving_engine_time_seconds_total[1m]))
                                 / ignoring(state) group_left sum by (job) (rate(llm_serving_engine_time_seconds_total[1m]))
  time in queue, 95th          histogram_quantile(0.95, sum by (job, le) (rate(llm_serving_request_time_in_queue_seconds_bucket[1m])))

TEXT

# value METRIC JOB [LABEL]: the number in the metrics page, or nothing.
value() {
  { grep -E "^$1\{" "$metrics" | grep -F "job=\"$2\"" | grep -F "${3:-}" || true; } | sed -E 's/.*\} ([^ ]+).*/\1/' | head -1
}
row() {
  local u w waiting lower upper step gap
  u=$(value llm_serving_device_utilization_ratio "$1")
  w=$(value llm_serving_device_wait_ratio "$1")
  # In a lasting overload the number is not known: the middle of its bracket, or the lower end.
  waiting=$(value llm_serving_engine_requests_waiting "$1" 'stat="mean"')
  lower=$(value llm_serving_engine_requests_waiting_lower "$1")
  upper=$(value llm_serving_engine_requests_waiting_upper "$1")
  step=$(value llm_serving_engine_step_duration_seconds "$1")
  gap=$(value llm_serving_engine_step_host_gap_seconds "$1")
  awk -v name="$1" -v u="$u" -v w="$w" -v q="$waiting" -v lower="$lower" -v upper="$upper" -v s="$step" -v g="$gap" 'function f(v, k, d) { return v == "" ? "-" : sprintf("%." d "f", v * k) }
    BEGIN { if (q == "") q = upper == "" ? lower : (lower + upper) / 2
      printf "  %-11s %14s %18s %17s %13s %15s\n", name, f(u, 100, 0) " %", f(w, 100, 0) " %", f(q, 1, 1), f(s, 1000, 1) " ms", f(g, 1000, 1) " ms" }'
}

echo "What they do, from their finished requests alone. The first windows close after about 20 s. Simulated time began some hours ago and runs
ten times as fast, so the page calls the engines' clocks behind. Ctrl-C ends the demo."
echo
printf '  %-11s %14s %18s %17s %13s %15s\n' engine 'device busy' 'waits for host' 'requests waiting' 'decode step' 'of it, host gap'
shown=false
seconds=0
while kill -0 "${pids[@]}" 2> /dev/null; do
  curl -s localhost:9464/metrics > "$metrics" || true
  if [ "$(grep -c '^llm_serving_device_utilization_ratio' "$metrics")" -ge 2 ] && { ! $shown || [ -t 1 ] || [ $((++seconds % 15)) = 0 ]; }; then
    if $shown && [ -t 1 ]; then printf '\033[2A'; fi # over the rows before
    row slow-host
    row overloaded
    shown=true
  fi
  sleep 1
done
echo "A part of the demo ended by itself:"
tail -5 "$log"
exit 1
