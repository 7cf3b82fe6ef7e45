#!/usr/bin/env bash
# The end-to-end tests on the built binary, with what they need: Prometheus (Debian's package, unpacked
# and not installed, so that no service starts), Jaeger (built from its Go module) and Node.js with the
# SDK's exporters. What cannot be had here is skipped with a reason; with CI=true nothing is.
#
#   test/e2e/run.sh [flags of go test, such as -run TestPrometheus]
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
tools=$root/.tools
mkdir -p "$tools/bin"
E2E_PROMETHEUS='' E2E_JAEGER='' E2E_NODE=''

[ -x dist/otelcol-serving ] || { echo "dist/otelcol-serving is missing: run 'make build' first" >&2; exit 1; }

# apt_update refreshes the package lists once, where that is possible.
apt_updated=
apt_update() {
  command -v apt-get > /dev/null || return 1
  [ -z "$apt_updated" ] || return 0
  apt_updated=yes
  [ "$(id -u)" != 0 ] || apt-get update -qq || true # older lists may do
}

missing() {
  if [ "${CI:-}" = true ]; then
    echo "e2e: $1" >&2
    exit 1
  fi
  echo "e2e: $1; its tests are skipped" >&2
}

if command -v prometheus > /dev/null; then
  E2E_PROMETHEUS=$(command -v prometheus)
elif [ -x "$tools/prometheus/usr/bin/prometheus" ]; then
  E2E_PROMETHEUS=$tools/prometheus/usr/bin/prometheus
else
  work=$(mktemp -d -p "$tools")
  trap 'rm -rf "$work"' EXIT
  if apt_update && (cd "$work" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" prometheus) && dpkg-deb -x "$work"/prometheus_*.deb "$work/x"; then
    rm -rf "$tools/prometheus"
    mv "$work/x" "$tools/prometheus"
    E2E_PROMETHEUS=$tools/prometheus/usr/bin/prometheus
  else
    missing "no prometheus: it is not on the PATH, and Debian's package cannot be had"
  fi
fi

# A module of its own, so that Jaeger is no dependency of the product.
if (cd test/e2e/jaeger && go build -o "$tools/bin/jaeger" github.com/jaegertracing/jaeger/cmd/jaeger); then
  E2E_JAEGER=$tools/bin/jaeger
else
  missing "no jaeger: it cannot be built"
fi

if ! command -v npm > /dev/null && [ "$(id -u)" = 0 ] && apt_update; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm > /dev/null || true
fi
if ! command -v npm > /dev/null; then
  missing "no Node.js with npm: install it, or run as root on Debian"
elif cmp -s test/e2e/js/package-lock.json test/e2e/js/node_modules/.installed || (cd test/e2e/js && npm ci --no-progress); then
  cp test/e2e/js/package-lock.json test/e2e/js/node_modules/.installed
  E2E_NODE=$(command -v node)
else
  missing "the SDK's exporters cannot be installed with npm"
fi

go build -o "$tools/bin/servingctl" ./cmd/servingctl

export E2E_BIN=$root/dist/otelcol-serving E2E_SERVINGCTL=$tools/bin/servingctl
export E2E_PROMETHEUS E2E_JAEGER E2E_NODE
# One package after the other: both start collectors, and the machine may have two cores.
go test -tags e2e -count=1 -timeout 10m -p 1 "$@" ./test/e2e ./test/deploy
