#!/usr/bin/env bash
# The public header: usable from C99, C11 and C++, short enough to read, and with enough prose to learn from.
# usage: tests/header.sh COMPILER     gcc, or clang, which has C++ as well
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
header=include/tersegrad.h
strict=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only)

expect "C11, $1" "$1" -std=c11 "${strict[@]}" -x c "$header"
expect "C99, $1" "$1" -std=c99 "${strict[@]}" -x c "$header"
[ "$1" != clang ] || expect "C++11, $1" clang++ -std=c++11 "${strict[@]}" -x c++ "$header"

lines=$(wc -l <"$header")
expect "$lines lines of at most 1000" test "$lines" -le 1000

# Lines with a comment on them, as a share of the lines that are not blank.
share=$(awk '
    /^[ \t]*$/ { next }
    { lines++; if (inside || /\/\*/) comments++ }
    { text = $0; while (match(text, inside ? /\*\// : /\/\*/)) { inside = !inside; text = substr(text, RSTART + 2) } }
    END { printf "%d", 100 * comments / lines }' "$header")
expect "$share % of its lines explain, of at least 45 %" test "$share" -ge 45
finish
