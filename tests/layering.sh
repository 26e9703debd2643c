#!/usr/bin/env bash
# Who may include whom: the table of docs/architecture.md, checked against every #include of src/, common/, predict/, train/
# and cli/. And who may look into a residual.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

# The last column of the document's table; besides, every layer may use its own folder, base, the public header and libc.
declare -A may
while IFS='|' read -r _ folder _ allowed _; do
    [[ $folder =~ src/([a-z]+)/ ]] && may[${BASH_REMATCH[1]}]="base ${allowed//,/}"
done < <(grep '^| `src/' docs/architecture.md)
libc=" assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg"
libc+=" stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype "

# allowed FILE HEADER KIND: may this file include it? KIND is < or ".
allowed() {
    local file=$1 header=$2 kind=$3 folder=${1#src/} target
    case $header in
    tersegrad.h) return 0 ;;
    mpi.h) [[ $file == src/transport/mpi/* ]]; return ;;
    nccl.h) [[ $file == src/transport/nccl/* ]]; return ;;
    cuda*.h | atomic) [ "$file" = src/device/cuda/runtime.cuh ]; return ;;
    xxhash.h) [[ $file == src/kernels/*digest.c ]]; return ;;
    esac
    case $file in
    # The command, which uses what libraries it likes, but of ours only the public header.
    cli/*) [ "$kind" = '<' ] || [ -e "$root/cli/$header" ] || [[ $header == common/* || $header == predict/* || $header == train/* ]]; return ;;
    train/*) [ "$kind" = '<' ] || [ -e "$root/train/$header" ] || [[ $header == common/* ]]; return ;;
    predict/*) [ "$kind" = '<' ] || [ -e "$root/predict/$header" ] || [[ $header == common/* ]]; return ;;
    common/*) [ "$kind" = '<' ] || [ -e "$root/common/$header" ]; return ;;
    esac
    folder=${folder%%/*}
    if [ "$kind" = '<' ]; then
        case $header in
        xmmintrin.h | immintrin.h | arm_neon.h | cpuid.h) [ "$folder" = kernels ] || [ "$folder" = base ] ;; # the compiler's own
        # Threads are made for the work of a call in one place, and by transports; what the machine has is asked in one place.
        pthread.h) [[ $file == src/base/pool.c || $file == src/device/cuda/device.cuh ]] || [ "$folder" = transport ] ;;
        sched.h) [[ $file == src/base/processors.c || $file == src/base/scratch.c ]] || [ "$folder" = transport ] ;;
        unistd.h) [[ $file == src/base/pool.c || $file == src/base/scratch.c || $file == src/base/processors.c || $file == src/base/modules.c ]] ||
            [ "$folder" = transport ] ;;
        dlfcn.h) [[ $file == src/base/modules.c || $file == src/transport/mpi_loaded.c ]] ;; # modules are loaded in one place
        link.h) [ "$folder" = transport ] ;;
        # Large pages are asked for in one place, and shared memory of processes in another.
        sys/mman.h) [ "$file" = src/base/vector_memory.c ] || [ "$file" = src/transport/mpi/shared.c ] ;;
        fcntl.h | sys/stat.h | sys/random.h) [ "$file" = src/transport/mpi/shared.c ] ;;
        *) [[ $libc == *" ${header%.h} "* ]] ;;
        esac
        return
    fi
    # Above the device, nobody knows how a device does its work.
    [[ $header != device/cpu/* && $header != device/cuda/* ]] || [ "$folder" = device ] || return 1
    case $header in
    */*) target=${header%%/*} ;;
    *) target=$folder ;;
    esac
    [ "$target" = "$folder" ] || [[ " ${may[$folder]-} " == *" $target "* ]]
}

# violations ROOT: one line for each #include that is not allowed.
violations() {
    local root=$1 file line
    while IFS=: read -r file line; do
        file=${file#"$root"/}
        [[ $line =~ ^[[:space:]]*#[[:space:]]*include[[:space:]]*([<\"])([^>\"]+) ]] || continue
        allowed "$file" "${BASH_REMATCH[2]}" "${BASH_REMATCH[1]}" || echo "$file may not include ${BASH_REMATCH[2]}"
    done < <(grep -rHE '^[[:space:]]*#[[:space:]]*include' --include='*.[ch]' --include='*.cu*' "$root"/{src,common,predict,train,cli} 2>/dev/null)
}

# around ROOT: lines of src/reduce that look into a feedback, which is feedback's memory and on its device.
around() { grep -rnE -e '->(residual|momentum)\b' "$1/src/reduce" 2>/dev/null; }

for folder in src/*/; do
    folder=$(basename "$folder")
    [ -n "${may[$folder]+known}" ] || fail "src/$folder is not in the table"
done
bad=$(violations .)
if [ -z "$bad" ]; then
    pass "every #include stays within its layer ($(find src common predict train cli -name '*.[ch]' -o -name '*.cu*' | wc -l) files)"
else
    while read -r line; do fail "$line"; done <<<"$bad"
fi

bad=$(around .)
if [ -z "$bad" ]; then
    pass "a reducer reaches residuals through feedback"
else
    while read -r line; do fail "$line: src/feedback has a function for it, or should have"; done <<<"$bad"
fi

# A check that cannot fail checks nothing: a tree with one sin of each kind.
wrong=$(mktemp -d)
trap 'rm -rf "$wrong"' EXIT
mkdir -p "$wrong"/src/{base,code,frame} "$wrong"/{common,predict,train,cli}
echo '#include "codec/codec.h"' >"$wrong/src/base/up.h"
echo '#include <zlib.h>' >"$wrong/src/code/library.c"
echo '#include <pthread.h>' >"$wrong/src/code/threads.c"
echo '#include <xxhash.h>' >"$wrong/src/frame/verify.c"
echo '#include "frame/decode.h"' >"$wrong/cli/encode.c"
echo '#include "train/data.h"' >"$wrong/common/up.c"
echo '#include "cli/files.h"' >"$wrong/train/up.c"
echo '#include "train/data.h"' >"$wrong/predict/aside.c"
echo '#include "device/cpu/cpu.h"' >"$wrong/src/frame/around.c"
mkdir -p "$wrong/src/transport"
printf '#include <%s.h>\n' mpi nccl >"$wrong/src/transport/local.c"
mkdir -p "$wrong/src/device/cuda"
echo '#include <cuda_runtime.h>' >"$wrong/src/device/cuda/open.cu"
expect "finds what is not allowed" test "$(violations "$wrong" | wc -l)" -eq 12
mkdir -p "$wrong/src/reduce"
printf '%s\n' 'on->clear(d, f->residual, n);' 's->residual_norm = source.residual_of;' >"$wrong/src/reduce/fold.c"
expect "finds who looks into a feedback" test "$(around "$wrong" | wc -l)" -eq 1
finish
