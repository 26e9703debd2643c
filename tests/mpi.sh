#!/usr/bin/env bash
# The transports' suite under each MPI that is here, whole reductions with the bits of threads, messages cut into fragments, and ranks that die
# or give up. `tests/mpi.sh large` does something else instead: two ranks send each other a message of more than 2 GiB, which takes 5 GB of
# memory and some seconds, and so is not for `make check`. `tests/mpi.sh watched` runs the suite with the sanitizer that watches threads; under
# OpenMPI only, because MPICH crashes when it ends beneath it.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # in a container one is often root
program=build/tests/mpi/conformance
[ -n "${1:-}" ] || digest=$(build/tests/laws/transports --digest 3)

# launch MPI RANKS ARGUMENT...: the suite's program under that MPI's launcher
launch() {
    local mpi=$1 ranks=$2
    shift 2
    case $mpi in
    openmpi) timeout -k 5 "$patience" "$openmpi" --oversubscribe -n "$ranks" "${under[@]}" "$program" "${module:-$mpi}" "$@" ;;
    mpich) timeout -k 5 "$patience" "$mpich" -n "$ranks" "${under[@]}" "$program" "${module:-$mpi}" "$@" ;;
    esac
}
under=(env)
module=""

# at_level LEVEL COMMAND MPI ARGUMENT...: a command of these, where MPI grants no more than that, or is initialised with it already
# (tests/mpi/level)
at_level() {
    local under=(env "LD_PRELOAD=build/tests/mpi/level-$3.so" "LEVEL=$1")
    shift
    "$@"
}

# ends MPI WHAT [WORDS]: the job fails, soon, and says which rank it was.
ends() {
    local output status
    output=$(launch "$1" 3 0 "$2" 2>&1)
    status=$?
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && grep -q "${3:-rank 2}" <<<"$output"
}

# The program of examples/, as its users start it.
example() {
    local program=$work/example module=$1
    launch "$1" 3
}

# refuses WORDS COMMAND...: it fails with these words, and not by a crash
refuses() {
    local output
    ! output=$("${@:2}" 2>&1) && grep -q "not available here: .*$1\|invalid argument: .*$1" <<<"$output" && return
    echo "$output"
    return 1
}

# halves MPI: of four ranks two communicators are made, and the suite runs over each
halves() {
    [ "$(launch "$1" 4 0 half | grep -c ' 0 of 2 ranks failed')" -eq 2 ]
}

# none COMMAND...: where there is no such communicator
none() {
    NONE=1 "$@"
}

# with MODULE COMMAND...: another module than that of the launcher
with() {
    local module=$1
    "${@:2}"
}

same_bits() {
    [ "$(launch "$1" 3 0 reduce)" = "digest $digest" ]
}

openmpi=$(command -v mpirun.openmpi || { mpirun --version 2>/dev/null | grep -q 'Open MPI' && command -v mpirun; })
mpich=$(command -v mpiexec.mpich || { mpiexec --version 2>/dev/null | grep -q HYDRA && command -v mpiexec; })

if [ "${1:-}" = watched ]; then
    program=build/tsan/tests/mpi/conformance
    under=(env TSAN_OPTIONS=ignore_noninstrumented_modules=1) # MPI itself was not compiled for it
    if [ -z "$openmpi" ] || [ ! -e build/tsan/mpi-openmpi.so ]; then
        skip "openmpi is not installed"
    else
        module=build/tsan/mpi-openmpi.so
        for ranks in 2 4; do
            expect "$ranks ranks whose threads are watched: the suite" launch openmpi "$ranks" 0
        done
        expect "ranks whose threads are watched: messages in fragments" launch openmpi 3 1000
    fi
    finish
    exit
fi
free_gb=$(awk '/^MemAvailable/ { print int($2 / 1e6) }' /proc/meminfo)
if [ "${1:-}" = large ] && [ "${free_gb:-0}" -lt 7 ]; then
    skip "messages beyond 2 GiB: only ${free_gb:-0} GB of memory are free, and two ranks take 5"
    finish
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "${1:-}" = large ] || expect "examples/mpi.c compiles" gcc -Iinclude -o "$work/example" examples/mpi.c -Lbuild -ltersegrad -Wl,-rpath,"$PWD/build"
for mpi in openmpi mpich; do
    if [ -z "${!mpi}" ] || [ ! -e "build/mpi-$mpi.so" ]; then
        skip "$mpi is not installed"
        continue
    fi
    if [ "${1:-}" = large ]; then
        expect "$mpi: a message of more than 2 GiB, both ways" launch "$mpi" 2 0 large
        continue
    fi
    for ranks in 1 2 3 5; do
        expect "$mpi, $ranks ranks: the suite" launch "$mpi" "$ranks" 0
    done
    expect "$mpi: messages in fragments of 1000 bytes" launch "$mpi" 3 1000
    expect "$mpi: messages in fragments of 4096 bytes, some of them whole" launch "$mpi" 2 4096
    expect "$mpi: where calls are for one thread, the suite" at_level funnelled launch "$mpi" 3 0
    for level in single multiple; do
        expect "$mpi: in a program that has initialised it ($level), the suite" at_level $level launch "$mpi" 3 0
        expect "$mpi: in such a program it is found without a name" with loaded at_level $level launch "$mpi" 2 0
        expect "$mpi: in such a program a communicator can be given" at_level $level halves "$mpi"
        expect "$mpi: but not MPI_COMM_NULL" refuses 'the communicator is MPI_COMM_NULL' none at_level $level launch "$mpi" 2 0 half
        for other in openmpi mpich; do
            [ "$other" = "$mpi" ] || [ ! -e "build/mpi-$other.so" ] || for module in $other ./build/mpi-$other.so; do
                expect "$mpi: in such a program the module $module is refused" refuses 'but this process has loaded' \
                    with "$module" at_level $level launch "$mpi" 2 0
            done
        done
        module=""
        expect "$mpi: in such a program ranks that do not answer are named" at_level $level ends "$mpi" silent \
            '^ranks 1 and 2 did not answer rank 0 within 1 s'
        expect "$mpi: in such a program a rank that leaves is noticed" at_level $level ends "$mpi" leave 'rank 2 has left'
    done
    expect "$mpi: reductions have the bits that threads have" same_bits "$mpi"
    expect "$mpi: examples/mpi.c" example "$mpi"
    expect "$mpi: a rank that dies ends the job" ends "$mpi" die
    expect "$mpi: a rank that gives up ends the job" ends "$mpi" abort
    expect "$mpi: a rank that leaves is noticed by those that wait for it" ends "$mpi" leave 'rank 2 has left'
    expect "$mpi: a rank that sends too much is noticed by the others" ends "$mpi" shout 'an exchange with rank 2 failed'
    expect "$mpi: ranks that do not answer are named" ends "$mpi" silent '^ranks 1 and 2 did not answer rank 0 within 1 s'
    expect "$mpi: also where calls are for one thread" at_level funnelled ends "$mpi" silent '^ranks 1 and 2 did not answer rank 0 within 1 s'
    expect "$mpi: a second transport after the first is an error, not a crash" launch "$mpi" 2 0 again
done
[ "${1:-}" = large ] || expect "no module, and no MPI that is loaded" refuses 'has not loaded an MPI' "$program" loaded 0
[ "${1:-}" = large ] || expect "a module that is not there is an error, not a crash" sh -c "$program ./nowhere.so 0 2>&1 | grep -q 'MPI cannot be used'"
finish
