#!/usr/bin/env bash
# C and CUDA sources are laid out as .clang-format says. `make format` lays them out.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

mapfile -t files < <(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh')
bad=$(.venv/bin/clang-format --dry-run --style=file "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):.*warning.*/\1/p' | sort -u)
if [ -z "$bad" ]; then
    pass "${#files[@]} files are laid out as .clang-format says"
else
    while read -r file; do fail "$file: run 'make format'"; done <<<"$bad"
fi

# A check that cannot fail checks nothing.
wrong=$(printf 'int  a;\n' | .venv/bin/clang-format --dry-run --style=file --assume-filename=a.c 2>&1)
expect "finds a space too many" test -n "$wrong"
finish
