#!/usr/bin/env bash
# What can only be checked where there is a CUDA card: the laws on it, what only a card can do wrong (tests/cuda), a million
# mutated frames, NVIDIA's sanitizer over a part of all that, PyTorch, and the benchmark. Usage: scripts/check_cuda.sh
# [laws|card|fuzz|sanitizer|python|bench]...; without arguments all of them. What it prints ends with `N passed, M failed, K
# skipped`. MUTATED=10000 is the number of mutated frames. CUDA_ARCH=sm_90 compiles for one kind of card; CFLAGS may name a folder that has
# xxhash.h. NCCL_LIBRARY is the path of libnccl.so.2, PYTHON an interpreter that has torch. Logs go to build/check.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
laws="arrays devices codecs feedback damage refusal reduce reduce_ready"
mkdir -p build/check
card="table steps ranks memory lost onboard graph"
[ $# -gt 0 ] || set -- laws card fuzz sanitizer python bench

run_laws() {
    local law
    for law in $laws; do
        expect "laws/$law on the card" run_logged "cuda-$law" "build/tests/laws/$law" --subset --device cuda
    done
}

# `lost` leaves nothing to work with, which is why it is a program of its own.
run_card() {
    local name
    for name in $card; do
        expect "cuda/$name on the card" run_logged "cuda-$name" timeout 300 "build/tests/cuda/$name" --device cuda
    done
    # Two ranks on one card are refused by NCCL: one, with its library.
    library=${NCCL_LIBRARY:-$(compgen -G '.venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2' || :)}
    if [ -e build/nccl.so ] && [ -e "$library" ]; then
        expect "cuda/nccl on the card" run_logged cuda-nccl timeout 300 build/tests/cuda/nccl --library "$library" --ranks 1 --device cuda
    else
        skip "NCCL is not installed (NCCL_LIBRARY is the path of libnccl.so.2)"
    fi
    sed -n 's/^unsupported/  &/p' build/check/cuda-table.log
}

# Four processes, each with a seed of its own: the CPU, which is the reference, takes longer than the card.
run_fuzz() {
    local seed log
    for seed in 1 2 3 4; do
        build/tests/cuda/mutate --cases $((${MUTATED:-1000000} / 4)) --seed "$seed" --device cuda \
            >"build/check/cuda-mutate-$seed.log" 2>&1 &
    done
    wait
    for seed in 1 2 3 4; do
        log=build/check/cuda-mutate-$seed.log
        expect "mutated frames, seed $seed: $(grep accepted "$log")" grep -q ' 0 failed' "$log"
    done
}

# A short law under each tool, and a part of another: the tools make everything a hundred times as slow.
run_sanitizer() {
    local tool sanitizer
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$sanitizer" ] || { skip "compute-sanitizer is not installed"; return; }
    for tool in memcheck racecheck initcheck; do
        expect "$tool finds nothing" run_logged "cuda-$tool" timeout 600 "$sanitizer" --tool "$tool" --error-exitcode 9 \
            build/tests/laws/arrays --device cuda
    done
    expect "memcheck finds nothing in mutated frames" run_logged cuda-memcheck-mutate timeout 600 "$sanitizer" \
        --error-exitcode 9 build/tests/cuda/mutate --cases 1000 --device cuda
    expect "memcheck finds nothing in all codecs" run_logged cuda-memcheck-codecs timeout 600 "$sanitizer" \
        --error-exitcode 9 build/tests/laws/codecs --subset "${SANITIZED:-1/10}" --device cuda
}

# The package on the card: compressed there, and staged through the host.
run_python() {
    local python=${PYTHON:-.venv/bin/python}
    [ -x "$(command -v "$python")" ] || python=python3
    if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
        expect "python/tests/test_cuda.py on the card" run_logged cuda-python timeout 600 "$python" python/tests/test_cuda.py
    else
        skip "torch for cards is not installed (PYTHON is an interpreter that has it)"
    fi
}

run_bench() {
    local count feedback
    for count in 25600000 138000000; do
        for feedback in "" --feedback; do
            expect "bench of $count elements $feedback" run_logged "cuda-bench-$count$feedback" \
                build/tersegrad bench --device cuda -n "$count" ${feedback:+$feedback --nonfinite trust}
            cat "build/check/cuda-bench-$count$feedback.log"
        done
    done
    expect "bench of many tensors" run_logged cuda-bench-tensors build/tersegrad bench --device cuda --tensors resnet50 \
        --codec qsgd --codec topk:density=0.01
    cat build/check/cuda-bench-tensors.log
}

# run_logged NAME COMMAND...: its last lines are shown where it fails.
run_logged() {
    local log=build/check/$1.log start=$SECONDS
    shift
    "$@" >"$log" 2>&1 && { echo "  $((SECONDS - start)) s: $(tail -n 1 "$log")"; return 0; }
    grep -m 5 -E 'FAIL|=========' "$log"
    tail -n 5 "$log"
    return 1
}

read -ra programs <<<"$(printf 'build/tests/laws/%s ' $laws) $(printf 'build/tests/cuda/%s ' $card nccl mutate)"
make --no-print-directory -s release cuda ${CUDA_ARCH:+ARCH=$CUDA_ARCH} CFLAGS="${CFLAGS:-}" "${programs[@]}" || exit 1
for part; do
    case $part in
    laws | card | fuzz | sanitizer | python | bench) "run_$part" ;;
    *) echo "check_cuda: no part '$part': laws, card, fuzz, sanitizer, python, bench" >&2; exit 2 ;;
    esac
done
finish
