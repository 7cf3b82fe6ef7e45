#!/usr/bin/env bash
# Runs every fuzz target of the repository, one after the other: fuzz.sh TIME
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ target; do
    echo "== $(dirname "$file") $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 10x "$(dirname "$file")"
  done
done
