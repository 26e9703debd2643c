#!/bin/bash
# What the kernels take on a card: frames compared with the CPU's, then the rows of docs/performance.md, then every kernel
# by itself (dev/cuda/timed.h). What was built elsewhere is used where it runs.
#
#     dev/cuda/card.sh build     builds it, without a card
#     dev/cuda/card.sh [run]     runs it on one; takes three minutes
set -u
cd "$(dirname "$0")/../.." || exit 1
arch=${ARCH:-sm_90}
programs="build/tersegrad build/tests/cuda/onboard"

build() {
    local jobs=${JOBS:-$(nproc)}
    # shellcheck disable=SC2086
    make --no-print-directory -s -j"$jobs" ${CC:+CC="$CC"} CFLAGS="${CFLAGS:-}" ARCH="$arch" cuda $programs || return 1
    mkdir -p build/timed
    for source in src/device/cuda/*.cu; do
        echo "$source"
    done | xargs -P"$jobs" -I{} sh -c 'o=build/timed/$(basename {} .cu).o
        if [ -e $o ] && [ -z "$(find src dev/cuda include -newer $o -name "*.[ch]*" | head -1)" ]; then exit 0; fi
        nvcc -std=c++20 -O3 -fmad=false -arch='"$arch"' -include dev/cuda/timed.h -Isrc -Iinclude \
            -D_POSIX_C_SOURCE=200809L -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off -c -o $o {}' || return 1
    nvcc -shared -cudart static -Xlinker --exclude-libs,ALL,-Bsymbolic -o build/timed/libtersegrad_cuda.so \
        build/timed/*.o build/libtersegrad.a -lpthread -ldl && cp build/tersegrad build/timed/tersegrad
}

# One line for each row, so that little is lost where the output is cut.
rows() { timeout 60 "${program:-build/tersegrad}" bench --device cuda --nonfinite trust --seconds "${seconds:-0.06}" "$@" 2>&1; }

run() {
    build/tersegrad bench --devices | grep -q cuda || build || exit 1
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
    timeout 60 build/tests/cuda/onboard --device cuda 2>&1 | tail -4
    timeout 60 build/tests/cuda/onboard --count 1000003 --device cuda 2>&1 | tail -4
    timeout 60 build/tests/cuda/onboard --count 20000003 --only k:density=0.01 --device cuda 2>&1 | tail -4
    local n sparse="--codec topk:density=0.01 --codec topk:density=0.001 --codec gaussiank:density=0.01 --codec dgck:density=0.01"
    local dense="--codec qsgd:levels=7 --codec qsgd:levels=7,norm=l2" entropy="--codec qsgd:levels=7,coding=entropy"
    for n in ${COUNTS:-1000000 25600000 138000000}; do
        # shellcheck disable=SC2086
        { rows -n "$n" $dense $entropy; rows -n "$n" --feedback $sparse $dense; }
    done
    rows -n 25600000 --feedback --nonfinite reject --codec topk:density=0.01 --codec qsgd:levels=7
    [ -e build/timed/tersegrad ] || return 0
    for n in ${COUNTS:-1000000 138000000}; do
        for codec in topk:density=0.01 qsgd:levels=7; do
            echo "kernels, $n elements, $codec, feedback"
            program=build/timed/tersegrad seconds=0.02 rows -n "$n" --feedback --codec "$codec" | grep kernel
        done
    done
    echo "kernels, 138000000 elements, gaussiank, feedback; prefix"
    program=build/timed/tersegrad seconds=0.02 rows -n 138000000 --feedback --codec gaussiank:density=0.01 | grep kernel
    program=build/timed/tersegrad seconds=0.02 rows -n 138000000 $entropy | grep kernel
    # shellcheck disable=SC2086
    rows -n 1000000000 $dense
}

"${1:-run}"
