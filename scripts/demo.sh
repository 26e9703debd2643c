#!/usr/bin/env bash
# Compresses one gradient in several ways and shows what each costs and loses: scripts/demo.sh COMMAND
set -eu
cd "$(dirname "$0")/.."
command=$1
count=4000000
work=build/demo
mkdir -p "$work"
build/gradient "$count" "$work/gradient.npy"

# show COMMAND...: the command line as one would type it, then what it prints.
show() {
    printf '\n$ %s\n' "${*/#$command/tersegrad}" | fold -s -w 110
    "$@"
}

echo "A gradient of $count float32, $(stat -c %s "$work/gradient.npy") bytes: layers of different scale, a part of it zero."
show "$command" encode qsgd:levels=7,bucket=512 "$work/gradient.npy" "$work/gradient.tg"
show "$command" inspect "$work/gradient.tg"
show "$command" decode "$work/gradient.tg" "$work/restored.npy"
show "$command" bench -n "$count" --distribution "$work/gradient.npy" --codec fp16 --codec qsgd:levels=127 \
    --codec qsgd:levels=7 --codec qsgd:levels=7,coding=entropy --codec terngrad --codec onebit \
    --codec topk:density=0.01 --codec topk:density=0.001
