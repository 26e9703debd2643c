#!/usr/bin/env bash
# A run that is killed again and again, at random moments, ends with the weights of one that was left alone.
# usage: tests/kill.sh COMMAND [KILLS]
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
command=$PWD/$1
kills=${2:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
RANDOM=${KILL_SEED:-1}

steps=2000
arguments=(train --data "synthetic:rows=4000,test=100,features=40,classes=5" --model "mlp:64,32" --workers 3 --momentum 0.9
    --codec qsgd:levels=3 --codec gaussiank:density=0.02 --json)
hashes() {
    sed -n 's/.*"weights_hash": "\(.*\)".*/\1/p'
}
whole=$("$command" "${arguments[@]}" --steps $steps 2>log | hashes)
expect "the run that is left alone" test "$(wc -w <<<"$whole")" -eq 2

# checkpoints_pass PROCESS NUMBER: until it has been seen to replace its checkpoint that often; false if it ends before.
checkpoints_pass() {
    local number=$2 seen now
    seen=$(stat -c %i run.ckpt 2>/dev/null)
    while [ "$number" -gt 0 ]; do
        kill -0 "$1" 2>/dev/null || return 1
        now=$(stat -c %i run.ckpt 2>/dev/null)
        [ "$now" = "$seen" ] || number=$((number - 1))
        seen=$now
    done
}

# What it is killed after is counted in checkpoints, not in seconds, so it does not matter how fast the machine is; the few milliseconds more
# are any moment between two of them, also while one is written.
killed=0 rounds=0 resumed=0
while [ "$killed" -lt "$kills" ] && [ "$rounds" -lt $((20 * kills)) ]; do
    rounds=$((rounds + 1))
    resume=()
    [ ! -e run.ckpt ] || { resume=(--resume run.ckpt) resumed=$((resumed + 1)); }
    "$command" "${arguments[@]}" --steps $steps --checkpoint run.ckpt --every 3 "${resume[@]}" >out 2>log &
    running=$!
    checkpoints_pass $running $((1 + RANDOM % 12))
    sleep "0.0$((RANDOM % 30 + 10))"
    if kill -KILL $running 2>/dev/null; then
        wait $running 2>/dev/null
        killed=$((killed + 1))
    else
        wait $running # it was through: the next one starts again
        expect "round $rounds, which came to its end" test "$(hashes <out)" = "$whole"
        rm -f run.ckpt
    fi
done
expect "most kills found a checkpoint ($resumed of $rounds)" test "$((2 * resumed))" -ge "$killed"
expect "$kills kills" test "$killed" -eq "$kills"
# The last one is told nothing else, and saves to the same file.
if [ -e run.ckpt ]; then
    cp run.ckpt killed.ckpt
    ended=$("$command" train --resume run.ckpt --json 2>log | hashes)
    expect "a checkpoint knows everything that it was made with" test "$(wc -c <run.ckpt)" -ge "$(wc -c <killed.ckpt)"
else
    ended=$("$command" "${arguments[@]}" --steps $steps --checkpoint run.ckpt 2>log | hashes)
fi
expect "after $killed kills, the weights of the undisturbed run" test "$ended" = "$whole"
finish
