# Sourced by the test scripts: counts, says what failed, and ends with the closing line that scripts/check.sh reads.
# shellcheck shell=bash disable=SC2034
passed=0 failed=0 skipped=0
patience=1800 # seconds after which something hangs, however busy the machine is

pass() {
    passed=$((passed + 1))
    echo "ok   $*"
}
fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
}
skip() {
    skipped=$((skipped + 1))
    echo "skip: $*"
}

# expect NAME COMMAND...: the command must succeed; what it printed is shown where it does not.
expect() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        pass "$name"
    else
        fail "$name: $*"
        printf '%s\n' "$output"
    fi
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
