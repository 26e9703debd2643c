#!/usr/bin/env bash
# Instructions of each hot operation on 131072 elements, counted by callgrind and compared with bench/instructions.txt: one that has
# grown by more than a tenth fails. Times depend on who else uses the machine; these do not.
#
#   bench/instructions.sh PROGRAM COMPILER            compare
#   bench/instructions.sh --record PROGRAM COMPILER   write bench/instructions.txt anew (make instructions)
#
# Counts depend on the compiler, so they are compared only where it is the one that the file names.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
record=no
[ "${1:-}" = --record ] && { record=yes; shift; }
# Counts hardly differ between releases of one version: gcc 12.
version=$("$2" -dumpversion)
program=$1 compiler="$("$2" --version | sed -n '1s/ .*//p') ${version%%.*}"
recorded=bench/instructions.txt
known=$(sed -n 's/^# compiler: //p' "$recorded" 2>/dev/null)
# The reason ends in the words by which CI=true tells that something must be put right: with another compiler the guard is off.
if [ "$record" = no ] && [ "$known" != "$compiler" ]; then
    echo "skip: counts were recorded with $known; this is $compiler, and that one is not installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
counts=$(mktemp -d)
trap 'rm -rf "$counts"' EXIT
if ! valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$counts/out" "$program" >"$counts/log" 2>&1; then
    cat "$counts/log"
    fail "$program does not run under callgrind"
    finish
    exit 1
fi
# Every dump is a file that has its name and its total.
measured=$(awk '/^desc: Trigger: Client Request: / { sub(/^desc: Trigger: Client Request: /, ""); name = $0 }
    /^totals: / && name != "" { print $2 "\t" name; name = "" }' "$counts"/out.* | sort -k2)
if [ "$record" = yes ]; then
    {
        echo "# Instructions for 131072 elements; make instructions writes this file, bench/instructions.sh compares with it."
        echo "# compiler: $compiler"
        echo "$measured"
    } >"$recorded"
    echo "recorded $(wc -l <<<"$measured") counts with $compiler"
    exit 0
fi
while IFS=$'\t' read -r before name; do
    now=$(awk -F'\t' -v name="$name" '$2 == name { print $1 }' <<<"$measured")
    if [ -z "$now" ]; then
        fail "$name is not counted any more: make instructions"
    elif [ $((now * 10)) -gt $((before * 11)) ]; then
        fail "$name takes $now instructions and took $before; make it quicker again, or say why in the commit that runs make instructions"
    else
        pass "$name $now ($before)"
    fi
done < <(grep -v '^#' "$recorded")
expect "nothing is counted that is not recorded" test "$(wc -l <<<"$measured")" -eq "$(grep -vc '^#' "$recorded")"
finish
