#!/usr/bin/env bash
# `tersegrad train` over several hosts, which are network namespaces with names of their own, with every MPI that is here: whoever dies, on
# whatever host, is named with it, the job ends with a failure, and nothing stays behind. Needs root. usage: tests/hosts.sh COMMAND
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
. tests/ranks.sh
. scripts/hosts.sh
command=$PWD/${1:-build/tersegrad}
work=$(mktemp -d)
trap 'hosts_take_down; rm -rf "$work"' EXIT
hosts=3 slots=2 # ranks go round the hosts: 0 and 3 are on n0
hosts_limit=60
small=(--data "synthetic:rows=2000,test=200,features=20,classes=4" --model "mlp:16" --steps 100000000 --codec qsgd)
job=0

# begin MPI: a job without an end, as $launched
begin() {
    job=$((job + 1))
    log=$work/$job.jsonl
    "hosts_$1" "$work/agent" $hosts $slots "$command" train "${small[@]}" --log "$log" >"$work/out" 2>"$work/err" &
    launched=$!
    begun "$log"
}

# ends NAME: the job fails, soon.
ends() {
    local start=$SECONDS
    wait $launched
    expect "$1: the job fails" test $? -ne 0
    expect "$1: within 30 seconds" test $((SECONDS - start)) -le 30
}

# says PATTERN: a line of the job's stderr, which is shown where it does not.
says() {
    grep -E "$1" "$work/err" || { cat "$work/err" && return 1; }
}

# dies MPI RANK...: killed at once. Of those on one host, one is named.
dies() {
    local name="$1, ranks ${*:2}" rank victims=() patterns=() one_of i
    begin "$1"
    for rank in "${@:2}"; do
        victims+=("$(process_of "$log" "$rank")")
        patterns[rank % hosts]+=${patterns[rank % hosts]:+|}"rank $rank \(process ${victims[-1]} on n$((rank % hosts))\)"
    done
    kill -KILL "${victims[@]}"
    ends "$name"
    for i in "${!patterns[@]}"; do
        one_of="^tersegrad train: (${patterns[i]}) is dead, the first on that host; the job ends$"
        expect "$name: it is named, and where it was" says "$one_of"
    done
    expect "$name: and no other" test "$(grep -c 'is dead' "$work/err")" -eq ${#patterns[@]}
}

# vanishes MPI: everything on a host dies, so that nobody there can say so. OpenMPI's launcher does; MPICH's only fails.
vanishes() {
    begin "$1"
    ip netns pids "$hosts_id-n1" | xargs kill -KILL
    ends "$1, a host"
    [ "$1" = mpich ] || expect "$1, a host: it is named" says "on node $hosts_network.2"
}

nothing_left() {
    local i
    for ((i = 0; i < 60; i++)); do
        [ -n "$(hosts_processes)" ] || return 0
        sleep 0.1
    done
    hosts_processes | xargs ps -o pid,args -p
    return 1
}

obstacle=$(hosts_obstacle)
if [ -z "$obstacle" ] && ! hosts_build $hosts 2>"$work/err"; then
    obstacle="network namespaces cannot be made here: $(head -n 1 "$work/err")"
fi
hosts_agent "$work/agent"
for mpi in openmpi mpich; do
    if [ -n "$obstacle" ]; then
        skip "$mpi over several hosts: $obstacle"
        continue
    elif ! command -v mpirun.$mpi >/dev/null || [ ! -e "$(dirname "$command")/mpi-$mpi.so" ]; then
        skip "mpirun.$mpi not installed"
        continue
    fi
    dies $mpi 1
    dies $mpi 0
    dies $mpi 1 2
    dies $mpi 1 4
    vanishes $mpi
    expect "$mpi: nothing stays behind" nothing_left
done
finish
