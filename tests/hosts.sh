#!/usr/bin/env bash
# `tersegrad train` over several hosts, which are network namespaces with names of their own, with every MPI that is here: whoever dies, on
# whatever host, is named with it, and so is a host that vanishes or falls silent; the job ends with a failure, and nothing stays behind. Needs
# root. usage: tests/hosts.sh COMMAND
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/report.sh
. tests/ranks.sh
. scripts/hosts.sh
command=$PWD/${1:-build/tersegrad}
work=$(mktemp -d)
trap 'wait; hosts_take_down; rm -rf "$work"' EXIT
hosts=3 slots=2 # ranks go round the hosts: 0 and 3 are on n0
hosts_limit=60
small=(--data "synthetic:rows=2000,test=200,features=20,classes=4" --model "mlp:16" --steps 100000000 --codec qsgd)
job=0

# begin MPI [ARGUMENT...]: a job without an end, as $launched, with $log and $err
begin() {
    job=$((job + 1))
    log=$work/$job.jsonl err=$work/$job.err
    "hosts_$1" "$work/agent" $hosts $slots "$command" train "${small[@]}" --log "$log" "${@:2}" >"$work/out" 2>"$err" &
    launched=$!
    begun "$log" "$launched"
}

# ends NAME [START]: the job fails, soon after now or then.
ends() {
    local start=${2:-$SECONDS}
    wait $launched
    expect "$1: the job fails" test $? -ne 0
    expect "$1: within 30 seconds" test $((SECONDS - start)) -le 30
}

# says PATTERN: a line of the job's stderr, which is shown where it does not. What is said of a host may come when the launcher is gone.
says() {
    local i
    for ((i = 0; i < 80; i++)); do
        grep -E "$1" "$err" && return
        sleep 0.1
    done
    cat "$err"
    return 1
}

# blames COUNT: so many deaths and lost hosts are named. Ranks that cannot send any more may say so besides.
blames() {
    [ "$(grep -cE '^tersegrad train: (host|rank [0-9]+ \(process) ' "$err")" -eq "$1" ] || { cat "$err" && return 1; }
}

# blames_once: of a host at most one death is named, and no host is called lost
blames_once() {
    ! grep -E '^tersegrad train: host ' "$err" && [ -z "$(grep -oE ' on n[0-9]+\) is dead' "$err" | sort | uniq -d)" ]
}

# kill_at_once PROCESS...: before any rank can notice that another is gone
kill_at_once() {
    local rank all=()
    for ((rank = 0; rank < hosts * slots; rank++)); do
        all+=("$(process_of "$log" "$rank")")
    done
    kill -STOP "${all[@]}"
    kill -KILL "$@"
    kill -CONT "${all[@]}" 2>/dev/null
}

