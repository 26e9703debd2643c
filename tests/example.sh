#!/usr/bin/env bash
# The C program that README.md shows: it must compile without warnings, against the library as built, and run.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk -v folder="$work" '/^```c$/ { n++; inside = 1; next } /^```/ { inside = 0 }
    inside { print >(folder "/example" n ".c") }' README.md
for source in "$work"/example*.c; do
    name=$(basename "$source" .c)
    expect "$name compiles" gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$work/$name" "$source" \
        -Lbuild -ltersegrad
    expect "$name runs" env LD_LIBRARY_PATH=build "$work/$name"
done
finish
