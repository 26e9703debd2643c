# For the scripts of tests/cli: `. "$TOOLS/lib.sh"`.

# Shows the command, runs it, and tells its exit code unless that is 0.
try() {
    echo "\$ $*"
    "$@"
    code=$?
    [ "$code" -eq 0 ] || echo "-> $code"
}

# The same for a line of shell: try_line 'tersegrad encode ... | ...'
try_line() {
    echo "\$ $1"
    sh -c "$1"
    code=$?
    [ "$code" -eq 0 ] || echo "-> $code"
}

npy() {
    python3 "$TOOLS/npy.py" "$@"
}

# A vector of COUNT floats that look a little like a gradient: sample OUT.npy COUNT
sample() {
    python3 "$TOOLS/npy.py" sample "$@"
}

# Reads JSON from stdin, checks that it is one document, and prints the value of a Python expression over it (`j`).
json() {
    python3 -c 'import json, sys; j = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"
}
