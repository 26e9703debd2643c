#!/usr/bin/env bash
# `tersegrad plan --probe` under mpirun, with every MPI that is here: a file that can be predicted from, one rank that speaks, nothing written
# where something is wrong. usage: tests/probe_mpi.sh COMMAND
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
command=$PWD/${1:-build/tersegrad}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# launch MPI RANKS ARGUMENT...
launch() {
    local mpi=$1 ranks=$2 options=()
    shift 2
    if [ "$mpi" = openmpi ]; then
        options=(--oversubscribe)
        [ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)
    fi
    timeout "$patience" "mpirun.$mpi" "${options[@]}" -np "$ranks" "$command" plan "$@"
}
# refused MPI NAME PATTERN RANKS ARGUMENT...: exits with 2, one rank says why, and no file is left
refused() {
    local mpi=$1 name=$2 pattern=$3 code
    shift 3
    launch "$mpi" "$@" >out 2>err
    code=$?
    if [ "$code" -ne 2 ]; then
        fail "$mpi, $name: exit status $code, not 2"
        cat err
    elif [ "$(grep -c '^tersegrad plan:' err)" -ne 1 ] || ! grep -q "$pattern" err; then
        fail "$mpi, $name: not one rank that says why"
        cat err
    else
        expect "$mpi, $name: one rank says why, and nothing is written" test -z "$(find . -name 'bad*')"
    fi
}

expect "alone, without a launcher, the file must be there" bash -c "! $command plan --probe missing.json 2>err && grep -q missing.json err"
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -e "$(dirname "$command")/mpi-$mpi.so" ]; then
        skip "mpirun.$mpi not installed"
        continue
    fi
    expect "$mpi: three ranks are probed" launch $mpi 3 --probe $mpi.json --seconds 1 --codec qsgd --codec topk:density=0.01
    expect "$mpi: nothing is left beside the file" test "$(find . -name "$mpi*")" = "./$mpi.json"
    if "$command" plan --probe $mpi.json --codec qsgd --json >plan.json 2>err; then
        expect "$mpi: predicts for its ranks" grep -q '"world": 3' plan.json
        "$command" plan --probe $mpi.json --codec qsgd --codec topk:density=0.01 >out 2>&1
        expect "$mpi: whole reductions were timed for each codec and algorithm" test "$(grep -c '"reductions"' $mpi.json)" -eq 4
        expect "$mpi: from what was measured" grep -q '^- measured: exchanges of 3 ranks, 3 on a host' out
        expect "$mpi: no codec's cost is assumed" test "$(grep -c 'assumed: coding' out)" -eq 0
    elif grep -q jansson err; then
        skip "libjansson-dev not installed when the command was built"
    else
        fail "$mpi: the file is not one to predict from"
        cat err
    fi
    refused $mpi "a folder that is not there" "cannot write 'nowhere/bad.json'" 2 --probe nowhere/bad.json --seconds 1
    mkdir -p folder
    refused $mpi "a folder" "cannot write 'folder': it is a directory" 2 --probe folder --seconds 1
    refused $mpi "no such codec" "junk" 2 --probe bad.json --codec junk
    refused $mpi "no such feedback" "junk" 2 --probe bad.json --feedback junk
    refused $mpi "a feedback that is not for the codec" "'qsgd' is not a sparsifier" 2 --probe bad.json --codec qsgd --feedback dgc:momentum=0.9
    refused $mpi "a codec twice" "qsgd and --codec qsgd:levels=7 are the same" 2 --probe bad.json --codec qsgd --codec qsgd:levels=7
    refused $mpi "no such option" "junk" 2 --probe bad.json --junk
    refused $mpi "an option that is not for measuring" "world is for predicting" 2 --probe bad.json --world 4
    refused $mpi "one rank" "there is only one; start it under mpirun" 1 --probe bad.json
done
finish
