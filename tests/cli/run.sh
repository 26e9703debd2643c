#!/bin/sh
# Runs every test of the command: NAME.sh in a scratch directory, its output and exit code against NAME.expected.
#
#   tests/cli/run.sh TERSEGRAD_BINARY [NAME]...            check (all, or the named ones)
#   tests/cli/run.sh --update TERSEGRAD_BINARY [NAME]...   write the expected files anew
#
# A script that exits with 77 is skipped; what it printed says why.
set -u

update=no
if [ "${1:-}" = --update ]; then
    update=yes
    shift
fi
if [ $# -lt 1 ]; then
    echo "usage: $0 [--update] TERSEGRAD_BINARY [NAME]..." >&2
    exit 2
fi
binary=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
if [ ! -x "$binary" ]; then
    echo "$0: there is no program '$binary'" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT

mkdir "$scratch/bin"
ln -s "$binary" "$scratch/bin/tersegrad"
PATH=$scratch/bin:$PATH
TOOLS=$here/tools
SHARE=$here/../../share
LC_ALL=C.UTF-8
PYTHONIOENCODING=utf-8
export PATH TOOLS SHARE LC_ALL PYTHONIOENCODING
unset COLUMNS

if [ $# -eq 0 ]; then
    for script in "$here"/*.sh; do
        name=$(basename "$script" .sh)
        [ "$name" = run ] || set -- "$@" "$name"
    done
fi

passed=0 failed=0 skipped=0
for name in "$@"; do
    mkdir "$scratch/$name"
    (cd "$scratch/$name" && sh "$here/$name.sh") >"$scratch/$name.out" 2>&1 </dev/null
    code=$?
    if [ "$code" -eq 77 ]; then
        echo "skip $name: $(tail -n 1 "$scratch/$name.out")"
        skipped=$((skipped + 1))
        continue
    fi
    echo "exit $code" >>"$scratch/$name.out"
    if [ "$update" = yes ]; then
        cp "$scratch/$name.out" "$here/$name.expected"
    fi
    if diff -u "$here/$name.expected" "$scratch/$name.out" >"$scratch/$name.diff" 2>&1; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        cat "$scratch/$name.diff"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
