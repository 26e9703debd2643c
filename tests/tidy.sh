#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy over the library and the command: one test for each file.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
read -ra flags < <(make --no-print-directory -s print-flags)

for source in src/*/*.c cli/*.c; do
    expect "$source" clang-tidy --quiet --warnings-as-errors='*' "$source" -- "${flags[@]}"
done
finish
