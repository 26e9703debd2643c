#!/usr/bin/env bash
# Runs groups of tests, says what came of each, and ends with the sum: `N passed, M failed, K skipped`.
#
#   scripts/check.sh GROUP...    names of groups, or one of the lists below: check, ci, all, foreign
#   scripts/check.sh --list      the names of all groups
#
# What a group prints goes to build/check/GROUP.log. A skip names its reason; with CI=true one whose reason is that
# something is not installed is a failure. LAWS=--all runs the full product of the laws. MAKE is the make to build with.
set -u
cd "$(dirname "$0")/.." || exit 1
: "${MAKE:=make}" "${LAWS:=--subset}"
[ "$LAWS" = --all ] && KILLS=50 || KILLS=5
export CMOCKA_MESSAGE_OUTPUT=stdout LC_ALL=C
logs=build/check
pytest='.venv/bin/python -m pytest -q -rs -p no:cacheprovider'
every=${CHECK_PROGRESS:-15} # seconds after which a line says what is going on
# Seconds for any one program. This ends what hangs; it must be far beyond what a slow or busy machine needs.
limit=${CHECK_LIMIT:-3600}
[ "$LAWS" != --all ] || limit=$((12 * limit))

# ---- The groups: name, what must be installed, what make builds first, the command -----------------------------------

# What shows that the build can be trusted: minutes, and no large packages. The long ones first, so that the processors
# are busy to the end.
groups_check() {
    if [ "$LAWS" = --all ]; then groups_laws; else group laws gcc release-laws programs build laws "$LAWS"; fi
    group memory    gcc            "asan asan-fuzz $(printf 'build/asan/tests/laws/%s ' $asan_laws)" with_asan
    group papers    gcc            release-papers  programs build papers
    group cli       python3        release         script tests/cli/run.sh build/tersegrad
    group reference .venv          all             tally pytest $pytest reference
    group python-numpy .venv       all             tally pytest $pytest python/tests/test_library.py python/tests/test_numpy.py python/tests/test_misuse.py
    group golden    gcc            release         script tests/golden/run.sh build/tersegrad
    group install   "cmake pkg-config" all         script tests/install.sh
    group unit      cmocka.h       release-unit    programs build unit
    group shell     shellcheck     ""              script tests/shell.sh
    group format    .venv          ""              script tests/format.sh
    group docs      python3        ""              script tests/docs.sh
    group symbols   readelf        all             script tests/symbols.sh
    group header    gcc            ""              script tests/header.sh gcc
    group layering  bash           ""              script tests/layering.sh
    group runner    bash           ""              script tests/runner.sh
    group example   gcc            all             script tests/example.sh gcc
}

# What takes longer, or needs more to be installed: analysers, other compilers, MPI, hosts, a browser.
groups_ci() {
    group cuda      g++            emulated        with_emulated_card
    group sanitizers cmocka.h      "asan asan-unit asan-laws asan-fuzz" with_sanitizers
    group tsan      gcc            "build/tsan/tests/laws/threads build/tsan/tests/laws/refusal build/tsan/tests/laws/reduce_faults build/tsan/tests/laws/reduce_hosts tsan-ranks tsan-module" with_tsan
    group tidy      clang-tidy     ""              script tests/tidy.sh
    group python    torch          all             tally pytest $pytest python/tests/test_torch.py python/tests/test_local.py python/tests/test_hosts.py python/tests/test_fsdp.py python/tests/test_plan.py python/tests/test_usage.py
    group wheel     "torch cmake"  ""              script tests/wheel.sh
    group mpi       gcc            "all release-ranks levels build/tests/laws/transports" script tests/mpi.sh
    group claims    .venv          release         tally pytest $pytest tests/claims
    group kill      bash           release         script tests/kill.sh build/tersegrad "$KILLS"
    group trainmpi  pgrep          all             script tests/train_mpi.sh build/tersegrad
    group probe     bash           all             script tests/probe_mpi.sh build/tersegrad
    group hosts     pgrep          all             script tests/hosts.sh build/tersegrad
    group report    chromium       release         script tests/report_page.sh build/tersegrad
    group valgrind  valgrind       "release build/gradient" script tests/valgrind.sh build/tersegrad
    group instructions valgrind    build/bench/instructions script bench/instructions.sh build/bench/instructions "${CC:-gcc}"
    group cppcheck  cppcheck       ""              script tests/cppcheck.sh
    group clang     "clang cmocka.h" "all clang clang-unit" with_clang
    [ "$LAWS" != --all ] || groups_large
}

