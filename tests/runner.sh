#!/usr/bin/env bash
# The runner itself: a report that it cannot read, a crash or a nameless skip must not look like success.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

# reads NAME TEXT NUMBERS: what scripts/tally.awk makes of a program's output.
reads() {
    expect "$1" test "$(printf '%b' "$2" | awk -f scripts/tally.awk)" = "$3"
}
reads "our closing line" 'ok   1\n12 passed, 1 failed, 0 skipped\n' '12 1 0 0'
reads "a skip with its reason" 'skip: no such thing\n0 passed, 0 failed, 1 skipped\n' '0 0 1 1'
reads "cmocka" '[  PASSED  ] 3 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] a\n' '3 0 1 0'
reads "cmocka, failing" '[  PASSED  ] 3 test(s).\n[  FAILED  ] 2 test(s), listed below:\n[  FAILED  ] a\n' '3 2 0 0'
reads "pytest" '=== 2 failed, 7 passed, 1 skipped in 0.12s ===\n' '7 2 1 0'
reads "pytest, quiet, with an error" '7 passed, 1 error in 61.20s (0:01:01)\n' '7 1 0 0'
reads "nothing" 'all is well\n' '0 0 0 0'
finish
