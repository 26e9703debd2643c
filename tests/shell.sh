#!/usr/bin/env bash
# Every script of the project through shellcheck: one test for each.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

for script in .ci/run scripts/*.sh bench/*.sh tests/*.sh tests/*/*.sh; do
    [ ! -e "$script" ] || expect "$script" shellcheck --shell=bash --severity=warning -x "$script"
done
finish
