#!/usr/bin/env bash
# Installs what is missing on a Debian machine; silent and quick where nothing is.
#
#   scripts/setup.sh [--try] COMPONENT...     components: build train check python ci mpi browser torch nccl fuzz foreign
#
# `make check` needs build, train, check and python; `make check-ci` needs all. A download that fails is tried again.
# --try: what cannot be installed is a message and no failure; the tests that need it are then skipped by name.
# SETUP_DRY_RUN=1 prints what would be installed and installs nothing.
set -u
cd "$(dirname "$0")/.." || exit 1

missing=()   # Debian packages
problem=0

# need COMMAND PACKAGE...: the packages are needed where the command is absent.
need() {
    command -v "$1" >/dev/null || missing+=("${@:2}")
}

# need_file GLOB PACKAGE...: libraries and headers leave no command behind.
need_file() {
    compgen -G "$1" >/dev/null || missing+=("${@:2}")
}

# clang's sanitizer and fuzzer run-times come in a package that carries clang's version.
need_clang() {
    local version
    need clang clang
    version=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
    if [ -z "$version" ]; then
        missing+=(libclang-rt-dev) # the version is known once apt knows its packages: see `resolve`
    else
        need_file "$(clang -print-resource-dir)/lib/linux/libclang_rt.fuzzer-*.a" "libclang-rt-$version-dev"
    fi
}

need_c() {
    need gcc gcc libc6-dev
    need_file '/usr/include/stdio.h' libc6-dev
    need make make
    need_file '/usr/include/xxhash.h' libxxhash-dev
}

# What `tersegrad train` is faster with (BLAS, looked for when it runs); what the command reads gzipped data and JSON with (when building).
need_train() {
    need_file '/usr/lib/*/libopenblas.so.0' libopenblas0-pthread
    need_file '/usr/include/zlib.h' zlib1g-dev
    need_file '/usr/include/jansson.h' libjansson-dev
}

need_python() {
    if [ -x .venv/bin/python ] && cmp -s scripts/requirements.txt .venv/requirements.txt; then
        return
    fi
    venv=1
    if ! command -v python3 >/dev/null; then
        missing+=(python3 python3-venv)
    elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        missing+=(python3-venv)
    fi
}

need_torch() {
    need_python
    cmp -s python/requirements.txt .venv/torch-requirements.txt || torch=1
}

# NCCL's header, for the module: only where CUDA's compiler is.
need_nccl() {
    command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || return
    compgen -G '/usr/include/nccl.h' >/dev/null || compgen -G '.venv/lib/python3*/site-packages/nvidia/nccl/include/nccl.h' >/dev/null || nccl=1
    need_python
}

# gcc-NAME-linux-gnu recommends the libc that it needs; we take no recommendations, so both are named.
need_foreign() {
    need qemu-s390x qemu-user
    need s390x-linux-gnu-gcc gcc-s390x-linux-gnu libc6-dev-s390x-cross
    need_file '/usr/s390x-linux-gnu/lib/libc.a' libc6-dev-s390x-cross
    if [ "$(uname -m)" != aarch64 ]; then
        need clang clang
        need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
        need_file '/usr/aarch64-linux-gnu/lib/libc.a' libc6-dev-arm64-cross
    fi
}

# again COMMAND...: networks fail now and then, so up to four times, with a longer pause each time.
again() {
    local pause
    for pause in 3 10 30 0; do
        "$@" && return 0
        [ "$pause" -eq 0 ] || { echo "setup: failed; trying again in $pause s" >&2; sleep "$pause"; }
    done
    return 1
}

# complain MESSAGE: to stderr, and remembered for the exit status.
complain() {
    echo "setup: $*" >&2
    problem=1
}

# Replaces libclang-rt-dev by the package for the clang that apt would install.
resolve() {
    local i version
    for i in "${!missing[@]}"; do
        if [ "${missing[i]}" = libclang-rt-dev ]; then
            version=$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
            missing[i]=libclang-rt-${version}-dev
        fi
    done
}

install_packages() {
    local as_root=()
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | awk '!seen[$0]++')
    if [ -n "${SETUP_DRY_RUN:-}" ]; then
        echo "would install: ${missing[*]}"
        return
    fi
    if ! command -v apt-get >/dev/null; then
        complain "not installed: ${missing[*]} (Debian names). There is no apt-get here; please install them by hand."
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            complain "not installed: ${missing[*]}. Installing needs root: apt-get install ${missing[*]}"
            return
        fi
        as_root=(sudo)
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    if ! again quietly "${as_root[@]}" apt-get -qq update || ! resolve; then
        complain "apt-get cannot update its list of packages"
        return
    fi
    echo "installing: ${missing[*]}"
    again quietly "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}" ||
        complain "could not install: ${missing[*]}"
}

