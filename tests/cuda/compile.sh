#!/usr/bin/env bash
# The kernels compile with nvcc, where it is: for the oldest cards, which have the fewest instructions. For all kinds of
# cards it takes minutes. Usage: tests/cuda/compile.sh MAKE...
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/report.sh

nvcc=${NVCC:-nvcc}
if command -v "$nvcc" >/dev/null; then
    expect "the kernels compile for sm_75" "$@" --no-print-directory NVCC="$nvcc" ARCH=sm_75 cuda-objects
    if [ -n "$("$@" --no-print-directory -s NVCC="$nvcc" print-NCCL_MODULE)" ]; then
        expect "the NCCL module compiles" "$@" --no-print-directory NVCC="$nvcc" build/nccl.so
    else
        skip "nccl.h is not installed, so the NCCL module was compiled for the fake alone"
    fi
else
    skip "there is no nvcc here, so the kernels were compiled for the emulator alone"
fi
finish
