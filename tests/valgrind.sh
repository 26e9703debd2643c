#!/usr/bin/env bash
# A small vector through every codec of the command under valgrind: nothing uninitialised reaches a frame, nothing leaks.
# usage: tests/valgrind.sh COMMAND
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
command=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check=(valgrind -q --error-exitcode=99 --leak-check=full '--errors-for-leak-kinds=definite,possible')

build/gradient 3000 "$work/in.npy" || fail "build/gradient"
for codec in $("$command" codecs --names); do
    expect "encode $codec" "${check[@]}" "$command" encode "$codec" "$work/in.npy" "$work/$codec.tg"
    expect "decode $codec" "${check[@]}" "$command" decode "$work/$codec.tg" "$work/$codec.npy"
    expect "inspect $codec" "${check[@]}" "$command" inspect "$work/$codec.tg"
done
expect "train" "${check[@]}" "$command" train --data synthetic:rows=50,test=10,features=5,classes=3 --model mlp:4 --workers 2 --steps 3 \
    --codec qsgd --codec topk:density=0.1 --report "$work/report.html" --log "$work/log.jsonl"
finish
