#!/usr/bin/env bash
# Runs each fuzz target for a while, as many at a time as there are processors: scripts/fuzz.sh SECONDS TARGET...
#
# What libFuzzer finds worth keeping goes to build/fuzz/corpus/TARGET and is used again next time; tests/fuzz/corpus/TARGET
# holds the seeds, and is only read. An input that breaks a promise is left in build/fuzz/crashes: put it into
# tests/fuzz/corpus/TARGET under a name that says what it shows, and `make check` will replay it for ever.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
seconds=$1
shift
mkdir -p build/fuzz/crashes

fuzz() {
    mkdir -p "build/fuzz/corpus/$1"
    "build/fuzz/tests/fuzz/$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/crashes/$1-" "build/fuzz/corpus/$1" "tests/fuzz/corpus/$1"
    echo $? >"build/fuzz/$1.status"
}

for target in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
        wait -n
    done
    echo "fuzzing $target for $seconds s"
    fuzz "$target" >"build/fuzz/$target.log" 2>&1 &
done
wait
for target in "$@"; do
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log")
    if [ "$(cat "build/fuzz/$target.status")" -eq 0 ]; then
        pass "$target: $runs inputs, $(sed -n 's/.* \(cov: [0-9]*\) .*/\1/p' "build/fuzz/$target.log" | tail -n 1)"
    else
        fail "$target: see build/fuzz/$target.log"
        grep -vE '^#[0-9]|^stat::' "build/fuzz/$target.log" | tail -n 40
    fi
done
finish
