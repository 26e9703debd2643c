# Sourced: hosts made of network namespaces of this machine, each with a name and an address of its own, joined by a bridge; and MPI's
# launchers over them. Needs root; nothing outside the namespaces is touched.
# shellcheck shell=bash
hosts_id=tg$$
hosts_network=10.77.0
hosts_map=node hosts_btl=tcp,self # OpenMPI: ranks go round the hosts, and use the network only; or `slot`: they fill one after the other
hosts_limit=0 # seconds for what a launcher runs; 0: as long as it takes
hosts_up=()

# Why there can be no hosts here, or nothing.
hosts_obstacle() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "network namespaces need root"
    elif ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
        echo "ip and tc are not installed (Debian: iproute2)"
    fi
}

# hosts_build COUNT [RATE]: n0, n1, ...; with links of that rate, say 10gbit.
hosts_build() {
    local i shape=(tbf rate "${2:-}" burst 512kb latency 20ms)
    hosts_up+=(br)
    ip netns add "$hosts_id-br" || return 1
    ip -n "$hosts_id-br" link add br0 type bridge || return 1
    ip -n "$hosts_id-br" link set br0 up
    for ((i = 0; i < $1; i++)); do
        hosts_up+=("n$i")
        ip netns add "$hosts_id-n$i" || return 1
        ip -n "$hosts_id-br" link add "p$i" type veth peer name eth0 netns "$hosts_id-n$i" || return 1
        ip -n "$hosts_id-br" link set "p$i" master br0 up
        ip -n "$hosts_id-n$i" link set lo up
        ip -n "$hosts_id-n$i" addr add "$hosts_network.$((i + 1))/24" dev eth0
        ip -n "$hosts_id-n$i" link set eth0 up
        [ -n "${2:-}" ] || continue
        ip netns exec "$hosts_id-n$i" tc qdisc add dev eth0 root "${shape[@]}" || return 1
        ip netns exec "$hosts_id-br" tc qdisc add dev "p$i" root "${shape[@]}" || return 1
    done
}

# hosts_sent HOST: bytes that it has sent over its link, packets' headers included.
hosts_sent() {
    ip -n "$hosts_id-$1" -s link show eth0 | awk 'sent { print $1; exit } /TX:/ { sent = 1 }'
}

# hosts_processes: what runs on them.
hosts_processes() {
    local host
    for host in ${hosts_up[@]+"${hosts_up[@]}"}; do
        ip netns pids "$hosts_id-$host" 2>/dev/null
    done
}

hosts_take_down() {
    local host process
    for process in $(hosts_processes); do
        kill -KILL "$process" 2>/dev/null
    done
    for host in ${hosts_up[@]+"${hosts_up[@]}"}; do
        ip netns del "$hosts_id-$host" 2>/dev/null
    done
    hosts_up=()
}

# hosts_agent FILE: makes the command that takes the place of ssh, `FILE ADDRESS COMMAND...`, for launchers to start their daemons with.
hosts_agent() {
    cat >"$1" <<AGENT
#!/bin/sh
host=n\$((\${1##*.} - 1))
shift
exec ip netns exec $hosts_id-\$host unshare -u sh -c "hostname \$host; \$*"
AGENT
    chmod +x "$1"
}

# hosts_list COUNT [SUFFIX]: addresses, with commas.
hosts_list() {
    local i list=""
    for ((i = 1; i <= $1; i++)); do
        list+=${list:+,}$hosts_network.$i${2:-}
    done
    echo "$list"
}

# hosts_on_first COMMAND...: as if typed on n0
hosts_on_first() {
    timeout --foreground --kill-after=5 "$hosts_limit" ip netns exec "$hosts_id-n0" unshare -u sh -c 'hostname n0; exec "$@"' sh "$@" </dev/null
}

# hosts_openmpi AGENT COUNT SLOTS ARGUMENT...: OpenMPI's launcher over the first hosts, with so many ranks on each.
hosts_openmpi() {
    local agent=$1 count=$2 slots=$3
    shift 3
    hosts_on_first env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$(command -v mpirun.openmpi || command -v mpirun)" \
        -n $((count * slots)) --host "$(hosts_list "$count" ":$slots")" --map-by "$hosts_map" --bind-to none --mca plm_rsh_agent "$agent" \
        --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include $hosts_network.0/24 --mca pml ob1 --mca btl "$hosts_btl" \
        --mca btl_tcp_if_include $hosts_network.0/24 --mca mpi_yield_when_idle 1 "$@"
}

# hosts_mpich AGENT COUNT SLOTS ARGUMENT...: MPICH's. Its ranks would find that they are on one machine, and not use the network at all.
hosts_mpich() {
    local agent=$1 count=$2 slots=$3
    shift 3
    hosts_on_first env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 "$(command -v mpirun.mpich || command -v mpirun)" -n $((count * slots)) \
        -hosts "$(hosts_list "$count")" -ppn 1 -launcher rsh -launcher-exec "$agent" -iface eth0 "$@"
}