# quietly COMMAND...: says now and then that it is still at work; shows the end of what it printed where it fails.
quietly() {
    local log status running waited=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 &
    running=$!
    while kill -0 "$running" 2>/dev/null; do
        sleep 0.5
        waited=$((waited + 1))
        [ $((waited % 40)) -ne 0 ] || echo "  ... $(tail -n 1 "$log" | cut -c 1-100)"
    done
    wait "$running"
    status=$?
    [ "$status" -eq 0 ] || tail -n 15 "$log" >&2
    rm -f "$log"
    return "$status"
}

install_venv() {
    if [ -n "${SETUP_DRY_RUN:-}" ]; then
        echo "would install: $(sed -n 's/^\([a-z].*\)$/\1/p' scripts/requirements.txt | tr '\n' ' ')into .venv"
        return
    fi
    echo "installing: $(sed -n 's/^\([a-z].*\)$/\1/p' scripts/requirements.txt | paste -sd' ') into .venv"
    rm -rf .venv
    if python3 -m venv .venv && again quietly .venv/bin/pip -q --disable-pip-version-check install -r scripts/requirements.txt; then
        cp scripts/requirements.txt .venv/requirements.txt
    else
        complain "could not make .venv with the packages of scripts/requirements.txt"
    fi
}

# Into the .venv that is there: torch is large, so it is not installed for those who do not ask for it.
install_torch() {
    if [ -n "${SETUP_DRY_RUN:-}" ]; then
        echo "would install: $(sed -n 's/^\([a-z].*\)$/\1/p' python/requirements.txt | tr '\n' ' ')into .venv"
        return
    fi
    echo "installing: torch, mypy into .venv"
    if again quietly .venv/bin/python -m pip -qq --disable-pip-version-check install -r python/requirements.txt; then
        cp python/requirements.txt .venv/torch-requirements.txt
    else
        complain "could not install the packages of python/requirements.txt into .venv"
    fi
}

# The package has header and library. Others that it depends on are not needed to compile.
install_nccl() {
    if [ -n "${SETUP_DRY_RUN:-}" ]; then
        echo "would install: nvidia-nccl-cu13 into .venv"
        return
    fi
    echo "installing: nvidia-nccl-cu13 into .venv"
    again quietly .venv/bin/python -m pip -qq --disable-pip-version-check install --no-deps nvidia-nccl-cu13 ||
        complain "could not install nvidia-nccl-cu13 into .venv"
}

try=0
venv=0
nccl=0
torch=0
for component in "$@"; do
    case $component in
    --try) try=1 ;;
    build) need_c ;;
    train) need_train ;;
    browser) need chromium chromium ;;
    check)
        need shellcheck shellcheck
        need cmake cmake
        need pkg-config pkg-config
        need git git
        need zsh zsh           # parses its completion
        need groff groff-base  # formats the man page
        need_file '/usr/include/cmocka.h' libcmocka-dev
        ;;
    ci)
        need_clang
        need clang-tidy clang-tidy
        need cppcheck cppcheck
        need valgrind valgrind
        need pgrep procps
        [ "$(uname -m)" = aarch64 ] || need_file '/usr/aarch64-linux-gnu/include/stdio.h' libc6-dev-arm64-cross
        ;;
    mpi)
        need mpicc.openmpi openmpi-bin libopenmpi-dev
        need mpirun.openmpi openmpi-bin
        need mpicc.mpich mpich libmpich-dev
        need_file /usr/lib/libkeepalive.so libkeepalive0 # tests/hosts.sh
        need ip iproute2 # hosts of network namespaces
        ;;
    python) need_python ;;
    torch) need_torch ;;
    nccl) need_nccl ;;
    fuzz) need_clang ;;
    foreign) need_foreign ;;
    *)
        echo "setup: unknown component '$component'; known: build train check python ci mpi browser torch nccl fuzz foreign" >&2
        exit 2
        ;;
    esac
done
[ ${#missing[@]} -eq 0 ] || install_packages
[ "$venv" -eq 0 ] || install_venv
[ "$torch" -eq 0 ] || install_torch
[ "$nccl" -eq 0 ] || install_nccl
[ "$problem" -eq 0 ] || [ "$try" -eq 1 ]
