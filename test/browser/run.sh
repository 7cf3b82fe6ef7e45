#!/usr/bin/env bash
# The browser tests of the summary page: Chromium (Debian's package, if it is not there) over the extension's own handler in
# every state. Where they cannot run they are skipped with a reason; with CI=true they are not.
#
#   test/browser/run.sh [flags of node --test, such as --test-name-pattern=host_bound]
#   BROWSER_URLS='{"demo": "http://localhost:8686/"}' test/browser/run.sh    checks more pages, which it does not start
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=$PWD/.tools
mkdir -p "$tools/bin"

missing() {
  if [ "${CI:-}" = true ]; then
    echo "browser: $1" >&2
    exit 1
  fi
  echo "browser: $1; the tests are skipped" >&2
  exit 0
}

install() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return 1
  apt-get update -qq || true # older lists may do
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" > /dev/null
}

command -v npm > /dev/null || install nodejs npm || true
command -v npm > /dev/null || missing "no Node.js with npm: install it, or run as root on Debian"
node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' || missing "Node.js 20 or newer is needed, this is $(node --version)"

browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
browser > /dev/null || install chromium || true
BROWSER_CHROMIUM=$(browser) || missing "no Chromium: install it, or run as root on Debian"
export BROWSER_CHROMIUM

cmp -s test/browser/package-lock.json test/browser/node_modules/.installed || (cd test/browser && npm ci --no-progress --no-audit --no-fund) ||
  missing "playwright-core and axe-core cannot be installed with npm"
cp test/browser/package-lock.json test/browser/node_modules/.installed

go build -o "$tools/bin/summarystates" ./test/browser/server
work=$(mktemp -d -p "$tools")
server=
stop() {
  [ -z "$server" ] || kill "$server" 2> /dev/null || true
  rm -rf "$work"
}
trap stop EXIT
"$tools/bin/summarystates" > "$work/states" 2> "$work/errors" &
server=$!
for _ in $(seq 100); do
  [ -s "$work/states" ] && break
  kill -0 "$server" 2> /dev/null || { cat "$work/errors" >&2; exit 1; }
  sleep 0.1
done
BROWSER_STATES=$(cat "$work/states")
export BROWSER_STATES

node --test --test-concurrency=1 "$@" test/browser/page.test.mjs
