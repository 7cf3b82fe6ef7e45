#!/usr/bin/env bash
# Coverage of internal/, generated code left out: coverage.sh PROFILE MINIMUM_PERCENT
set -euo pipefail
profile=$1 minimum=$2
# A block that several packages' tests ran stands in the profile once for each: covered if any did.
awk -v minimum="$minimum" '
  /^mode:/ || /\/metadata(test)?\// { next }
  { key = $1; n[key] = $2; if ($3 > 0) covered[key] = 1 }
  END {
    for (k in n) { total += n[k]; if (k in covered) done += n[k] }
    percent = 100 * done / total
    printf "coverage of internal/: %.1f %% of statements (at least %d %%)\n", percent, minimum
    exit percent < minimum
  }' "$profile"
