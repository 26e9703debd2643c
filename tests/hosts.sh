#!/usr/bin/env bash
# `tersegrad train` over several hosts, which are network namespaces with names of their own, with every MPI that is here: a job ends well; a
# rank that is killed, and a host that vanishes, end it with a failure; a host that falls silent ends every rank, and the ranks that do not
# answer are named; with a launcher that looks after its connections it ends the whole job. And a probe times two levels. Needs root. usage: tests/hosts.sh COMMAND
#
# Launchers and ranks are waited for as long as it takes, so that a busy machine only makes this slower: $hosts_limit is there for what hangs.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
. tests/ranks.sh
. scripts/hosts.sh
command=$PWD/${1:-build/tersegrad}
work=$(mktemp -d)
trap 'hosts_take_down; rm -rf "$work"' EXIT
hosts=3 slots=2 # ranks go round the hosts: 0 and 3 are on n0, 1 and 4 on n1
hosts_limit=$patience
small=(--data "synthetic:rows=2000,test=200,features=20,classes=4" --model "mlp:16" --codec qsgd)
forever=(--steps 100000000)
settings=() # of the launcher, in its environment
job=0

# begin MPI [ARGUMENT...]: a job, as $launched, with $log and $err
begin() {
    job=$((job + 1))
    log=$work/$job.jsonl err=$work/$job.err
    (
        [ ${#settings[@]} -eq 0 ] || export "${settings[@]}"
        "hosts_$1" "$work/agent" $hosts $slots "$command" train "${small[@]}" --log "$log" "${@:2}" >"$work/out" 2>"$err"
    ) &
    launched=$!
    begun "$log" "$launched"
}

# fails NAME: the job, by itself; how long that took is shown
fails() {
    local start=$SECONDS status
    wait $launched
    status=$?
    expect "$1: the job fails ($((SECONDS - start)) s)" test $status -ne 0 -a $((SECONDS - start)) -lt $hosts_limit
}

# ranks_of HOST: their processes there
ranks_of() {
    local process
    for process in $(ip netns pids "$hosts_id-$1"); do
        [ "$(cat "/proc/$process/comm" 2>/dev/null)" != tersegrad ] || echo "$process"
    done
}

# ranks_end: on all hosts
ranks_end() {
    local i host
    for ((i = 0; i < 10 * hosts_limit; i++)); do
        host=$(for host in n0 n1 n2; do ranks_of $host; done)
        [ -n "$host" ] || return 0
        sleep 0.1
    done
    return 1
}

# says PATTERN: a line of the job's stderr, which is shown where it does not
says() {
    grep -qE "$1" "$err" || { cat "$err" && return 1; }
}

# ends_well MPI. MPICH before 4.2 often hangs in MPI_Finalize over TCP, and when its ranks leave it all the same, its launcher may call that a
# failure: the job is only asked to end, and to have its results.
ends_well() {
    local status
    begin "$1" --steps 300
    wait $launched
    status=$?
    [ "$1" = mpich ] || expect "$1: a job ends well" test $status -eq 0
    expect "$1: with its results" says 'after 300 steps'
    expect "$1: in two levels, by itself" says '^two levels: 3 hosts of 2 ranks$'
}

# dies MPI RANK: killed
dies() {
    begin "$1" "${forever[@]}"
    kill -KILL "$(process_of "$log" "$2")"
    fails "$1, rank $2 is killed"
    expect "$1, rank $2 is killed: no rank is left" ranks_end
}

# vanishes MPI: everything on a host is killed, the launcher's daemon first
vanishes() {
    local all
    begin "$1" "${forever[@]}"
    mapfile -t all < <(ip netns pids "$hosts_id-n1")
    kill -STOP "${all[@]}"
    kill -KILL "${all[@]}"
    fails "$1, a host vanishes"
    expect "$1, a host vanishes: no rank is left" ranks_end
}

# falls_silent MPI: the link of n1 is cut. The ranks there end as well, without a launcher that could tell them to. A message that had come
# before the cut makes its rank one that has answered, so one of the two is named for certain. OpenMPI's launcher waits for its daemon on the
# other side until the kernel gives the connection up: after 25 seconds here, by default after 15 minutes. MPICH's waits until
# the link is back.
falls_silent() {
    ip netns exec "$hosts_id-n0" sysctl -qw net.ipv4.tcp_retries2=6
    begin "$1" "${forever[@]}" --timeout 10
    ip -n "$hosts_id-br" link set p1 down
    expect "$1, a host falls silent: every rank ends" ranks_end
    expect "$1, a host falls silent: who did not answer is named" says \
        '^tersegrad train: rank [0235]: ranks? (.*\b)?[14]\b.* did not answer rank [0235] within 10 s$'
    [ "$1" = openmpi ] || ip -n "$hosts_id-br" link set p1 up
    fails "$1, a host falls silent"
    ip -n "$hosts_id-br" link set p1 up
}

# ends_all MPI: the same with launchers whose connections notice within seconds that nobody answers, as docs/results.md recommends: the job ends
# before the ranks' own time-out, while the link is cut. OpenMPI has settings for it, MPICH needs a library around it.
ends_all() {
    if [ "$1" = openmpi ]; then
        settings=(OMPI_MCA_oob_tcp_keepalive_time=3 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3)
    elif [ -e /usr/lib/libkeepalive.so ]; then
        settings=(LD_PRELOAD=/usr/lib/libkeepalive.so KEEPIDLE=3 KEEPINTVL=1 KEEPCNT=3)
    else
        skip "$1, a host falls silent and the launcher notices: libkeepalive0 not installed"
        return
    fi
    begin "$1" "${forever[@]}" --timeout 0
    ip -n "$hosts_id-br" link set p1 down
    fails "$1, a host falls silent and the launcher notices"
    expect "$1, a host falls silent and the launcher notices: no rank is left" ranks_end
    ip -n "$hosts_id-br" link set p1 up
    settings=()
}

# probes MPI: reductions are timed in two levels, too
probes() {
    "hosts_$1" "$work/agent" $hosts $slots "$command" plan --probe "$work/$1.json" --seconds 1 --codec qsgd >"$work/out" 2>&1 || cat "$work/out"
    expect "$1, a probe: of hosts of $slots ranks" grep -q "\"per_node\": $slots" "$work/$1.json"
    expect "$1, a probe: in two levels, by each algorithm" test "$(grep -c '"two_levels"' "$work/$1.json")" -eq 2
}

obstacle=$(hosts_obstacle)
if [ -z "$obstacle" ] && ! hosts_build $hosts 2>"$work/err"; then
    obstacle="network namespaces cannot be made here: $(head -n 1 "$work/err")"
fi
hosts_agent "$work/agent"
for mpi in openmpi mpich; do
    if [ -n "$obstacle" ]; then
        skip "$mpi over several hosts: $obstacle"
    elif ! command -v mpirun.$mpi >/dev/null || [ ! -e "$(dirname "$command")/mpi-$mpi.so" ]; then
        skip "mpirun.$mpi not installed"
    else
        ends_well $mpi
        probes $mpi
        dies $mpi 1
        dies $mpi 0
        vanishes $mpi
        hosts_take_down
        hosts_build $hosts
        falls_silent $mpi
        hosts_take_down
        hosts_build $hosts
        ends_all $mpi
        hosts_take_down
        hosts_build $hosts
    fi
done
finish
