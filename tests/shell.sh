#!/usr/bin/env bash
# Every script of the project through shellcheck: one test for each.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

for script in .ci/run bench/network bench/*.sh scripts/*.sh tests/*.sh tests/*/*.sh; do
    [ ! -e "$script" ] || expect "$script" shellcheck --shell=bash --severity=warning -x "$script"
done
finish
