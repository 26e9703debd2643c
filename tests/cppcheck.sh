#!/usr/bin/env bash
# cppcheck over the library and the command: one test for each file.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
# Workspaces are cut from one aligned block of bytes, so a byte pointer does become a float pointer.
checks=('--enable=warning,portability,performance' --suppress=invalidPointerCast --inline-suppr --error-exitcode=1 --quiet
    --std=c11 --library=posix -Iinclude -Isrc -D__GNUC__ -D__x86_64__)

while read -r source; do
    expect "$source" cppcheck "${checks[@]}" "$source"
done < <(find src cli -name '*.c' | sort)
finish