# What takes too much memory to be run beside others without being asked.
groups_large() {
    group mpi-large gcc            "all release-ranks" script tests/mpi.sh large
}

# The laws one by one: in full they take long, and side by side they are done sooner.
groups_laws() {
    local source name
    for source in tests/laws/*.c; do
        name=$(basename "$source" .c)
        group "laws-$name" gcc "build/tests/laws/$name" tally "laws/$name" "build/tests/laws/$name" "$LAWS"
    done
}

groups_foreign() {
    group aarch64   "aarch64-linux-gnu-gcc qemu-aarch64" "aarch64 aarch64-unit aarch64-laws" with_qemu aarch64 --subset 1/2 # emulation is slow: half of the specs
    group s390x     "s390x-linux-gnu-gcc qemu-s390x"     "s390x s390x-unit s390x-laws"       with_qemu s390x --subset 1/5 # a fifth of them shows the order of bytes
    group arm-clang "clang aarch64-linux-gnu-gcc qemu-aarch64" "aarch64-clang aarch64-clang-laws" with_clang_and_qemu
}

# programs FOLDER KIND [ARGUMENTS] [PREFIX...]: every program of tests/KIND as FOLDER has built it.
programs() {
    local folder=$1 kind=$2 arguments=${3:-} source name
    for source in tests/"$kind"/*.c; do
        name=$(basename "$source" .c)
        # shellcheck disable=SC2086
        tally "$kind/$name" "${@:4}" "$folder/tests/$kind/$name" $arguments
    done
}

script() {
    tally "$1" "$@"
}

# A part of with_sanitizers that takes little time: bytes from elsewhere, which are the most dangerous.
asan_laws="damage reduce_hostile"
with_asan() {
    local name
    for name in $asan_laws; do
        tally "laws/$name" "build/asan/tests/laws/$name" --subset
    done
    script tests/golden/run.sh build/asan/tersegrad
    replay build/asan
}

with_sanitizers() {
    local source name
    programs build/asan unit
    for source in tests/laws/*.c; do
        name=$(basename "$source" .c)
        case " $asan_laws " in
        *" $name "*) ;; # in the group `memory`
        *) tally "laws/$name" "build/asan/tests/laws/$name" --subset ;;
        esac
    done
    script tests/cli/run.sh build/asan/tersegrad bench train_data train_usage train_faults
    replay build/asan
}

# Threads that step on each other's toes are found by watching them, not by comparing bytes.
with_tsan() {
    local name
    for name in threads refusal reduce_faults; do
        tally "laws/$name" env TSAN_OPTIONS=halt_on_error=1 "build/tsan/tests/laws/$name"
    done
    # Ranks of a host share memory there. All of it takes ten minutes.
    tally laws/reduce_hosts env TSAN_OPTIONS=halt_on_error=1 build/tsan/tests/laws/reduce_hosts --subset 1/24
    script tests/mpi.sh watched
}

# Every fuzz target over its corpus.
replay() {
    local source name
    for source in tests/fuzz/*.c; do
        name=$(basename "$source" .c)
        [ "$name" = replay ] || tally "fuzz/$name" "$1/tests/fuzz/$name" tests/fuzz/corpus/"$name"/*
    done
}

# The kernels for cards, on a card that is emulated on the CPU. It is slow, so some laws get a part of the specs.
with_emulated_card() {
    local law
    for law in arrays devices residuals "codecs 1/12" "feedback 1/24" "damage 1/24" "refusal 1/48"; do
        # shellcheck disable=SC2086
        tally "laws/${law% *}" "build/emulated/tests/laws/${law% *}" --subset ${law#"${law% *}"} --device cuda
    done
    tally cuda/coding build/emulated/tests/coding
    for law in graph lost memory onboard ranks "table --all 1/6" "steps --steps 20" "mutate --cases 5000"; do
        # shellcheck disable=SC2086
        tally "cuda/${law%% *}" build/emulated/tests/cuda/$law --device cuda
    done
    tally cuda/nccl build/emulated/tests/cuda/nccl --library build/emulated/libnccl.so.2
    # shellcheck disable=SC2086
    script tests/cuda/compile.sh $MAKE
}

# Another compiler must give the same bytes.
with_clang() {
    script tests/header.sh clang
    script tests/example.sh clang
    programs build/clang unit
    script tests/golden/run.sh build/clang/tersegrad
}

# with_qemu MACHINE [ARGUMENT...]: what the laws are given.
with_qemu() {
    script tests/golden/run.sh "qemu-$1" "build/$1/tersegrad"
    programs "build/$1" unit "" "qemu-$1"
    programs "build/$1" laws "${*:2}" "qemu-$1"
}

# What depends on how a compiler takes the intrinsics.
with_clang_and_qemu() {
    local law
    script tests/golden/run.sh qemu-aarch64 build/aarch64-clang/tersegrad
    for law in kernels candidates gaps devices; do
        tally "laws/$law" qemu-aarch64 "build/aarch64-clang/tests/laws/$law" --subset
    done
}

# ---- Running one group -----------------------------------------------------------------------------------------------

# tally LABEL COMMAND...: runs it and adds what it reports to the group's numbers.
tally() {
    local label=$1 output status passed failed skipped reasons
    output=$(mktemp)
    shift
    echo "== $label: ${*:1:3}"
    echo "$group: $label" >"$logs/$group.now"
    timeout "$limit" "$@" >"$output" 2>&1
    status=$?
    cat "$output"
    read -r passed failed skipped reasons < <(awk -f scripts/tally.awk "$output")
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        echo "FAIL $label: exit status $status$([ "$status" -eq 124 ] && echo ": it hangs, and was ended after $limit s")"
        failed=1
    elif [ $((passed + failed + skipped)) -eq 0 ]; then
        echo "FAIL $label: it did not say how many tests it ran"
        failed=1
    elif [ "$skipped" -gt 0 ] && [ "$reasons" -eq 0 ]; then
        echo "FAIL $label: it skipped tests without a reason"
        failed=$((failed + 1))
    fi
    sed -nE "s,^(skip|SKIPPED)[: ] *,$label: ,p" "$output" >>"$logs/$group.skips"
    echo "$passed $failed $skipped" >>"$logs/$group.counts"
    rm -f "$output"
}

# absent REASON: one skip.
absent() {
    echo "skip: $1"
    echo "$group: $1" >>"$logs/$group.skips"
    echo "0 0 1" >>"$logs/$group.counts"
}

sum() {
    awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$@"
}

seconds_since() {
    awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'
}

# run GROUP: in a process of its own; prints its line at the end.
run() {
    local group=$1 start=$EPOCHREALTIME
    ${runs[$group]} >>"$logs/$group.log" 2>&1
    [ -e "$logs/$group.counts" ] || echo "0 1 0" >"$logs/$group.counts" # it ran nothing
    rm -f "$logs/$group.now"
    report "$group" "$(seconds_since "$start")"
}

report() {
    local passed failed skipped word=ok text
    read -r passed failed skipped < <(sum "$logs/$1.counts")
    text="$passed passed"
    [ "$skipped" -eq 0 ] || text+=", $skipped skipped"
    [ "$failed" -eq 0 ] || { text+=", $failed failed" word=FAIL; }
    [ "$passed" -gt 0 ] || [ "$failed" -gt 0 ] || word=skip
    printf '%-4s  %-10s  %-36s %6s s\n' "$word" "$1" "$text" "$2"
}

# What failed, by name, and how the log ends.
show_failure() {
    printf '\n---- %s\n' "$1"
    grep -E '^(FAIL|FAILED|\[  FAILED  \] [^0-9])|: (error|warning): ' "$1" | sort -u | head -n 20
    echo ...
    tail -n 20 "$1"
}

# installed NAME: a command, a header, the virtual environment, or torch in it.
installed() {
    case $1 in
    *.h) [ -e "/usr/include/$1" ] ;;
    .venv) [ -e .venv/requirements.txt ] ;;
    torch) [ -e .venv/torch-requirements.txt ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# ---- All of them -----------------------------------------------------------------------------------------------------

names=()
declare -A needs builds runs
group() {
    names+=("$1")
    needs[$1]=$2 builds[$1]=$3 runs[$1]="${*:4}"
}

choose() {
    local name
    groups_check
    groups_ci
    groups_foreign
    groups_laws
    groups_large
    group laws gcc release-laws programs build laws "$LAWS"
    case "$*" in
    --list) printf '%s\n' "${names[@]}" | sort -u; exit ;;
    check | foreign) names=(); "groups_$1" ;;
    ci) names=(); groups_foreign; groups_ci ;; # emulation takes longest, so it begins first
    all) names=(); groups_check; groups_ci ;;
    *)
        names=("$@")
        for name in "$@"; do
            [ -n "${runs[$name]:-}" ] || { echo "check: no group '$name'; see scripts/check.sh --list" >&2; exit 2; }
        done
        ;;
    esac
}

# ---- Building --------------------------------------------------------------------------------------------------------

# What is not installed is one skip for the group; false then.
is_possible() {
    local group=$1 need missing=""
    for need in ${needs[$group]}; do
        installed "$need" || missing+=" $need"
    done
    : >"$logs/$group.log"
    [ -n "$missing" ] || return 0
    absent "${missing# } not installed" >"$logs/$group.log"
    report "$group" 0.0
    return 1
}

# show_building STEPS: reads what make prints while it takes so many steps, and says from time to time how far it is.
show_building() {
    local steps=$1 taken=0 due=$((SECONDS + every)) kind file last=""
    while read -r -t "$every" kind file || [ $? -gt 128 ]; do # above 128: nothing came in time, and both are empty
        [[ $kind != @(CC|CXX|NVCC|AR|LD|MPI) ]] || { taken=$((taken + 1)) last=$file; }
        [ "$SECONDS" -ge "$due" ] || continue
        echo "      building, $((100 * taken / (steps > taken ? steps : taken + 1))) %: $last"
        due=$((SECONDS + every))
    done
}

# build TARGET...: all at once, and as much as can be built.
build() {
    local steps
    steps=$($MAKE --no-print-directory -n "$@" 2>/dev/null | grep -c "^printf '%-4s")
    [ "$steps" -eq 0 ] || echo "building what the tests need: $steps steps"
    $MAKE --no-print-directory -k "$@" 2>&1 | tee "$logs/build.log" | show_building "$steps"
    return "${PIPESTATUS[0]}"
}

# builds_alone GROUP: after something could not be built. Is it of this group?
builds_alone() {
    local group=$1
    [ -n "${builds[$group]}" ] || return 0
    $MAKE --no-print-directory -s ${builds[$group]} >"$logs/$group.log" 2>&1 && return 0
    echo "0 1 0" >"$logs/$group.counts"
    echo "FAIL $group: does not build" >>"$logs/$group.log"
    report "$group" 0.0
    return 1
}

# ---- All of them -----------------------------------------------------------------------------------------------------

# await NUMBER: until fewer than that many groups run. Says from time to time what is running.
await() {
    local running
    while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do
        sleep 0.2
        [ "$SECONDS" -ge "$due" ] || continue
        running=$(cat "$logs"/*.now 2>/dev/null | paste -sd, | sed 's/,/, /g')
        [ -z "$running" ] || echo "      after $SECONDS s, running: $running"
        due=$((SECONDS + every))
    done
}

choose "$@"
mkdir -p "$logs"
rm -f "$logs"/*.now
start=$EPOCHREALTIME
counts=("${names[@]/%/.counts}")
skips=("${names[@]/%/.skips}")
(cd "$logs" && rm -f "${counts[@]}" && : | tee "${skips[@]}")
ready=()
for name in "${names[@]}"; do
    is_possible "$name" && ready+=("$name")
done
mapfile -t targets < <(for name in ${ready[@]+"${ready[@]}"}; do printf '%s\n' ${builds[$name]}; done | grep . | sort -u)
if [ ${#targets[@]} -gt 0 ] && ! build "${targets[@]}"; then
    possible=(${ready[@]+"${ready[@]}"}) ready=()
    for name in "${possible[@]}"; do
        builds_alone "$name" && ready+=("$name")
    done
fi
echo "built in $(seconds_since "$start") s; testing ${#ready[@]} groups, $(nproc) at a time"
due=$((SECONDS + every))
for name in ${ready[@]+"${ready[@]}"}; do
    await "$(nproc)"
    run "$name" &
    due=$((SECONDS + every))
done
await 1
wait

for name in "${names[@]}"; do
    [ "$(sum "$logs/$name.counts" | cut -d' ' -f2)" -eq 0 ] || show_failure "$logs/$name.log"
done
read -r passed failed skipped < <(cd "$logs" && sum "${counts[@]}")
if [ "$skipped" -gt 0 ]; then
    printf '\nskipped:\n'
    (cd "$logs" && sed 's/^/  /' "${skips[@]}")
    unready=$(cd "$logs" && cat "${skips[@]}" | grep -c 'not installed')
    if [ "${CI:-}" = true ] && [ "$unready" -gt 0 ]; then
        echo "CI=true: $unready of these count as failed, because something is not installed"
        failed=$((failed + unready)) skipped=$((skipped - unready))
    fi
fi
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
