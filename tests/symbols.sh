#!/usr/bin/env bash
# What the library shows to the linker: exactly the functions of the header, and a dependency on libc alone.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
shared=build/libtersegrad.so static=build/libtersegrad.a
major=$(sed -n 's/^#define TG_VERSION_MAJOR //p' include/tersegrad.h)

# The name before the first parenthesis of each declaration that TG_API opens.
declared=$(grep -v '^#' include/tersegrad.h | tr '\n' ' ' | grep -oE 'TG_API[^;(]*\(' | grep -oE '[a-z0-9_]+ *\($' | tr -d ' (' |
    sort -u)
exported=$(nm -D --defined-only "$shared" | awk '{ print $3 }' | sort -u)
for name in $(comm -23 <(echo "$declared") <(echo "$exported")); do
    fail "$name is declared in the header and not exported"
done
for name in $(comm -13 <(echo "$declared") <(echo "$exported")); do
    fail "$name is exported and not declared in the header"
done
[ "$(comm -12 <(echo "$declared") <(echo "$exported") | wc -l)" -gt 0 ] && [ "$failed" -eq 0 ] &&
    pass "exports the $(wc -l <<<"$exported") functions of the header"

alien=$(nm -g --defined-only "$static" 2>/dev/null | awk 'NF == 3 && $3 !~ /^tg_/ { print $3 }')
expect "every global symbol of the static library begins with tg_" test -z "$alien"
needed=$(readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
expect "needs libc alone" test "$needed" = libc.so.6
soname=$(readelf -d "$shared" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
expect "has the soname of its version" test "$soname" = "libtersegrad.so.$major"
expect "asks for no executable stack" test -z "$(readelf -lW "$shared" | grep 'GNU_STACK.*RWE')"
finish