# dies MPI RANK...: killed at once. Of those on one host, one is named. MPICH's launcher ends at the first death that it hears of, and what another
# host says may come too late: of all killed, one is named for certain. It kills the others so soon that their host may name its first too.
dies() {
    local name="$1, ranks ${*:2}" rank host victims=() patterns=() pattern
    begin "$1"
    for rank in "${@:2}"; do
        victims+=("$(process_of "$log" "$rank")")
        host=$([ "$1" = mpich ] && echo 0 || echo $((rank % hosts)))
        patterns[host]+=${patterns[host]:+|}"rank $rank \(process ${victims[-1]} on n$((rank % hosts))\)"
    done
    kill_at_once "${victims[@]}"
    ends "$name"
    for pattern in "${patterns[@]}"; do
        expect "$name: it is named, and where it was" says "^tersegrad train: ($pattern) is dead, the first on that host; the job ends$"
    done
    if [ "$1" = mpich ]; then
        expect "$name: and no other on that host" blames_once
    else
        expect "$name: and no other" blames ${#patterns[@]}
    fi
}

# vanishes MPI HOW: everything on a host dies, so that nobody there can say so: at once, or bit by bit, what watches the ranks later than they, when
# others have noticed. MPICH's launcher ends within milliseconds.
vanishes() {
    local name="$1, a host $2" watchers others
    begin "$1"
    sleep 1 # the hosts have heard each other
    mapfile -t watchers < <([ "$2" = "at once" ] || pgrep -P "$(process_of "$log" 1),$(process_of "$log" 4)")
    mapfile -t others < <(ip netns pids "$hosts_id-n1" | grep -vxF "$(printf '%s\n' "${watchers[@]}")")
    kill -STOP "${others[@]}"
    kill -KILL "${others[@]}"
    [ "$2" = "at once" ] || { sleep 0.3 && kill -KILL "${watchers[@]}"; }
    ends "$name"
    expect "$name: it is named" says '^tersegrad train: host n1 \(ranks 1 and 4\) does not answer any more; the job ends$'
}

# ends_well MPI: nobody has anything to say, and nobody stays to say it. MPICH before 4.2 often hangs in MPI_Finalize over TCP, and when its ranks
# leave it all the same, its launcher may call that a failure: it is only asked to end, and the job to have its results.
ends_well() {
    local status
    begin "$1" --steps 300
    wait $launched
    status=$?
    if [ "$1" = mpich ]; then
        expect "$1: a job ends" test $status -ne 124
        expect "$1: with its results" says 'after 300 steps'
    else
        expect "$1: a job ends well" test $status -eq 0
    fi
    expect "$1: in silence" blames 0
    expect "$1: and leaves nothing behind" nothing_left 2
}

# fall_silent NUMBER SENTENCE: the link of a host is cut under a job of each MPI. The host with the launcher is n0. Those on the other side of
# the cut end as well.
fall_silent() {
    local host=n$1 mpi start logs=() jobs=()
    for mpi in "${mpis[@]}"; do
        begin "$mpi"
        logs+=("$err") jobs+=("$launched")
    done
    sleep 2 # the hosts have heard each other
    ip -n "$hosts_id-br" link set "p$1" down
    start=$SECONDS
    for mpi in "${!mpis[@]}"; do
        err=${logs[mpi]} launched=${jobs[mpi]}
        ends "${mpis[mpi]}, $host falls silent" $start
        expect "${mpis[mpi]}, $host falls silent: it is named" says "^tersegrad train: $2; the job ends$"
        expect "${mpis[mpi]}, $host falls silent: and no other" blames 1
    done
    expect "$host falls silent: nothing stays behind on any host" nothing_left $((30 - SECONDS + start))
    ip -n "$hosts_id-br" link set "p$1" up
}

# gets_on: the job's log grows, soon; where processors are busy with other things a step may take a while
gets_on() {
    local size try
    size=$(wc -c <"$log")
    for ((try = 0; try < 100; try++)); do
        sleep 0.1
        [ "$(wc -c <"$log")" -eq "$size" ] || return 0
    done
    return 1
}

# babble NUMBER: packets of many sizes to all ports of a host, and one that is right but for the job's secret: n0 says that n2 is lost
babble() {
    local port size sent=0
    { head -c 16 /dev/urandom && printf '\4\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0'; } >"$work/forged"
    for port in $(ip netns exec "$hosts_id-n$1" ss -Hunl | awk '{ sub(".*:", "", $4); print $4 }' | sort -u); do
        for size in 1 31 32 33 1400; do
            head -c $size /dev/urandom >"$work/$size"
        done
        for size in 1 31 32 33 1400 forged; do
            ip netns exec "$hosts_id-n0" bash -c "cat '$work/$size' >/dev/udp/$hosts_network.$(($1 + 1))/$port" && sent=$((sent + 1))
        done
    done
    [ $sent -gt 0 ]
}

# is_undisturbed MPI: by what others send to its ports, and by a firewall that is put up while it runs
is_undisturbed() {
    local i
    begin "$1"
    sleep 2 # the hosts have heard each other
    expect "$1: others can send to it" babble 1
    sleep 2
    expect "$1: it does not matter what" gets_on
    for ((i = 0; i < hosts; i++)); do
        ip -n "$hosts_id-n$i" rule add ipproto udp blackhole
    done
    sleep 14
    expect "$1: it gets on when packets are forbidden" gets_on
    is_told_to_end "$1, packets forbidden"
    for ((i = 0; i < hosts; i++)); do
        ip -n "$hosts_id-n$i" rule del ipproto udp blackhole
    done
}

# is_told_to_end NAME: the launcher gets a signal. Nobody is blamed for that.
is_told_to_end() {
    local process
    for process in $(ip netns pids "$hosts_id-n0"); do
        [[ $(cat "/proc/$process/comm" 2>/dev/null) != mpirun* ]] || kill -TERM "$process"
    done
    ends "$1, told to end"
    sleep 2 # when somebody would have been asked and not answered
    expect "$1, told to end: and no host is blamed" blames 0
}

# aside NAME COMMAND...: at the same time as others, on hosts of its own. What it prints and counts is in $work/NAME.
aside() {
    mkdir "$work/$1"
    (
        passed=0 failed=0 skipped=0
        work=$work/$1 hosts_id=$hosts_id$1 hosts_up=()
        trap hosts_take_down EXIT
        hosts_build $hosts
        hosts_agent "$work/agent"
        "${@:2}"
        expect "$1: nothing stays behind" nothing_left 6
        echo "$passed $failed $skipped" >"$work/counts"
    ) >"$work/$1/out" 2>&1 &
}

# gather NAME...: waits for them, and adds theirs to what was counted
gather() {
    local name counts
    wait
    for name in "$@"; do
        cat "$work/$name/out"
        read -ra counts <"$work/$name/counts" || counts=(0 1 0)
        passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
    done
}

# nothing_left SECONDS: within these
nothing_left() {
    local i
    for ((i = 0; i < 10 * $1; i++)); do
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
mpis=()
for mpi in openmpi mpich; do
    if [ -n "$obstacle" ]; then
        skip "$mpi over several hosts: $obstacle"
        continue
    elif ! command -v mpirun.$mpi >/dev/null || [ ! -e "$(dirname "$command")/mpi-$mpi.so" ]; then
        skip "mpirun.$mpi not installed"
        continue
    fi
    mpis+=("$mpi")
    ends_well $mpi
    dies $mpi 1
    dies $mpi 0
    dies $mpi 1 2
    dies $mpi 1 4
    vanishes $mpi "at once"
    hosts_take_down
    hosts_build $hosts
    vanishes $mpi "bit by bit"
    expect "$mpi: nothing stays behind" nothing_left 6
    begin $mpi
    sleep 1
    is_told_to_end $mpi
done
if [ ${#mpis[@]} -gt 0 ]; then
    aside cut fall_silent 1 'host n1 \(ranks 1 and 4\) has fallen silent'
    aside first fall_silent 0 'host n0 \(ranks 0 and 3\) hears from no other host any more'
    aside still is_undisturbed "${mpis[0]}"
    gather cut first still
fi
finish
