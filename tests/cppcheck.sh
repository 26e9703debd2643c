#!/usr/bin/env bash
# cppcheck over the library and the command: one test for each file.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
# Workspaces are cut from one aligned block of bytes, so a byte pointer does become a float pointer.
checks=('--enable=warning,portability,performance' --suppress=invalidPointerCast --inline-suppr --error-exitcode=1 --quiet
    --std=c11 --library=posix -Iinclude -Isrc -I. -D__GNUC__)

while read -r source; do
    case $source in
    */neon/*) machine=-D__AARCH64EL__ ;;
    *) machine=-D__x86_64__ ;;
    esac
    expect "$source" cppcheck "${checks[@]}" "$machine" "$source"
done < <(find src common predict train cli -name '*.c' | sort)
finish
