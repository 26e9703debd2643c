#!/usr/bin/env bash
# The C programs that README.md shows, and those of examples/: they must compile without warnings, against the library
# as built, and run. The one for MPI is run by tests/mpi.sh. usage: tests/example.sh COMPILER
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strict=(-Wall -Wextra -Wpedantic -Wconversion -Werror)

# compiles_and_runs SOURCE NAME
compiles_and_runs() {
    rm -f "$work/program"
    expect "$2 compiles" "$compiler" "${strict[@]}" -pthread -Iinclude -o "$work/program" "$1" -Lbuild -ltersegrad -lm
    [ "$1" = examples/mpi.c ] || expect "$2 runs" env LD_LIBRARY_PATH=build "$work/program"
}

compiler=$1
awk -v folder="$work" '/^```c$/ { n++; inside = 1; next } /^```/ { inside = 0 }
    inside { print >(folder "/example" n ".c") }' README.md
for source in "$work"/example*.c; do
    compiles_and_runs "$source" "README.md, $(basename "$source" .c)"
done
for source in examples/*.c; do
    compiles_and_runs "$source" "$source"
done
finish
