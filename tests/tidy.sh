#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy over the library and the command: one test for each file.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

# flags NAME: a variable of the Makefile, as an array of that name.
flags() {
    read -ra "${1?}" < <(make --no-print-directory -s "print-$1")
}
flags PREPROCESS
flags AVX2
flags AVX512
flags COMMAND_FLAGS
# NEON is read as on the machine that has it, with that machine's libc.
neon=(--target=aarch64-linux-gnu -isystem /usr/aarch64-linux-gnu/include)

while read -r source; do
    case $source in
    */avx2/*) instructions=("${AVX2[@]}") ;;
    */avx512/*) instructions=("${AVX512[@]}") ;;
    cli/* | common/* | predict/* | train/*) instructions=(-I. "${COMMAND_FLAGS[@]}") ;;
    */mpi/*)
        if ! command -v mpicc.openmpi >/dev/null; then
            skip "$source: mpicc.openmpi is not installed"
            continue
        fi
        read -ra instructions < <(mpicc.openmpi --showme:compile)
        ;;
    */nccl/*) instructions=(-Itests/nccl) ;;
    */neon/*)
        instructions=("${neon[@]}")
        [ "$(uname -m)" = aarch64 ] || [ -e "${neon[-1]}/stdio.h" ] || { skip "$source: libc6-dev-arm64-cross not installed"; continue; }
        ;;
    *) instructions=() ;;
    esac
    expect "$source" clang-tidy --quiet --warnings-as-errors='*' "$source" -- "${PREPROCESS[@]}" "${instructions[@]}"
done < <(find src common predict train cli -name '*.c' | sort)
finish
