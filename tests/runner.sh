#!/usr/bin/env bash
# The runner itself: a report that it cannot read, a crash, a hang or a nameless skip must not look like success, and
# whatever takes long is seen to get on.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh

# reads NAME TEXT NUMBERS: what scripts/tally.awk makes of a program's output.
reads() {
    expect "$1" test "$(printf '%b' "$2" | awk -f scripts/tally.awk)" = "$3"
}
reads "our closing line" 'ok   1\n12 passed, 1 failed, 0 skipped\n' '12 1 0 0'
reads "a skip with its reason" 'skip: no such thing\n0 passed, 0 failed, 1 skipped\n' '0 0 1 1'
reads "cmocka" '[  PASSED  ] 3 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] a\n' '3 0 1 0'
reads "cmocka, failing" '[  PASSED  ] 3 test(s).\n[  FAILED  ] 2 test(s), listed below:\n[  FAILED  ] a\n' '3 2 0 0'
reads "pytest" '=== 2 failed, 7 passed, 1 skipped in 0.12s ===\n' '7 2 1 0'
reads "pytest, quiet, with an error" '7 passed, 1 error in 61.20s (0:01:01)\n' '7 1 0 0'
reads "nothing" 'all is well\n' '0 0 0 0'

# ---- scripts/check.sh in a tree of its own, where make and the tests do what they are told ----
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/tests/laws" "$tree/tests/golden"
cp scripts/check.sh scripts/tally.awk "$tree/scripts/"
: >"$tree/tests/laws/none.c"
cat >"$tree/Makefile" <<'MAKEFILE'
say = @printf '%-4s %s\n' '$1' '$2'
all:
	$(call say,CC,quick.o)
release:
	$(call say,CC,slow.o)
	@sleep $(SLEEP)
	@test -z '$(BROKEN)'
MAKEFILE

# told SCRIPT TEXT: what a test of that tree does
told() {
    printf '#!/bin/sh\n%s\n' "$2" >"$tree/tests/$1"
    chmod +x "$tree/tests/$1"
}
# check_there SETTING... -- GROUP...: its exit status and what it says
check_there() {
    local settings=()
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    env -u CI -u LAWS -u MAKEFLAGS -u MAKELEVEL MAKE=make SLEEP=0 BROKEN= "${settings[@]}" "$tree/scripts/check.sh" "$@" 2>&1
    echo "status $?"
}
# says NAME PATTERN COMMAND...: one of the lines it prints
says() {
    local name=$1 pattern=$2
    shift 2
    expect "$name" sh -c 'printf "%s\n" "$1" | tee /dev/stderr | grep -qE "$2"' - "$("$@")" "$pattern"
}
sound='echo "2 passed, 0 failed, 0 skipped"'
told layering.sh "$sound"
told golden/run.sh "$sound"
says "a test that passes" '^2 passed, 0 failed, 0 skipped$' check_there -- layering
says "is a success" '^status 0$' check_there -- layering
told layering.sh 'kill -SEGV $$'
says "a crash fails" '^0 passed, 1 failed, 0 skipped$' check_there -- layering
told layering.sh 'echo fine'
says "so does a test that counts nothing" '^FAIL layering|it did not say how many' check_there -- layering
told layering.sh 'echo "1 passed, 0 failed, 1 skipped"'
says "and a skip without a reason" 'it skipped tests without a reason' check_there -- layering
told layering.sh 'sleep 100'
says "a hang is ended" 'it hangs, and was ended after 1 s' check_there CHECK_LIMIT=1 -- layering
says "and fails" '^status 1$' check_there CHECK_LIMIT=1 -- layering
told layering.sh 'sleep 3; echo "1 passed, 0 failed, 0 skipped"'
says "a long test is seen to run" '^ *after [0-9]+ s, running: layering: tests/layering.sh' check_there CHECK_PROGRESS=1 -- layering
says "a long build is seen to get on" '^ *building, [0-9]+ %: slow.o' check_there CHECK_PROGRESS=1 SLEEP=3 -- golden
says "also beside a group that builds nothing" '^ *building, [0-9]+ %: slow.o' check_there CHECK_PROGRESS=1 SLEEP=3 -- golden layering
told layering.sh 'echo "skip: wings are not installed"; echo "0 passed, 0 failed, 1 skipped"'
says "what is not installed is skipped" '^0 passed, 0 failed, 1 skipped$' check_there -- layering
says "and with CI=true a failure" '^0 passed, 1 failed, 0 skipped$' check_there CI=true -- layering
told layering.sh "$sound"
told symbols.sh "$sound"
says "what does not build is named" '^FAIL +golden' check_there BROKEN=1 -- golden symbols layering
says "and the rest is run" '^4 passed, 1 failed, 0 skipped$' check_there BROKEN=1 -- golden symbols layering
says "a group that is not there is an error" "no group 'lawyers'" check_there -- lawyers
finish
